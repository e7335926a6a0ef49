from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quvatlh.ports import Member
from tests.fakes.log import FakeLog
from tests.fakes.peers import Switchboard
from tests.support.door import Door, serve
from tests.support.register import RegisterMachine


class Pair:
    """A master, and a node that knows who the master is. Their states are not replicated: only the way there is tested."""

    def __init__(self, directory: Path) -> None:
        self.board = Switchboard()
        self.machines = [RegisterMachine(str(directory / name)) for name in ("one", "two")]
        self.logs = [
            FakeLog(self.machines[0], node=Member("node1", "one", "127.0.0.1:1")),
            FakeLog(self.machines[1], node=Member("node2", "two", "127.0.0.1:2"), acting=False),
        ]
        self.logs[1].depose(master="node1")
        self.master, self.follower = (
            Door(log, self.board.join(log.node_id), lambda machine=machine: machine)  # type: ignore[misc]
            for log, machine in zip(self.logs, self.machines, strict=True)
        )


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    for log in pair.logs:
        await log.stop()
    for machine in pair.machines:
        machine.close()


async def test_what_is_written_is_read(pair: Pair) -> None:
    assert (await pair.master.ask({"op": "write", "name": "r", "value": 1}))["ok"] is True
    assert (await pair.master.ask({"op": "cas", "name": "r", "old": 1, "new": 2}))["ok"] is True
    assert (await pair.master.ask({"op": "cas", "name": "r", "old": 1, "new": 3}))["ok"] is False
    assert (await pair.master.ask({"op": "read", "name": "r"}))["ok"] == 2
    assert (await pair.master.ask({"op": "local", "name": "r"}))["ok"] == 2
    assert (await pair.master.ask({"op": "add", "name": "s", "value": "a"}))["ok"] is True
    assert (await pair.master.ask({"op": "members", "name": "s"}))["ok"] == ["a"]


async def test_a_follower_asks_the_master(pair: Pair) -> None:
    answer = await pair.follower.ask({"op": "write", "name": "r", "value": 1})
    assert answer == {"ok": True, "index": 2}
    assert pair.machines[0].read("r") == 1


async def test_the_same_request_id_is_done_once(pair: Pair) -> None:
    request = {"op": "add", "name": "s", "value": "a", "id": "one"}
    assert [(await pair.master.ask(request))["ok"] for _ in range(2)] == [True, True]
    assert (await pair.master.ask({"op": "add", "name": "s", "value": "a"}))["ok"] is False


async def test_a_lost_answer_is_asked_for_again_and_done_once(pair: Pair) -> None:
    await pair.master.ask({"op": "write", "name": "r", "value": 0})
    pair.logs[0].lose_answers(1)
    answer = await pair.follower.ask({"op": "cas", "name": "r", "old": 0, "new": 1})
    assert answer["ok"] is True


async def test_a_failover_is_waited_out(pair: Pair) -> None:
    pair.logs[0].depose(master=None)
    asked = asyncio.create_task(pair.follower.ask({"op": "write", "name": "r", "value": 1}))
    await asyncio.sleep(0.05)
    pair.logs[0].elect()
    assert (await asked)["ok"] is True


async def test_what_was_never_sent_is_unavailable_and_what_was_is_unknown(pair: Pair) -> None:
    request = {"op": "write", "name": "r", "value": 1, "deadline": 0.1}
    pair.board.cut("node1")
    assert (await pair.follower.ask(request))["error"] == "no_master"
    pair.board.heal()
    pair.board.mute("node1")
    assert (await pair.follower.ask(request))["error"] == "unknown"


@pytest.mark.parametrize("request_", [{}, {"op": "fly"}, {"op": "write"}, {"op": "write", "name": 3, "value": 1}])
async def test_nonsense_is_answered(request_: dict[str, object], pair: Pair) -> None:
    answer = await pair.master.ask(request_)
    assert answer.get("error") == "bad_request" or answer.get("ok") == "invalid"


async def test_status_and_members(pair: Pair) -> None:
    status = await pair.follower.ask({"op": "status"})
    assert (status["node"], status["master"], status["acts"]) == ("node2", "node1", False)
    refused = await pair.follower.ask({"op": "remove_member", "node": "node1"})
    assert refused["error"] == "conflict"


async def test_the_client_port_answers_lines(pair: Pair) -> None:
    server = await serve(pair.master, "127.0.0.1:0")
    host, port = server.sockets[0].getsockname()
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b'{"op": "write", "name": "r", "value": 1}\nnonsense\n[]\n')
    answers = [json.loads(await reader.readline()) for _ in range(3)]
    assert [answer.get("ok", answer.get("error")) for answer in answers] == [True, "bad_request", "bad_request"]
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
