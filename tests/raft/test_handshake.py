"""Who does not know the secret gets nowhere, and each refusal says why."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from quvatlh.raft import handshake
from quvatlh.raft.handshake import Doc, Ours, Refusal
from quvatlh.raft.network import Writer
from quvatlh.raft.settings import Settings
from quvatlh.raft.wire import Channel, FrameDecoder, Message, WireError, encode, pack
from tests.raft.net_parts import SECRET, MemNet, open_pair, simulate
from tests.sim.clock import SimClock
from tests.sim.loop import SimLoop

DIALER: Doc = {"id": "d", "incarnation": "1", "seq": 7, "cluster": "c"}
ACCEPTOR: Doc = {"id": "a", "incarnation": "2", "seq": 0, "cluster": "c"}
Result = tuple[Doc, Refusal | None] | WireError
Change = Callable[[Message], Message]


def ours(doc: Doc, nonce: int, secret: bytes = SECRET) -> Ours:
    return Ours(secret, bytes([nonce]) * 32, lambda: doc)


def welcome(_kind: str, _doc: Doc) -> Refusal | None:
    return None


async def settle(channel: Channel, work: Awaitable[Result]) -> Result:
    try:
        result: Result = await work
    except WireError as error:
        channel.close(error.reason)
        return error
    return result


class Meeting:
    """A handshake with somebody in between, who may change each frame: (to the acceptor, to the dialer)."""

    def __init__(self, loop: SimLoop, dialer: Ours, acceptor: Ours, judge: handshake.Judge = welcome) -> None:
        self.loop = loop
        self.dialer = dialer
        self.acceptor = acceptor
        self.judge = judge
        self.kind = handshake.LINK
        self.to_acceptor: dict[int, Change] = {}
        self.to_dialer: dict[int, Change] = {}
        self.passed: list[Message] = []

    async def run(self) -> tuple[Result, Result]:
        near_end, middle_near = await open_pair(MemNet())
        middle_far, far_end = await open_pair(MemNet())
        clock = SimClock(self.loop)
        self.near = Channel(*near_end, Settings(), clock)
        self.far = Channel(*far_end, Settings(), clock)
        between = [
            asyncio.ensure_future(self._pass(middle_near[0], middle_far[1], self.to_acceptor)),
            asyncio.ensure_future(self._pass(middle_far[0], middle_near[1], self.to_dialer)),
        ]
        dialling = handshake.dial(self.near, self.dialer, self.kind, Settings())
        accepting = handshake.accept(self.far, self.acceptor, self.judge, Settings())
        near_result, far_result = await asyncio.gather(settle(self.near, dialling), settle(self.far, accepting))
        self.near.close("")
        self.far.close("")
        await asyncio.gather(*between)
        return near_result, far_result

    async def _pass(self, reader: asyncio.StreamReader, writer: Writer, changes: dict[int, Change]) -> None:
        decoder = FrameDecoder(Settings().hello_bytes_max)
        number = 0
        while data := await reader.read(100_000):
            for message in decoder.feed(data):
                self.passed.append(message)
                writer.write(encode(changes[number](message) if number in changes else message))
                number += 1
        writer.close()


def meet(loop: SimLoop, dialer_secret: bytes = SECRET, judge: handshake.Judge = welcome) -> Meeting:
    return Meeting(loop, ours(DIALER, 1, dialer_secret), ours(ACCEPTOR, 2), judge)


def code_of(result: Result) -> str:
    assert isinstance(result, WireError)
    return result.code


@pytest.mark.parametrize("kind", handshake.KINDS)
def test_both_sides_learn_kind_and_document(kind: str) -> None:
    async def main(loop: SimLoop) -> None:
        meeting = meet(loop)
        meeting.kind = kind
        assert await meeting.run() == ((ACCEPTOR, None), (DIALER, None))
        assert (meeting.near.kind, meeting.far.kind) == (kind, kind)
        assert (meeting.near.peer_doc, meeting.far.peer_doc) == (ACCEPTOR, DIALER)

    simulate(main)


def test_a_wrong_secret_is_refused_before_a_document_of_the_acceptor_is_sent() -> None:
    async def main(loop: SimLoop) -> None:
        judged: list[Doc] = []
        meeting = meet(loop, b"another", lambda _kind, doc: judged.append(doc))
        near, far = await meeting.run()
        assert code_of(far) == "secret"
        assert code_of(near) == "secret"
        assert "another cluster secret" in str(near)
        assert judged == []
        assert pack(ACCEPTOR) not in pack(meeting.passed)

    simulate(main)


def test_a_refusal_reaches_the_dialer_with_the_document_of_the_acceptor() -> None:
    async def main(loop: SimLoop) -> None:
        refusal = Refusal("stale", "there is a newer one", 99)
        assert await meet(loop, judge=lambda _kind, _doc: refusal).run() == ((ACCEPTOR, refusal), (DIALER, refusal))

    simulate(main)


def flipped(at: int) -> Change:
    def change(message: Message) -> Message:
        value = message[at]
        assert isinstance(value, bytes)
        return [*message[:at], bytes([value[0] ^ 1]) + value[1:], *message[at + 1 :]]

    return change


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (0, flipped(2)),
        (0, lambda m: [*m[:3], "snapshot"]),
        (1, flipped(0)),
        (1, lambda m: [m[0], pack({**DIALER, "seq": 8})]),
        (1, lambda m: [bytes(0), m[1]]),
    ],
    ids=["nonce", "kind", "mac", "document", "empty mac"],
)
def test_the_acceptor_notices_a_change_on_the_way(number: int, change: Change) -> None:
    async def main(loop: SimLoop) -> None:
        judged: list[Doc] = []
        meeting = meet(loop, judge=lambda _kind, doc: judged.append(doc))
        meeting.to_acceptor[number] = change
        _, far = await meeting.run()
        assert code_of(far) == "secret"
        assert judged == []

    simulate(main)


@pytest.mark.parametrize(
    "change",
    [
        flipped(1),
        lambda m: [*m[:2], pack({**ACCEPTOR, "id": "x"})],
        lambda m: ["refuse", m[1], m[2], pack(["stale", "", 2**62])],
    ],
    ids=["mac", "document", "made a refusal"],
)
def test_the_dialer_notices_a_change_on_the_way(change: Change) -> None:
    async def main(loop: SimLoop) -> None:
        meeting = meet(loop)
        meeting.to_dialer[1] = change
        near, _ = await meeting.run()
        assert code_of(near) == "secret"
        assert meeting.near.kind == ""

    simulate(main)


def test_a_refusal_cannot_be_made_an_acceptance_nor_another_refusal() -> None:
    async def main(loop: SimLoop) -> None:
        changes: list[Change] = [
            lambda m: ["accept", m[1], m[2]],
            lambda m: [*m[:3], pack(["stale", "", 2**62])],
        ]
        for change in changes:
            meeting = meet(loop, judge=lambda _kind, _doc: Refusal("not_admitted", "no"))
            meeting.to_dialer[1] = change
            near, _ = await meeting.run()
            assert code_of(near) == "secret"

    simulate(main)


def test_a_proof_sent_back_to_its_maker_is_worth_nothing() -> None:
    async def main(loop: SimLoop) -> None:
        meeting = meet(loop)
        proofs: list[Message] = []

        def keep(message: Message) -> Message:
            proofs.append(message)
            return message

        meeting.to_acceptor[1] = keep
        meeting.to_dialer[1] = lambda _message: ["accept", *proofs[0]]
        near, _ = await meeting.run()
        assert code_of(near) == "secret"

    simulate(main)


def test_a_proof_of_one_step_is_none_of_another() -> None:
    macs = {handshake._mac(SECRET, label, [b"n", b"m", "link"]) for label in ("dialer", "acceptor", "refuser")}
    assert len(macs) == 3


def test_a_recorded_session_played_again_proves_nothing() -> None:
    async def main(loop: SimLoop) -> None:
        first = meet(loop)
        await first.run()
        hello, _, proof = first.passed[:3]
        dialled, accepted = await open_pair(MemNet())
        far = Channel(*accepted, Settings(), SimClock(loop))
        dialled[1].write(encode(hello) + encode(proof))
        again = await settle(far, handshake.accept(far, ours(ACCEPTOR, 3), welcome, Settings()))
        assert code_of(again) == "secret"
        dialled[1].close()

    simulate(main)


def test_other_versions_are_named_on_both_sides() -> None:
    async def main(loop: SimLoop) -> None:
        meeting = meet(loop)
        meeting.to_acceptor[0] = lambda _message: ["QVTL", 9, "a greeting of the future"]
        meeting.to_dialer[0] = lambda message: [8, *message[1:]]
        near, far = await meeting.run()
        assert str(far) == "it speaks version 9 of the peer protocol, this node 1"
        assert str(near) == "it speaks version 8 of the peer protocol, this node 1"
        assert (code_of(near), code_of(far)) == ("version", "version")

    simulate(main)


@pytest.mark.parametrize(
    "doc",
    [
        {},
        {**DIALER, "id": ""},
        {**DIALER, "id": 5},
        {**DIALER, "id": "x" * 257},
        {**DIALER, "incarnation": None},
        {**DIALER, "seq": -1},
        {**DIALER, "seq": True},
        {**DIALER, "seq": 2**62 + 1},
        {**DIALER, "seq": "1"},
    ],
)
def test_a_document_without_what_every_one_has_is_refused(doc: Doc) -> None:
    async def main(loop: SimLoop) -> None:
        _, far = await Meeting(loop, ours(doc, 1), ours(ACCEPTOR, 2)).run()
        assert code_of(far) == "handshake"

    simulate(main)


def test_a_document_that_would_not_fit_is_a_fault_of_its_maker() -> None:
    async def main(loop: SimLoop) -> None:
        large = {**ACCEPTOR, "more": b"x" * Settings().hello_bytes_max}
        meeting = Meeting(loop, ours(DIALER, 1), ours(large, 2))
        with pytest.raises(ValueError, match="too many"):
            await meeting.run()
        meeting.near.close("")
        meeting.far.close("")

    simulate(main)


STRANGERS = [
    (b"\x16\x03\x01\x02\x00\x01\x00\x01", "it sent a TLS handshake (TLS is off on this side)"),
    (b"\x15\x03\x03\x00\x02\x02\x28\x00", "it sent a TLS alert (TLS is on at the other side)"),
    (b"GET / HTTP/1.1\r\n", "it sent an HTTP request"),
    (b"HTTP/1.1 400 Bad Request\r\n", "it sent an HTTP answer"),
    (b"\x80\x04\x95\x10\x00\x00\x00\x00", "it sent a pickle"),
    (b"SSH-2.0-OpenSSH_9.2\r\n", "it sent an SSH greeting"),
    (b"\x00\x00\x00\x04\x00\x00\x00\x00abcd", "it sent something else"),
    (encode(["hello"]), "it sent something else"),
    (encode([]), "it sent something else"),
]


@pytest.mark.parametrize(("opening", "reason"), STRANGERS)
@pytest.mark.parametrize("side", ["dialer", "acceptor"])
def test_a_stranger_is_named_by_what_it_opens_with(opening: bytes, reason: str, side: str) -> None:
    async def main(loop: SimLoop) -> None:
        stranger, here = await open_pair(MemNet())
        channel = Channel(*here, Settings(), SimClock(loop))
        stranger[1].write(opening)
        if side == "acceptor":
            result = await settle(channel, handshake.accept(channel, ours(ACCEPTOR, 2), welcome, Settings()))
        else:
            result = await settle(channel, handshake.dial(channel, ours(DIALER, 1), "link", Settings()))
        assert code_of(result) == "stranger"
        assert str(result) == f"not a Qu'vatlh peer: {reason}"
        stranger[1].close()

    simulate(main)


def test_a_connection_that_ends_early_says_so() -> None:
    async def main(loop: SimLoop) -> None:
        stranger, here = await open_pair(MemNet())
        channel = Channel(*here, Settings(), SimClock(loop))
        stranger[1].write(encode(["QVTL", 1])[:7])
        stranger[1].close()
        result = await settle(channel, handshake.accept(channel, ours(ACCEPTOR, 2), welcome, Settings()))
        assert (code_of(result), str(result)) == ("closed", "the connection ended before the handshake was done")

    simulate(main)
