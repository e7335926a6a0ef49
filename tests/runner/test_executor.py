"""What holds of every ports.Executor, the fake and the real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from quvatlh.core.work import check
from quvatlh.ports import ActionFinished, ActionSpec, ActionStarted, Executor, Life
from quvatlh.system.clock import RealClock
from tests.fakes.entropy import FakeEntropy
from tests.fakes.executor import FakeExecutor, FakeHost
from tests.runner.perch import Ear, ended, real

Make = Callable[..., Executor]


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.long)])
async def make(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Make]:
    """Daemons' sides, all of the same data directory."""
    made: list[Executor] = []
    host = FakeHost(RealClock(), FakeEntropy())

    def one(worker: str = "w1") -> Executor:
        executor = host.executor(worker) if request.param == "fake" else real(tmp_path, worker)
        made.append(executor)
        return executor

    yield one
    for each in made:
        await each.close(0)
    last = one(made[-1].life.worker if made and made[-1].life else "w1")
    await last.open()
    await last.close(0)


def spec(
    name: str = "a", fence: int = 1, lease_s: float = 60, command: tuple[str, ...] = ("sleep", "1000")
) -> ActionSpec:
    work = check({"command": list(command)})
    return ActionSpec(name, "t", 1, fence, "w1", work, seq=7, slots=2, lease_s=lease_s)


async def opened(make: Make, worker: str = "w1") -> tuple[Executor, Ear, Life]:
    executor, ear = make(worker), Ear()
    executor.listen(ear)
    return executor, ear, await executor.open()


async def running(make: Make) -> tuple[Executor, Ear, Life]:
    """With action `a`."""
    executor, ear, life = await opened(make)
    executor.renew(await executor.ask())
    executor.start(spec())
    assert isinstance(await ear.next(), ActionStarted)
    return executor, ear, life


async def test_a_new_executor_has_a_session_and_a_secret_and_holds_nothing(make: Make) -> None:
    executor, _, life = await opened(make)
    assert (life.worker, life.fence, life.held, life.fresh) == ("w1", 0, (), True)
    assert (len(life.session), len(life.secret)) == (32, 32)
    assert executor.life == life


async def test_an_action_is_live_from_its_start_to_its_finish(make: Make) -> None:
    executor, ear, _ = await running(make)
    assert list(executor.live()) == ["a"]
    executor.stop("a")
    end = await ear.end()
    assert (end.signal, end.exit_code, end.error and end.error.code) == ("TERM", None, "stopped")
    assert list(executor.live()) == []


async def test_an_action_that_is_live_is_not_started_again(make: Make) -> None:
    executor, _, _ = await running(make)
    with pytest.raises(ValueError, match="live already"):
        executor.start(spec(fence=2))


async def test_stopped_before_it_began_it_finishes_and_never_starts(make: Make) -> None:
    executor, ear, _ = await opened(make)
    executor.start(spec())
    executor.stop("a")
    end = await ear.next()
    assert isinstance(end, ActionFinished)
    assert (end.started_at_ms, end.error and end.error.code) == (None, "stopped")


@pytest.mark.parametrize("fence", [4, 5])
async def test_a_token_that_is_not_above_the_highest_is_not_started(make: Make, fence: int) -> None:
    executor, ear, _ = await opened(make)
    executor.start(spec("a", 5))
    assert isinstance(await ear.next(), ActionStarted)
    executor.start(spec("b", fence))
    end = await ear.end()
    assert (end.action_id, end.started_at_ms, end.error and end.error.code) == ("b", None, "stale")


WIDE = 2
"""Slots of the worker: one action of `spec`."""


def lined(name: str, fence: int, slots: int = 2, wait_s: float = 60, lease_s: float = 60) -> ActionSpec:
    """One that may wait for its slots."""
    return replace(spec(name, fence, lease_s), slots=slots, width=WIDE, wait_s=wait_s)


async def test_what_has_no_slot_waits_and_begins_by_token_when_one_is_free(make: Make) -> None:
    executor, ear, _ = await opened(make)
    for fence, (name, slots) in enumerate([("a", 2), ("b", 1), ("c", 1), ("d", 0), ("e", 2), ("f", 0)], 1):
        executor.start(lined(name, fence, slots))
    assert (await ear.next()).action_id == "a"
    executor.stop("a", 0)
    heard = [await ear.next() for _ in range(4)]
    assert [(type(each), each.action_id) for each in heard] == [
        (ActionFinished, "a"), (ActionStarted, "b"), (ActionStarted, "c"), (ActionStarted, "d")
    ]  # fmt: skip
    executor.stop("b", 0)
    assert ended(await ear.end()) == ("b", "stopped"), "e needs the slot of c, too, and f is behind it"
    executor.stop("c", 0)
    heard = [await ear.next() for _ in range(3)]
    assert [each.action_id for each in heard] == ["c", "e", "f"]


