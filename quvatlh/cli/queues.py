"""`quvatlh queues`, `queue`: what waits where, and the rules by which it starts."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import click

from quvatlh.cli.lazy import NearGroup
from quvatlh.cli.ls import STATES
from quvatlh.cli.names import completing, hinting, nameable
from quvatlh.cli.printing import Table, count, plain, print_json, say
from quvatlh.cli.progress import progress
from quvatlh.cli.queuewords import HEADS, row, tell
from quvatlh.cli.session import Session, speaks_http
from quvatlh.cli.status import ExitStatus
from quvatlh.cli.taskoptions import backoff, exit_codes
from quvatlh.client import Client, Done, Rejected

PAGE = 1000
NEW = "queue {} is new"
NONE = "none"
"""Takes a setting back."""
PURGED = ("scheduled", "pending", "retrying", "succeeded", "failed", "deleted")
WAITING = ("scheduled", "pending", "retrying")

Json = dict[str, Any]

_NAME = click.argument("name", metavar="QUEUE", shell_complete=completing("queues"), callback=nameable)
_NAMES = click.argument(
    "names", metavar="QUEUE...", nargs=-1, required=True, shell_complete=completing("queues"), callback=nameable
)


@click.command()
@speaks_http
def queues(session: Session) -> None:
    """List queues: what waits, runs and failed, how fast it comes and goes, and how each is set.

    IN/S and OUT/S are tasks a second over the last minute, WAIT is what 95 of 100 tasks waited at most.
    """
    table = Table(HEADS, session.around.columns)

    async def work(client: Client) -> bool:
        cursor: str | None = None
        found = False
        while True:
            page = await client.queues(limit=PAGE, cursor=cursor)
            found = found or bool(page["items"])
            if session.as_json:
                for one in page["items"]:
                    print_json(one)
            elif page["items"]:
                table.print([row(one, session.around.wall_ms()) for one in page["items"]])
            cursor = page["next"]
            if cursor is None:
                return found

    if not session.run(work):
        session.hint("no queues: the first task of a queue makes it")


@click.group(cls=NearGroup)
def queue() -> None:
    """One queue: look at it, set it, pause it, purge it, delete it."""


queue.add_command(queues, "ls")


@queue.command()
@_NAME
@speaks_http
def show(session: Session, name: str) -> None:
    """Show a queue: its settings, what is in it, and how it goes."""

    async def work(client: Client) -> Json:
        async with hinting(client, "queues", name):
            return await client.queue(name)

    tell(session, session.run(work))


SET_EPILOG = """\b
Examples:
  quvatlh queue set emails --limit 10 --limit-per-key 2 --rate 100/m
  quvatlh queue set emails --weight 3 --discipline sfq
  quvatlh queue set nightly --unique unfinished --attempts 3 --backoff 10s,1m,10m
  quvatlh queue set emails --limit none            takes the limit away again"""


@queue.command("set", epilog=SET_EPILOG)
@_NAME
@click.option("--limit", metavar="INT", help="At most so many at once, in the whole cluster.")
@click.option("--limit-per-key", metavar="INT", help="At most so many of a key at once.")
@click.option("--limit-per-worker", metavar="INT", help="At most so many on a worker at once.")
@click.option("--rate", metavar="N/TIME", help="At most so many starts in a time, as 100/m, 5/s, 1/30s.")
@click.option("--burst", metavar="INT", help="Starts that the rate saves up. [default: a second's]")
@click.option("--weight", metavar="INT", help="Its share beside other queues. [default: 1]")
@click.option("--discipline", metavar="D", help="Who is next: priority, fifo, sfq, or a plug-in. [default: priority]")
@click.option("--key-weights", metavar="K=INT,..", help="Shares of keys under sfq, as acme=3,beta=2. [default: 1 each]")
@click.option("--class", "class_", metavar="C", shell_complete=completing("classes"), help="Class that it belongs to.")
@click.option("--workers", metavar="P,Q", help="Patterns of workers that may take from it. [default: *]")
@click.option(
    "--unique", metavar="WHILE", help="One task of a key while queued, active, unfinished, or for a duration."
)
@click.option("--unique-key", metavar="K", help="The key that --unique compares. [default: group, name, work, payload]")
@click.option("--attempts", metavar="INT", help="How often its tasks are tried. [default: 25]")
@click.option("--backoff", metavar="HOW", help="exponential, linear, constant, or waits as 10s,1m,10m.")
@click.option("--backoff-first", metavar="D", help="The first wait. [default: 1s]")
@click.option("--backoff-factor", metavar="X", help="By how much exponential waits grow. [default: 2]")
@click.option("--backoff-max", metavar="D", help="The longest wait. [default: 1h; of a list none]")
@click.option("--backoff-jitter", metavar="P", help="Share by which waits vary, as 10% or 0.1. [default: 10%]")
@click.option("--permanent-exit", metavar="N,N", help="Exit statuses after which tasks are not tried again.")
@click.option("--permanent-exception", metavar="E,E", help="The same of exceptions, as ValueError,shop.Gone.")
@click.option("--permanent-status", metavar="N,N", help="The same of HTTP statuses, as 404,410.")
@click.option("--lease", metavar="D", help="How long a worker may be out of touch. [default: 2s]")
@click.option("--keep", metavar="D", help="How long finished tasks are listed. [default: 1d]")
@click.option("--keep-count", metavar="INT", help="How many finished tasks are listed at most. [default: 100000]")
@click.option("--keep-failed", metavar="D", help="How long failed tasks are listed. [default: 30d]")
@click.option("--keep-failed-count", metavar="INT", help="How many failed tasks at most. [default: 1000000]")
@speaks_http
def change(session: Session, name: str, **given: str | None) -> None:
    """Change settings of a queue while it runs; `none` takes one back. What is not named stays.

    A queue that is not there is made. A limit below what runs stops nothing: nothing starts until fewer run.
    """
    named = {field: value for field, value in given.items() if value is not None}
    if not named:
        raise click.UsageError("what is to change? see quvatlh queue set --help")

    async def work(client: Client) -> Json:
        before = await _before(client, name)
        found = await client.patch_queue(name, _changes(named, before or {}))
        if before is None:
            session.hint(NEW.format(plain(name)))
        return found

    tell(session, session.run(work))


async def _new_or_not(session: Session, client: Client, name: str, change: Callable[[str], Awaitable[Json]]) -> Json:
    """Done, and whether that has made the queue: for typing errors."""
    before = await _before(client, name)
    found = await change(name)
    if before is None:
        session.hint(NEW.format(plain(name)))
    return found


async def _before(client: Client, name: str) -> Json | None:
    try:
        return await client.queue(name)
    except Rejected as problem:
        if problem.code != "not_found":
            raise
        return None


def _changes(named: Mapping[str, str], before: Json) -> Json:
    """What the node is told: what is named. It leaves the other parts of `keep`, `retry` and `unique` as they are."""
    changes: Json = {}
    for field, text in named.items():
        if field == "workers":
            changes[field] = None if text == NONE else [word for word in text.split(",") if word]
        elif field == "key_weights":
            changes[field] = None if text == NONE else _weights(text)
        elif field == "class_":
            changes["class"] = None if text == NONE else text
        elif field in _KEPT:
            whole, part = _KEPT[field]
            changes.setdefault(whole, {})[part] = value_of(text)
        elif field not in _PART_OF:
            changes[field] = value_of(text)
    for whole in dict.fromkeys(_PART_OF[field][0] for field in named if field in _PART_OF):
        parts = {
            part: _PARTS.get(field, value_of)(named[field])
            for field, (of, part) in _PART_OF.items()
            if of == whole and field in named
        }
        changes[whole] = parts if _is_left({**(before.get(whole) or {}), **parts}, whole, named) else None
    return changes


def _weights(text: str) -> dict[str, Any]:
    pairs = [pair.rpartition("=") for pair in text.split(",") if pair]
    if not all(key and weight for key, _, weight in pairs):
        raise click.UsageError(f"--key-weights: {plain(text)} is not KEY=INT,..")
    keys = [key for key, _, _ in pairs]
    doubled = next((key for key in keys if keys.count(key) > 1), None)
    if doubled is not None:
        raise click.UsageError(f"--key-weights: {plain(doubled)} stands twice")
    return {key: value_of(weight) for key, _, weight in pairs}


_PART_OF = {
    "unique": ("unique", "while"),
    "unique_key": ("unique", "key"),
    "attempts": ("retry", "attempts"),
    "backoff": ("retry", "backoff"),
    "backoff_first": ("retry", "first"),
    "backoff_factor": ("retry", "factor"),
    "backoff_max": ("retry", "max"),
    "backoff_jitter": ("retry", "jitter"),
    "permanent_exit": ("retry", "permanent_exit_codes"),
    "permanent_exception": ("retry", "permanent_exceptions"),
    "permanent_status": ("retry", "permanent_statuses"),
}
_KEPT = {
    "keep": ("keep", "age"),
    "keep_count": ("keep", "count"),
    "keep_failed": ("keep_failed", "age"),
    "keep_failed_count": ("keep_failed", "count"),
}
_PARTS: Mapping[str, Callable[[str], Any]] = {
    "backoff": lambda text: None if text == NONE else backoff(text),
    "permanent_exit": lambda text: [] if text == NONE else exit_codes(text, "--permanent-exit"),
    "permanent_exception": lambda text: [] if text == NONE else [word for word in text.split(",") if word],
    "permanent_status": lambda text: (
        [] if text == NONE else exit_codes(text, "--permanent-status", "HTTP statuses, such as 404,410")
    ),
}
_RETRY: Json = {
    "attempts": 25, "backoff": "exponential", "first": "1s", "factor": 2, "max": "1h", "jitter": "10%",
    "permanent_exit_codes": [], "permanent_exceptions": [], "permanent_statuses": [],
}  # fmt: skip
"""As it is without being set."""


def _is_left(parts: Json, whole: str, named: Mapping[str, str]) -> bool:
    """`--unique none` takes the whole away; so does none where nothing else is set then."""
    options = [field for field, (of, _) in _PART_OF.items() if of == whole]
    if all(named.get(field) != NONE for field in options):
        return True
    if whole == "unique":
        return named.get("unique") != NONE and any(parts.values())
    return any(value not in (None, _RETRY[part]) for part, value in parts.items())


def value_of(text: str) -> int | float | str | None:
    """A number where it looks like one: what may stand there is for the node to judge."""
    if text == NONE:
        return None
    try:
        return int(text) if text.lstrip("-").isdigit() else float(text) if text.count(".") == 1 else text
    except ValueError:
        return text


@queue.command()
@_NAMES
@speaks_http
def pause(session: Session, names: Sequence[str]) -> None:
    """Start nothing more of a queue. What runs goes on, and tasks may be added."""

    async def work(client: Client) -> list[Json]:
        return [await _new_or_not(session, client, name, client.pause_queue) for name in names]

    _told(session, session.run(work), "is paused")


@queue.command()
@_NAMES
@speaks_http
def resume(session: Session, names: Sequence[str]) -> None:
    """Start tasks of a paused queue again."""

    async def work(client: Client) -> list[Json]:
        return [await _new_or_not(session, client, name, client.resume_queue) for name in names]

    _told(session, session.run(work), "goes on")


def _told(session: Session, found: Sequence[Json], words: str) -> None:
    for one in found:
        if session.as_json:
            print_json(one)
        else:
            click.echo(f"{plain(one['name'])} {words}: {count(one['counts']['pending'], 'task')} pending")


@queue.command()
@_NAME
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(PURGED),
    metavar="S",
    help=f"Tasks in this state instead; again for more. One of {', '.join(PURGED)}.",
)
@click.option("--all", "is_all", is_flag=True, help="In all of these states.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask, however many there are.")
@speaks_http
def purge(session: Session, name: str, *, states: tuple[str, ...], is_all: bool, yes: bool) -> None:
    """Delete what waits in a queue, or take what is over off the list. What runs goes on.

    Without --state and --all: what is scheduled, pending or retrying. It becomes deleted, and is listed as such for a while.
    """
    if states and is_all:
        raise click.UsageError("--all is every --state: give one of them")
    wanted = PURGED if is_all else states or WAITING
    if session.around.asks and not yes:
        _ask(session, name, wanted)

    async def work(client: Client) -> Done:
        async with hinting(client, "queues", name):
            with progress("purging", session.around) as report:
                return await client.purge_queue(name, wanted, on_progress=report)

    done = session.run(work)
    if session.as_json:
        print_json({"matched": done.matched, "done": done.done, "index": done.index})
    elif done.done < done.matched:
        click.echo(f"purged {done.done:,} of {count(done.matched, 'task')}: the rest began meanwhile")
    else:
        click.echo(f"purged {count(done.done, 'task')}")


def _ask(session: Session, name: str, states: Sequence[str]) -> None:
    page = session.run(lambda client: client.tasks(queue=name, state=",".join(states), limit=1))
    if page["total"] and not click.confirm(
        f"{count(page['total'], 'task')} of queue {plain(name)} {'is' if page['total'] == 1 else 'are'} "
        f"{_listed(states)}: purge?",
        err=True,
    ):
        say("nothing was purged")
        sys.exit(ExitStatus.REJECTED)


def _listed(states: Sequence[str]) -> str:
    ordered = [state for state in STATES if state in states]
    return ordered[0] if len(ordered) == 1 else f"{', '.join(ordered[:-1])} or {ordered[-1]}"


@queue.command()
@_NAME
@speaks_http
def delete(session: Session, name: str) -> None:
    """Delete a queue without tasks, and with it its settings. The next task that names it makes it anew."""

    async def work(client: Client) -> None:
        async with hinting(client, "queues", name):
            try:
                await client.delete_queue(name)
            except Rejected as problem:
                if problem.code == "not_empty" and not session.as_json:
                    problem.detail += f"; `quvatlh queue purge {plain(name)} --all` does it for all but what runs"
                raise

    session.run(work)
    if session.as_json:
        print_json({"name": name})
    else:
        click.echo(f"deleted {plain(name)}")
