"""A session is renewed by answered beats alone, and what it has to say is said. Its end is in test_executor_end.py."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core.queries import announcements, owned_by, shortest_leases
from quvatlh.core.rejections import Rejection
from quvatlh.ports import RunError
from quvatlh.service import asks
from quvatlh.service import reports as reports_of
from quvatlh.service.door import Refusal
from quvatlh.service.reports import BATCH_BYTES_MAX
from quvatlh.service.seat import Claim
from quvatlh.service.session import AGAIN_S, PATIENT_AGAIN_S
from tests.service.sessions import own_beat, running
from tests.service.stand import asked, one, two


async def test_who_has_not_the_secret_does_not_speak_for_the_session(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        assert stand.node.presence.beat(own_beat(stand)).known
        assert not stand.node.presence.beat(own_beat(stand, secret=b"x" * 32)).known


async def test_the_answer_names_what_is_not_the_sessions_any_more_and_that_ends(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        _, action = await running(stand)
        token = int(action[1:])
        assert stand.node.presence.beat(own_beat(stand, held=(token, 77))).foreign == (77,)
        seat = stand.node.workplace._seat
        seat._told.clear()  # type: ignore[attr-defined]  # as one that lags, and does not tell
        await stand.node.door.propose(c.Lost((c.Loss(token),)), 1)
        stand.node.session.moved()
        await stand.until(lambda: action not in stand.running(), "it goes on")


async def test_what_the_answer_takes_away_before_it_is_told_of_never_begins(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        worker, told = stand.node.worker, list[Claim]()
        tell, worker.claimed = worker.claimed, told.extend  # type: ignore[method-assign,assignment]  # a node that lags
        task = await stand.add(tags=["nowhere"])
        token = await stand.claim(task)
        worker.foreign((token,))
        tell(told)
        await stand.until(lambda: stand.peek(task) == "pending", "nobody says that it has not begun")
        assert [claim.token for claim in told] == [token]
        assert f"a{token}" not in stand.process.held


@pytest.mark.parametrize("told_first", [True, False])
async def test_what_may_have_been_lost_in_a_silence_never_begins_however_late_the_node_tells_of_it(
    tmp_path: Path, told_first: bool
) -> None:
    async with two(tmp_path) as (master, follower, _):
        await follower.working()
        await master.node.tree.stop("presence")
        await follower.node.tree.stop("session")
        task = await master.add(tags=["nowhere"])
        (mirror,) = master.mirrors
        mirror.hold()
        token = await master.claim(task, follower)
        for stand in (master, follower):
            stand.clock.advance(2.7)
        await master.node.door.propose(c.Lost((c.Loss(token),)), 1)
        if told_first:
            mirror.release(1)
        await follower.node.session.beat()
        if not told_first:
            mirror.release(1)
        worker = follower.node.worker
        await follower.until(lambda: worker._top >= token and not worker.actions, "it waits, or runs")
        await asyncio.sleep(0.01)
        assert f"a{token}" not in follower.process.held
        mirror.release()


async def test_what_somebody_wants_ended_before_the_first_answered_beat_never_begins(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        stand.node.session._is_confirmed = False
        task = await stand.add(tags=["nowhere"])
        token = await stand.claim(task)
        await stand.node.door.propose(c.Kill((task,)), 1)
        await stand.until(lambda: not stand.live(), "it is not ended")
        assert f"a{token}" not in stand.process.held


async def test_what_was_taken_away_is_reported_for_who_said_so_may_be_gone(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        task, action = await running(stand)
        stand.node.worker.foreign((int(action[1:]),))
        await stand.until(lambda: stand.peek(task) == "running" and action not in [f"a{n}" for n, _ in stand.live()])
        assert action not in stand.running()


async def test_no_beat_renews_what_was_proposed_lost_and_the_rest_lives_on(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        _, short = await running(stand)
        long_task, long = await running(stand, lease_ms=60_000)
        await stand.node.tree.stop("session")
        await stand.node.tree.stop("presence")
        stand.clock.advance(2.7)
        stand.log.hold()
        looking = asyncio.create_task(stand.node.presence._look())
        await asyncio.sleep(0.01)
        answer = stand.node.presence.beat(own_beat(stand))
        assert (answer.known, answer.foreign) == (True, (int(short[1:]),))
        stand.log.release()
        await looking
        assert [token for token, _ in stand.live()] == [int(long[1:])]
        assert stand.peek(long_task) == "running"


async def test_what_was_proposed_lost_in_vain_is_proposed_again_though_a_beat_came(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        _, action = await running(stand)
        await stand.node.tree.stop("session")
        await stand.node.tree.stop("presence")
        stand.clock.advance(2.7)
        stand.node.presence._lost(owned_by(stand.machine.db, shortest_leases(stand.machine.db)))
        stand.node.presence.beat(own_beat(stand))
        await stand.node.presence._look()
        assert int(action[1:]) not in [token for token, _ in stand.live()]


async def test_who_is_heard_in_time_is_not_asked_what_he_owns(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await running(stand)
        await stand.node.tree.stop("session")
        await stand.node.tree.stop("presence")
        asked: list[str] = []
        stand.machine.db.set_trace_callback(asked.append)
        await stand.node.presence._look()
        assert [sql for sql in asked if "FROM live WHERE session" in sql] == []
        stand.clock.advance(2.7)
        await stand.node.presence._look()
        stand.machine.db.set_trace_callback(None)
        assert [sql for sql in asked if "FROM live WHERE session" in sql] != []
        assert list(stand.live()) == []


async def test_a_new_master_has_condemned_nobody(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await running(stand)
        await stand.node.tree.stop("session")
        await stand.node.tree.stop("presence")
        stand.clock.advance(2.7)
        stand.node.presence._lost(owned_by(stand.machine.db, shortest_leases(stand.machine.db)))
        stand.log.depose(None)
        stand.log.elect()
        assert stand.node.presence.beat(own_beat(stand)).foreign == ()


async def test_a_master_without_the_leadership_lease_renews_nothing(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        stand.log.acts = lambda: False  # type: ignore[method-assign]
        with pytest.raises(Exception, match="not master"):
            stand.node.presence.beat(own_beat(stand))


async def test_a_stopped_executor_sends_no_beats(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        await stand.node.tree.stop("session")
        heard = stand.node.presence._heard
        session = stand.node.session.id or ""
        stand.clock.advance(0.5)
        await stand.node.session.beat()
        before = heard[session]
        stand.process.freeze()
        stand.clock.advance(0.5)
        beating = asyncio.create_task(stand.node.session.beat())
        await asyncio.sleep(0.05)
        assert heard[session] == before
        stand.process.thaw()
        await beating
        assert heard[session] > before


async def test_a_lease_counts_from_when_the_answered_beat_was_sent(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        await stand.node.tree.stop("session")
        seat = stand.node.session._seat
        real = seat.beat

        async def slow(beat: asks.Beat) -> asks.BeatAnswer:
            stand.clock.advance(1.0)
            return await real(beat)

        seat.beat = slow  # type: ignore[method-assign]
        sent = stand.clock.boot()
        await stand.node.session.beat()
        assert stand.node.session.left_s(2000) == pytest.approx(1.0)
        await stand.until(lambda: stand.process._renewed_s == sent)


# --- what cannot be said ---


@pytest.mark.parametrize("on_master", [True, False])
async def test_an_end_that_the_log_does_not_take_is_told_with_less_and_holds_up_no_other(
    tmp_path: Path, on_master: bool
) -> None:
    async with two(tmp_path) as (master, follower, _):
        stand = master if on_master else follower
        await stand.working()
        where = [f"worker={stand.name}"]
        bad, good = [await stand.add(tags=where, retry={"attempts": 1}) for _ in range(2)]
        await stand.until(lambda: len(stand.running()) == 2)
        first, second = sorted(stand.running())
        stand.process._finish(stand.process.held[first], 1, None, RunError("x" * 300, "a name of no sensible length"))  # type: ignore[arg-type]
        stand.end(second)
        await master.until(lambda: not master.live(), "it lives for ever")
        assert (master.peek(bad), master.peek(good)) == ("failed", "succeeded")
        record = await master.pool.task(asked(), bad)
        assert "did not take" in record["error"]["text"]
        await stand.until(lambda: not stand.process.held, "they are not forgotten")


async def test_long_announcements_are_told_in_batches_that_the_log_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports_of, "START_S", 3600)
    async with one(tmp_path, slots=20) as stand:
        await stand.working()
        reports = stand.node.workplace.reports
        tasks = [await stand.add() for _ in range(20)]
        await stand.until(lambda: len(reports._starts) == 20)
        for token in reports._starts:
            reports.announced(token, {"text": "x" * 60_000})
        sizes: list[int] = []
        propose = stand.log.propose

        async def seen(item: bytes, deadline: float) -> Any:
            sizes.append(len(item))
            return await propose(item, deadline=deadline)

        stand.log.propose = seen  # type: ignore[method-assign]
        reports._tell_starts()
        await stand.until(lambda: len(announcements(stand.machine.db)) == 20)
        assert max(sizes) < 2 * BATCH_BYTES_MAX
        assert {stand.peek(task) for task in tasks} == {"running"}


async def test_who_is_refused_for_long_says_why_and_asks_less_often(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        session = stand.node.session
        await stand.node.tree.stop("session")
        life = session._life
        assert life is not None
        why = "worker n1 has a session that was heard a moment ago"
        pauses: list[float] = []

        async def refused(_wish: asks.Open) -> int:
            raise Refusal(Rejection("conflict", why))

        async def paused(at_most_s: float) -> None:
            pauses.append(at_most_s)
            stand.clock.advance(3.0)

        opened, session._seat.open = session._seat.open, refused  # type: ignore[method-assign,assignment]
        session._pause = paused  # type: ignore[method-assign]
        session.id = None
        for _ in range(4):
            await session._open(life)
        assert pauses == [AGAIN_S, AGAIN_S, PATIENT_AGAIN_S, PATIENT_AGAIN_S]
        told = [facts["why"] for text, facts in stand.notes if "gets no session" in text]
        assert told == [why]
        assert why in stand.pool.readiness().detail
        session._seat.open = opened  # type: ignore[method-assign]
        await session._open(life)
        assert (session.refusal, stand.pool.readiness().detail) == ("", "")
