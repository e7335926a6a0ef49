"""`quvatlh retry`, `kill`, `delete`, `move`: what a person does to tasks, by id or by filter."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from quvatlh.cli.choosing import FAILED, Words, act, chooses_tasks, chosen, only_failed
from quvatlh.cli.names import completing
from quvatlh.cli.printing import count, time_text
from quvatlh.cli.session import Session, seconds, speaks_http
from quvatlh.cli.waiting import FINISHED
from quvatlh.client import Done

NONE = "none"
"""Takes a limit, an expiry or a `keep` away again."""

RETRY = Words(
    "retrying", "retried", "run them again", "neither failed nor wait to be retried, or are still ending", "failed task"
)
KILL = Words("killing", "killed", "stop them as failed", "do not run")
DELETE = Words("deleting", "deleted", "stop and delete them", "had succeeded, or were deleted before")
DELETE_FAILED = Words("deleting", "deleted", "delete them", DELETE.left, "failed task")
MOVE = Words("moving", "moved", "move them", "had finished, or may not be begun twice")
_WAITS = ("scheduled", "pending", "retrying")
CHANGE = Words("changing", "changed", "change them", "had finished")
CHANGE_FAILED = Words("changing", "changed", "change them", "have begun, or did not fail", "failed task")


RETRY_EPILOG = """\b
Examples:
  quvatlh retry ID
  quvatlh retry --failed                           every one that failed
  quvatlh retry --match queue=mail --match error=exit
  quvatlh retry --match finished_after=2h          those that failed within two hours
  quvatlh retry --failed --queue slowly            in another queue
  quvatlh retry --match state=retrying             at once, what waits for its next attempt
See them first: quvatlh ls --failed, quvatlh ls --failed --group-by error"""


@click.command(epilog=RETRY_EPILOG)
@chooses_tasks
@FAILED
@click.option("--queue", metavar="Q", shell_complete=completing("queues"), help="In this queue, instead of their own.")
@speaks_http
def retry(
    session: Session, ids: tuple[str, ...], *, pairs: tuple[str, ...], yes: bool, failed: bool, queue: str | None
) -> None:
    """Run failed tasks again, from their first attempt: those named, or all that failed and match every K=V. What waits for
    its next attempt, and is named or asked for by its state, makes it at once.
    """
    if pairs and not any(pair.startswith("state=") for pair in pairs):
        failed = True
    choice = chosen(session, ids, only_failed(ids, pairs, failed=failed), yes=yes, words=RETRY)
    act(session, "retry", choice, RETRY, queue=queue)


@click.command()
@chooses_tasks
@speaks_http
def kill(session: Session, ids: tuple[str, ...], *, pairs: tuple[str, ...], yes: bool) -> None:
    """Stop tasks: those named, or all that match every K=V. They have failed, and are not retried by themselves.

    An instance of a service is replaced by another; `delete` ends the service.
    """
    act(session, "kill", chosen(session, ids, pairs, yes=yes, words=KILL), KILL, tell=_killed)


def _killed(done: Done, states: Counter[str]) -> str:
    """What is over counts as done: it is as asked already. What waits is not killed."""
    over = sum(states[state] for state in FINISHED)
    killed, waits = max(0, done.done - over), done.matched - done.done
    said = [f"killed {count(killed, 'task')}" if killed else "nothing was killed"]
    if over:
        said.append(f"{over:,} had finished")
    if waits:
        said.append(f"{waits:,} {'does' if waits == 1 else 'do'} not run; what waits is given up by quvatlh delete")
    return "; ".join(said)


DELETE_EPILOG = """\b
Examples:
  quvatlh delete ID
  quvatlh delete --failed                          every one that failed
  quvatlh delete --failed --match queue=mail --match error=exit
  quvatlh delete --match queue=mail --match state=pending
