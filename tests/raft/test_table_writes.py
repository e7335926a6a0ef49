"""DESIGN.md section 6: what becomes of writes when a master is lost, when apply is slow, and when something breaks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quvatlh.ports import Applied, Unavailable, Unknown
from quvatlh.raft import entries
from quvatlh.raft.applier import Applier
from quvatlh.raft.proposals import Proposals
from quvatlh.raft.running import REST_S
from quvatlh.raft.settings import Settings
from tests.fakes.clock import FakeClock
from tests.raft.nodes import SOON_S, Town, add, engine_of, held, log_of, machine_of, play
from tests.raft.rig import bench, rows
from tests.raft.teeth import fails_under

# --- writes at a lost leadership --------------------------------------------------------------------------------------


@fails_under("commands-forwarded")
async def test_what_pysyncobj_would_forward_goes_nowhere() -> None:
    follower = await bench()
    follower.append("b", 1, (0, 0))
    follower.said("b")
    follower.engine._applyCommand(b"command", None)
    await follower.tick()
    assert (follower.said("b"), follower.held) == ([], [])


async def writes_at_a_lost_leadership(town: Town) -> tuple[Any, dict[str, object]]:
    """The master is cut off, takes writes as long as it may, and is replaced; what it said of each of them."""
    master = await town.founded()
    town.isolate(master)
    values = [str(number) for number in range(12)]

    async def one_by_one(_: object) -> list[object]:
        log = log_of(master)
        writes = []
        for value in values:
            writes.append(asyncio.ensure_future(log.propose(add(value), deadline=SOON_S)))
            await asyncio.sleep(0)
        return list(await asyncio.gather(*writes, return_exceptions=True))

    asked = asyncio.ensure_future(town.at(master, one_by_one))
    following = await town.master(other_than=master)
    await town.write(following, "after")
    town.net.heal()
    await town.all_hold("after")
    return following, dict(zip(values, await asked, strict=True))


@fails_under("queue-kept-at-lost-leadership")
def test_writes_that_wait_when_leadership_is_lost_are_certainly_not_done_and_said_at_once() -> None:
    async def story(town: Town) -> None:
        following, outcomes = await writes_at_a_lost_leadership(town)
        kinds = [type(outcome) for outcome in outcomes.values()]
        assert kinds[2:] == [Unavailable] * 10
        codes = [getattr(outcome, "detail", "") for outcome in outcomes.values()]
        assert codes[5] == "this node is not the master"
        assert not set(outcomes) & set(held(following))

    play(story)


@fails_under("answer-whatever-stands-there")
def test_writes_in_the_log_of_a_master_that_was_lost_are_decided_by_what_stands_there_in_the_end() -> None:
    async def story(town: Town) -> None:
        following, outcomes = await writes_at_a_lost_leadership(town)
        for value, outcome in outcomes.items():
            assert isinstance(outcome, Applied | Unavailable | Unknown)
            assert isinstance(outcome, Applied) == (value in held(following))

    play(story)


@fails_under("entry-of-an-old-master-applied", "term-of-an-entry-not-looked-at")
async def test_an_entry_that_another_master_made_is_void() -> None:
    made = entries.pack_items(1, 50, [b"old"])
    (entry,) = apply_all([(made, 1, 2)])
    assert (entry.items, entry.term) == ((), 2)
    (entry,) = apply_all([(made, 1, 1)])
    assert entry.items == (b"old",)


@fails_under("term-of-an-entry-not-looked-at")
async def test_a_membership_that_another_master_made_is_void() -> None:
    heard: list[int] = []
    membership = entries.pack_membership_entry(1, 50, (await bench()).engine.membership)
    apply_all([(membership, 1, 2)], on_membership=lambda index, _: heard.append(index))
    assert heard == []


# --- the way into the log ---------------------------------------------------------------------------------------------


def test_what_comes_after_a_rest_is_in_the_log_at_once_and_what_comes_with_it_shares_the_next_entry() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()

        async def propose(_: object) -> list[int]:
            log, journal, loop = log_of(master), engine_of(master)._journal, asyncio.get_running_loop()
            found = [journal.last_index]
            for _round in range(2):
                await asyncio.sleep(2 * REST_S)
                asked = [loop.create_task(log.propose(add(value), deadline=SOON_S)) for value in "abc"]
                loop.call_soon(lambda: found.append(journal.last_index))
                found.append(max(each.index for each in await asyncio.gather(*asked)))
            return found

        before, *found = await town.at(master, propose)
        assert found == [before + 1, before + 2, before + 3, before + 4]

    play(story)


def test_a_proposal_is_in_the_log_after_its_turn_of_the_loop_without_a_tick() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()

        async def propose(_: object) -> tuple[int, int]:
            engine, journal = engine_of(master), engine_of(master)._journal
            ticks: list[None] = []
            real = engine.tick

            def tick() -> None:
                ticks.append(None)
                real()

            engine.tick = tick  # type: ignore[method-assign]
            before = journal.last_index
            asked = asyncio.ensure_future(log_of(master).propose(add("x"), deadline=SOON_S))
            for _turn in range(2):  # that in which it is asked, and the next one
                await asyncio.sleep(0)
            told = (journal.last_index - before, len(ticks))
            await asked
            return told

        assert await town.at(master, propose) == (1, 0)

    play(story)


# --- the way into the machine -----------------------------------------------------------------------------------------


class SlowMachine:
    """Takes its time for each entry."""

    def __init__(self, clock: FakeClock, seconds: float = 0.0) -> None:
        self.clock = clock
        self.seconds = seconds
        self.applied_index = 0
        self.time_ms = 0
        self.story: list[Any] = []

    def begin(self) -> None:
        self.story.append("begin")

    def apply(self, entry: Any) -> list[object]:
        self.clock.advance(self.seconds)
        self.story.append(entry)
        self.applied_index = entry.index
        return [None] * len(entry.items)

    def commit(self) -> None:
        self.story.append("commit")


class LogOnly:
    """A generation as the applier sees it."""

    def __init__(self, log: list[Any], machine: Any) -> None:
        self.machine = machine
        self.journal = self
        self._log = {index: (command, index, term) for command, index, term in log}

    def entry(self, index: int) -> Any:
        return self._log[index]


def applier(log: list[Any], machine: SlowMachine) -> Applier:
    made: Any = LogOnly(log, machine)
    return Applier(made, Proposals(Settings(), lambda: None), [], machine.clock, Settings())


def apply_all(log: list[Any], on_membership: Any = lambda _index, _membership: None) -> list[Any]:
    machine = SlowMachine(FakeClock())
    made = applier(log, machine)
    made.on_membership = on_membership
    assert made.apply(1, len(log)) == len(log)
    return machine.story[1:-1]


@fails_under("backlog-in-one-go")
async def test_a_backlog_is_applied_in_slices_of_ten_milliseconds_each_a_transaction() -> None:
    machine = SlowMachine(FakeClock(), seconds=0.004)
    made = applier(list(rows(1, 10)), machine)
    assert made.apply(1, 10) == 3
    assert made.apply(4, 10) == 6
    assert [part for part in machine.story if isinstance(part, str)] == ["begin", "commit"] * 2


class Listener:
    """Writes down when it is told, and when the task that this wakes goes on."""

    def __init__(self, story: list[Any]) -> None:
        self._story = story

    def applied(self, entry: Any, _results: Any) -> None:
        self._story.append(("told", entry.index))
        asyncio.get_running_loop().call_soon(self._story.append, ("woken", entry.index))


async def applied_to_those_who_wait(machine: SlowMachine) -> tuple[Applier, Proposals, asyncio.Task[Applied]]:
    """One proposal, in the log and not applied yet; its answer is written into the machine's story."""
    proposals = Proposals(Settings(), lambda: None)

    async def ask() -> Applied:
        answer = await proposals.submit(b"x", 5.0)
        machine.story.append(("answered", answer.index))
        return answer

    asked = asyncio.ensure_future(ask())
    await asyncio.sleep(0)
    proposals.flush(1, lambda _items: 1)
    log: Any = LogOnly(list(rows(1, 2)), machine)
    listener: Any = Listener(machine.story)
    return Applier(log, proposals, [listener], machine.clock, Settings()), proposals, asked


