"""The world of tasks: the whole node but HTTP, clients of every kind, and actions that take their time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ClassVar, Final
from unittest.mock import patch

from quvatlh.core import commands as c
from quvatlh.core.model import Rate
from quvatlh.core.tables_digest import tables_digest
from quvatlh.ports import LogError
from quvatlh.raft.settings import Settings
from quvatlh.service import asks
from quvatlh.service.door import Door, Refusal, Written
from quvatlh.service.seats import NodeSeat
from tests.sim.judge import Violation
from tests.sim.process import PROCESS
from tests.sim.run import SIM_SETTINGS, Outcome, Run
from tests.sim.table.box import TableBox
from tests.sim.table.clients import Client, Memory
from tests.sim.table.followers import Follower
from tests.sim.table.hands import Ground
from tests.sim.table.judge import TableJudge
from tests.sim.table.nemesis import TableNemesis
from tests.sim.table.planners import Diary, Planner
from tests.sim.table.pullers import Puller, Pulls
from tests.sim.table.tasks import ZONES, Maker, PullMaker

CLIENTS: Final = 4
FOLLOWERS: Final = 3
END_S: Final = 180.0
"""All is well, nobody adds anything: every task has to end within this."""
CATCH_UP_S: Final = 10.0
SLOTS_S: Final = 60.0
"""Clocks that were set forward by minutes owe hundreds of slots, an entry each, on disks that take 0.1 s for one. Meanwhile
each schedule that is late has one decided within CATCH_UP_S."""
READ_S: Final = 40.0
"""Readers stay for a while with a node that hears nothing any more."""
ASK_S: Final = 5.0
LATE_MS: Final = 2000
"""With all well a slot is decided within this."""
STALE_S: Final = 0.1
"""An executor's answer is that old at most when the beat leaves."""

TABLE_SETTINGS: Final = replace(
    SIM_SETTINGS,
    segment_bytes=32 * 1024,
    keep_bytes=8 * 1024,
    cache_bytes=8 * 1024,
    checkpoint_bytes=16 * 1024,
    append_bytes_max=16 * 1024,
    append_window_bytes=64 * 1024,
    snapshot_chunk_bytes=16 * 1024,
)


