"""`quvatlh workers`, `worker`, `drain`: who runs the tasks, and what they may be given."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import click

from quvatlh.cli.failing import status
from quvatlh.cli.lazy import NearGroup
from quvatlh.cli.names import completing, hinting
from quvatlh.cli.printing import Table, age, count, labelled, plain, print_json, say, size, styled, summary, value_words
from quvatlh.cli.progress import progress
from quvatlh.cli.session import Duration, Session, speaks_http
from quvatlh.cli.status import ExitStatus
from quvatlh.client import Client, Problem, Unreachable
from quvatlh.config import kinds

POLL_S = 0.5
TASKS_SHOWN = 20
LIVE = "claimed,running"

Json = dict[str, Any]

_NAME = click.argument("name", metavar="WORKER", shell_complete=completing("workers"))


@click.command()
@speaks_http
def workers(session: Session) -> None:
    """List workers: role, state, free slots, tags, queues."""
    listed = session.run(lambda client: client.workers())
    if session.as_json:
        for one in listed:
            print_json(one)
    elif listed:
        roles = any(one["role"] != "node" for one in listed)
        heads = ["WORKER", *(["ROLE"] if roles else []), "STATE", "FREE", "QUEUES", "TAGS"]
        Table(heads, session.around.columns).print([_row(one, roles=roles) for one in listed])
    else:
        session.hint("no workers")


def _row(one: Json, *, roles: bool) -> list[object]:
    """The role only where not all are nodes."""
    free = f"{one['free']} of {one['slots']}"
    where = [",".join(one["queues"]) or "-", ",".join(_own_tags(one)) or "-"]
    return [one["name"], *([one["role"]] if roles else []), one["state"], free, *where]


def _own_tags(one: Json) -> list[str]:
    """Without those that every worker has."""
    return [tag for tag in one["tags"] if tag not in {f"worker={one['name']}", f"node={one['node']}"}]


@click.group(cls=NearGroup)
def worker() -> None:
    """One worker: look at it, change it, drain it."""


@worker.command()
@_NAME
@speaks_http
def show(session: Session, name: str) -> None:
    """Show a worker, and what it runs."""

    async def work(client: Client) -> tuple[Json, Json]:
        async with hinting(client, "workers", name):
            found = await client.worker(name)
        return found, await client.tasks(worker=name, state=LIVE, limit=TASKS_SHOWN)

    found, page = session.run(work)
    if session.as_json:
        print_json(found)
        return
    _print(found)
    if page["items"]:
        click.echo()
        now_ms = session.around.wall_ms()
        rows = [[one["id"], one["state"], age(one.get("started_at"), now_ms), summary(one)] for one in page["items"]]
        Table(["TASK", "STATE", "SINCE", "WHAT"], session.around.columns).print(rows)
    if page["next"] is not None:
        session.hint(f"more: quvatlh ls --worker {name} --state {LIVE}")


@worker.command("set")
@_NAME
@click.option("--slots", type=click.IntRange(min=0), metavar="INT", help="Actions at once; 0 takes nothing.")
@click.option("--tags", metavar="A,B=C", help="Its tags from now on; none for no tags.")
@click.option("--queues", metavar="P,Q", help="Patterns of the queues that it takes from; none for no queue.")
@speaks_http
def change(session: Session, name: str, *, slots: int | None, tags: str | None, queues: str | None) -> None:
    """Change what a worker may be given, while it runs. What it runs already goes on.

    It holds until the worker is stopped in order: what is to last stands in its configuration.
    """
    changes: Json = {} if slots is None else {"slots": slots}
    if tags is not None:
        changes["tags"] = _words(tags, kinds.tags, "--tags")
    if queues is not None:
        changes["queues"] = _words(queues, kinds.names, "--queues")
    if not changes:
        raise click.UsageError("what is to change? give --slots, --tags or --queues")

    async def work(client: Client) -> Json:
        async with hinting(client, "workers", name):
            return await client.patch_worker(name, changes)

    found = session.run(work)
    print_json(found) if session.as_json else _print(found)


def _words(text: str, kind: kinds.Kind, flag: str) -> list[str]:
    """As `run` takes them."""
    try:
        return [] if text == "none" else list(kind(text))  # type: ignore[call-overload]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=flag) from None


@click.command()
@_NAME
@click.option("--wait", "is_waited_for", is_flag=True, help="Wait until nothing runs there any more.")
@click.option("--timeout", type=Duration(), metavar="D", help="Wait at most so long; exit 3 when it is over.")
@speaks_http
def drain(session: Session, name: str, *, is_waited_for: bool, timeout: float | None) -> None:
    """Let a worker finish what it has, and give it nothing new. Services on it move elsewhere at once."""

    async def work(client: Client) -> tuple[Json, int]:
        async with hinting(client, "workers", name):
            found = await client.drain(name)
        left = await _left(client, name)
        if is_waited_for or timeout is not None:
            left = await _until_empty(session, client, name, left, timeout)
        return found, left

    found, left = session.run(work)
    if session.as_json:
        print_json(found | {"left": left})
    elif left:
        click.echo(f"{plain(name)} is draining: {count(left, 'task')} left")
    else:
        click.echo(f"{plain(name)} is draining, and empty")
    if left and (is_waited_for or timeout is not None):
        sys.exit(ExitStatus.UNAVAILABLE)


@worker.command()
@_NAME
@speaks_http
def undrain(session: Session, name: str) -> None:
    """Let a worker take work again."""

    async def work(client: Client) -> Json:
        async with hinting(client, "workers", name):
            return await client.undrain(name)

    found = session.run(work)
    if session.as_json:
        print_json(found)
    else:
        click.echo(f"{plain(name)} takes work again")


@worker.command()
@click.argument("name", required=False, shell_complete=completing("workers"))
@click.option("--env", metavar="E", help="This environment alone. [default: all]")
@speaks_http
def reload(session: Session, name: str | None, env: str | None) -> None:
    """Load programs anew, on one worker or on all.

    New processes take the place of the old ones of an environment as these finish what they do. Pull workers have none of
    ours, and are left out.
    """
    failed: dict[str, Problem] = {}

    async def work(client: Client) -> list[Json]:
        if name is not None:
            async with hinting(client, "workers", name) if env is None else contextlib.nullcontext():
                return [await client.reload(name, env)]
        return await _all_reloaded(client, env, failed)

    found = session.run(work)
    if session.as_json:
        print_json(found)
    else:
        for each in found:
            environments = plain(", ".join(each["environments"])) or "it has no environments"
            click.echo(f"{plain(each['worker'])} loads anew: {environments}")
    if failed:
        _tell_left(session, failed)


async def _all_reloaded(client: Client, env: str | None, failed: dict[str, Problem]) -> list[Json]:
    """One that fails is told of in the end: the others do not wait for it."""
    found = []
    for each in await client.workers():
        if each["state"] == "lost" or each["role"] == "pull":
            continue
        try:
            found.append(await client.reload(each["name"], env))
        except Unreachable:
            raise
        except Problem as problem:
            failed[each["name"]] = problem
    return found


def _tell_left(session: Session, failed: dict[str, Problem]) -> NoReturn:
    for name, problem in failed.items():
        if session.as_json:
            session.tell(problem)
        else:
            say(f"quvatlh: {plain(name)} does not load anew: {plain(problem.detail or problem.code)}")
    sys.exit(max(map(status, failed.values())))


worker.add_command(drain)


async def _left(client: Client, name: str) -> int:
    page = await client.tasks(worker=name, state=LIVE, limit=1)
    return len(page["items"]) if page["total"] is None else int(page["total"])


async def _until_empty(session: Session, client: Client, name: str, left: int, timeout_s: float | None) -> int:
    loop = asyncio.get_running_loop()
    first, ends = left, None if timeout_s is None else loop.time() + timeout_s
    with progress("draining", session.around) as report:
        while left and (ends is None or loop.time() < ends):
            report(max(first - left, 0), first)
            await asyncio.sleep(POLL_S)
            left = await _left(client, name)
    return left


def _print(found: Json) -> None:
    click.echo(f"{click.style(plain(found['name']), bold=True)}  {styled(found['state'])}")
    for label, value in _pairs(found):
        click.echo(labelled(label, value))


def _pairs(found: Json) -> Iterator[tuple[str, str]]:
    if found["node"] != found["name"]:
        yield "node", plain(found["node"])
    if found["role"] != "node":
        yield "role", plain(found["role"])
    yield "slots", f"{found['slots']}, {found['free']} free"
    yield "queues", plain(", ".join(found["queues"])) or "-"
    yield "tags", plain(", ".join(_own_tags(found))) or "-"
    yield "runs", plain(", ".join(found["adapters"])) or "-"
    load = found.get("load")
    if load is not None:
        yield "cpu", f"{load['cpu_load']:.0%} in use"
        free, total = load["memory_free_bytes"], load["memory_total_bytes"]
        yield "memory", f"{size(free)} of {size(total)} free"
        yield "disk", f"{size(load['disk_free_bytes'])} free"
    for name, value in found["facts"].items():
        if name != "memory_bytes":
            yield plain(name), value_words(value)
        elif load is None:
            yield "memory", size(value)