async def test_what_finds_no_slot_in_time_never_begins(make: Make) -> None:
    executor, ear, _ = await opened(make)
    executor.start(lined("a", 1))
    assert isinstance(await ear.next(), ActionStarted)
    executor.start(lined("b", 2, wait_s=0.1))
    executor.start(lined("c", 3, lease_s=0.2))
    ends = [await ear.end() for _ in "bc"]
    assert sorted(map(ended, ends)) == [("b", "stale"), ("c", "stale")]
    assert [end.started_at_ms for end in ends] == [None, None]
    assert list(executor.live()) == ["a"]


async def test_what_waits_can_be_stopped_and_called_back(make: Make) -> None:
    executor, ear, _ = await opened(make)
    for fence, name in enumerate("abcd", 1):
        executor.start(lined(name, fence))
    assert isinstance(await ear.next(), ActionStarted)
    executor.stop("c")
    assert ended(await ear.end()) == ("c", "stale")
    executor.recall()
    assert sorted([ended(await ear.end()), ended(await ear.end())]) == [("b", "stale"), ("d", "stale")]
    assert list(executor.live()) == ["a"]
    executor.start(lined("e", 5))
    executor.stop("a", 0)
    assert ended(await ear.end()) == ("a", "stopped")
    assert (await ear.next()).action_id == "e"


async def test_what_waits_outlives_the_daemon_and_begins_without_it(make: Make, tmp_path: Path) -> None:
    executor, ear, _ = await opened(make)
    go, begun = tmp_path / "go", tmp_path / "begun"
    waits = f"while [ ! -e {go} ]; do sleep 0.01; done"
    executor.start(replace(lined("a", 1), work=check({"shell": waits})))
    assert isinstance(await ear.next(), ActionStarted)
    executor.start(replace(lined("b", 2), work=check({"shell": f"touch {begun}; exec sleep 1000"})))
    await executor.ask()
    await executor.leave()
    go.touch()
    if isinstance(executor, FakeExecutor):
        assert executor._host.process is not None
        executor._host.process.end("a")
    else:
        async with asyncio.timeout(60):
            while not begun.exists():  # noqa: ASYNC110 - it tells by its file
                await asyncio.sleep(0.01)
    _, _, life = await opened(make)
    assert {each.id: (each.started is not None, each.finished is not None) for each in life.held} == {
        "a": (True, True),
        "b": (True, False),
    }


async def test_an_award_whose_lease_is_over_is_not_started_and_its_token_is_seen(make: Make) -> None:
    executor, ear, _ = await opened(make)
    executor.start(spec("a", 5, lease_s=0))
    assert (ended(await ear.end()), list(executor.live())) == (("a", "stale"), [])
    executor.start(spec("b", 5))
    assert ended(await ear.end()) == ("b", "stale")


async def test_a_lease_that_is_over_ends_the_action_without_its_grace(make: Make) -> None:
    executor, ear, _ = await opened(make)
    executor.start(spec("a", lease_s=0.3, command=("sh", "-c", "trap '' TERM; sleep 1000")))
    assert isinstance(await ear.next(), ActionStarted)
    end = await ear.end()
    assert (ended(end), end.signal) == (("a", "lease"), "KILL")


async def test_a_renewed_lease_counts_from_the_beat_that_was_sent(make: Make) -> None:
    executor, ear, _ = await opened(make)
    executor.start(spec("a", 1, lease_s=1))
    executor.start(spec("b", 2, lease_s=30))
    async with asyncio.timeout(60):
        sent = began = await executor.ask()
        while sent < began + 1.5:
            sent = await executor.ask()
            executor.renew(sent)
            await asyncio.sleep(0.1)
    assert sorted(executor.live()) == ["a", "b"]
    executor.renew(began)  # an older answer takes nothing back
    assert isinstance(await ear.next(), ActionStarted)
    assert isinstance(await ear.next(), ActionStarted)
    assert ended(await ear.end()) == ("a", "lease")


