"""The executor on clocks that are not the loop's."""

from __future__ import annotations

import random

from quvatlh.runner.executor.keeper import LINGER_S
from tests.sim.clock import SimClock
from tests.sim.loop import SimLoop
from tests.sim.table.executor import Host
from tests.sim.table.facts import TaskFacts
from tests.sim.table.hands import Ground


def _none(task_id: str) -> TaskFacts:
    raise KeyError(task_id)


def test_an_executor_that_nobody_needs_ends_in_a_few_steps_whatever_its_clock() -> None:
    chance = random.Random(1)
    for _ in range(300):
        loop = SimLoop()
        clock = SimClock(loop, rate=1 + chance.uniform(-1e-3, 1e-3))
        loop.run_for(chance.uniform(5, 60))
        clock.reboot()  # from now on it tells smaller differences than the loop knows
        host = Host("n1", loop, clock, Ground(_none, loop.time), chance)
        host.hatch("n1")
        loop.run_for(LINGER_S + 0.1)
        assert not host.lives
        assert loop.steps < 100
        loop.close()
