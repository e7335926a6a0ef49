"""What befalls a cluster of tasks beyond what befalls its log: nodes are asked to stop, clocks are set and set right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from tests.sim.clock import WALL_START_MS
from tests.sim.nemesis import Nemesis
from tests.sim.table.box import TableBox
from tests.sim.table.hands import Ground
from tests.sim.table.judge import TableJudge

CLOCK_JUMPS_MS: Final = (-600_000, -1000, 500, 60_000)
"""A day would be beyond what is remembered of requests."""
TERMINATED_S: Final = 20.0


class TableNemesis(Nemesis):
    judge: TableJudge
    ground: Ground

    def _acts(self) -> list[tuple[float, Callable[[], Coroutine[Any, Any, None]]]]:
        return [
            *super()._acts(), (1, self._terminate), (2, self._kill_executor), (2, self._freeze_executor),
            (6, self._worker_away),
        ]  # fmt: skip

    async def _worker_away(self) -> None:
        """Out of touch for longer than most leases, with actions that go on; the others are left in peace meanwhile."""
        busy = {each.process for those in self.ground.running.values() for each in those}
        boxes = [
            box
            for box in self._boxes
            if isinstance(box, TableBox) and box.running and box.host.process in busy and box is not self._master()
        ]
        if not boxes:
            return
        box = self._rng.choice(boxes)
        if self._rng.random() < 0.4:
            await self._stop_for(box, self._rng.uniform(3, 6))
        else:
            self._net.heal()
            self._net.partition([box.name], [name for name in self._names() if name != box.name])
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

    async def _clock(self) -> None:
        box = self._rng.choice(self._boxes)
        delta = self._rng.choice(CLOCK_JUMPS_MS)
        box.say(f"wall clock set by {delta} ms")
        box.clock.jump_ms(delta)

    async def heal(self) -> None:
        """Clocks are right again. Log time never goes back, so for this world it is later than it thought."""
        now_ms = max(self.judge.log_time_ms, WALL_START_MS + round(self._loop.now_s * 1000))
        for box in self._boxes:
            box.clock.jump_ms(now_ms - box.clock.wall_ms())
            for host in box.hosts if isinstance(box, TableBox) else ():
                host.thaw()
        await super().heal()
