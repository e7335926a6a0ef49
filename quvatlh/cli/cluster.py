"""`quvatlh cluster`: who is in it, who shall be, and its state as a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from quvatlh.cli.lazy import NearGroup
from quvatlh.cli.printing import GAP, Table, count, plain, print_json, say, size
from quvatlh.cli.progress import progress
from quvatlh.cli.refusing import say_json
from quvatlh.cli.restore import restore
from quvatlh.cli.session import Session, Told, speaks_http
from quvatlh.cli.status import ExitStatus
from quvatlh.client import Client

Json = dict[str, Any]


@click.group(cls=NearGroup)
def cluster() -> None:
    """Nodes, backup and restore."""


cluster.add_command(restore)


@cluster.command()
@speaks_http
def status(session: Session) -> None:
    """Who is in the cluster, who leads it, how far each node is."""
    _print_cluster(session, session.run(lambda client: client.cluster()))


@cluster.command()
@click.argument("node_id", metavar="ID")
@click.argument("address", metavar="HOST:PORT")
@click.option("--name", metavar="N", help="What people call the node. [default: its id]")
@click.option("--http", metavar="H:P", help="Where it answers HTTP, as the others tell it.")
@speaks_http
def add(session: Session, node_id: str, address: str, *, name: str | None, http: str | None) -> None:
    """Admit a node. It tells its ID and its peer address HOST:PORT when it starts and finds no cluster of its own."""
    given = {"id": node_id, "peer": address, "name": name, "http": http}
    member = {key: value for key, value in given.items() if value is not None}
    _print_cluster(session, session.run(lambda client: client.add_member(member), only_one=True))


@cluster.command(short_help="Remove a node for good.")
@click.argument("node", metavar="ID|NAME")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@speaks_http
def remove(session: Session, node: str, *, yes: bool) -> None:
    """Remove a node, named or by its id, for good: its data directory cannot come back. A master hands over first."""
    node_id = session.run(lambda client: _id_of(client, node))
    question = f"Remove {plain(node)}? It can come back only as a new node, with an empty data directory."
    if session.around.asks and not yes and not click.confirm(question, err=True):
        say("nothing was changed")
        sys.exit(ExitStatus.REJECTED)
    _print_cluster(session, session.run(lambda client: client.remove_member(node_id)))


async def _id_of(client: Client, node: str) -> str:
    """Of the node with this name, if it is one alone and nobody's id."""
    known = (await client.cluster())["nodes"]
    named = [each["id"] for each in known if each["name"] == node]
    if not named or any(each["id"] == node for each in known):
        return node
    if len(named) > 1:
        say(f"quvatlh: {len(named)} nodes are named {plain(node)}: give the ID of one, {' or '.join(named)}")
        raise Told(ExitStatus.REJECTED)
    return str(named[0])


@cluster.command(short_help="Write the state of the cluster to a file.")
@click.argument("file", metavar="FILE")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@speaks_http
def backup(session: Session, file: str, *, force: bool) -> None:
    """Write the state of the cluster to FILE: whole, or not at all. `cluster restore` makes a new cluster of it."""
    if os.path.exists(file) and not force:
        message = f"{file} is there already; --force overwrites it"
        if session.as_json:
            say_json(message)
        else:
            say(f"quvatlh: {message}")
        sys.exit(ExitStatus.REJECTED)

    async def work(client: Client) -> int:
        with progress("backup", session.around, in_bytes=True) as report:
            return await client.backup().to(file, report)

    size = session.run(work)
    if session.as_json:
        print_json({"file": file, "bytes": size})
    else:
        click.echo(f"wrote {file}, {count(size, 'byte')}")


def _print_cluster(session: Session, found: Json) -> None:
    if session.as_json:
        print_json(found)
        return
    master = found.get("master")
    leads = f"master {plain(master)}" if master else click.style("no master", fg="red")
    click.echo(f"{leads}, term {found['term']}, log index {found['index']:,}, as node {plain(found['node'])} sees it")
    for line in (*time_lines(found.get("clock")), *filter(None, [found.get("warning")])):
        click.secho(line, fg="yellow")
    heads: list[str] = ["NODE", "STATE", "LAG", "LOG", "SNAPSHOT", "ID", "PEER", "HTTP"]
    rows = [_row(node, master) for node in found["nodes"]]
    width = sum(max(len(cell) for cell in column) + len(GAP) for column in zip(heads, *rows, strict=True))
    if session.around.columns is not None and width - len(GAP) > session.around.columns:
        heads, rows = heads[:-1], [row[:-1] for row in rows]  # half an address is none
    Table(heads, session.around.columns).print(rows)


def time_lines(clock: Json | None) -> Iterator[str]:
    """What is to be known of the cluster's time; nothing where it goes as it should."""
    if clock is None:
        return
    if clock["behind"] != "0s":
        yield f"log time stands still at {clock['at']}: the clocks are {clock['behind']} behind it, and nothing becomes due"
    jumped = clock["jumped"]
    if jumped is not None:
        yield f"the clocks jumped {jumped['way']} by {jumped['by']} at {jumped['at']}, as {plain(jumped['seen_by'])} saw it"


def _row(node: Json, master: str | None) -> list[str]:
    lag = node.get("lag")
    mark = " *" if node.get("name") == master and master else ""
    return [
        f"{node.get('name') or '-'}{mark}",
        node.get("state") or "-",
        "-" if lag is None else f"{lag:,}",
        size(node.get("log_bytes")),
        size(node.get("snapshot_bytes")),
        node["id"],
        node.get("peer") or "-",
        node.get("http") or "-",
    ]
