"""Which tasks a verb is meant for: named by id, or all that match. Asks first where a person may not see how many they are."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from quvatlh.cli.ls import STATES, moment
from quvatlh.cli.names import hinting
from quvatlh.cli.printing import count, print_json, say
from quvatlh.cli.progress import progress
from quvatlh.cli.session import Session
from quvatlh.cli.status import ExitStatus
from quvatlh.client import Client, Done

IDS_MAX = 1000
"""Of one request."""
LOOKS = 16
"""At tasks, at once."""


@dataclass(frozen=True, slots=True)
class Words:
    """Of a verb."""

    doing: str
    done: str
    question: str
    """What is asked before it is done to many."""
    left: str
    """Why it may not be done to some that match, or need not."""
    of: str = "task"
    """What is asked about."""


Tell = Callable[[Done, Counter[str]], str]
"""Of what was done, and how many tasks were in which state before: what happened."""


@dataclass(frozen=True, slots=True)
class Choice:
    ids: Sequence[str]
    match: Mapping[str, Any] | None


def chooses_tasks(command: Callable[..., Any]) -> Callable[..., Any]:
    """The arguments that `chosen` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
    click.argument("ids", nargs=-1, metavar="[ID...]"),
    click.option("--match", "pairs", multiple=True, metavar="K=V", help="Filter, as queue=mail; again for more."),
    click.option("--yes", "-y", is_flag=True, help="Do not ask, however many match."),
)


FAILED = click.option("--failed", is_flag=True, help="All that failed; with --match, those of them that match.")


def only_failed(ids: Sequence[str], pairs: Sequence[str], *, failed: bool) -> Sequence[str]:
    """`pairs` with what --failed says."""
    if not failed:
        return pairs
    if ids:
        raise click.UsageError("name tasks by their ids, or give --failed; one of them")
    if any(pair.startswith("state=") for pair in pairs):
        raise click.UsageError("--failed is --match state=failed: give one of them")
    return (*pairs, "state=failed")


def chosen(session: Session, ids: Sequence[str], pairs: Sequence[str], *, yes: bool, words: Words) -> Choice:
    if bool(ids) == bool(pairs):
        has_failed = any(each.name == "failed" for each in click.get_current_context().command.params)
        more = ", or --failed" if has_failed else ""
        raise click.UsageError(f"name tasks by their ids, or give --match K=V{more}; one of them")
    match = _match(session, pairs)
    if match and not yes and session.around.asks:
        _ask(session, match, words)
    return Choice(ids, match or None)


def act(
    session: Session,
    verb: str,
    choice: Choice,
    words: Words,
    *,
    to: str | None = None,
    queue: str | None = None,
    changes: Mapping[str, Any] | None = None,
    tell: Tell | None = None,
) -> None:
    """Done to all of them, and told. With `tell` they are looked at first, where a person is told: the answer does not say
    what of it was done before."""
    more: dict[str, Any] = {"to": to, "queue": queue, "changes": changes}

    async def work(client: Client) -> tuple[Done, Counter[str]]:
        states = Counter[str]() if tell is None or session.as_json else await _looked(client, choice)
        return await do(client), states

    async def do(client: Client) -> Done:
        async with hinting(client, "workers", to):
            with progress(words.doing, session.around) as report:
                if choice.match is not None:
                    return await client.act(verb, match=choice.match, on_progress=report, **more)
                done = Done(0, 0, 0)
                for start in range(0, len(choice.ids), IDS_MAX):
                    part = await client.act(verb, ids=choice.ids[start : start + IDS_MAX], **more)
                    done = _sum(done, part)
                    report(min(start + IDS_MAX, len(choice.ids)), len(choice.ids))
                return done

    done, states = session.run(work)
    if session.as_json:
        told = {"matched": done.matched, "done": done.done, "index": done.index}
        print_json(told | ({"over": done.over} if done.over else {}))
    elif not done.matched:
        click.echo(f"no {words.of} matches")
    elif tell is not None:
        click.echo(tell(done, states))
    elif done.done - done.over < done.matched:
        click.echo(f"{words.done} {done.done - done.over:,} of {count(done.matched, 'task')}: the rest {words.left}")
    else:
        click.echo(f"{words.done} {count(done.done, 'task')}")


async def _looked(client: Client, choice: Choice) -> Counter[str]:
    """How many are in which state."""
    if choice.match is not None:
        groups = (await client.tasks(**choice.match, group_by="state"))["groups"]
        return Counter({group["value"]: group["count"] for group in groups})
    names, states = list(dict.fromkeys(choice.ids)), Counter[str]()
    for start in range(0, len(names), LOOKS):
        tasks = await asyncio.gather(*(client.task(name) for name in names[start : start + LOOKS]))
        states.update(task["state"] for task in tasks)
    return states


def _sum(done: Done, part: Done) -> Done:
    return Done(done.matched + part.matched, done.done + part.done, part.index, done.over + part.over)


def _match(session: Session, pairs: Sequence[str]) -> dict[str, Any]:
    match: dict[str, Any] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name or not value:
            raise click.BadParameter(f"{pair!r} is not K=V, such as state=failed", param_hint="--match")
        if name == "state":
            match.setdefault("state", []).extend(_states(value))
        elif name in match:
            raise click.BadParameter(f"{name} is given twice", param_hint="--match")
        else:
            match[name] = moment(name, value, session)
    return match


def _states(value: str) -> list[str]:
    for state in value.split(","):
        if state not in STATES:
            raise click.BadParameter(f"{state!r} is none of {', '.join(STATES)}", param_hint="--match state")
    return value.split(",")


def _ask(session: Session, match: Mapping[str, Any], words: Words) -> None:
    page = session.run(lambda client: client.tasks(**match, limit=1))
    total = page["total"]
    if total is not None and total <= 1:
        return
    how_many = f"{total:,} {words.of}s match" if total is not None else f"Many {words.of}s match"
    if not click.confirm(f"{how_many}: {words.question}?", err=True):
        say(f"nothing was {words.done}")
        sys.exit(ExitStatus.REJECTED)
