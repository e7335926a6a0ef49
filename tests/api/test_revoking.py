"""What lasts ends soon after its token: streams, waits, logs, claims, workers' lines, sessions of browsers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from quvatlh.core.model import Role
from tests.api.judged import Door, add, judged, secret_of
from tests.api.test_sessions import cookie_in

SOON_S = 5.0


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    async with judged(tmp_path) as door:
        await door.token("ann", "operator", ("mail*",), ("a",))
        await door.token("eve", "admin")
        yield door


async def events(response: aiohttp.ClientResponse, *until: str) -> list[tuple[str, dict[str, Any]]]:
    """Those of a stream, up to the first of one of these kinds."""
    found: list[tuple[str, dict[str, Any]]] = []
    kind = ""
    async with asyncio.timeout(SOON_S):
        async for raw in response.content:
            line = raw.decode().rstrip()
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                found.append((kind, json.loads(line.removeprefix("data: "))))
                if kind in until:
                    break
    return found


async def started(door: Door, count: int = 1) -> None:
    await door.stand.until(lambda: len(door.server._under_way) >= count)


# --- what a stream tells ---


async def test_a_stream_from_the_beginning_tells_of_what_is_in_scope(door: Door) -> None:
    await door.fill("mail.a", "mail.b", "images.a", "mail-bulk.a")
    await door.as_("eve", "PUT", "/v1/schedules/s", {"cron": "@daily", "task": {"work": "shell: 'true'"}})
    await door.as_("eve", "POST", "/v1/schedules/s/run")
    await door.as_("eve", "POST", "/v1/tasks/delete", {"ids": ["images.a", "mail.b"]})
    await door.as_("eve", "PATCH", "/v1/queues/images", {"weight": 2})
    await door.as_("eve", "POST", "/v1/tasks/delete", {"ids": ["mail.a"]})
    async with door.open("ann", "/v1/stream?since=0") as response:
        told = await events(response, "task.deleted")
    assert {data["id"] for kind, data in told if kind.startswith("task.")} == {"mail.a", "mail-bulk.a"}
    assert {data["id"] for kind, data in told if kind == "queue.changed"} <= {"mail", "mail-bulk"}
    assert not any(kind.startswith("schedule.") for kind, _ in told)
    assert all(word not in json.dumps(told) for word in ("images", "mail.b"))
    async with door.open("eve", "/v1/stream?since=0") as response:
        everything = await events(response, "task.deleted")
    assert {"images.a", "mail.b"} <= {data["id"] for _, data in everything}


async def test_sums_are_of_what_is_in_scope(door: Door) -> None:
    await door.token("queues", "viewer", ("mail",))
    for name, ids in (("ann", {"mail.a"}), ("queues", {"mail.a", "mail.b"})):
        async with door.open(name, "/v1/stream?every=100ms") as response:
            await started(door)
            await door.fill("images.a")
            if name == "ann":
                await door.fill("mail.a", "mail.b")
            else:
                await door.as_("eve", "POST", "/v1/tasks/delete", {"ids": ["mail.a", "mail.b"]})
            seen: set[str] = set()
            while not ids <= seen:
                (told,) = await events(response, "changes")
                seen |= set(told[1]["ids"])
                assert set(told[1]["queues"]) <= {"mail"}
            assert seen == ids


# --- and until when ---


@pytest.mark.parametrize("query", ["", "?every=100ms"])
async def test_a_stream_ends_when_its_token_is_revoked(door: Door, query: str) -> None:
    async with door.open("ann", f"/v1/stream{query}") as response:
        await started(door)
        await door.revoke("ann")
        assert (await events(response, "stream.ended"))[-1][1]["reason"] == "unauthorized"


@pytest.mark.parametrize(("role", "queues"), [("viewer", ("mail*",)), ("operator", ("mail",)), ("worker", ("*",))])
async def test_a_stream_ends_when_its_token_may_something_else(door: Door, role: Role, queues: tuple[str, ...]) -> None:
    async with door.open("ann", "/v1/stream") as response:
        await started(door)
        await door.token("ann", role, queues)
        assert (await events(response, "stream.ended"))[-1][1]["reason"] == "forbidden"


async def test_a_stream_goes_on_while_nothing_of_its_token_changes(door: Door) -> None:
    async with door.open("ann", "/v1/stream") as response:
        await started(door)
        await door.token("ann", "operator", ("mail*",), ("a",))
        await door.revoke("eve")
        await asyncio.sleep(0.1)
        await door.fill("mail.a")
        assert [kind for kind, _ in await events(response, "task.added")][-1] == "task.added"


async def test_who_cannot_know_ends_nothing(door: Door) -> None:
    async with door.open("ann", "/v1/stream") as response:
        await started(door)
        door.stand.log.depose(None)
        await asyncio.sleep(0.1)
        door.stand.log.elect()
        await door.fill("mail.a")
        assert (await events(response, "task.added"))[-1][0] == "task.added"


async def test_a_wait_ends_when_its_token_is_revoked(door: Door) -> None:
    await door.fill("mail.a")
    waiting = asyncio.create_task(door.as_("ann", "GET", "/v1/tasks/mail.a?wait=1h"))
    await started(door)
    await door.revoke("ann")
    answer = await asyncio.wait_for(waiting, SOON_S)
    assert (answer.status, answer.code) == (401, "unauthorized")
    assert (await door.as_("eve", "GET", "/v1/tasks/mail.a")).status == 200


async def test_what_lasts_ends_when_its_token_expires(door: Door) -> None:
    made = (await door.as_("eve", "POST", "/v1/tokens", {"name": "ci", "role": "viewer", "expires": "1h"})).json
    own = {"Authorization": f"Bearer {made['secret']}"}
    session = await door.client.ask("POST", "/v1/session", token=made["secret"])
    assert session.json["until"] == made["expires_at"]
    cookie = {"Cookie": cookie_in(session)}
    await door.fill("mail.a")
    waiting = asyncio.create_task(door.client.get("/v1/tasks/mail.a?wait=1h", token=made["secret"]))
    async with (
        door.client.session.get(door.client.base + "/v1/stream", headers=own) as mine,
        door.client.session.get(door.client.base + "/v1/stream", headers=cookie) as browsers,
    ):
        await started(door, 3)
        door.stand.clock.advance(3600)
        for response in (mine, browsers):
            assert (await events(response, "stream.ended"))[-1][1]["reason"] == "unauthorized"
    answer = await asyncio.wait_for(waiting, SOON_S)
    assert (answer.status, answer.json["detail"]) == (401, f"token ci expired at {made['expires_at']}")
    for headers in (own, cookie):
        refused = await door.client.get("/v1/tasks", token=None, headers=headers)
        assert (refused.status, refused.json["detail"]) == (401, answer.json["detail"])


async def test_a_log_that_is_followed_is_cut_off(door: Door) -> None:
    await door.fill("mail.a")
    following = asyncio.create_task(door.as_("ann", "GET", "/v1/tasks/mail.a/log?follow=1"))
    await started(door)
    await door.revoke("ann")
    answer = await asyncio.wait_for(following, SOON_S)
    assert answer.code == "unauthorized"


async def test_lines_that_still_come_are_cut_off(door: Door) -> None:
    line = json.dumps(add(queue="mail", group="a")["tasks"][0]).encode() + b"\n"
    go_on = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield line * 1000
        await go_on.wait()
        yield line

    headers = {"Authorization": f"Bearer {secret_of('ann')}", "Content-Type": "application/x-ndjson"}
    url = door.client.base + "/v1/events"
    async with door.client.session.post(url, data=body(), headers=headers) as response:
        assert len(json.loads(await response.content.readline())["ids"]) == 1000
        await door.revoke("ann")
        with pytest.raises(aiohttp.ClientError):
            async with asyncio.timeout(SOON_S):
                await response.read()
        go_on.set()
    assert (await door.get("eve", "/v1/tasks?limit=1"))["total"] == 1000


async def test_a_claim_that_waits_ends_and_takes_nothing(door: Door) -> None:
    await door.token("hand", "worker", ("mail",))
    asked = {"worker": "w", "wait": "20s"}
    waiting = asyncio.create_task(door.as_("hand", "POST", "/v1/work/claim", asked))
    await door.stand.until(lambda: door.stand.node.pulls._claims)
    await door.revoke("hand")
    assert (await asyncio.wait_for(waiting, SOON_S)).code == "unauthorized"
    await door.stand.add(id="later", queue="mail", work={"pull": True})
    await asyncio.sleep(0.05)
    assert door.stand.peek("later") == "pending"


async def test_a_workers_line_is_hung_up(door: Door) -> None:
    await door.token("hand", "worker")
    headers = {"Authorization": f"Bearer {secret_of('hand')}"}
    async with door.client.session.ws_connect(door.client.base + "/v1/work/connect", headers=headers) as socket:
        await started(door)
        await door.revoke("hand")
        async with asyncio.timeout(SOON_S):
            while (await socket.receive()).type not in {
                aiohttp.WSMsgType.CLOSE,
                aiohttp.WSMsgType.CLOSED,
                aiohttp.WSMsgType.ERROR,
            }:
                pass


async def test_a_session_may_what_its_token_may_now_and_ends_with_it(door: Door) -> None:
    begun = await door.as_("ann", "POST", "/v1/session")
    own = {"Cookie": cookie_in(begun), "Origin": door.client.base, "Sec-Fetch-Site": "same-origin"}
    link = (await door.client.ask("POST", "/v1/session/link", token=None, headers=own)).json["url"]

    async def may(method: str, path: str, body: Any = None) -> int:
        return (await door.client.ask(method, path, body, token=None, headers=own)).status

    assert await may("POST", "/v1/events", add(queue="mail", group="a")) == 201
    assert await may("POST", "/v1/events", add(queue="images", group="a")) == 403
    assert await may("GET", "/v1/tokens") == 403
    await door.token("ann", "viewer", ("mail",))
    assert (await may("POST", "/v1/events", add(queue="mail")), await may("GET", "/v1/tasks")) == (403, 200)
    async with door.client.session.get(door.client.base + "/v1/stream", headers=own) as response:
        await started(door)
        await door.revoke("ann")
        assert (await events(response, "stream.ended"))[-1][1]["reason"] == "unauthorized"
    assert await may("GET", "/v1/tasks") == 401
    late = await door.client.get(link, token=None)
    assert (await door.client.get("/v1/session", token=None, headers={"Cookie": cookie_in(late)})).status == 401


async def test_a_stream_ends_when_its_session_is_left(door: Door) -> None:
    begun = await door.as_("ann", "POST", "/v1/session")
    own = {"Cookie": cookie_in(begun), "Origin": door.client.base, "Sec-Fetch-Site": "same-origin"}
    async with door.client.session.get(door.client.base + "/v1/stream", headers=own) as response:
        await started(door)
        await door.client.ask("DELETE", "/v1/session", token=None, headers=own)
        assert (await events(response, "stream.ended"))[-1][1]["reason"] == "unauthorized"


# --- and of what ---


@pytest.fixture
async def working(tmp_path: Path) -> AsyncIterator[Door]:
    async with judged(tmp_path, slots=2) as door:
        await door.token("ann", "viewer", ("mail",), ("a",))
        await door.token("eve", "admin")
        await door.stand.working()
        yield door


async def moved_away(door: Door, task: str) -> None:
    """Out of what ann may see."""
    done = await door.as_("eve", "POST", "/v1/tasks/update", {"ids": [task], "set": {"queue": "images"}})
    assert done.status == 200, done.json


async def test_a_wait_ends_when_its_task_leaves_the_scope(door: Door) -> None:
    await door.token("ann", "viewer", ("mail",), ("a",))
    await door.fill("mail.a")
    waiting = asyncio.create_task(door.as_("ann", "GET", "/v1/tasks/mail.a?wait=1h"))
    await started(door)
    await moved_away(door, "mail.a")
    answer = await asyncio.wait_for(waiting, SOON_S)
    assert (answer.status, answer.json["detail"]) == (404, "there is no task mail.a")


async def test_a_log_that_waits_for_its_task_ends_when_that_leaves_the_scope(door: Door) -> None:
    await door.token("ann", "viewer", ("mail",), ("a",))
    await door.fill("mail.a")
    following = asyncio.create_task(door.as_("ann", "GET", "/v1/tasks/mail.a/log?follow=1"))
    await started(door)
    await moved_away(door, "mail.a")
    assert (await asyncio.wait_for(following, SOON_S)).status == 404


async def test_a_log_that_is_followed_is_cut_off_when_its_task_leaves_the_scope(working: Door) -> None:
    door = working
    await door.fill("mail.a")
    await door.stand.until_state("mail.a", "running")
    (name,) = door.stand.running()
    door.stand.process.write(name, b"for ann")
    everything = asyncio.create_task(door.as_("eve", "GET", "/v1/tasks/mail.a/log?follow=1"))
    async with door.open("ann", "/v1/tasks/mail.a/log?follow=1") as response:
        assert await asyncio.wait_for(response.content.readexactly(7), SOON_S) == b"for ann"
        await moved_away(door, "mail.a")
        door.stand.process.write(name, b", not for ann")
        with pytest.raises(aiohttp.ClientError):
            async with asyncio.timeout(SOON_S):
                await response.read()
    door.stand.end(name)
    assert (await asyncio.wait_for(everything, SOON_S)).body == b"for ann, not for ann"
