"""A Line by itself, in no time: what it takes for its own, what it hands over, when it closes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quvatlh.api import straight
from quvatlh.api.straight import Head, Line, Lines, Reply
from tests.api.client import until
from tests.fakes.loop import HastyLoop

IDLE_S = 75.0
HEAD = (
    b"POST /v1/events?deadline=%dms HTTP/1.1\r\nHost: one:7420\r\nUser-Agent: quvatlh\r\nAuthorization: Bearer abc\r\n"
    b"Content-Type: application/json\r\nIdempotency-Key: "
)


def sentence(body: bytes, key: bytes = b"k", deadline_ms: int = 5000) -> bytes:
    return HEAD % deadline_ms + key + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body


class Transport(asyncio.Transport):
    """Keeps what is written, tells its protocol what an asyncio transport tells, and is driven by the test."""

    def __init__(self) -> None:
        super().__init__({"sockname": ("127.0.0.1", 7420), "peername": ("127.0.0.1", 9)})
        self.protocol: Any = None
        self.written: list[bytes] = []
        self.is_open = True
        self.was_aborted = False
        self.reads = True
        self.closed_s = 0.0

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return not self.is_open

    def is_reading(self) -> bool:
        return self.reads and self.is_open

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.closed_s = asyncio.get_running_loop().time()
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.was_aborted = True
        self.close()


class General(asyncio.Protocol):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.data: list[bytes] = []

    def connection_made(self, _transport: asyncio.BaseTransport) -> None:
        self.told.append("made")

    def data_received(self, data: bytes) -> None:
        self.told.append("data")
        self.data.append(data)

    def pause_writing(self) -> None:
        self.told.append("full")

    def resume_writing(self) -> None:
        self.told.append("not full")

    def connection_lost(self, _exc: Exception | None) -> None:
        self.told.append("lost")


class Stage:
    """One Line. `go` lets what is under way be answered."""

    def __init__(self) -> None:
        self.asked: list[tuple[Head, str, bytes]] = []
        self.go = asyncio.Event()
        self.go.set()
        self.fails: Exception | None = None
        self.general = General()
        self.lines = Lines(self.ask, lambda: self.general, IDLE_S)
        self.transport = Transport()
        self.line: Line = self.lines()
        self.transport.set_protocol(self.line)
        self.line.connection_made(self.transport)

    def ask(self, head: Head, body: bytes) -> straight.Answer | None:
        if body == b"no":
            return None
        self.asked.append((head, head.headers["Idempotency-Key"], body))
        return self.answer

    async def answer(self) -> Reply:
        await self.go.wait()
        if self.fails is not None:
            raise self.fails
        return Reply(201, b"answer %d" % len(self.asked))

    def hear(self, data: bytes) -> None:
        self.transport.protocol.data_received(data)

    async def idle(self) -> None:
        await until(lambda: self.line.task is None)

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, _, body in self.asked]


def played(scene: Callable[[Stage], Awaitable[None]]) -> None:
    async def play() -> None:
        stage = Stage()
        await scene(stage)
        stage.go.set()
        stage.transport.close()
        await until(lambda: not stage.lines.open)

    with asyncio.Runner(loop_factory=HastyLoop) as runner:
        runner.run(play())


def test_what_is_understood_is_answered_with_what_its_head_says() -> None:
    async def scene(stage: Stage) -> None:
        for key, deadline_ms in ((b"a", 5000), (b"b", 5000), (b"c", 70)):
            stage.hear(sentence(b"{}", key, deadline_ms))
            await stage.idle()
        (one, first, _), (two, second, _), (three, third, body) = stage.asked
        assert ([first, second, third], body) == (["a", "b", "c"], b"{}")
        assert (one is two, two is three) == (True, False)
        assert (two.query, three.query) == ({"deadline_ms": 5000}, {"deadline_ms": 70})
        assert (one.method, one.raw_path) == ("POST", "/v1/events?deadline=5000ms")
        assert (one.local, one.remote) == ("127.0.0.1", "127.0.0.1")
        assert dict(three.headers) == {
            "Host": "one:7420",
            "User-Agent": "quvatlh",
            "Authorization": "Bearer abc",
            "Content-Type": "application/json",
            "Idempotency-Key": "c",
        }
        assert stage.transport.written == [b"answer 1", b"answer 2", b"answer 3"]
        assert stage.general.told == []

    played(scene)


LARGEST = b" " * straight.BODY_BYTES_MAX
NOT_OURS: list[bytes] = [
    sentence(b"no"),
    sentence(LARGEST + b" "),
    sentence(b"{}")[:-1],
    sentence(b"{}") + b" ",
    sentence(b"{}", b"k" * 129),
    sentence(b"{}", b""),
    sentence(b"{}", b"a b"),
    sentence(b"{}", b"\xc3\xa9"),
    sentence(b"{}", deadline_ms=0),
    sentence(b"{}", deadline_ms=10_000_000),
    sentence(b"{}").replace(b"Length: 2", b"Length: 02"),
    sentence(b"{}").replace(b"Length: 2", b"Length: +2"),
    sentence(b"{}").replace(b"Length: 2", b"Length:2"),
    sentence(b"").replace(b"Length: 0", b"Length: 00"),
    sentence(b""),
    sentence(b"{}").replace(b"HTTP/1.1", b"HTTP/1.0"),
    sentence(b"{}").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
    sentence(b"{}").replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"),
    sentence(b"{}").replace(b"Host", b"Expect: 100-continue\r\nHost"),
    sentence(b"{}").replace(b"\r\n", b"\n"),
    sentence(b"{}").replace(b"/v1/events", b"/v1/events/"),
    sentence(b"{}").replace(b"User-Agent", b"User-agent"),
    sentence(b"{}").replace(b"deadline", b"ids"),
    sentence(b"{}").replace(b"application/json", b"application/x-ndjson"),
    sentence(b"{}").replace(b"one:7420", b"one, two"),
]


@pytest.mark.parametrize("wrong", NOT_OURS, ids=range(len(NOT_OURS)))
def test_all_else_is_handed_over_as_it_came_and_for_good(wrong: bytes) -> None:
    async def scene(stage: Stage) -> None:
        stage.hear(sentence(LARGEST))
        await stage.idle()
        stage.hear(wrong)
        stage.hear(sentence(b"{}"))
        assert stage.bodies == [LARGEST]
        assert (stage.general.told, stage.general.data) == (["made", "data", "data"], [wrong, sentence(b"{}")])
        assert not stage.lines.open
        await asyncio.sleep(2 * IDLE_S)
        assert stage.transport.is_open

    played(scene)


PIECES = st.lists(
    st.one_of(
        st.sampled_from([b"{}", b"no", b"[]"]).map(sentence),
        st.builds(lambda raw, cut: raw[:cut], st.just(sentence(b"{}")), st.integers(1, 200)),
        st.binary(min_size=1, max_size=3),
        st.just(sentence(b"{}") * 2),
    ),
    min_size=1,
    max_size=6,
)


@given(PIECES, st.lists(st.booleans(), min_size=6, max_size=6))
def test_however_it_comes_no_byte_is_lost_or_answered_twice(pieces: Sequence[bytes], at_once: Sequence[bool]) -> None:
    """What was answered, and then what the general server got, is what came."""

    async def scene(stage: Stage) -> None:
        for piece, together in zip(pieces, at_once, strict=False):
            if together:
                stage.go.clear()
            stage.hear(piece)
            if not together:
                stage.go.set()
                await stage.idle()
        stage.go.set()
        await stage.idle()
        answered = b"".join(sentence(body) for body in stage.bodies)
        assert answered + b"".join(stage.general.data) == b"".join(pieces)
        assert len(stage.transport.written) == len(stage.asked)
        assert stage.general.told == (["made"] + ["data"] * len(stage.general.data) if stage.general.data else [])

    played(scene)


# --- how long it stays ---


def test_it_is_closed_when_nothing_was_under_way_for_so_long() -> None:
    async def scene(stage: Stage) -> None:
        began_s = asyncio.get_running_loop().time()
        for _ in range(3):
            await asyncio.sleep(0.9 * IDLE_S)
            stage.hear(sentence(b"{}"))
            await stage.idle()
        stage.go.clear()
        stage.hear(sentence(b"{}"))
        await asyncio.sleep(2.5 * IDLE_S)
        assert stage.transport.is_open
        stage.go.set()
        await asyncio.sleep(2 * IDLE_S)
        assert stage.transport.closed_s - began_s == pytest.approx((2.7 + 2.5 + 1) * IDLE_S, abs=1)
        assert not stage.lines.open
        assert not stage.transport.was_aborted

    played(scene)


def test_who_says_nothing_is_closed_too() -> None:
    async def scene(stage: Stage) -> None:
        await asyncio.sleep(0.99 * IDLE_S)
        assert stage.transport.is_open
        await asyncio.sleep(0.02 * IDLE_S)
        assert not stage.transport.is_open

    played(scene)


def test_who_does_not_read_is_not_read_from_and_cut_off_at_last() -> None:
    async def scene(stage: Stage) -> None:
        stage.line.pause_writing()
        assert not stage.transport.is_reading()
        stage.line.resume_writing()
        assert stage.transport.is_reading()
        stage.line.pause_writing()
        await asyncio.sleep(1.01 * IDLE_S)
        assert stage.transport.was_aborted

    played(scene)


def test_the_general_server_is_told_that_a_client_does_not_read() -> None:
    async def scene(stage: Stage) -> None:
        stage.go.clear()
        stage.hear(sentence(b"{}"))
        stage.hear(b"more")
        stage.line.pause_writing()
        stage.go.set()
        await until(lambda: stage.general.data)
        assert stage.general.told == ["made", "full", "data"]
        assert stage.transport.is_reading()

    played(scene)


@pytest.mark.parametrize("answered_first", [False, True])
def test_where_its_client_is_gone_nothing_is_handed_over(answered_first: bool) -> None:
    async def scene(stage: Stage) -> None:
        stage.go.clear()
        stage.hear(sentence(b"{}"))
        stage.hear(b"more")
        await asyncio.sleep(0)
        for turn in (stage.go.set, stage.transport.close) if answered_first else (stage.transport.close, stage.go.set):
            turn()
        await until(lambda: not stage.lines.open)
        assert stage.general.told == []

    played(scene)


def test_an_answer_that_cannot_be_given_ends_the_connection() -> None:
    async def scene(stage: Stage) -> None:
        stage.fails = ConnectionResetError("gone")
        stage.hear(sentence(b"{}"))
        await until(lambda: stage.transport.was_aborted)
        assert stage.transport.written == []

    played(scene)


def test_who_comes_while_the_node_stops_is_not_let_in() -> None:
    async def scene(stage: Stage) -> None:
        stage.lines.pre_shutdown()
        assert not stage.transport.is_open
        late, line = Transport(), stage.lines()
        late.set_protocol(line)
        line.connection_made(late)
        assert not late.is_open
        await until(lambda: not stage.lines.open)

    played(scene)


def test_what_is_not_answered_within_the_grace_is_cancelled() -> None:
    async def scene(stage: Stage) -> None:
        loop = asyncio.get_running_loop()
        stage.go.clear()
        stage.hear(sentence(b"{}"))
        task, began_s = stage.line.task, loop.time()
        stage.lines.pre_shutdown()
        await stage.lines.shutdown(3.0)
        assert task is not None
        assert task.cancelled()
        assert not stage.transport.is_open
        assert loop.time() - began_s == pytest.approx(3.0, abs=0.5)

    played(scene)
