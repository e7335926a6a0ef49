"""Names of what a node knows: completed by the shell, and the nearest one told where there is none of a name."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import click

from quvatlh.cli.surroundings import Surroundings, here
from quvatlh.client import URL_DEFAULT, Client, Fault, Options, Problem, Rejected, find_token, parse_urls
from quvatlh.client.places import URL_VARIABLE

COMPLETION_S = 1.0
"""So long a person who pressed TAB waits for a node."""

QUEUES_MAX = 1000
"""So many of them are looked through: one page."""

Kind = Literal["workers", "policies", "queues", "classes", "schedules", "tokens"]
Completer = Callable[[click.Context, click.Parameter, str], list[str]]


async def names(client: Client, kind: Kind) -> list[str]:
    if kind == "queues":
        listed = (await client.queues(limit=QUEUES_MAX))["items"]
    else:
        ask = {
            "workers": client.workers,
            "policies": client.policies,
            "classes": client.classes,
            "schedules": client.schedules,
            "tokens": client.tokens,
        }
        listed = await ask[kind]()
    return [each["name"] for each in listed]


def nameable(_: click.Context, __: click.Parameter, given: Any) -> Any:
    """One, or several: none that no address can hold."""
    for name in [given] if isinstance(given, str) else given:
        if name in {"", ".", ".."}:
            raise click.BadParameter(f"{name!r} is no name")
    return given


@contextlib.asynccontextmanager
async def hinting(client: Client, kind: Kind, name: str | None) -> AsyncIterator[None]:
    """Where nothing is of this name, the no says which is near."""
    try:
        yield
    except Rejected as problem:
        if name is not None and problem.code == "not_found":
            await _hint(client, kind, name, problem)
        raise


async def _hint(client: Client, kind: Kind, name: str, problem: Rejected) -> None:
    told = problem.errors[-1].message if problem.errors else problem.detail
    if name not in told:  # it is something else that is not there
        return
    with contextlib.suppress(Problem):
        near = difflib.get_close_matches(name, await names(client, kind), n=1)
        if not near:
            return
        if problem.errors:
            last = problem.errors[-1]
            problem.errors = (*problem.errors[:-1], Fault(last.path, f"{last.message}; did you mean {near[0]}?"))
        else:
            problem.detail = f"{told}; did you mean {near[0]}?"


def completing(kind: Kind) -> Completer:
    """For click: the names that begin as what was typed. Where no node answers, none."""

    def complete(ctx: click.Context, _param: click.Parameter, typed: str) -> list[str]:
        try:
            return [name for name in asyncio.run(_asked(ctx, kind)) if name.startswith(typed)]
        except (Problem, OSError, ValueError):
            return []

    return complete


async def _asked(ctx: click.Context, kind: Kind) -> list[str]:
    around = ctx.find_object(Surroundings) or here()
    given = ctx.params
    urls = given.get("urls") or parse_urls(around.environ.get(URL_VARIABLE) or URL_DEFAULT)
    token = find_token(given.get("token"), around.environ, given.get("data"), is_root=around.is_root)
    options = Options(urls, token.value, given.get("ca"), COMPLETION_S, patient=False)
    async with Client(options) as client:
        return await names(client, kind)
