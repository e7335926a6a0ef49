"""A session is an executor's: kept over daemons, renewed by answered beats alone, over with its executor."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from quvatlh.core import commands as c
from quvatlh.core import limits
from quvatlh.core.queries import announcements, live_actions
from quvatlh.ports import RunError
from quvatlh.service import asks
from quvatlh.service import reports as reports_of
from quvatlh.service.presence import ELECTION_S, SILENT_S
from quvatlh.service.reports import BATCH_BYTES_MAX
from quvatlh.service.seat import Claim, secret_hash
from tests.fakes.executor import FakeProcess
from tests.service.stand import Stand, asked, one, two


async def running(stand: Stand, **spec: Any) -> tuple[str, str]:
    """A task that runs, and its action."""
    await stand.working()
    before = set(stand.running())
    task = await stand.add(**spec)
    await stand.until_state(task, "running")
    (action,) = set(stand.running()) - before
    return task, action


def own_beat(stand: Stand, *, secret: bytes | None = None, held: tuple[int, ...] | None = None) -> asks.Beat:
    session = stand.node.session.id
    assert session is not None
    return asks.Beat(stand.name, session, stand.process.secret if secret is None else secret, 0, held)


# --- another daemon ---


async def test_the_next_daemon_goes_on_with_session_and_actions(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        task, action = await running(stand)
        session, process = stand.node.session.id, stand.process
        await stand.crash()
        stand.begin()
        await stand.working()
        assert (stand.node.session.id, stand.process, stand.running()) == (session, process, [action])
        stand.end(action)
        await stand.until_state(task, "succeeded")
        assert (await stand.pool.task(asked(), task))["attempts"] == 1


async def test_an_end_that_no_daemon_saw_is_reported_by_the_next_and_then_forgotten(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        task, action = await running(stand)
        await running(stand)
        await stand.crash()
        stand.end(action, 3)
        stand.begin()
        await stand.until(lambda: stand.peek(task) == "retrying")
        record = await stand.pool.task(asked(), task)
        assert record["actions"][0]["exit_code"] == 3
        await stand.until(lambda: action not in stand.process.held, "it is not forgotten")


async def test_an_end_is_kept_by_the_executor_until_it_is_applied(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        task, action = await running(stand)
        stand.log.hold()
        stand.end(action)
        await asyncio.sleep(0.05)
        assert action in stand.process.held
        stand.log.release()
        await stand.until_state(task, "succeeded")
        await stand.until(lambda: action not in stand.process.held, "it is not forgotten")


async def test_a_start_that_was_not_told_is_told_by_the_next_daemon(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        task = await stand.add()
        await stand.until(stand.running)
        await stand.crash()
        assert stand.peek(task) == "claimed"
        stand.begin()
        await stand.until_state(task, "running")


async def test_a_claim_that_the_executor_does_not_know_is_given_back(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        _, action = await running(stand)
        waiting = await stand.add()
        stand.node.worker.claimed = list[Claim]().extend  # type: ignore[method-assign,assignment]  # it is killed before that
        token = await stand.claim(waiting)
        await stand.crash()
        assert stand.peek(waiting) == "claimed"
        stand.begin()
        await stand.until_state(waiting, "pending")
        assert f"a{token}" not in stand.process.held
        assert (await stand.pool.task(asked(), waiting))["attempts"] == 0
        stand.end(action)
        await stand.until_state(waiting, "running")


async def test_a_claim_that_waits_in_the_executor_is_found_there(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        _, action = await running(stand)
        waiting = await stand.add()
        token = await stand.claim(waiting)
        await stand.until(lambda: f"a{token}" in stand.process.held)
        await stand.crash()
        stand.begin()
        await stand.working()
        stand.end(action)
        await stand.until_state(waiting, "running")
        assert stand.running() == [f"a{token}"]


async def test_what_a_person_wanted_ended_meanwhile_ends(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        task, _action = await running(stand)
        await stand.crash()
        (row,) = stand.machine.db.execute("SELECT seq FROM task WHERE id = ?", (task,))
        assert row
        await stand.node.door.propose(c.Delete((task,)), 1)
        stand.begin()
        await stand.until(lambda: not stand.running() and not stand.live())


async def test_a_daemon_killed_while_it_was_stopping_leaves_no_drain_behind(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await running(stand)
        await stand.node.session.leave(1)
        await stand.until(lambda: not stand.node.worker.takes)
        await stand.crash()
        stand.begin()
        await running(stand)


# --- beats ---


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
        stand.node.presence._lost(live_actions(stand.machine.db))
        stand.node.presence.beat(own_beat(stand))
        await stand.node.presence._look()
        assert int(action[1:]) not in [token for token, _ in stand.live()]


async def test_a_new_master_has_condemned_nobody(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await running(stand)
        await stand.node.tree.stop("session")
        await stand.node.tree.stop("presence")
        stand.clock.advance(2.7)
        stand.node.presence._lost(live_actions(stand.machine.db))
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


# --- the end of an executor ---


async def died(stand: Stand) -> FakeProcess:
    process = stand.process
    process.kill()
    await stand.until(lambda: stand.host.process not in {None, process}, "there is no new executor")
    return process


@pytest.mark.parametrize("isolated", [True, False])
async def test_with_the_executor_its_session_is_over_and_the_actions_run_again(tmp_path: Path, isolated: bool) -> None:
    async with one(tmp_path, isolated=isolated) as stand:
        task, action = await running(stand, lease_ms=60_000)
        session = stand.node.session.id
        await died(stand)
        stand.clock.advance(SILENT_S + ELECTION_S + 0.1)
        await stand.until(lambda: stand.node.session.is_confirmed and stand.node.session.id != session)
        if not isolated:
            await asyncio.sleep(0.1)
            assert [token for token, _ in stand.live()] == [int(action[1:])], "its children may live on"
            stand.clock.advance(60.0)
            await stand.node.presence._look()
        await stand.until(lambda: stand.peek(task) == "running" and action not in stand.running())
        assert (await stand.pool.task(asked(), task))["attempts"] == 2


async def test_a_copy_of_another_directory_does_not_end_what_runs(tmp_path: Path) -> None:
    async with one(tmp_path, isolated=True) as stand:
        await running(stand, lease_ms=60_000)
        await stand.node.tree.stop("session")
        stand.clock.advance(SILENT_S + ELECTION_S + 0.1)
        facts = stand.node.session.facts
        wish = asks.Open("n1", "another", secret_hash(b"x"), "another directory", facts, isolated=True, fresh=True)
        assert not stand.node.presence.is_ended_with(wish)
        with pytest.raises(Exception, match="still run"):
            await stand.node.door.write(wish, 1)


async def test_an_end_that_was_told_to_the_daemon_before_the_executor_died_still_counts(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        task, action = await running(stand)
        stand.log.hold()
        stand.end(action)
        await stand.until(lambda: not stand.node.worker.held())
        stand.process.kill()
        await asyncio.sleep(0.02)
        stand.log.release()
        await stand.until_state(task, "succeeded")


async def test_what_a_lease_ended_is_told_and_runs_again(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        task, action = await running(stand)
        once, second = await running(stand, delivery="at-most-once")
        await stand.node.tree.stop("session")
        stand.clock.advance(2.1)
        stand.process.look()
        await stand.until(lambda: not {action, second} & {f"a{token}" for token, _ in stand.live()})
        assert stand.peek(task) in {"pending", "claimed"}
        record = await stand.pool.task(asked(), once)
        assert (record["state"], record["error"]["code"]) == ("failed", "lost")


async def test_of_an_executor_that_cannot_be_started_people_are_told_and_it_is_tried_again(tmp_path: Path) -> None:
    async with one(tmp_path, elect=False) as stand:
        stand.host.broken = OSError("no room")
        await stand.until(lambda: any("no executor" in text for text, _ in stand.notes))
        stand.host.broken = None
        stand.log.elect()
        await stand.working()


async def test_a_session_that_the_cluster_ended_takes_its_executor_with_it(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, switchboard):
        await follower.working()
        process = follower.process
        switchboard.cut("n2")
        master.clock.advance(SILENT_S + ELECTION_S + 0.1)
        await master.node.session.beat()
        await master.node.presence._look()
        switchboard.heal()
        await follower.until(lambda: not process.alive)
        await follower.working()
        assert follower.process is not process


async def test_a_worker_silent_for_longer_than_a_tasks_lease_gets_none_of_it(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        await stand.node.tree.stop("session")
        stand.clock.advance(ELECTION_S + 1.2)
        short, long = await stand.add(lease_ms=1000), await stand.add(lease_ms=5000)
        await stand.until_state(long, "running")
        record = await stand.pool.task(asked(), short)
        assert (record["state"], record["attempts"]) == ("pending", 0)
        await stand.node.session.beat()
        await stand.until_state(short, "running")


async def test_a_worker_that_is_heard_just_before_it_would_be_lost_gets_what_waits(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        await stand.node.tree.stop("session")
        await stand.node.tree.stop("presence")
        stand.clock.advance(SILENT_S + ELECTION_S + 0.1)
        task = await stand.add()
        await asyncio.sleep(0.01)
        assert stand.peek(task) == "pending"
        await stand.node.session.beat()
        await stand.node.presence._look()
        await stand.until_state(task, "running")


async def test_slots_of_what_was_taken_away_are_used_again_once_it_has_ended(tmp_path: Path) -> None:
    async with one(tmp_path, slots=1) as stand:
        await stand.working()
        await stand.node.tree.stop("session")
        stand.node.presence.beat(structs.replace(own_beat(stand), surplus_slots=1))
        task = await stand.add()
        await asyncio.sleep(0.01)
        assert stand.peek(task) == "pending"
        await stand.node.session.beat()
        await stand.until_state(task, "running")


async def test_a_word_that_comes_while_the_one_before_it_is_told_is_told_too(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        _, action = await running(stand)
        seat, token = stand.node.worker.session._seat, int(action[1:])
        report, told = seat.report, asyncio.Event()

        async def slow(said: Any, deadline_s: float) -> None:
            if isinstance(said, c.Progress) and not told.is_set():
                told.set()
                stand.node.worker._reports.said(token, "done", 100)
            await report(said, deadline_s)

        seat.report = slow  # type: ignore[assignment, method-assign]
        stand.node.worker._reports.said(token, "half of it", 50)
        await told.wait()
        sql = "SELECT progress FROM live WHERE token = ?"
        await stand.until(lambda: "100" in (stand.machine.db.execute(sql, (token,)).fetchone()[0] or ""))


# --- whom tasks have killed ---


def deaths(stand: Stand, task: str) -> int:
    return int(stand.machine.db.execute("SELECT deaths FROM task WHERE id = ?", (task,)).fetchone()[0])


async def test_a_worker_that_is_cut_off_again_and_again_makes_no_task_poison(tmp_path: Path) -> None:
    async with two(tmp_path, slots=1) as (master, follower, switchboard):
        await follower.working()
        task = await master.add(tags=["node=n2"])
        for _ in range(limits.DEATHS_MAX + 1):
            await master.until_state(task, "running")
            process = follower.process
            switchboard.cut("n2")
            master.clock.advance(SILENT_S + ELECTION_S + 0.1)
            await master.node.session.beat()
            await master.node.presence._look()
            await master.node.presence._look()
            assert (master.peek(task), deaths(master, task)) == ("pending", 1), "as far as anybody knows by then"
            switchboard.heal()
            await follower.until(lambda: not process.alive)  # noqa: B023 - awaited at once
            await follower.working()
            assert deaths(master, task) == 0
        assert follower.peek(task) in {"pending", "claimed", "running"}


async def test_a_session_that_lives_on_takes_its_deaths_back_when_it_is_heard(tmp_path: Path) -> None:
    async with two(tmp_path, slots=2) as (master, follower, switchboard):
        await follower.working()
        await master.until_state(await master.add(tags=["node=n2"], lease_ms=60_000), "running")
        task = await master.add(tags=["node=n2"])
        await master.until_state(task, "running")
        session = follower.node.session.id
        switchboard.cut("n2")
        master.clock.advance(SILENT_S + ELECTION_S + 0.1)
        await master.node.session.beat()
        await master.node.presence._look()
        assert deaths(master, task) == 1
        switchboard.heal()
        await master.until(lambda: deaths(master, task) == 0)
        assert follower.node.session.id == session


async def test_a_new_masters_grace_is_no_sign_of_life(tmp_path: Path) -> None:
    async with two(tmp_path, slots=2) as (master, follower, switchboard):
        await follower.working()
        await master.until_state(await master.add(tags=["node=n2"], lease_ms=60_000), "running")
        task = await master.add(tags=["node=n2"])
        await master.until_state(task, "running")
        switchboard.cut("n2")
        master.clock.advance(SILENT_S + ELECTION_S + 0.1)
        await master.node.session.beat()
        await master.node.presence._look()
        await master.node.presence._look()
        master.log.depose(None)
        master.log.elect()
        await master.node.presence._look()
        assert [each["state"] for each in await master.pool.workers(asked())] == ["up", "up"]
        assert deaths(master, task) == 1


async def test_three_executors_that_ended_with_it_make_a_task_poison_and_not_what_waited_behind_it(
    tmp_path: Path,
) -> None:
    async with one(tmp_path, slots=1, isolated=True) as stand:
        await stand.working()
        task = await stand.add()
        await stand.until_state(task, "running")
        behind = await stand.add()
        for _ in range(limits.DEATHS_MAX):
            await stand.until_state(task, "running")
            await stand.claim(behind)
            await died(stand)
            stand.clock.advance(SILENT_S + ELECTION_S + 0.1)
            await stand.working()
        record = await stand.pool.task(asked(), task)
        assert (record["state"], record["error"]["code"]) == ("failed", "poison")
        assert deaths(stand, behind) == 0
