"""Clients that add tasks and read them back through all nodes without pause, over HTTP, and remember every answer.

Half of the writers choose the ids of their tasks, half repeat under an Idempotency-Key. A client has a node of its own;
when the connection breaks it asks the next node the same thing again, as the library does, and comes back later. Readers
ask for what was acknowledged before, behind a barrier or on the node that acknowledged it. At the end every node has to
have every acknowledged task, once, and none that nobody tried to add. The tasks ask for a tag that no worker has.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tests.cluster.cluster import Cluster, now
from tests.cluster.daemons import Daemon
from tests.cluster.line import Answer, Line, NoAnswer, NotSent
from tests.cluster.node import Node

DEADLINE_S = 5.0
"""Of the door: a write is answered by then."""
GRACE_S = 1.0
"""How much longer a client waits than it lets the door take."""
REST_S = 0.02
"""Before a node that does not listen is tried again."""
RECENT = 200
"""Tasks of which readers choose."""
PAGE = 1000
WAITING: dict[str, Any] = {"work": {"command": ["true"]}, "tags": ["nobody-has-this"]}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the clients saw, and what became of it."""

    writes: int
    """Acknowledged."""
    reads: int
    no: tuple[str, ...]
    """Answers that are no 2xx: when, on which node, what was asked, status and code."""
    late: tuple[float, ...]
    """Seconds of writes that were acknowledged later than the door's deadline, repeats included."""
    slowest_s: float
    stale: tuple[str, ...]
    """Reads that did not find what had been acknowledged before."""
    lost: tuple[str, ...]
    """Node and label of acknowledged tasks that are not there."""
    doubled: tuple[str, ...]
    """Labels that stand there more than once."""
    unexpected: tuple[str, ...]
    """Labels that nobody tried to add, or under another id than was answered."""

    @property
    def sound(self) -> bool:
        return not (self.stale or self.lost or self.doubled or self.unexpected)

    def __str__(self) -> str:
        told = (
            f"{self.writes} acknowledged writes, {self.reads} reads, slowest write {self.slowest_s:.3f} s, "
            f"over the deadline {len(self.late)}, answers that are no 2xx {len(self.no)}, stale reads {len(self.stale)}, "
            f"acknowledged lost {len(self.lost)}, doubled {len(self.doubled)}, unexpected {len(self.unexpected)}"
        )
        faults = (self.no, self.late, self.stale, self.lost, self.doubled, self.unexpected)
        return told + "".join(f"\n    {each}" for some in faults for each in some[:20])