async def test_listeners_are_told_before_the_transaction_is_closed_and_answers_come_after_it_before_what_they_woke() -> (
    None
):
    machine = SlowMachine(FakeClock())
    made, _, asked = await applied_to_those_who_wait(machine)
    made.apply(1, 2)
    await asked
    await asyncio.sleep(0)
    after = machine.story[3:]
    assert after == [("told", 1), ("told", 2), "commit", ("answered", 1), ("woken", 1), ("woken", 2)]


async def test_a_transaction_that_cannot_be_closed_is_answered_to_nobody() -> None:
    class Full(SlowMachine):
        def commit(self) -> None:
            raise OSError("full")

    machine = Full(FakeClock())
    made, proposals, asked = await applied_to_those_who_wait(machine)
    with pytest.raises(OSError, match="full"):
        made.apply(1, 2)
    proposals.broke("the node broke")  # as whoever ticks does with what is raised there
    with pytest.raises(Unknown, match="broke"):
        await asked


@fails_under("backlog-in-one-go")
async def test_an_entry_that_takes_longer_than_a_slice_is_a_slice() -> None:
    machine = SlowMachine(FakeClock(), seconds=0.5)
    assert applier(list(rows(1, 10)), machine).apply(1, 10) == 1


@fails_under("backlog-in-one-go")
def test_a_node_that_catches_up_hears_its_master_in_between() -> None:
    """Applying takes longer than an election: in one go it would be taken for the death of the node."""

    async def story(town: Town) -> None:
        master = await town.founded()
        late = town.others(master)[0]
        town.isolate(late)
        for number in range(200):
            await town.write(master, str(number))
        worst = [0.0]
        machine, process = machine_of(late), late.process
        assert process is not None
        real = machine.apply

        def slow(entry: Any) -> Any:
            process.spend(0.004)
            worst[0] = max(worst[0], process.ahead_s)
            return real(entry)

        machine.apply = slow  # type: ignore[method-assign]
        term = engine_of(master).term()
        town.net.heal()
        await town.all_hold("199")
        assert (worst[0] < 0.02, engine_of(master).term(), town.masters()) == (True, term, [master])

    play(story)


