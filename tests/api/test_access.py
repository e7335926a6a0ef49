"""Every route against every role, by the table in quvatlh/api/DESIGN.md: that is what was promised."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, get_args

import aiohttp
import pytest
import pytest_asyncio
from yarl import URL

from quvatlh.api import access
from quvatlh.api.exchange import Route
from quvatlh.api.routes import ROUTES
from quvatlh.core.model import Role
from quvatlh.service.pool import Principal, Rejected
from tests.api.judged import Door, judged, secret_of

DESIGN: Final = Path(access.__file__).parent / "DESIGN.md"
ROLES: Final[tuple[Role, ...]] = get_args(Role)
MAY: Final[dict[str, set[str]]] = {
    "open": set(ROLES),
    "any": set(ROLES),
    "viewer": {"viewer", "producer", "operator", "admin"},
    "producer": {"producer", "operator", "admin"},
    "operator": {"operator", "admin"},
    "worker": {"worker", "admin"},
    "admin": {"admin"},
}
"""Written out a second time, by hand."""


def _promised() -> dict[tuple[str, str], tuple[str, str]]:
    rows = re.findall(r"^\| `([A-Z]+)` \| `(/\S*)` \| (\w+) \| ([\w ]+) \|$", DESIGN.read_text(), re.MULTILINE)
    return {(method, path): (least, bound) for method, path, least, bound in rows}


PROMISED: Final = _promised()
CASES: Final = [(*route, *PROMISED[route]) for route in sorted(PROMISED)]
NARROW: Final = {"queues": (("q*",), ("*",)), "groups": (("*",), ("g",)), "nothing": ((), ())}
"""Scopes of the operators that the last cases are asked by."""


def test_every_route_stands_in_the_table_and_nothing_else_does() -> None:
    assert {(route.method, route.path) for route in ROUTES} == set(access.ACCESS)
    assert {key: tuple(need) for key, need in access.ACCESS.items()} == PROMISED
    opened = {(route.method, route.path) for route in ROUTES if route.open}
    assert opened == {key for key, need in access.ACCESS.items() if need.least == "open"}
    assert {role: set(may) for role, may in access.ROLES.items() if role != "open"} | {"open": set(ROLES)} == MAY


def test_a_route_without_a_row_is_nobodys() -> None:
    route = Route("GET", "/v1/new", ROUTES[0].handler, "", {200: "Anything"})
    with pytest.raises(Rejected, match="GET /v1/new is nobody's") as caught:
        access.check(route, Principal("root", "admin"), {})
    assert caught.value.code == "forbidden"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Door]:
    async with judged(tmp_path_factory.mktemp("access")) as door:
        for role in ROLES:
            await door.token(role, role)
        for name, scope in NARROW.items():
            await door.token(name, "operator", *scope)
        yield door


async def ask(door: Door, method: str, path: str, token: str | None) -> tuple[int, str]:
    """Status and code of a request that names nothing which exists; only the head is read of what goes on for ever."""
    address = re.sub(r"\{name\}", "none", re.sub(r"\{\w+\}", "0", path))
    headers = {} if token is None else {"Authorization": f"Bearer {secret_of(token)}"}
    url, timeout = URL(door.client.base + address), aiohttp.ClientTimeout(5)
    async with door.client.session.request(
        method, url, headers=headers, allow_redirects=False, timeout=timeout
    ) as response:
        is_problem = response.content_type == "application/problem+json" and method != "HEAD"
        return response.status, (await response.json())["code"] if is_problem else ""


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("method", "path", "least", "bound"), CASES)
async def test_each_role_may_what_was_promised_and_no_more(
    door: Door, method: str, path: str, least: str, bound: str
) -> None:
    assert (await ask(door, method, path, None))[0] == 401 or least == "open"
    for role in ROLES:
        status, code = await ask(door, method, path, role)
        assert status != 401, role
        assert (code == "forbidden") == (role not in MAY[least]), (role, code, bound)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("method", "path", "least", "bound"), CASES)
async def test_what_is_everybodys_needs_a_token_for_everything(
    door: Door, method: str, path: str, least: str, bound: str
) -> None:
    for name, (queues, groups) in NARROW.items():
        _, code = await ask(door, method, path, name)
        named = any(queue in {"*", "none"} for queue in queues)
        within = {
            "whole": False,
            "queue": named,
            "queue whole": named and groups == ("*",),
        }.get(bound, True)
        assert (code == "forbidden") == (not within or "operator" not in MAY[least]), (name, code)


@pytest.mark.asyncio(loop_scope="module")
async def test_head_is_judged_as_get(door: Door) -> None:
    assert (await ask(door, "HEAD", "/v1/tokens", "viewer"))[0] == 403
    assert (await ask(door, "HEAD", "/v1/tasks", "worker"))[0] == 403
    assert (await ask(door, "HEAD", "/v1/tasks", "viewer"))[0] == 200


@pytest.mark.asyncio(loop_scope="module")
async def test_a_no_says_which_role_or_scope_is_needed(door: Door) -> None:
    async def said(name: str, method: str, path: str) -> str:
        return str((await door.as_(name, method, path)).json["detail"])

    assert await said("viewer", "POST", "/v1/events") == "token viewer has role viewer; this needs role producer"
    assert await said("producer", "GET", "/v1/tokens") == "token producer has role producer; this needs role admin"
    everything = "this needs a token for all queues and groups"
    assert await said("queues", "GET", "/metrics") == f"token queues is for queues q* and groups *; {everything}"
    assert await said("queues", "POST", "/v1/queues/other/pause") == (
        "token queues is for queues q*; other is none of them"
    )
    assert await said("groups", "POST", "/v1/queues/q/pause") == (
        "token groups is for groups g; to change a queue needs a token for all groups"
    )


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", [*ROLES, *NARROW])
async def test_a_session_is_told_what_it_may(door: Door, name: str) -> None:
    told = await door.get(name, "/v1/session")
    role = told["role"]
    groups_all, all_ = told["groups"] == ["*"], told["groups"] == told["queues"] == ["*"]
    fits = {"whole": all_, "queue whole": groups_all}
    assert set(told["may"]) == {
        f"{method} {path}"
        for (method, path), (least, bound) in PROMISED.items()
        if least != "open" and role in MAY[least] and fits.get(bound, True)
    }
