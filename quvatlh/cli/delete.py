"""`quvatlh delete`: tasks by id, or all that match. Asks first where a person may not see how many that are."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from quvatlh.cli.printing import count, print_json, say
from quvatlh.cli.progress import progress
from quvatlh.cli.session import Session, speaks_http
from quvatlh.cli.status import ExitStatus
from quvatlh.client import Client, Done

IDS_MAX = 1000
"""Of one request."""


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.option("--match", "pairs", multiple=True, metavar="K=V", help="Filter, as queue=mail; again for more.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask, however many match.")
@speaks_http
def delete(session: Session, ids: tuple[str, ...], *, pairs: tuple[str, ...], yes: bool) -> None:
    """Stop and delete tasks: those named, or all that match every K=V."""
    if bool(ids) == bool(pairs):
        raise click.UsageError("name tasks by their ids, or give --match K=V; one of them")
    match = _match(pairs)
    if match and not yes and session.around.asks:
        _ask(session, match)

    async def work(client: Client) -> Done:
        with progress("deleting", session.around) as report:
            if match:
                return await client.act("delete", match=match, on_progress=report)
            done = Done(0, 0, 0)
            for start in range(0, len(ids), IDS_MAX):
                part = await client.act("delete", ids=ids[start : start + IDS_MAX])
                done = Done(done.matched + part.matched, done.done + part.done, part.index)
                report(done.done, len(ids))
            return done

    done = session.run(work)
    if session.as_json:
        print_json({"matched": done.matched, "done": done.done, "index": done.index})
    else:
        click.echo(f"deleted {count(done.done, 'task')}")


def _match(pairs: tuple[str, ...]) -> dict[str, Any]:
    match: dict[str, Any] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name or not value:
            raise click.BadParameter(f"{pair!r} is not K=V, such as state=failed", param_hint="--match")
        if name == "state":
            match.setdefault("state", []).extend(value.split(","))
        elif name in match:
            raise click.BadParameter(f"{name} is given twice", param_hint="--match")
        else:
            match[name] = value
    return match


def _ask(session: Session, match: Mapping[str, Any]) -> None:
    page = session.run(lambda client: client.tasks(**match, limit=1))
    total = page["total"]
    if total is not None and total <= 1:
        return
    how_many = f"{total:,} tasks match" if total is not None else "Many tasks match"
    if not click.confirm(f"{how_many}: stop and delete them?", err=True):
        say("nothing was deleted")
        sys.exit(ExitStatus.REJECTED)