async def test_log_time_never_goes_back() -> None:
    log = [(entries.pack_items(1, time_ms, []), index, 1) for index, time_ms in enumerate([50, 20, 60, 10], 1)]
    assert [entry.time_ms for entry in apply_all(log)] == [50, 50, 60, 60]


@fails_under("log-time-of-the-own-clock")
async def test_log_time_is_the_median_of_the_voters_clocks() -> None:
    master = await bench()
    await master.lead()
    now = master.clock.wall_ms()
    boot = master.clock.boot()
    for voter, wall_ms in (("b", now + 60_000), ("c", now + 3_600_000)):
        master.hear(voter, "echo", master.engine.term(), boot, wall_ms)
    assert abs(master.engine.log_time_ms() - (now + 60_000)) <= 1
    master.clock.set_wall(now - 3_600_000)
    assert abs(master.engine.log_time_ms() - (now + 60_000)) <= 1


@fails_under("log-time-of-the-own-clock")
async def test_log_time_stands_while_clocks_are_set_back() -> None:
    master = await bench()
    await master.lead()
    master.propose()
    stamped = master.engine.log_time_ms()
    master.clock.set_wall(1000)
    for voter in "bc":
        master.hear(voter, "echo", master.engine.term(), master.clock.boot(), 1000)
    assert master.engine.log_time_ms() == stamped
    assert abs(master.engine.clocks_ms() - 1000) <= 1


# --- bugs -------------------------------------------------------------------------------------------------------------


class Bug(Exception):
    pass


