"""Requests between nodes: each ends in one way, and waiting is bounded."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from quvatlh.ports import LogError, Refused, RequestHandler, Unavailable, Unknown
from quvatlh.raft import asks
from quvatlh.raft.settings import Settings
from tests.raft.net_parts import MemNet, Node, simulate, stop, two
from tests.sim.loop import SimLoop

SETTINGS = Settings()


def test_a_request_is_answered() -> None:
    async def main(loop: SimLoop) -> None:
        _, a, b = await two(loop)

        async def echo(asker: str, body: bytes) -> bytes:
            return asker.encode() + b" said " + body

        b.links.handle("echo", echo)
        answers = await asyncio.gather(
            *[a.links.request("b", "echo", b"%d" % number, deadline=1) for number in range(100)]
        )
        assert answers == [b"a said %d" % number for number in range(100)]
        await stop(a, b)

    simulate(main)


async def no_of(node: Node, kind: str, deadline: float = 1.0, body: bytes = b"") -> tuple[type[LogError], str, str]:
    with pytest.raises(LogError) as caught:
        await node.links.request("b", kind, body, deadline=deadline)
    return type(caught.value), caught.value.code, caught.value.detail


def test_each_no_of_a_handler_arrives_as_what_it_was() -> None:
    async def main(loop: SimLoop) -> None:
        _, a, b = await two(loop)
        errors = {
            "unavailable": Unavailable("later", "stopping"),
            "refused": Refused("never", "not_empty"),
            "unknown": Unknown("who knows"),
            "bug": ZeroDivisionError("secret detail"),
        }

        def handler(error: Exception) -> RequestHandler:
            async def fail(_asker: str, _body: bytes) -> bytes:
                raise error

            return fail

        for kind, error in errors.items():
            b.links.handle(kind, handler(error))
        assert await no_of(a, "unavailable") == (Unavailable, "stopping", "later")
        assert await no_of(a, "refused") == (Refused, "not_empty", "never")
        assert await no_of(a, "unknown") == (Unknown, "unknown", "who knows")
        assert await no_of(a, "bug") == (Unknown, "unknown", "ZeroDivisionError in the handler of 'bug'")
        assert b.noted("handler_failed") == ["ZeroDivisionError('secret detail')"]
        assert (await no_of(a, "nobody"))[0] is Unavailable
        await stop(a, b)

    simulate(main)


def test_a_request_without_a_link_is_certainly_not_done() -> None:
    async def main(loop: SimLoop) -> None:
        a = Node(MemNet(), loop, "a")
        await a.start()
        assert await no_of(a, "k") == (Unavailable, "no_master", "not connected to b")
        await stop(a)

    simulate(main)


def test_a_request_past_its_deadline_is_unknown_and_its_late_answer_is_dropped() -> None:
    async def main(loop: SimLoop) -> None:
        _, a, b = await two(loop)

        async def slow(_asker: str, _body: bytes) -> bytes:
            await asyncio.sleep(0.2)
            return b"late"

        b.links.handle("slow", slow)
        since_s = loop.time()
        assert await no_of(a, "slow", deadline=0.1) == (Unknown, "unknown", "no answer from b within 0.1 s")
        assert loop.time() - since_s == pytest.approx(0.1)
        assert (await no_of(a, "slow", deadline=0))[0] is Unavailable
        await asyncio.sleep(1)
        assert a.ups[0].asks._waiting == {}
        assert a.downs == []
        assert await a.links.request("b", "slow", b"", deadline=1) == b"late"
        await stop(a, b)

    simulate(main)


@pytest.mark.parametrize("how", ["kill", "stop", "silence"])
def test_a_request_whose_link_is_lost_is_unknown(how: str) -> None:
    async def main(loop: SimLoop) -> None:
        net, a, b = await two(loop)

        async def never(_asker: str, _body: bytes) -> bytes:
            await asyncio.sleep(1000)
            return b""

        b.links.handle("never", never)
        asking = asyncio.ensure_future(no_of(a, "never", deadline=100))
        await asyncio.sleep(0.1)
        if how == "kill":
            net.kill("b")
        elif how == "stop":
            await b.links.stop()
        else:
            net.silent |= {("a", "b"), ("b", "a")}
        kind, _, detail = await asking
        assert kind is Unknown
        assert "was lost" in detail
        await stop(a, b)

    simulate(main)


def test_waiting_requests_are_bounded_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(loop: SimLoop) -> None:
        monkeypatch.setattr(asks, "ASKS_MAX", 10)
        _, a, b = await two(loop)

        async def slow(_asker: str, _body: bytes) -> bytes:
            await asyncio.sleep(1)
            return b""

        b.links.handle("slow", slow)
        first = [asyncio.ensure_future(a.links.request("b", "slow", b"", deadline=5)) for _ in range(10)]
        await asyncio.sleep(0)
        assert (await no_of(a, "slow"))[::2] == (Unavailable, "10 requests to b wait already")
        assert await asyncio.gather(*first) == [b""] * 10
        monkeypatch.setattr(asks, "ASKS_MAX", 11)
        more = [asyncio.ensure_future(a.links.request("b", "slow", b"", deadline=5)) for _ in range(11)]
        await asyncio.sleep(0.1)
        monkeypatch.setattr(asks, "ASKS_MAX", 5)
        b.ups[0]._on_frame(["ask", 99, "slow", b""])
        assert b.ups[0].asks._serving == 11
        assert await asyncio.gather(*more) == [b""] * 11
        assert b.ups[0].asks._serving == b.ups[0].asks._serving_bytes == 0
        await stop(a, b)

    simulate(main)


def test_the_bytes_of_requests_under_way_are_bounded() -> None:
    async def main(loop: SimLoop) -> None:
        _, a, b = await two(loop, settings=replace(SETTINGS, link_buffer_bytes_max=300_000, frame_bytes_max=200_000))

        async def slow(_asker: str, _body: bytes) -> bytes:
            await asyncio.sleep(1)
            return b""

        b.links.handle("slow", slow)
        body = bytes(100_000)
        first = [asyncio.ensure_future(a.links.request("b", "slow", body, deadline=5)) for _ in range(3)]
        await asyncio.sleep(0.1)
        assert (await no_of(a, "slow", body=body))[::2] == (Unavailable, "too many requests over this link")
        assert await asyncio.gather(*first) == [b""] * 3
        assert await a.links.request("b", "slow", body, deadline=5) == b""
        await stop(a, b)

    simulate(main)


def test_a_reason_that_is_no_text_for_the_wire_arrives_all_the_same() -> None:
    async def main(loop: SimLoop) -> None:
        _, a, b = await two(loop)

        async def odd(_asker: str, _body: bytes) -> bytes:
            raise Refused("no file \udcff" + "x" * 10_000)

        b.links.handle("odd", odd)
        kind, _, detail = await no_of(a, "odd")
        assert kind is Refused
        assert detail.startswith("no file ?xxx")
        assert len(detail) == 4000
        await stop(a, b)

    simulate(main)


def test_requests_and_answers_too_large_for_a_frame_are_told() -> None:
    async def main(loop: SimLoop) -> None:
        small = replace(SETTINGS, frame_bytes_max=100_000)
        _, a, b = await two(loop, settings=small)

        async def large(_asker: str, _body: bytes) -> bytes:
            return b"x" * 100_000

        b.links.handle("large", large)
        assert (await no_of(a, "large", body=b"x" * 99_000))[:2] == (Refused, "too_large")
        assert (await no_of(a, "large"))[::2] == (Unknown, "the answer has 100000 bytes, too many for the peer link")
        assert a.downs == []
        await stop(a, b)

    simulate(main)