@dataclass
class Adds:
    cluster: Cluster
    writers_per_node: int = 2
    readers_per_node: int = 1
    seed: int = 0
    acknowledged: dict[str, str] = field(default_factory=dict)
    """Label -> the id that was answered."""
    tried: set[str] = field(default_factory=set)
    reads: int = 0
    _no: list[str] = field(default_factory=list)
    _late: list[float] = field(default_factory=list)
    _stale: list[str] = field(default_factory=list)
    _slowest_s: float = 0.0
    _recent: list[tuple[str, Node]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _progress: asyncio.Event = field(default_factory=asyncio.Event)
    _stopping: bool = False

    async def __aenter__(self) -> Self:
        for number, node in enumerate(self.cluster.nodes * self.writers_per_node):
            self._tasks.append(asyncio.create_task(self._writer(node, keyed=number % 2 == 0)))
        for number, node in enumerate(self.cluster.nodes * self.readers_per_node):
            self._tasks.append(asyncio.create_task(self._reader(node, random.Random(f"{self.seed} {number}"))))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def goes_on(self, writes: int = 30, within_s: float = 30.0) -> None:
        """Once so many more are acknowledged, and every client still works."""
        wanted = len(self.acknowledged) + writes
        async with asyncio.timeout(within_s):
            while len(self.acknowledged) < wanted:
                for task in self._tasks:
                    if task.done():
                        task.result()
                await self._progress.wait()

    async def probe(self, node: Node, line: Line) -> float:
        while True:
            label = f"p{next(self._numbers)}"
            self.tried.add(label)
            try:
                answer = await line.ask(_add(label, keyed=False), DEADLINE_S + GRACE_S)
            except (NotSent, NoAnswer) as error:
                raise AssertionError(f"node {node.name} gave no answer: {error}") from error
            if self._is_yes(answer, node, label):
                self._acknowledge(label, answer, node)
                return now()

    async def end(self) -> Outcome:
        """Let every client finish what it asks, read everything on every node, and judge."""
        self._stopping = True
        await asyncio.gather(*self._tasks)
        self._tasks.clear()
        lost: list[str] = []
        doubled: Counter[str] = Counter()
        unexpected: list[str] = []
        for node in self.cluster.nodes:
            assert isinstance(node, Daemon)
            for flag in ("?consistent=true&", "?"):
                found = await _all(node, flag)
                seen = dict(found)
                lost += [f"{node.name} {label}" for label, id_ in self.acknowledged.items() if seen.get(label) != id_]
                doubled.update({label: n - 1 for label, n in Counter(label for label, _ in found).items() if n > 1})
                unexpected += [f"{node.name} {label}" for label in seen if label not in self.tried]
        return Outcome(
            writes=len(self.acknowledged),
            reads=self.reads,
            no=tuple(self._no),
            late=tuple(self._late),
            slowest_s=self._slowest_s,
            stale=tuple(self._stale),
            lost=tuple(lost),
            doubled=tuple(doubled),
            unexpected=tuple(unexpected),
        )

    # --- clients

    async def _writer(self, home: Node, *, keyed: bool) -> None:
        lines = _Lines(self.cluster, home)
        try:
            while not self._stopping:
                label = f"{'k' if keyed else 'c'}{next(self._numbers)}"
                self.tried.add(label)
                began = now()
                node, answer = await self._until_answered(lines, label, keyed=keyed)
                self._acknowledge(label, answer, node)
                took_s = now() - began
                self._slowest_s = max(self._slowest_s, took_s)
                if took_s > DEADLINE_S:
                    self._late.append(round(took_s, 3))
        finally:
            lines.close()

    async def _until_answered(self, lines: _Lines, label: str, *, keyed: bool) -> tuple[Node, Answer]:
        for node, line in lines.turns():
            try:
                answer = await line.ask(_add(label, keyed=keyed), DEADLINE_S + GRACE_S)
            except NotSent:
                await asyncio.sleep(REST_S)
            except NoAnswer:
                pass
            else:
                if self._is_yes(answer, node, label):
                    return node, answer
        raise AssertionError("turns never end")

    async def _reader(self, home: Node, chance: random.Random) -> None:
        line = home.line()
        try:
            while not self._stopping:
                if not self._recent:
                    await self._progress.wait()
                    continue
                id_, wrote = chance.choice(self._recent)
                # What this node acknowledged it must know at once, what another did behind a barrier.
                flag = "" if wrote is home else "?consistent=true"
                try:
                    answer = await line.ask({"path": f"/v1/tasks/{id_}{flag}"}, DEADLINE_S + GRACE_S)
                except NotSent:
                    await asyncio.sleep(REST_S)
                except NoAnswer:
                    pass
                else:
                    self.reads += 1
                    if answer["status"] == 404:
                        self._stale.append(f"{home.name} {id_}{flag}, written through {wrote.name}")
                    else:
                        self._is_yes(answer, home, f"read of {id_}")
        finally:
            line.close()

    def _is_yes(self, answer: Answer, node: Node, what: str) -> bool:
        if answer["status"] < 300:
            return True
        problem = answer["problem"]
        self._no.append(f"{node.name} {what}: {answer['status']} {problem['code']} {problem['detail']}")
        return False

    def _acknowledge(self, label: str, answer: Answer, node: Node) -> None:
        (id_,) = answer["body"]["ids"]
        self.acknowledged[label] = id_
        self._recent.append((id_, node))
        if len(self._recent) > RECENT:
            del self._recent[: RECENT // 2]
        self._progress.set()
        self._progress.clear()


class _Lines:
    """A client's connections: home first, then the next nodes in turn, again and again."""

    def __init__(self, cluster: Cluster, home: Node) -> None:
        at = cluster.nodes.index(home)
        self._lines = [(node, node.line()) for node in (*cluster.nodes[at:], *cluster.nodes[:at])]

    def turns(self) -> Iterator[tuple[Node, Line]]:
        return itertools.cycle(self._lines)

    def close(self) -> None:
        for _, line in self._lines:
            line.close()


def _add(label: str, *, keyed: bool) -> dict[str, Any]:
    task = {"name": label, **WAITING}
    if keyed:
        return {"path": "/v1/events", "key": label, "body": {"event": "ADD", "tasks": [task]}}
    return {"path": "/v1/events", "body": {"event": "ADD", "tasks": [{"id": label, **task}]}}


async def _all(node: Daemon, flag: str) -> Sequence[tuple[str, str]]:
    """Label and id of everything that it lists."""
    found: list[tuple[str, str]] = []
    cursor = ""
    while True:
        page = await node.get(f"/v1/tasks{flag}sort=created_at&limit={PAGE}{cursor}")
        found += [(item["name"], item["id"]) for item in page["items"]]
        if page["next"] is None:
            return found
        cursor = f"&cursor={page['next']}"
