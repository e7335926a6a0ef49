"""How a link ends, and what the other side makes of it: reset, goodbye, silence, a bad message, too much unsent."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from quvatlh.raft.settings import Settings
from quvatlh.raft.wire import Message, WireError, encode
from tests.raft.net_parts import raw_of, simulate, stop, two
from tests.sim.loop import SimLoop

SETTINGS = Settings()


def test_silence_ends_a_link_and_is_no_reset() -> None:
    async def main(loop: SimLoop) -> None:
        net, a, b = await two(loop)
        since_s = loop.time()
        net.silent |= {("a", "b"), ("b", "a")}
        await a.until(lambda: a.downs)
        await b.until(lambda: b.downs)
        assert loop.time() - since_s <= SETTINGS.silence_s + 0.1
        assert loop.time() - since_s >= SETTINGS.silence_s - SETTINGS.ping_s - 0.1
        assert [how.how for _, how in a.downs + b.downs] == ["silence", "silence"]
        net.silent.clear()
        await a.until(lambda: len(a.ups) == 2)
        await stop(a, b)

    simulate(main)


def test_pings_keep_an_idle_link_and_stay_away_from_a_busy_one() -> None:
    async def main(loop: SimLoop) -> None:
        net, a, b = await two(loop)
        raw = raw_of(net, "a", "b")
        await asyncio.sleep(20)
        assert (a.downs, b.downs) == ([], [])
        assert a.ups[0].rtt_s is not None
        assert 0 < a.ups[0].rtt_s < 0.01
        settled = len(raw.sent)
        busy = encode(["m"])
        for _ in range(100):
            a.ups[0].send(["m"])
            b.ups[0].send(["m"])
            await asyncio.sleep(SETTINGS.ping_s / 2)
        assert bytes(raw.sent[settled:]).count(busy) == 100
        assert bytes(raw.sent[settled:]).count(b"ping") <= 1
        await stop(a, b)

    simulate(main)


def test_a_node_that_was_held_up_does_not_take_it_for_silence() -> None:
    async def main(loop: SimLoop) -> None:
        net, a, b = await two(loop)
        await asyncio.sleep(1)
        # As after SIGSTOP: time went by, no timer ran, and the timer runs before the socket is read.
        net.silent.add(("b", "a"))
        a.clock.boot_offset_s += 60
        await asyncio.sleep(SETTINGS.ping_s + 0.1)
        net.silent.clear()
        await asyncio.sleep(5)
        assert a.downs == []
        net.silent.add(("b", "a"))
        await a.until(lambda: a.downs)
        assert a.downs[0][1].how == "silence"
        await stop(a, b)

    simulate(main)


def test_stopping_says_goodbye_and_is_no_reset() -> None:
    async def main(loop: SimLoop) -> None:
        for seed in range(20):
            net, a, b = await two(loop, seed)
            b.ups[0].send(["a lot", b"x" * 100_000])
            since_s = loop.time()
            await b.links.stop()
            assert loop.time() - since_s < 0.1, "the other side closes, so nobody waits for long"
            await a.until(lambda a=a: a.downs)  # type: ignore[misc]
            assert a.downs[0][1].how == "bye"
            assert not a.downs[0][1].reset
            assert [how.how for _, how in b.downs] == ["closed"]
            assert b.links._tasks == {}
            assert net.listening.keys() == {"a:1"}
            await a.links.stop()

    simulate(main)


def test_both_stopping_at_once_do_not_wait_for_each_other() -> None:
    async def main(loop: SimLoop) -> None:
        _, a, b = await two(loop)
        since_s = loop.time()
        await asyncio.gather(a.links.stop(), b.links.stop())
        assert loop.time() - since_s < 0.1
        assert not any(how.reset for _, how in a.downs + b.downs)

    simulate(main)


def test_stopping_does_not_wait_long_for_a_dead_peer() -> None:
    async def main(loop: SimLoop) -> None:
        net, a, b = await two(loop)
        net.vanish("b")
        since_s = loop.time()
        await a.links.stop()
        assert loop.time() - since_s <= SETTINGS.ping_s + 0.01
        await b.links.stop()

    simulate(main)


def test_closing_a_link_is_told_soon_and_not_within_the_call() -> None:
    async def main(loop: SimLoop) -> None:
        _, a, b = await two(loop)
        link = a.ups[0]
        link.close("not wanted")
        assert not link.alive
        assert not link.send(["m"])
        assert a.downs == []
        await asyncio.sleep(0)
        assert [(how.how, how.reason) for _, how in a.downs] == [("closed", "not wanted")]
        await b.until(lambda: b.downs)
        assert [(how.how, how.reason) for _, how in b.downs] == [("bye", "not wanted")]
        await stop(a, b)

    simulate(main)


def test_a_peer_that_takes_nothing_is_disconnected_before_memory_runs_out() -> None:
    async def main(loop: SimLoop) -> None:
        small = replace(SETTINGS, link_buffer_bytes_max=100_000, frame_bytes_max=90_000)
        net, a, b = await two(loop, settings=small)
        raw = raw_of(net, "a", "b")
        raw.stuck = True
        while a.ups[0].send(["m", b"x" * 10_000]):
            assert a.ups[0].pending() <= 100_000
        assert not a.ups[0].alive
        assert a.downs == []
        await a.until(lambda: a.downs)
        assert a.downs[0][1].how == "closed"
        assert "would wait to be sent" in a.downs[0][1].reason
        await stop(a, b)

    simulate(main)


BAD = [
    (encode([]), "without a kind"),
    (encode([1]), "without a kind"),
    (encode(["k" * 33]), "without a kind"),
    (encode(["ping"]), "a ping of the wrong shape"),
    (encode(["ping", "x"]), "a ping of the wrong shape"),
    (encode(["pong", None]), "a pong of the wrong shape"),
    (encode(["bye", 5]), "a bye of the wrong shape"),
    (encode(["ask", 1, "k"]), "an ask of the wrong shape"),
    (encode(["ask", True, "k", b""]), "an ask of the wrong shape"),
    (encode(["ask", 1, "k", "text"]), "an ask of the wrong shape"),
    (encode(["ask", 1, "k" * 65, b""]), "an ask of the wrong shape"),
    (encode(["answer", 1, True]), "an answer of the wrong shape"),
    (encode(["answer", 1, True, "text"]), "an answer of the wrong shape"),
    (encode(["answer", 1, False, ["what", "c", "d"]]), "an answer of the wrong shape"),
    (encode(["answer", 1, False, b"x"]), "an answer of the wrong shape"),
    (encode(["gossip"]), "unknown message gossip"),
    (b"\xff" * 9, "at most 16777216 are taken"),
    (b"\x00\x00\x00\x01\x00\x00\x00\x00\xc0", "checksum"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD)
def test_a_bad_message_ends_its_link_and_nothing_else(bad: bytes, reason: str) -> None:
    async def main(loop: SimLoop) -> None:
        net, a, b = await two(loop)

        def refuse(_link: object, message: Message) -> None:
            raise WireError(f"unknown message {message[0]}")

        b.links._current["a"].on_message = refuse
        raw_of(net, "a", "b").write(bad)
        await b.until(lambda: b.downs)
        assert b.downs[0][1].how == "error"
        assert reason in b.downs[0][1].reason
        assert b.noted("link_error") == [b.downs[0][1].reason]
        await a.until(lambda: a.downs)
        assert (a.downs[0][1].how, a.downs[0][1].reason) == ("bye", b.downs[0][1].reason)
        await b.until(lambda: len(b.ups) == 2)
        assert b.links.get("a") is b.ups[1]
        await stop(a, b)

    simulate(main)


def test_a_fault_of_the_owner_ends_the_link_and_reaches_the_loop() -> None:
    def crash(_link: object, _message: object) -> None:
        raise ZeroDivisionError("a bug")

    async def main(loop: SimLoop) -> None:
        _, a, b = await two(loop)
        b.links._current["a"].on_message = crash
        a.ups[0].send(["m"])
        await b.until(lambda: b.downs)
        assert b.downs[0][1].how == "error"
        await stop(a, b)

    with pytest.raises(Exception, match="a bug"):
        simulate(main)
