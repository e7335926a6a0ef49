"""People who keep schedules: they put, pause, run and delete them, often at the same time, and know what they were told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from quvatlh.service.node import Node
from quvatlh.service.pool import Call, Problem, Rejected, RequestKey, Unavailable, Unknown
from tests.sim.judge import Violation
from tests.sim.table.box import TableBox
from tests.sim.table.clients import DEADLINES_S, SOMEBODY, Cluster, asked, some_box
from tests.sim.table.hands import Script

NAMES: Final = ("s0", "s1", "s2")
RULES: Final[tuple[dict[str, Any], ...]] = (
    {"every_ms": 1000}, {"every_ms": 2000}, {"every_ms": 7000}, {"cron": "* * * * *"}, {"cron": "*/2 * * * *"},
    {"cron": "13,14,17,20 * * * *", "zone": "Europe/Berlin"},
)  # fmt: skip
"""The world begins at 13 minutes and 20 seconds past an hour."""
SHOWN: Final = 20
"""Rows of a ledger."""


@dataclass
class Diary:
    """What all of them know together."""

    puts: int = 0
    acknowledged: set[int] = field(default_factory=set)
    """Numbers of puts."""
    refused: set[int] = field(default_factory=set)
    """Those of which each attempt certainly did nothing."""
    runs: int = 0


class Planner:
    def __init__(self, cluster: Cluster, diary: Diary, rng: random.Random, pause_s: float) -> None:
        self._cluster = cluster
        self._diary = diary
        self._rng = rng
        self._pause_s = pause_s

    async def run(self) -> None:
        acts: list[tuple[float, Callable[[TableBox, Node, str], Coroutine[Any, Any, None]]]] = [
            (4, self._put), (2, self._pause), (3, self._go_on), (2, self._run_now), (0.5, self._delete), (1, self._read),
        ]  # fmt: skip
        while not self._cluster.at_peace:
            await asyncio.sleep(self._rng.expovariate(1 / self._pause_s))
            box = some_box(self._cluster, self._rng)
            if box is not None and box.node is not None:
                act = self._rng.choices([act for _, act in acts], [weight for weight, _ in acts])[0]
                await act(box, box.node, self._rng.choice(NAMES))

    def _call(self, key: RequestKey | None = None) -> tuple[Call, float]:
        deadline_s = self._rng.choice(DEADLINES_S)
        return Call(SOMEBODY, round(deadline_s * 1000), False, key), deadline_s

    # --- what they want ---------------------------------------------------------------------------------------------------

    async def _put(self, _box: TableBox, _node: Node, name: str) -> None:
        """Asked again under its key until it is answered, or given up."""
        self._diary.puts += 1
        op = self._diary.puts
        spec = self._spec(op)
        key = RequestKey("somebody", f"PUT /v1/schedules/{name}", f"put-{op}", op.to_bytes(8, "big"))
        is_certain = True
        for _ in range(self._rng.choice([1, 1, 2, 4])):
            box = some_box(self._cluster, self._rng)
            if box is None or box.node is None:
                continue
            call, deadline_s = self._call(key)
            try:
                shown = await asked(self._cluster, box, box.node.pool.put_schedule(call, name, spec), deadline_s)
            except Unknown:
                is_certain = False
            except (Unavailable, Rejected):
                pass
            else:
                self._check_put(op, name, shown)
                return
            await asyncio.sleep(self._rng.expovariate(1 / 0.5))
        if is_certain:
            self._diary.refused.add(op)

    def _check_put(self, op: int, name: str, shown: dict[str, Any]) -> None:
        if op not in self._cluster.judge.slots.puts:
            raise Violation(f"put {op} of {name} was answered {shown}, and nobody has applied it")
        self._diary.acknowledged.add(op)

    def _spec(self, op: int) -> dict[str, Any]:
        rng = self._rng
        script = Script(op, rng.choice([10, 300, 1500, 4000]), rng.choice([0, 0, 0, 1, 99]), rng.choice([0, 5, -1]))
        task = {
            "work": {"command": script.command()},
            "retry": {"attempts": 3, "first_ms": 200, "max_ms": 1000},
            "stop": {"grace_ms": 200},
        }
        return {
            **rng.choice(RULES),
            "task": task,
            "catchup": rng.choice(["skip", "last", "last", "all"]),
            "overlap": rng.choice(["allow", "skip", "skip", "queue", "replace"]),
            "jitter_ms": rng.choice([0, 0, 0, 700]),
            "paused": rng.random() < 0.05,
        }

    async def _pause(self, box: TableBox, node: Node, name: str) -> None:
        await self._try(box, lambda call: node.pool.pause_schedule(call, name, paused=True))

    async def _go_on(self, box: TableBox, node: Node, name: str) -> None:
        await self._try(box, lambda call: node.pool.pause_schedule(call, name, paused=False))

    async def _delete(self, box: TableBox, node: Node, name: str) -> None:
        await self._try(box, lambda call: node.pool.delete_schedule(call, name))

    async def _run_now(self, box: TableBox, node: Node, name: str) -> None:
        """The same one, often: under its key it runs once."""
        self._diary.runs += 1
        key = RequestKey("somebody", f"POST /v1/schedules/{name}/run", f"run-{self._diary.runs}", b"")
        tasks = set()
        for _ in range(self._rng.choice([1, 1, 3])):
            ran = await self._try(box, lambda call: node.pool.run_schedule(call, name), key)
            if ran is not None and ran["task"] is not None:
                tasks.add(ran["task"])
        judge = self._cluster.judge
        if len(tasks) > 1 or any(task not in judge.by_id or judge.by_id[task].schedule != name for task in tasks):
            raise Violation(f"one run of {name} was answered {tasks}")

    async def _read(self, box: TableBox, node: Node, name: str) -> None:
        """Latest first, and nothing twice."""
        page = await self._try(box, lambda call: node.pool.ledger(call, name, SHOWN, None))
        if page is None:
            return
        slots = [row["slot_ms"] for row in page.items if not row["manual"]]
        if slots != sorted(set(slots), reverse=True):
            raise Violation(f"{box.name} shows the ledger of {name} as {slots}")

    async def _try(self, box: TableBox, ask: Callable[[Call], Coroutine[Any, Any, Any]], key: Any = None) -> Any:
        """What was answered; None: a no."""
        call, deadline_s = self._call(key)
        try:
            return await asked(self._cluster, box, ask(call), deadline_s)
        except Problem:
            return None