class TableRun(Run[TableBox]):
    settings: ClassVar[Settings] = TABLE_SETTINGS
    append_bytes_max: ClassVar[tuple[int, ...]] = (2048, 16 * 1024)
    judge: TableJudge
    nemesis: TableNemesis

    def _prepare(self) -> None:
        self.judge = TableJudge()
        self.ground = Ground(lambda task_id: self.judge.by_id[task_id], lambda: self.loop.now_s)
        self.judge.ground = self.ground
        self.memory = Memory()
        self.diary = Diary()
        self.pulls = Pulls()

    def _box(self, name: str) -> TableBox:
        rng = random.Random(self.rng.random())
        zone = ZONES[int(name[1:]) % 2 == 0]
        return TableBox(
            name, self.loop, self.net, rng, self.trace, self.own_settings, self.judge,
            ground=self.ground, slots=rng.choice([2, 2, 3, 6]), tags=(zone,),
        )  # fmt: skip

    def _nemesis(self, rng: random.Random) -> TableNemesis:
        nemesis = TableNemesis(self.loop, self.net, rng, self.boxes, self.count)
        nemesis.judge, nemesis.ground = self.judge, self.ground
        self.judge.on_awarded = nemesis.awarded
        self._watcher = nemesis
        return nemesis

    def _clients(self) -> list[Coroutine[Any, Any, None]]:
        maker = Maker(random.Random(self.rng.random()), self.count)
        pause_s = self.rng.choice([0.1, 0.25, 0.6])
        clients = [Client(self, self.memory, maker, random.Random(self.rng.random()), pause_s) for _ in range(CLIENTS)]
        self.followers = [Follower(self, random.Random(self.rng.random())) for _ in range(FOLLOWERS)]
        self._following = [asyncio.ensure_future(follower.run()) for follower in self.followers]
        return [self._set_up(), *(client.run() for client in clients), *self._planners(), *self._pull()]

    def _planners(self) -> list[Coroutine[Any, Any, None]]:
        """Not in each run: their tasks are many. From a generator of their own, so that the others stay as they are."""
        rng = random.Random(f"{self.seed}/planners")
        count = rng.choice([0, 0, 1, 2])
        self.nemesis.visits = random.Random(rng.random())
        self.nemesis.sets_all_clocks = count > 0 and rng.random() < 0.5
        pause_s = rng.choice([0.3, 1.0])
        return [Planner(self, self.diary, random.Random(rng.random()), pause_s).run() for _ in range(count)]

    def _pull(self) -> list[Coroutine[Any, Any, None]]:
        """Who adds for pull workers; those themselves go on until all has ended."""
        rng = random.Random(f"{self.seed}/pullers")
        self.nemesis.pullers = [
            Puller(self, self.loop, self.ground, self.pulls, f"p{n + 1}", random.Random(rng.random()))
            for n in range(rng.choice([0, 0, 1, 3]))
        ]
        for puller in self.nemesis.pullers:
            puller.start()
        maker = PullMaker(random.Random(rng.random()))
        adders = [Client(self, self.memory, maker, random.Random(rng.random()), rng.choice([0.3, 0.8]))]
        return [adder.run() for adder in adders[: len(self.nemesis.pullers)]]

    async def _set_up(self) -> None:
        """Somebody gives a queue its limits."""
        changes = c.QueueChanges(limit_per_key=1, limit_per_worker=2, rate=Rate(20, 1000))
        while not self.at_peace:
            await asyncio.sleep(0.5)
            if await self._ask(c.PatchQueue("keyed", changes)):
                return

    async def _ask(self, command: c.AnyCommand) -> bool:
        """As an operator at any node; whether it was done."""
        box = next((box for box in self.boxes if box.node is not None and box.running), None)
        if box is None or box.node is None:
            return False
        try:
            await self.within(box, box.node.door.write(asks.Do(command), ASK_S, box.node.door.request_id()), ASK_S)
        except (LogError, Refusal):
            return False
        return True

    # --- what the log does not tell ---------------------------------------------------------------------------------------

    def play(self) -> Outcome:
        with self._beats_seen(), self._losses_seen():
            return super().play()

    def _beats_seen(self) -> AbstractContextManager[Any]:
        """No beat leaves for an executor that does not answer."""

        async def beat(seat: NodeSeat, beat: asks.Beat) -> asks.BeatAnswer:
            box = next(box for box in self.boxes if box.name == beat.worker)
            awake_s = self.loop.now_s - PROCESS.get().released_s
            if min(box.host.is_frozen_for(), awake_s) > STALE_S:
                raise Violation(f"{box.name} sends a beat, and its executor has stood still since {box.host.frozen_s}")
            self._watcher.beats(box)
            return await real(seat, beat)

        real = NodeSeat.beat
        return patch.object(NodeSeat, "beat", beat)

    def _losses_seen(self) -> AbstractContextManager[Any]:
        """When a master proposes them."""

        async def propose(
            door: Door, command: c.AnyCommand, deadline_s: float, request: c.Request | None = None
        ) -> Written:
            if isinstance(command, c.Lost):
                self._watcher.loses(next(box for box in self.boxes if box.node is not None and box.node.door is door))
            return await real(door, command, deadline_s, request)

        real = Door.propose
        return patch.object(Door, "propose", propose)

    # --- the end --------------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        self.ground.in_a_hurry = True
        self.nemesis.set_clocks_right()
        await self._catch_up_slots()
        await self._end_schedules()
        await self._end_endless()
        await self._until(self._all_ended, END_S, "a task has not ended")
        await self._until(self._level, CATCH_UP_S, "a member did not catch up")
        self._check_members()
        self._check_answers()
        await self._until(self._read_to_the_end, READ_S, "a reader is behind")

    async def _end_endless(self) -> None:
        """Services, and what no policy wants."""
        while endless := [
            task.id for task in self.judge.tasks.values() if (not task.job or task.unwanted) and not task.finished
        ]:
            await self._ask(c.Delete(tuple(endless), strict=False))
            await asyncio.sleep(0.1)

    def _in_time(self) -> bool:
        """What every schedule should have decided by now, it has."""
        master = self._master()
        return master is not None and master.log is not None and not self.judge.slots.late(master.log.time_ms - LATE_MS)

    async def _catch_up_slots(self) -> None:
        ends = self.loop.now_s + SLOTS_S
        while not self._in_time():
            before = self._late()
            in_s = min(CATCH_UP_S, ends - self.loop.now_s)
            await self._until(lambda before=before: not before & self._late(), in_s, "a slot is forgotten")

    def _late(self) -> set[tuple[str, int | None]]:
        """Schedules and the slots that they owe next; nobody can say while there is no master."""
        master, kept = self._master(), self.judge.slots.kept
        if master is None or master.log is None:
            return {(name, each.next_ms) for name, each in kept.items()}
        return {(name, kept[name].next_ms) for name in self.judge.slots.late(master.log.time_ms - LATE_MS)}

    async def _end_schedules(self) -> None:
        while names := sorted(self.judge.slots.kept):
            await self._ask(c.DeleteSchedule(names[0]))
            await asyncio.sleep(0.05)

    def _all_ended(self) -> bool:
        tasks = self.judge.tasks.values()
        return not self.ground.any() and all(task.finished and not task.tokens for task in tasks)

    def _level(self) -> bool:
        """Every member has applied everything; the table stands still for an instant."""
        indexes = {box.log.applied_index for box in self._members() if box.log is not None}
        return indexes == {self.judge.top}

    def _read_to_the_end(self) -> bool:
        for task in self._following:
            if task.done():
                task.result()
        return all(follower.is_up_to_date() for follower in self.followers)

    def _check_members(self) -> None:
        """Every one has the same tables, in order, with all that was acknowledged and nothing that was refused."""
        digests = {}
        for box in self._members():
            assert box.machine is not None
            self.judge.compare_with_facts(box)
            digests[box.name] = tables_digest(box.machine.db)
        if len(set(digests.values())) > 1:
            raise Violation(f"the tables are not equal at {self.judge.top}: {digests}")

    def _check_answers(self) -> None:
        for task_id in self.memory.acknowledged:
            if task_id not in self.judge.by_id:
                raise Violation(f"{task_id} was acknowledged, and is nowhere")
        for (op, _), task_id in self.judge.added.items():
            if op in self.memory.refused:
                raise Violation(f"request {op} was refused as certainly not done, and made {task_id}")
        wrong = self.diary.refused & self.judge.slots.puts
        if wrong:
            raise Violation(f"schedules were put by {sorted(wrong)}, which were refused as certainly not done")

    def _picture(self) -> str:
        late = [f"{t.id} {t.state} {sorted(t.tokens)}" for t in self.judge.tasks.values() if not t.finished or t.tokens]
        slots = self.judge.slots.late(self.judge.log_time_ms)
        return f"{super()._picture()}; late {slots}; not ended: {', '.join(late[:20])}"

    def _figures(self) -> Mapping[str, int]:
        states = [task.state for task in self.judge.tasks.values()]
        return {
            "tasks": len(states),
            "actions": sum(self.ground.begun.values()),
            "lost": self.judge.lost,
            "excused": self.ground.excuses,
            "slots run": self.judge.slots.ran,
            "skipped": self.judge.slots.skipped,
            "by hand": self.judge.slots.by_hand,
            **self.pulls.shown(),
            "acknowledged": len(self.memory.acknowledged),
            "refused": len(self.memory.refused),
            "unknown": self.memory.unknown,
            "reads": self.memory.reads,
            "events": sum(follower.seen for follower in self.followers),
            "fallen behind": sum(follower.gaps for follower in self.followers),
            **{state: states.count(state) for state in ("succeeded", "failed", "deleted")},
        }