async def test_a_renewal_that_comes_late_counts_from_when_its_beat_was_sent(make: Make) -> None:
    executor, ear, _ = await opened(make)
    sent = await executor.ask()
    while RealClock().boot() <= sent + 0.2:  # noqa: ASYNC110 - time itself is awaited
        await asyncio.sleep(0.05)
    executor.renew(sent)
    executor.start(spec("a", lease_s=0.2))
    assert ended(await ear.end()) == ("a", "stale")


async def test_an_answer_bears_the_time_before_its_question(make: Make) -> None:
    executor, _, _ = await opened(make)
    before = RealClock().boot()
    sent = await executor.ask()
    assert before <= sent <= RealClock().boot()


async def test_another_daemon_finds_the_session_and_its_actions(make: Make) -> None:
    first, _, life = await running(make)
    await first.leave()
    assert first.life is None
    second, ear, found = await opened(make)
    assert (found.session, found.secret, found.fence, found.fresh) == (life.session, life.secret, 1, False)
    (held,) = found.held
    assert (held.id, held.fence, held.seq, held.slots, held.lease_s) == ("a", 1, 7, 2, 60)
    assert (held.stopping, held.finished) == (False, None)
    assert held.started is not None
    assert list(second.live()) == ["a"]
    second.stop("a")
    assert ended(await ear.end()) == ("a", "stopped")


async def test_an_end_is_kept_until_it_is_forgotten(make: Make) -> None:
    first, ear, _ = await running(make)
    first.stop("a")
    end = await ear.end()
    await first.leave()
    second, _, found = await opened(make)
    assert [held.finished for held in found.held] == [end]
    second.forget(["a", "unknown"])
    await second.ask()
    await second.leave()
    _, _, empty = await opened(make)
    assert (empty.held, empty.session) == ((), found.session)


async def test_what_is_forgotten_while_it_runs_is_not_kept(make: Make) -> None:
    first, ear, _ = await running(make)
    first.forget(["a"])
    first.stop("a", 0)
    assert ended(await ear.end()) == ("a", "stopped")
    await first.leave()
    _, _, found = await opened(make)
    assert found.held == ()


async def test_what_was_carried_out_beside_it_is_followed_like_its_own(make: Make) -> None:
    executor, _, _ = await opened(make)
    await executor.keep("a7", b"an answer")
    assert [(each.offset, each.data) async for each in executor.follow("a7", 3)] == [(3, b"answer")]


async def test_the_newest_daemon_has_the_executor_and_the_other_is_told(make: Make) -> None:
    first, ear, life = await running(make)
    second, _, found = await opened(make)
    assert "another daemon" in await ear.gone_because()
    assert (first.life, list(first.live())) == (None, [])
    assert (found.session, list(second.live())) == (life.session, ["a"])
    with pytest.raises(RuntimeError):
        first.start(spec("b", 2))
    with pytest.raises(OSError, match="no executor"):
        await first.ask()
    first.stop("a", 0)
    await second.ask()
    assert list(second.live()) == ["a"]


async def test_a_worker_of_another_name_gets_an_executor_of_its_own(make: Make) -> None:
    first, ear, life = await running(make)
    second, _, found = await opened(make, "w2")
    assert (found.worker, found.held, found.fresh) == ("w2", (), True)
    assert found.session != life.session
    assert await ear.gone_because()
    assert first.life is None
    await second.close(0)


async def test_close_ends_every_action_and_the_session(make: Make) -> None:
    first, ear, life = await running(make)
    await first.close(5)
    assert ended(await ear.end()) == ("a", "stopped")
    assert (first.life, ear.why) == (None, None)
    _, _, found = await opened(make)
    assert (found.session != life.session, found.fresh) == (True, True)


async def test_a_follower_is_let_go_at_the_end(make: Make) -> None:
    executor, _, _ = await running(make)
    following = asyncio.ensure_future(_drain(executor))
    await asyncio.sleep(0)
    executor.stop("a")
    assert await asyncio.wait_for(following, 60) == []


async def _drain(executor: Executor) -> list[object]:
    return [chunk async for chunk in executor.follow("a")]


async def test_the_fake_executor_freezes_and_dies_as_a_process_does() -> None:
    host = FakeHost(RealClock(), FakeEntropy())
    executor, ear = host.executor(), Ear()
    assert isinstance(executor, FakeExecutor)
    executor.listen(ear)
    await executor.open()
    assert host.process is not None
    host.process.freeze()
    question = asyncio.ensure_future(executor.ask())
    await asyncio.sleep(0.01)
    assert not question.done()
    host.process.kill()
    with pytest.raises(OSError, match="no executor"):
        await question
    assert "died" in await ear.gone_because()
