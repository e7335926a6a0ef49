"""Many tasks at once come to what one by one comes to: a task that nobody may have, in a queue of its own, keeps a round from
giving out lots, and then the same is awarded in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from quvatlh.core import commands as c
from quvatlh.core import market
from quvatlh.core.commands import QueueChanges
from quvatlh.core.events import Event
from quvatlh.core.market import PlainTask
from quvatlh.core.model import TaskSpec, Work
from quvatlh.core.rows import TASK_SELECT
from quvatlh.core.views import WorkerView
from quvatlh.ports import Role
from quvatlh.service import auction
from quvatlh.service.auction import PROPOSALS_MAX
from quvatlh.service.bids import Bid
from quvatlh.service.holds import Lot
from tests.bench.queues import SESSION, WORKER, Master
from tests.service.bidding import ready
from tests.service.stand import PATIENCE_S, Stand, one, two

WORK = Work(command=("true",))
COUNT = 60


async def fill(stand: Stand, specs: list[dict[str, Any]]) -> None:
    tasks = tuple(c.NewTask(f"t{n}", TaskSpec(WORK, **spec)) for n, spec in enumerate(specs))
    await stand.node.door.propose(c.Add(tasks), 10.0)


async def pause(stand: Stand, *, paused: bool, **changes: Any) -> None:
    await stand.node.door.propose(c.PatchQueue("default", QueueChanges(paused=paused, **changes)), 10.0)


async def keep_apart(stand: Stand) -> None:
    """From now on rounds look at tasks one by one."""
    await stand.node.door.propose(c.Add((c.NewTask("stranger", TaskSpec(WORK, queue="zz", tags=("nowhere",))),)), 10.0)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held back is not given up, however slow the machine is."""
    monkeypatch.setattr(auction, "PROPOSE_S", PATIENCE_S)


