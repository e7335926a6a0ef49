"""Clients of a cluster of tasks: they add, change, read and follow, and know what they were told."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from quvatlh.core import commands as c
from quvatlh.core.filters import TaskFilter
from quvatlh.core.results import Done
from quvatlh.ports import Unknown as NoAnswer
from quvatlh.service import asks
from quvatlh.service.door import Written
from quvatlh.service.node import Node
from quvatlh.service.pool import (
    Added,
    Broken,
    Call,
    NewTask,
    Principal,
    Problem,
    Rejected,
    RequestKey,
    TaskQuery,
    Unavailable,
    Unknown,
)
from quvatlh.service.writes import told
from tests.sim.judge import Violation
from tests.sim.table.box import TableBox
from tests.sim.table.facts import FINISHED, TaskFacts
from tests.sim.table.judge import TableJudge
from tests.sim.table.tasks import Making

T = TypeVar("T")
SOMEBODY: Final = Principal("somebody", "admin")
DEADLINES_S: Final = (0.2, 1.0, 2.0, 5.0)
RECENT: Final = 12
"""Verbs go to one of the tasks last heard of."""


class Cluster(Protocol):
    """What clients see of a run."""

    @property
    def boxes(self) -> list[TableBox]: ...

    @property
    def judge(self) -> TableJudge: ...

    at_peace: bool

    async def within(self, box: TableBox, job: Coroutine[Any, Any, T], deadline: float) -> T: ...


def some_box(cluster: Cluster, rng: random.Random) -> TableBox | None:
    """Whose node takes calls."""
    boxes = [box for box in cluster.boxes if box.node is not None and not box.dead]
    return rng.choice(boxes) if boxes else None


async def asked(cluster: Cluster, box: TableBox, job: Coroutine[Any, Any, T], deadline_s: float) -> T:
    """One of the four problems, or an answer; a process that dies gives none."""
    try:
        return await cluster.within(box, job, deadline_s)
    except Broken as error:
        raise Violation(f"{box.name} says that it is broken: {error.detail}") from error
    except NoAnswer as error:
        raise Unknown(error.detail) from error


@dataclass
class Memory:
    """What all clients of a run know together."""

    ops: int = 0
    acknowledged: dict[str, int] = field(default_factory=dict)
    """Task -> the request that stood for it first."""
    refused: set[int] = field(default_factory=set)
    """Requests of which each attempt certainly did nothing."""
    finished: set[str] = field(default_factory=set)
    """Tasks that somebody was shown as finished, and that no person has retried."""
    recent: list[str] = field(default_factory=list)
    unknown: int = 0
    reads: int = 0

    def acknowledge(self, ids: list[str], op: int) -> None:
        for task_id in ids:
            self.acknowledged.setdefault(task_id, op)
            self.recent.append(task_id)
        del self.recent[:-RECENT]


@dataclass(slots=True)
class _Op:
    """One ADD, however often it is asked."""

    number: int
    tasks: list[NewTask]
    key: RequestKey | None
    certain: bool = True
    answer: Added | None = None


class Client:
    def __init__(self, cluster: Cluster, memory: Memory, maker: Making, rng: random.Random, pause_s: float) -> None:
        self._cluster = cluster
        self._memory = memory
        self._maker = maker
        self._rng = rng
        self._pause_s = pause_s

    async def run(self) -> None:
        acts: list[tuple[float, Callable[[TableBox, Node], Coroutine[Any, Any, None]]]] = [
            (8, self._add), (1.5, self._delete), (1, self._kill), (1, self._retry), (1, self._update),
            (1, self._relocate), (3, self._read), (2, self._wait), (1, self._list),
        ]  # fmt: skip
        while not self._cluster.at_peace:
            await asyncio.sleep(self._rng.expovariate(1 / self._pause_s))
            box = self._box()
            if box is not None and box.node is not None:
                act = self._rng.choices([act for _, act in acts], [weight for weight, _ in acts])[0]
                await act(box, box.node)

    def _box(self) -> TableBox | None:
        return some_box(self._cluster, self._rng)

    def _call(self, key: RequestKey | None = None, *, consistent: bool = False) -> tuple[Call, float]:
        deadline_s = self._rng.choice(DEADLINES_S)
        return Call(SOMEBODY, round(deadline_s * 1000), consistent, key), deadline_s

    async def _ask(self, box: TableBox, job: Coroutine[Any, Any, T], deadline_s: float) -> T:
        return await asked(self._cluster, box, job, deadline_s)

    # --- add ------------------------------------------------------------------------------------------------------------

    async def _add(self, box: TableBox, node: Node) -> None:
        memory, rng = self._memory, self._rng
        memory.ops += 1
        tasks = self._maker.tasks(memory.ops)
        key = None
        if rng.random() < 0.5:
            digest = hashlib.blake2b(repr(tasks).encode(), digest_size=16).digest()
            key = RequestKey("somebody", "POST /v1/events", f"key-{memory.ops}", digest)
        op = _Op(memory.ops, tasks, key)
        again = rng.choice([0, 1, 2, 4]) if key else 0
        await self._add_once(op, box, node)
        for _ in range(again):
            if op.answer is not None and rng.random() < 0.7:
                break
            await asyncio.sleep(rng.expovariate(1 / 0.5))
            other = self._box()
            if other is not None and other.node is not None:
                await self._add_once(op, other, other.node)
        if op.answer is None and op.certain:
            memory.refused.add(op.number)

    async def _add_once(self, op: _Op, box: TableBox, node: Node) -> None:
        call, deadline_s = self._call(op.key)
        try:
            added = await self._ask(box, node.pool.add(call, op.tasks), deadline_s)
        except Unknown:
            self._memory.unknown += 1
            op.certain = False
            return
        except (Unavailable, Rejected):
            return
        if op.answer is not None and list(op.answer.ids) != list(added.ids):
            raise Violation(f"request {op.number} was answered {op.answer.ids}, and now {added.ids}")
        op.answer = added
        self._check_added(op, added)
        self._memory.acknowledge(list(added.ids), op.number)
        if box.node is node:
            await self._sees(box, node, self._rng.choice(added.ids), consistent=False)
        other = self._box()
        if other is not None and other.node is not None and self._rng.random() < 0.3:
            await self._sees(other, other.node, self._rng.choice(added.ids), consistent=True)

    def _check_added(self, op: _Op, added: Added) -> None:
        """What is answered is applied."""
        judge = self._cluster.judge
        for place, task_id in enumerate(added.ids):
            if task_id not in judge.by_id:
                raise Violation(f"request {op.number} was answered {task_id}, which nobody has applied")
            if place not in added.existing and judge.added.get((op.number, place)) != task_id:
                raise Violation(f"request {op.number} was answered {task_id} as new, and did not make it")

    async def _sees(self, box: TableBox, node: Node, task_id: str, *, consistent: bool) -> None:
        """Read your writes: here what was answered here, behind a barrier what was answered anywhere."""
        call, deadline_s = self._call(consistent=consistent)
        finished = task_id in self._memory.finished
        try:
            record = await self._ask(box, node.pool.task(call, task_id), deadline_s)
        except Rejected as error:
            if not self._forgettable(task_id):
                raise Violation(f"{box.name} does not see {task_id}, which was acknowledged: {error.detail}") from error
        except Problem:
            pass
        else:
            self._shown(box, record, was_finished=finished and consistent)

    def _forgettable(self, task_id: str) -> bool:
        facts = self._cluster.judge.by_id[task_id]
        return facts.finished and facts.keep_ms is not None

    def _shown(self, box: TableBox, record: dict[str, Any], *, was_finished: bool) -> None:
        task_id, state = record["id"], record["state"]
        self._memory.reads += 1
        if state in FINISHED:
            if not self._facts(task_id).retries:
                self._memory.finished.add(task_id)
        elif was_finished and task_id in self._memory.finished and not self._facts(task_id).retries:
            raise Violation(f"{box.name} shows {task_id} as {state} behind a barrier; it was seen finished before")

    def _facts(self, task_id: str) -> TaskFacts:
        return self._cluster.judge.by_id[task_id]

    # --- change ---------------------------------------------------------------------------------------------------------

    def _some(self) -> list[str]:
        recent = self._memory.recent
        return self._rng.sample(recent, min(len(recent), self._rng.choice([1, 1, 2])))

    async def _delete(self, box: TableBox, node: Node) -> None:
        await self._do(box, node, lambda ids: c.Delete(ids, strict=False, failed=True))

    async def _kill(self, box: TableBox, node: Node) -> None:
        await self._do(box, node, lambda ids: c.Kill(ids, strict=False))

    async def _retry(self, box: TableBox, node: Node) -> None:
        queue = self._rng.choice([None, "default"])
        await self._do(box, node, lambda ids: c.RetryTasks(ids, strict=False, queue=queue, placed=True, sooner=True))

    async def _relocate(self, box: TableBox, node: Node) -> None:
        """To the first node, which may have everything; or away, where there is another place."""
        away = self._rng.random() < 0.5 and len(self._cluster.boxes) > 2

        def relocate(ids: tuple[str, ...]) -> c.Relocate:
            own = [name for name in ids if not self._facts(name).pulled]
            moves = (c.Move(name, None if away and self._facts(name).anywhere else "n1") for name in own)
            return c.Relocate(tuple(moves), strict=False)

        await self._do(box, node, relocate)

    async def _update(self, box: TableBox, node: Node) -> None:
        now_ms = box.clock.wall_ms()
        changes = self._rng.choice(
            [
                c.TaskChanges(queue="default"),
                c.TaskChanges(priority=self._rng.randint(-3, 3)),
                c.TaskChanges(at_ms=now_ms + 1000),
                c.TaskChanges(expires_ms=now_ms + 500),
                c.TaskChanges(limit=self._rng.choice([1, 3])),
                c.TaskChanges(keep_ms=3000),
            ]
        )
        await self._do(box, node, lambda ids: c.Update(ids, changes, strict=False, failed=True))

    async def _do(self, box: TableBox, node: Node, command: Callable[[tuple[str, ...]], c.AnyCommand]) -> None:
        ids = self._some()
        if not ids:
            return
        _, deadline_s = self._call()
        wish = asks.Do(command(tuple(ids)))

        async def write() -> Written:
            return await told(node.door.write(wish, deadline_s, node.door.request_id()))

        try:
            written = await self._ask(box, write(), deadline_s)
        except Unknown:
            self._memory.unknown += 1
        except Problem:
            pass
        else:
            if not isinstance(written.answer, Done):
                raise Violation(f"{wish} was answered {written.answer}")

    # --- read -----------------------------------------------------------------------------------------------------------

    async def _read(self, box: TableBox, node: Node) -> None:
        if self._memory.recent:
            await self._sees(box, node, self._rng.choice(self._memory.recent), consistent=True)

    async def _wait(self, box: TableBox, node: Node) -> None:
        """For the end of a task, as `?wait=` does."""
        if not self._memory.recent:
            return
        call, deadline_s = self._call()
        task_id = self._rng.choice(self._memory.recent)
        try:
            record = await self._ask(box, node.pool.task(call, task_id, round(deadline_s * 1000)), deadline_s)
        except Problem:
            return
        self._shown(box, record, was_finished=False)

    async def _list(self, box: TableBox, node: Node) -> None:
        call, deadline_s = self._call(consistent=True)
        known = set(self._memory.acknowledged)
        query = TaskQuery(TaskFilter(), limit=1000)
        try:
            page = await self._ask(box, node.pool.tasks(call, query), deadline_s)
        except Problem:
            return
        listed = {record["id"] for record in page.items}
        missing = [task_id for task_id in known - listed if not self._forgettable(task_id)]
        if missing and page.next is None:
            raise Violation(f"{box.name} does not list what was acknowledged: {sorted(missing)}")
