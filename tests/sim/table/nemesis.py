"""What befalls a cluster of tasks beyond what befalls its log: nodes are asked to stop, clocks are set and set right."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

from tests.sim.box import AnyBox
from tests.sim.clock import WALL_START_MS
from tests.sim.nemesis import Nemesis
from tests.sim.table.box import TableBox
from tests.sim.table.hands import Ground
from tests.sim.table.judge import TableJudge
from tests.sim.table.pullers import Puller

CLOCK_JUMPS_MS: Final = (-600_000, -1000, 500, 60_000)
"""A day would be beyond what is remembered of requests."""
ALL_CLOCKS_MS: Final = (-70_000, -3000, 30_000, 90_000, 90_000, 200_000)
CLOCKS_S: Final = 8.0
PULLERS_S: Final = 2.0
"""Between two of them, on average."""
TERMINATED_S: Final = 20.0


AIMED_CHANCE: Final = 0.4
"""Of a run in which nothing else befalls the cluster than what may leave an action with two owners."""
AWAY_S: Final = (2.5, 6.0)
"""Longer than most leases, with what the master adds to them."""


class TableNemesis(Nemesis):
    judge: TableJudge
    ground: Ground

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.pullers: list[Puller] = []
        self.visits = random.Random()
        """The generator of what befalls pull workers, and of clocks that are set all at once: such runs alone know it."""
        self.sets_all_clocks = False
        self._strike_at_award = self._strike_at_beat = self._strike_at_loss = False
        if self._rng.random() < AIMED_CHANCE:
            aimed = {self._worker_away, self._master_away, self._moves, self._at_next_award, self._at_next_beat}
            self._weights = [(float(act in aimed), act) for _, act in self._weights]

    def _acts(self) -> list[tuple[float, Callable[[], Coroutine[Any, Any, None]]]]:
        return [
            *super()._acts(), (1, self._terminate), (2, self._kill_executor), (2, self._freeze_executor),
            (8, self._worker_away), (4, self._at_next_award), (4, self._at_next_beat), (2, self._at_next_loss),
            (4, self._master_away), (3, self._moves),
        ]  # fmt: skip

    # --- at the worst moment ------------------------------------------------------------------------------------------

    async def _at_next_award(self) -> None:
        self._strike_at_award = True

    async def _at_next_beat(self) -> None:
        self._strike_at_beat = True

    async def _at_next_loss(self) -> None:
        self._strike_at_loss = True

    def awarded(self, worker: str) -> None:
        """It does not hear of it before its lease is over; and then it may be slow to hear the rest."""
        box = self._box(worker)
        if not self._strike_at_award or box is None or not box.running or box is self._master():
            return
        self._strike_at_award = False

        async def strike() -> None:
            await self._cut_off(box, self._rng.uniform(*AWAY_S))
            if self._rng.random() < 0.7:
                box.disk.pace.stall_chance = 0.5
                self._later(2.0, lambda: setattr(box.disk.pace, "stall_chance", 0.0))

        self._spawn(strike())

    def beats(self, box: AnyBox) -> None:
        """The answer is heard so late as may be, and is the last one for a while."""
        if not self._strike_at_beat or box not in self._busy() or box is self._master():
            return
        self._strike_at_beat = False
        process = box.process

        async def strike() -> None:
            assert process is not None
            await asyncio.sleep(self._rng.uniform(0.0, 0.02))
            process.pause()
            box.say("paused while its beat is answered")
            await asyncio.sleep(self._rng.uniform(0.4, 0.49))
            self._part(box)
            process.resume()
            await asyncio.sleep(self._rng.uniform(*AWAY_S))
            self._net.heal()

        self._spawn(strike())

    def loses(self, box: AnyBox) -> None:
        """Everybody is in touch again, and what the master has just proposed takes its time."""
        if not self._strike_at_loss:
            return
        self._strike_at_loss = False
        box.say("is slow to decide what is lost")
        self._net.heal()
        for each in self._boxes:
            each.disk.pace.stall_chance = 0.7
            self._later(1.0, lambda pace=each.disk.pace: setattr(pace, "stall_chance", 0.0))  # type: ignore[misc]

    async def _cut_off(self, box: AnyBox, seconds: float) -> None:
        self._part(box)
        await asyncio.sleep(seconds)
        self._net.heal()

    def _part(self, box: AnyBox) -> None:
        self._say(f"{box.name} is cut off")
        self._net.heal()
        self._net.partition([box.name], [name for name in self._names() if name != box.name])

    def _box(self, name: str) -> TableBox | None:
        return next((box for box in self._boxes if box.name == name and isinstance(box, TableBox)), None)

    def _busy(self) -> list[TableBox]:
        """Where actions run."""
        busy = {each.process for those in self.ground.running.values() for each in those}
        return [box for box in self._boxes if isinstance(box, TableBox) and box.running and box.host.process in busy]

    async def _master_away(self) -> None:
        """With actions of its own; others have another master meanwhile."""
        master = self._master()
        if master is None or master not in self._busy() or len(self._boxes) < 3:
            return
        await self._cut_off(master, self._rng.uniform(*AWAY_S))

    async def _moves(self) -> None:
        """A worker comes back on another machine, at once, while the actions of the old one go on there."""
        boxes = [box for box in self._busy() if box in self._boxes[: self._founders]]
        if self._founders < 3 or self._replaced is not None or not boxes:
            return
        box = self._rng.choice(boxes)
        if box.log is None or box.log.membership is None:
            return
        self._replaced = (box, box.log.node_id)
        box.crash(power=False)
        box.wipe(leave=True)
        box.start()
        for _ in range(5):
            await asyncio.sleep(0.2)
            await self._see_to_replaced()

    # --- at any moment ------------------------------------------------------------------------------------------------

    async def _worker_away(self) -> None:
        """Out of touch for longer than most leases, with actions that go on; the others are left in peace meanwhile."""
        boxes = [box for box in self._busy() if box is not self._master()]
        if not boxes:
            return
        box = self._rng.choice(boxes)
        if self._rng.random() < 0.4:
            await self._stop_for(box, self._rng.uniform(3, 6))
        else:
            self._part(box)
            self._later(self._rng.uniform(3, 6), self._net.heal)
        await asyncio.sleep(3)

    async def _kill_executor(self) -> None:
        box = self._rng.choice(self._boxes)
        if isinstance(box, TableBox):
            box.say("executor killed")
            box.host.crash(power=False)

    async def _freeze_executor(self) -> None:
        box = self._rng.choice(self._boxes)
        if isinstance(box, TableBox):
            box.say("executor frozen")
            box.host.freeze()
            self._later(self._rng.choice([0.2, 1.0, 4.0]), box.host.thaw)

    async def _terminate(self) -> None:
        box = self._any()
        if isinstance(box, TableBox):
            box.terminate()
            self._watch_for_end(box, TERMINATED_S)

    # --- beside the rest ------------------------------------------------------------------------------------------------

    async def rage(self, seconds: float) -> None:
        others = [asyncio.ensure_future(job) for job in (self._visit_pullers(), self._set_all_clocks())]
        await super().rage(seconds)
        for other in others:
            other.cancel()

    async def _visit_pullers(self) -> None:
        while self.pullers:
            await asyncio.sleep(self.visits.expovariate(1 / PULLERS_S))
            puller = self.visits.choice(self.pullers)
            away_s = self.visits.choice([0.2, 1.5, 4.0])
            if self.visits.random() < 0.6:
                self._count("pause_puller")
                puller.pause()
            else:
                self._count("kill_puller")
                puller.kill()
            self._later(away_s, puller.go_on)

    async def _set_all_clocks(self) -> None:
        """As a bad time server would, on most of the machines or all."""
        while self.sets_all_clocks:
            await asyncio.sleep(self.visits.expovariate(1 / CLOCKS_S))
            self._count("all_clocks")
            delta = self.visits.choice(ALL_CLOCKS_MS)
            for box in self.visits.sample(
                self._boxes, self.visits.randint(len(self._boxes) // 2 + 1, len(self._boxes))
            ):
                box.say(f"wall clock set by {delta} ms with others")
                box.clock.jump_ms(delta)

    async def _clock(self) -> None:
        box = self._rng.choice(self._boxes)
        delta = self._rng.choice(CLOCK_JUMPS_MS)
        box.say(f"wall clock set by {delta} ms")
        box.clock.jump_ms(delta)

    def set_clocks_right(self) -> None:
        """By what is known now: an entry that nobody has applied may have been stamped later."""
        now_ms = max(self.judge.log_time_ms, WALL_START_MS + round(self._loop.now_s * 1000))
        for box in self._boxes:
            box.clock.jump_ms(now_ms - box.clock.wall_ms())

    async def heal(self) -> None:
        """Clocks are right again. Log time never goes back, so for this world it is later than it thought."""
        self._strike_at_award = self._strike_at_beat = self._strike_at_loss = False
        self.set_clocks_right()
        for box in self._boxes:
            for host in box.hosts if isinstance(box, TableBox) else ():
                host.thaw()
        for puller in self.pullers:
            puller.go_on()
        await super().heal()