What is over leaves the list at once by: quvatlh queue purge"""


@click.command(epilog=DELETE_EPILOG)
@chooses_tasks
@FAILED
@speaks_http
def delete(session: Session, ids: tuple[str, ...], *, pairs: tuple[str, ...], yes: bool, failed: bool) -> None:
    """Stop and delete tasks: those named, or all that match every K=V.

    What runs is stopped, what waits or has failed is given up; they are listed as deleted for a while. What has succeeded
    stays as it is.
    """
    words = DELETE_FAILED if failed else DELETE
    act(session, "delete", chosen(session, ids, only_failed(ids, pairs, failed=failed), yes=yes, words=words), words)


MOVE_EPILOG = """\b
Examples:
  quvatlh move ID                          away from the worker it is on
  quvatlh move --to gpu-2 ID               to this worker
  quvatlh move --queue night --match queue=mail --match state=pending
  quvatlh move --queue night --failed      where they run when they are retried
  quvatlh move --priority 9 --limit none ID"""


@click.command(epilog=MOVE_EPILOG)
@chooses_tasks
@FAILED
@click.option(
    "--to", metavar="WORKER", shell_complete=completing("workers"), help="To this worker; a job then goes to no other."
)
@click.option("--queue", metavar="Q", shell_complete=completing("queues"), help="Into this queue.")
@click.option("--priority", type=int, metavar="INT", help="Higher goes first.")
@click.option("--tag", "tags", multiple=True, metavar="T", help="Tags to ask for instead; none for no tags.")
@click.option("--at", metavar="TIME|D", help="Not before this time, or so long from now.")
@click.option("--expires", metavar="TIME|D", help="Fails when not started by then; none for never.")
@click.option("--limit", metavar="INT", help="At most so many of its name at once; none for no limit.")
@click.option("--keep", metavar="D", help="Listed so long once finished; none for what the queue says.")
@speaks_http
def move(
    session: Session,
    ids: tuple[str, ...],
    *,
    pairs: tuple[str, ...],
    yes: bool,
    failed: bool,
    to: str | None,
    **given: Any,
) -> None:
    """Move tasks to another worker, queue or place in the order: those named, or all that match every K=V.

    Without options, and with --to, what runs is stopped and begun anew elsewhere. The other options change tasks as they
    stand and stop nothing, but for a service's instances beyond a lower --limit. What has failed is changed, too: it runs
    so when it is retried.
    """
    changes = _changes(session, given)
    if failed and (to is not None or not changes):
        raise click.UsageError("what has failed is on no worker: say where it is to be retried, with --queue or --tag")
    change = CHANGE_FAILED if failed else CHANGE
    words = change if changes and to is None else MOVE
    choice = chosen(session, ids, only_failed(ids, pairs, failed=failed), yes=yes, words=words)
    if changes:
        act(session, "update", choice, change, changes=changes)
    if to is not None or not changes:
        act(session, "relocate", choice, MOVE, to=to, tell=lambda done, states: _moved(done, states, to))


def _moved(done: Done, states: Counter[str], to: str | None) -> str:
    """What waits is on no worker: it is only said where it may go."""
    waits = min(done.done, sum(states[state] for state in _WAITS))
    moved, left = done.done - waits, done.matched - done.done
    said = [f"moved {count(moved, 'task')}"] if moved or not waits else []
    if waits:
        it = "is on no worker, and starts" if waits == 1 else "are on no worker, and start"
        said.append(f"{count(waits, 'task')} {it} {'where there is room' if to is None else f'on {to}'}")
    if left:
        said.append(f"{left:,} {MOVE.left}")
    return "; ".join(said)


def _changes(session: Session, given: dict[str, Any]) -> dict[str, Any]:
    changes = {name: given[name] for name in ("queue", "priority") if given[name] is not None}
    if given["tags"]:
        changes["tags"] = [] if given["tags"] == (NONE,) else list(given["tags"])
    if given["at"] is not None:
        changes["at"] = _time(session, given["at"])
    if given["expires"] is not None:
        changes["expires"] = None if given["expires"] == NONE else _time(session, given["expires"])
    if given["limit"] is not None:
        changes["limit"] = None if given["limit"] == NONE else _whole(given["limit"])
    if given["keep"] is not None:
        changes["keep"] = None if given["keep"] == NONE else given["keep"]
    return changes


def _time(session: Session, text: str) -> str:
    """A duration is counted from now."""
    span_s = seconds(text)
    return text if span_s is None else time_text(session.around.wall_ms() + round(span_s * 1000))


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise click.BadParameter(f"{text!r} is neither a whole number nor {NONE}", param_hint="--limit")
    return int(text)