def broken_machine(box: Any) -> None:
    def apply(entry: Any) -> Any:
        raise Bug("a bug in apply")

    machine_of(box).apply = apply  # type: ignore[method-assign]


@fails_under("bugs-are-survived")
def test_an_exception_in_apply_stops_the_node_with_its_story() -> None:
    async def story(town: Town) -> None:
        (box,) = town.boxes
        await town.founded()
        log = log_of(box)
        told: list[BaseException] = []
        log._on_fatal = told.append
        broken_machine(box)
        before = log.applied_index
        began = town.loop.now_s
        with pytest.raises(Unknown):
            await town.at(box, lambda log: log.propose(add("x"), deadline=SOON_S))
        assert town.loop.now_s - began < 1.0
        assert [type(error) for error in told] == [Bug]
        assert f"entry {before + 1}" in " ".join(told[0].__notes__)
        assert (log.acts(), log.applied_index) == (False, before)
        with pytest.raises(Unavailable):
            await town.at(box, lambda log: log.propose(add("y"), deadline=SOON_S))

    play(story, nodes=1)


def test_a_bug_on_one_node_stops_that_one_and_no_other() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        assert master.process is not None
        master.process.ends_with = (Bug,)
        broken_machine(master)
        with pytest.raises(Unknown):
            await town.write(master, "x")
        following = await town.master(other_than=master)
        await town.write(following, "y")
        await town.all_hold("y", boxes=town.others(master))

    play(story)


class Raising:
    """A listener that keeps no promise."""

    def __init__(self, what: str) -> None:
        self.what = what

    def applied(self, entry: Any, results: Any) -> None:
        if self.what == "applied":
            raise Bug

    def role_changed(self, role: Any) -> None:
        if self.what == "role_changed":
            raise Bug

    def reset(self, index: int) -> None:
        pass


@pytest.mark.parametrize("what", ["applied", "role_changed"])
def test_a_listener_that_raises_stops_the_node(what: str) -> None:
    async def story(town: Town) -> None:
        box = town.boxes[0]
        await town.founded()
        told: list[BaseException] = []
        log_of(box)._on_fatal = told.append
        log_of(box).listen(Raising(what))

        async def provoke(log: Any) -> None:
            asked = asyncio.ensure_future(log.propose(add("x"), deadline=SOON_S))
            await asyncio.sleep(0.01)
            log._engine.give_up()
            log.wake()
            await asyncio.gather(asked, return_exceptions=True)

        await town.at(box, provoke)
        await town.until(lambda: told)
        assert [type(error) for error in told] == [Bug]

    play(story, nodes=1)


def test_a_stopped_node_answers_all_that_waits() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        town.isolate(master)
        log = log_of(master)

        async def ask(_: object) -> list[object]:
            asked = []
            for number in range(8):
                asked.append(asyncio.ensure_future(log.propose(add(str(number)), deadline=SOON_S)))
                await asyncio.sleep(0)
            asked.append(asyncio.ensure_future(log.wait_applied(10**6, deadline=SOON_S)))  # type: ignore[arg-type]
            await asyncio.sleep(0.01)
            await log.stop()
            async with asyncio.timeout(0.1):
                return list(await asyncio.gather(*asked, return_exceptions=True))

        outcomes = await town.at(master, ask)
        assert [type(outcome) for outcome in outcomes] == [Unknown] * 2 + [Unavailable] * 7

    play(story)


@fails_under("groups-of-one")
def test_all_that_waits_shares_an_entry_and_two_are_in_flight_at_most() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        most = 0
        stop = False

        async def watch() -> None:
            nonlocal most
            while not stop:
                engine = engine_of(master)
                most = max(most, engine._journal.last_index - engine.commit_index())
                await asyncio.sleep(0.0001)

        watching = asyncio.ensure_future(watch())
        before = engine_of(master)._journal.last_index
        await asyncio.gather(*(town.write(master, str(number)) for number in range(100)))
        stop = True
        await watching
        assert engine_of(master)._journal.last_index - before <= 4
        assert most <= town.settings.in_flight_entries

    play(story)
