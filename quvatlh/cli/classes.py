"""`quvatlh class`: the tree of classes that share slots or starts out among queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from quvatlh.cli.lazy import NearGroup
from quvatlh.cli.names import completing, hinting, nameable
from quvatlh.cli.printing import Table, labelled, plain, print_json
from quvatlh.cli.queues import NONE, value_of
from quvatlh.cli.session import Session, speaks_http
from quvatlh.client import Client

INDENT = "  "

Json = dict[str, Any]

_NAME = click.argument("name", metavar="CLASS", shell_complete=completing("classes"), callback=nameable)


@click.group(cls=NearGroup)
def classes() -> None:
    """Classes that share slots or starts out among queues: each is assured its rate, and borrows what siblings leave.

    A queue is put into one by `quvatlh queue set QUEUE --class CLASS`.
    """


@classes.command()
@speaks_http
def ls(session: Session) -> None:
    """List classes as the tree they are."""
    listed = session.run(lambda client: client.classes())
    if session.as_json:
        for one in listed:
            print_json(one)
    elif listed:
        rows = [_row(one, depth) for one, depth in _tree(listed, None, 0)]
        Table(["CLASS", "RATE", "CEIL", "BURST", "PRIORITY", "OF"], session.around.columns).print(rows)
    else:
        session.hint("no classes")


def _tree(listed: list[Json], parent: str | None, depth: int) -> Iterator[tuple[Json, int]]:
    for one in listed:
        if one["parent"] == parent:
            yield one, depth
            yield from _tree(listed, one["name"], depth + 1)


def _row(one: Json, depth: int) -> list[object]:
    ceil = "-" if one["ceil"] is None else f"{one['ceil']:g}"
    return [INDENT * depth + one["name"], f"{one['rate']:g}", ceil, one["burst"], one["priority"], one["of"]]


@classes.command()
@_NAME
@speaks_http
def show(session: Session, name: str) -> None:
    """Show a class."""

    async def work(client: Client) -> Json:
        async with hinting(client, "classes", name):
            return await client.queue_class(name)

    _tell(session, session.run(work))


@classes.command("set")
@_NAME
@click.option("--parent", metavar="CLASS", shell_complete=completing("classes"), help="Class that it is a part of.")
@click.option("--rate", metavar="N", help="What it is assured: slots, or starts a second or as 100/m.")
@click.option("--ceil", metavar="N", help="What it may have with what it borrows. [default: its parent's]")
@click.option("--burst", metavar="INT", help="Starts that it saves up.")
@click.option("--priority", metavar="INT", help="Who borrows first: the higher.")
@click.option("--of", metavar="WHAT", help="slots or starts. [default: slots]")
@speaks_http
def change(session: Session, name: str, **given: str | None) -> None:
    """Make a class, or change settings of one; `none` takes one back. What is not named stays."""
    changes = {field: value_of(text) for field, text in given.items() if text is not None}
    if given["parent"] not in {None, NONE}:
        changes["parent"] = given["parent"]
    if not changes:
        raise click.UsageError("what is to change? give --parent, --rate, --ceil, --burst, --priority or --of")
    _tell(session, session.run(lambda client: client.patch_class(name, changes)))


@classes.command()
@_NAME
@speaks_http
def delete(session: Session, name: str) -> None:
    """Delete a class that no class and no queue hangs on."""

    async def work(client: Client) -> None:
        async with hinting(client, "classes", name):
            await client.delete_class(name)

    session.run(work)
    if session.as_json:
        print_json({"name": name})
    else:
        click.echo(f"deleted {plain(name)}")


def _tell(session: Session, found: Json) -> None:
    if session.as_json:
        print_json(found)
        return
    click.echo(click.style(plain(found["name"]), bold=True))
    what = "slots" if found["of"] == "slots" else "starts a second"
    ceil = "" if found["ceil"] is None else f", at most {found['ceil']:g}"
    pairs = {"parent": plain(found["parent"] or ""), "assured": f"{found['rate']:g} {what}{ceil}"}
    pairs |= {"burst": str(found["burst"]), "priority": str(found["priority"])}
    for label, value in pairs.items():
        if value:
            click.echo(labelled(label, value))