class Holding:
    """A Hearer: nothing is applied any more once the queue has changed."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand

    def heard(self, _index: int, events: Sequence[Event]) -> None:
        if any(event.kind == "queue.changed" for event in events):
            self._stand.log.hold()

    def role_changed(self, _role: Role) -> None:
        pass

    def reset(self, _index: int) -> None:
        pass


async def given(stand: Stand, specs: list[dict[str, Any]], *, apart: bool, **changes: Any) -> list[tuple[str, str]]:
    """Task and worker of each award, in their order: all tasks are ready before the first, all rounds are over before it is
    applied, and nothing of it is refused."""
    market = stand.node.auction
    await pause(stand, paused=True, **changes)
    await fill(stand, specs)
    if apart:
        await keep_apart(stand)
    stand.node.feed.tell(Holding(stand))
    await pause(stand, paused=False)
    await stand.until(lambda: len(market._proposals) == PROPOSALS_MAX or not market._wake.is_set())
    ids = dict(stand.machine.db.execute("SELECT seq, id FROM task"))
    proposed = {(ids[seq], worker) for seq, awards in market._under_way.items() for worker, _ in awards}
    stand.log.release()
    await stand.until(lambda: not market._proposals and not market._wake.is_set())
    found = [row for row in stand.machine.db.execute("SELECT id, worker FROM live ORDER BY token") if row in proposed]
    assert len(found) == len(proposed)
    return found


def some(random: Random) -> list[dict[str, Any]]:
    """Most are plain, and what is not stands among them."""
    odd: list[dict[str, Any]] = [
        {"name": "few", "limit": 2}, {"lease_ms": 2000}, {"kind": "service", "limit": 2}, {"name": "few"},
    ]  # fmt: skip
    specs: list[dict[str, Any]] = []
    for _ in range(COUNT):
        spec = dict(random.choice(odd)) if random.random() < 0.1 else random.choice([{}, {"name": "many"}])
        specs.append(spec | {"priority": random.randrange(3), "cost": random.randrange(1, 4)})
    return specs


@pytest.mark.parametrize("seed", range(8))
async def test_lots_give_the_same_as_one_by_one(seed: int, tmp_path: Path) -> None:
    specs, limit = some(Random(seed)), None if seed % 2 else 30
    found = []
    for apart in (False, True):
        async with one(tmp_path / str(apart), slots=40, ahead=False) as stand:
            await ready(stand)
            found.append(await given(stand, specs, apart=apart, limit=limit))
    assert found[0] == found[1]
    assert len(found[0]) == (limit or 40)


async def test_several_workers_share_a_lot_as_they_share_single_tasks(tmp_path: Path) -> None:
    specs = some(Random(1))
    found = []
    for apart in (False, True):
        async with two(tmp_path / str(apart), slots=15, ahead=False) as (master, follower, _):
            await ready(master, follower)
            found.append(await given(master, specs, apart=apart))
    assert found[0] == found[1]
    assert {worker for _, worker in found[0]} == {"n1", "n2"}
    assert len(found[0]) == 30


@pytest.mark.parametrize("once", [5, 50])
async def test_lots_go_ahead_of_slots_but_for_what_must_not_wait_for_one(once: int, tmp_path: Path) -> None:
    specs: list[dict[str, Any]] = [{} for _ in range(COUNT)]
    specs[once] = {"delivery": "at-most-once"}
    found = []
    for apart in (False, True):
        async with one(tmp_path / str(apart), slots=4) as stand:
            await ready(stand)
            for _ in range(8):
                stand.node.pace._run_times.learn("default", 5.0)
            found.append(await given(stand, specs, apart=apart))
    assert found[0] == found[1]
    assert len(found[0]) == min(44, once)


async def test_a_name_that_is_full_is_full_for_tasks_of_a_lot(tmp_path: Path) -> None:
    """Also for those that have no limit themselves."""
    found = []
    for apart in (False, True):
        async with one(tmp_path / str(apart), slots=40, ahead=False) as stand:
            await ready(stand)
            await stand.add(id="holder", name="few", limit=1, queue="other")
            await stand.until_state("holder", "running")
            found.append(await given(stand, [{"name": "many"}, {"name": "few"}, {}], apart=apart))
    assert found[0] == found[1] == [("t0", "n1"), ("t2", "n1")]


async def test_what_is_under_way_counts_in_the_next_round(tmp_path: Path) -> None:
    """Of the queue, of its worker, and under its name."""
    specs: list[dict[str, Any]] = [{"name": "many"} for _ in range(700)]
    specs[600] = {"name": "many", "limit": 550}
    found = []
    for apart in (False, True):
        async with one(tmp_path / str(apart), slots=900, ahead=False) as stand:
            await ready(stand)
            found.append(await given(stand, specs, apart=apart, limit=650))
    assert found[0] == found[1]
    assert [task for task, _ in found[0]] == [f"t{n}" for n in range(651) if n != 600]


async def test_what_is_under_way_counts_for_whose_turn_it_is(tmp_path: Path) -> None:
    async with one(tmp_path, slots=4, ahead=False) as stand:
        await ready(stand)
        strangers = [c.NewTask(queue, TaskSpec(WORK, queue=queue, tags=("nowhere",))) for queue in ("a", "b")]
        await stand.node.door.propose(c.Add(tuple(strangers)), 10.0)
        bid = Bid(stand.node.presence.workers()["n1"], "s", 4, 0)
        lot = Lot.of("a", "n1", 1, {n: PlainTask(n, 0, 1, 0, "default", None, 1) for n in (1, 2)})
        for lots, first in (((), "a"), ((lot,), "b")):
            root = stand.node.auction._field.root([bid], [], frozenset(), 0, lambda _: None, lots=lots)
            lane = root.next()
            assert lane is not None
            assert lane.queue.name == first


@pytest.mark.parametrize("lot_first", [False, True])
def test_turns_follow_the_order_in_which_single_tasks_and_lots_were_proposed(lot_first: bool, tmp_path: Path) -> None:
    """What comes next while both are under way comes next when both have been applied, too."""
    master = Master(str(tmp_path))
    master.put("a", weight=4)
    master.add([TaskSpec(WORK, queue=queue) for queue in "a" * 20 + "b" * 20])
    db = master.table.db
    (a, shape, _), _ = market.ready(db)
    alone = market.ready_tasks(db, a, shape, limit=3)
    tasks = {task.seq: task for task in market.plain_tasks(db, "b", shape, limit=7, without=())}
    lot = Lot.of("b", WORKER, 1, tasks)
    order = [*tasks, *(row.seq for row in alone)] if lot_first else [*(row.seq for row in alone), *tasks]
    expected = master.choose(8, [(row, [WORKER]) for row in alone], [lot], order)
    told = master.table.do(c.Awards(tuple(c.Award(seq, WORKER, SESSION) for seq in order)))
    assert not told.refused
    assert [row.seq for row in master.choose(8)] == [row.seq for row in expected]
    master.close()


async def test_a_lot_is_read_as_it_is_given_out(tmp_path: Path) -> None:
    """Nothing is read of what is under way, and of nothing more than the market needs."""
    async with one(tmp_path, slots=900, ahead=False) as stand:
        await ready(stand)
        said: list[str] = []
        stand.machine.db.set_trace_callback(said.append)
        assert len(await given(stand, [{} for _ in range(800)], apart=False)) == 800
        stand.machine.db.set_trace_callback(None)
        assert sum("NOT IN (SELECT value FROM json_each" in each for each in said) == 2
        assert not [each for each in said if each.startswith(f"{TASK_SELECT} WHERE ready")]


@pytest.mark.parametrize("run_ms", [0.0, 0.3, 5.0, 7.3, 49.0, 80.0])
@pytest.mark.parametrize(
    ("slots", "taken", "stuck"), [(4, 0, 0), (4, 4, 1), (4, 9, 0), (4, 3, 4), (1, 1, 0), (64, 70, 3)]
)
def test_the_room_ahead_of_slots_is_what_one_by_one_finds(run_ms: float, slots: int, taken: int, stuck: int) -> None:
    def bid() -> Bid:
        return Bid(cast("WorkerView", None), "s", slots, taken, stuck, run_ms=4.0)

    one_by_one, count = bid(), 0
    while one_by_one.has(1) or one_by_one.begins_ms(run_ms) is not None:
        one_by_one.take(1)
        count += 1
    assert bid().room(1) + bid().room_ahead(run_ms) == count
