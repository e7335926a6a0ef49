"""`quvatlh policy`: Lua functions that are kept under a name, and tried out before anything hangs on them."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
import msgspec

from quvatlh.cli.lazy import NearGroup
from quvatlh.cli.names import completing, hinting
from quvatlh.cli.printing import Table, age, plain, print_json
from quvatlh.cli.refusing import refuse
from quvatlh.cli.session import Session, speaks_http
from quvatlh.client import Client, Fault, Rejected
from quvatlh.codec.taskfile import read_tasks
from quvatlh.codec.yamltext import BadYaml

SOURCE_BYTES_MAX = 1024 * 1024
"""Far beyond what a node takes: it says how much that is."""
STATES_BYTES_MAX = 8 * 1024 * 1024
VERDICTS = {
    "bid": "bids",
    "no_bid": "does not bid",
    "failed": "failed",
    "overran": "took too long, or too much memory",
    "marked": "not asked: it took too long twice within a minute",
}

Json = dict[str, Any]

_NAME = click.argument("name", shell_complete=completing("policies"))


@click.group(cls=NearGroup)
def policy() -> None:
    """Stored policies: list, show, store, delete, test."""


@policy.command()
@speaks_http
def ls(session: Session) -> None:
    """List stored policies."""
    listed = session.run(lambda client: client.policies())
    if session.as_json:
        for one in listed:
            print_json(one)
    elif listed:
        now_ms = session.around.wall_ms()
        rows = [[one["name"], one["version"], age(one["at"], now_ms), one["digest"]] for one in listed]
        Table(["POLICY", "VERSION", "AGE", "DIGEST"], session.around.columns).print(rows)
    else:
        session.hint("no policies")


@policy.command()
@_NAME
@speaks_http
def show(session: Session, name: str) -> None:
    """Print the source of a policy."""

    async def work(client: Client) -> Json:
        async with hinting(client, "policies", name):
            return await client.policy(name)

    found = session.run(work)
    if session.as_json:
        print_json(found)
        return
    click.echo(found["source"], nl=not found["source"].endswith("\n"))
    session.hint(f"version {found['version']}, stored {age(found['at'], session.around.wall_ms())} ago")


@policy.command()
@_NAME
@click.argument("file", metavar="FILE|-")
@speaks_http
def put(session: Session, name: str, file: str) -> None:
    """Store FILE as policy NAME, or as its next version. Tasks that name it go by the new one from then on."""
    source = _source(file)

    async def work(client: Client) -> Json:
        try:
            return await client.put_policy(name, source)
        except Rejected as problem:
            _name_file(problem, file)
            raise

    stored = session.run(work)
    if session.as_json:
        print_json(stored)
    else:
        click.echo(f"{plain(name)} is stored, version {stored['version']}")


@policy.command()
@_NAME
@speaks_http
def delete(session: Session, name: str) -> None:
    """Delete a policy that no listed task and no schedule names."""

    async def work(client: Client) -> None:
        async with hinting(client, "policies", name):
            await client.delete_policy(name)

    session.run(work)
    if session.as_json:
        print_json({"name": name})
    else:
        click.echo(f"deleted {plain(name)}")


@policy.command()
@click.argument("file", metavar="FILE|-")
@click.option(
    "--task", required=True, metavar="ID|FILE", help="A task that stands, or one in a file as `add` takes it."
)
@click.option("--worker", metavar="W", shell_complete=completing("workers"), help="Ask only this one.")
@click.option(
    "--state",
    "recorded",
    multiple=True,
    metavar="FILE",
    help="Ask recorded workers instead: what --json printed, or states out of it. May be repeated.",
)
@speaks_http
def test(session: Session, file: str, *, task: str, worker: str | None, recorded: tuple[str, ...]) -> None:
    """Say what each live worker's answer to a task would be under the policy in FILE. Nothing is stored, nothing runs.

    With --json each answer has the worker's state as the policy saw it; kept in a file, it can be asked again by --state."""
    source = _source(file)
    states = [state for each in recorded for state in _states(each)] if recorded else None
    asked = _task(task) if os.path.isfile(task) else task

    async def work(client: Client) -> list[Json]:
        try:
            async with hinting(client, "workers", worker):
                return await client.test_policy(source, asked, worker, states)
        except Rejected as problem:
            _name_file(problem, file)
            raise

    answers = session.run(work)
    if session.as_json:
        for one in answers:
            print_json(one)
    elif answers:
        message = ["MESSAGE"] if any(one.get("text") for one in answers) else []
        rows = [_row(one)[: 3 + len(message)] for one in answers]
        Table(["WORKER", "ANSWER", "SCORE", *message], session.around.columns).print(rows)
    else:
        session.hint("no worker is up" if states is None else f"no state of worker {plain(worker or '')} is recorded")


def _row(one: Json) -> list[object]:
    score = f"{one['score']:g}" if one["verdict"] == "bid" and one.get("score") is not None else "-"
    return [one["worker"], VERDICTS.get(one["verdict"], one["verdict"]), score, one.get("text") or ""]


def _name_file(problem: Rejected, file: str) -> None:
    """A fault of the source is one of the file for who wrote it."""
    shown = _shown(file)
    problem.errors = tuple(Fault(shown if one.path == "source" else one.path, one.message) for one in problem.errors)


def _source(file: str) -> str:
    data = _read(file)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        refuse(f"{_shown(file)}: is not UTF-8 at byte {error.start}")


def _task(file: str) -> Json:
    try:
        tasks = read_tasks(_read(file))
    except BadYaml as error:
        refuse(f"{file}: {error}")
    if len(tasks) != 1:
        refuse(f"{file}: holds {len(tasks)} tasks; one is asked about at a time")
    return tasks[0]


def _states(file: str) -> list[Json]:
    """One state, or answers of a test line by line, of which those without one are passed over."""
    data = _read(file, STATES_BYTES_MAX)
    try:
        try:
            values = [msgspec.json.decode(data)]
        except msgspec.DecodeError:
            values = [msgspec.json.decode(line) for line in data.splitlines() if line.strip()]
    except msgspec.DecodeError as error:
        refuse(f"{file}: {error}")
    states = [each["state"] if isinstance(each, dict) and "verdict" in each else each for each in values]
    found = [each for each in states if each is not None]
    if not found:
        refuse(f"{file}: holds no state of a worker")
    return found


def _read(file: str, bytes_max: int = SOURCE_BYTES_MAX) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read(bytes_max)
    try:
        with open(file, "rb") as opened:
            return opened.read(bytes_max)
    except OSError as error:
        refuse(f"{file}: {(error.strerror or '').lower()}")


def _shown(file: str) -> str:
    return "standard input" if file == "-" else file
