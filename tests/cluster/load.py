"""Clients that write and read through all nodes without pause, and remember everything they saw.

Each client stays with one node, so that the others' never wait for a node that is stopped. Objects are used for a while
and then left for new ones, which keeps the judging of a history quick. At the end every object is read once more: an
acknowledged write that is gone shows as a read that no order explains, and an added value that is gone is counted.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tests.cluster.cluster import Cluster, now
from tests.cluster.line import Answer, Line, NoAnswer, NotSent
from tests.cluster.node import Node
from tests.histories.history import History, Kind, Operation
from tests.histories.judge import judge

DEADLINE_S = 5.0
"""Of a request at the door."""
GRACE_S = 1.0
"""How much longer a client waits than it lets the door take."""
REST_S = 0.02
"""Before a node that does not listen is tried again."""
EPOCH_OPERATIONS = 60
"""On one register and one set, before the next ones are used."""
NOT_DONE = frozenset({"no_master", "stopping", "busy", "conflict", "too_large"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the clients saw, and what became of it."""

    operations: int
    acknowledged: int
    """Writes."""
    unknown: int
    lost: tuple[Hashable, ...]
    """Acknowledged adds that no later read finds."""
    unexpected: tuple[Hashable, ...]
    """Members that nobody added."""
    story: str
    """Why the history is not linearizable; empty when it is."""

    @property
    def sound(self) -> bool:
        return not (self.lost or self.unexpected or self.story)

    def __str__(self) -> str:
        return (
            f"{self.operations} operations, {self.acknowledged} acknowledged writes, {self.unknown} unknown, "
            f"lost {len(self.lost)}, unexpected {len(self.unexpected)}, "
            f"linearizable {'yes' if not self.story else self.story}"
        )


@dataclass
class Load:
    cluster: Cluster
    clients_per_node: int = 2
    seed: int = 0
    history: History = field(default_factory=History)
    _epoch: int = 0
    _in_epoch: int = 0
    _values: itertools.count[int] = field(default_factory=itertools.count)
    _seen: int | None = None
    """A value that a register of this epoch had: what a cas may hope to find."""
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _progress: asyncio.Event = field(default_factory=asyncio.Event)
    answered: int = 0

    async def __aenter__(self) -> Self:
        for number, node in enumerate(self.cluster.nodes * self.clients_per_node):
            chance = random.Random(f"{self.seed} {number}")
            self._tasks.append(asyncio.create_task(self._client(node, chance)))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        done = await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        faults = [each for each in done if isinstance(each, Exception)]
        if faults:
            raise faults[0]

    async def goes_on(self, operations: int = 30, within_s: float = 30.0) -> None:
        """Once so many more have been answered; at once when there are no clients."""
        if not self._tasks:
            return
        wanted = self.answered + operations
        async with asyncio.timeout(within_s):
            while self.answered < wanted:
                await self._progress.wait()

    async def end(self) -> Outcome:
        """Stop, read everything once more through every node in turn, and judge."""
        await self.stop()
        lines = [node.line() for node in self.cluster.nodes]
        names = sorted({each.object for each in self.history.operations} | {each.object for each in self.history.open})
        try:
            turns = itertools.cycle(lines)
            for name in names:
                kind: Kind = "members" if name.startswith("s") else "read"
                await self._operate(next(turns), name, kind, None)
        finally:
            for line in lines:
                line.close()
        return outcome(self.history.close())

    async def probe(self, node: Node, line: Line) -> float:
        """Write through this node until it is answered; when."""
        while True:
            answer = await self._operate(line, f"r{self._epoch}", "write", next(self._values))
            if answer is not None and "ok" in answer:
                return now()
            if not node.running:
                raise AssertionError(f"node {node.name} is down")

    async def _client(self, node: Node, chance: random.Random) -> None:
        line = node.line()
        try:
            while True:
                kind, argument = self._next(chance)
                name = f"{'s' if kind in {'add', 'members'} else 'r'}{self._epoch}"
                try:
                    await line.open()
                except NotSent:
                    await asyncio.sleep(REST_S)
                    continue
                await self._operate(line, name, kind, argument)
        finally:
            line.close()

    def _next(self, chance: random.Random) -> tuple[Kind, Hashable]:
        self._in_epoch += 1
        if self._in_epoch > EPOCH_OPERATIONS:
            self._epoch, self._in_epoch, self._seen = self._epoch + 1, 0, None
        kind: Kind = chance.choices(("write", "cas", "read", "add", "members"), (30, 15, 25, 20, 10))[0]
        if kind == "cas":
            return kind, (self._seen, next(self._values))
        return kind, next(self._values) if kind in {"write", "add"} else None

    async def _operate(self, line: Line, name: str, kind: Kind, argument: Hashable) -> Answer | None:
        changes = kind in {"write", "cas", "add"}
        call = self.history.call(name, kind, argument, at=now())
        try:
            answer = await line.ask(_request(name, kind, argument), DEADLINE_S + GRACE_S)
        except (NotSent, NoAnswer) as error:
            if changes and isinstance(error, NoAnswer):
                call.unknown()
            else:
                call.not_done()
            return None
        except asyncio.CancelledError:
            # It stays open, so unknown.
            if not changes:
                call.not_done()
            raise
        self._record(call, kind, answer, argument)
        return answer

    def _record(self, call: Any, kind: Kind, answer: Answer, argument: Hashable) -> None:
        if "ok" in answer:
            result = answer["ok"]
            call.answered(frozenset(result) if kind == "members" else result, now())
            self.answered += 1
            self._progress.set()
            self._progress.clear()
            if kind in {"write", "read"}:
                self._seen = argument if kind == "write" else result  # type: ignore[assignment]
        elif answer["error"] in NOT_DONE or kind in {"read", "members"}:
            call.not_done()
        elif answer["error"] == "unknown":
            call.unknown()
        else:
            raise AssertionError(f"an answer that no node may give: {answer}")


def _request(name: str, kind: Kind, argument: Hashable) -> dict[str, Any]:
    request: dict[str, Any] = {"op": kind, "name": name, "deadline": DEADLINE_S}
    if kind == "cas":
        assert isinstance(argument, tuple)
        request["old"], request["new"] = argument
    elif kind in {"write", "add"}:
        request["value"] = argument
    return request


def outcome(operations: Sequence[Operation]) -> Outcome:
    adds = [each for each in operations if each.kind == "add"]
    found: dict[str, set[Hashable]] = {}
    for each in operations:
        if each.kind == "members" and each.is_known:
            assert isinstance(each.result, frozenset)
            found.setdefault(each.object, set()).update(each.result)
    tried = {each.argument for each in adds}
    lost = tuple(each.argument for each in adds if each.is_known and each.argument not in found.get(each.object, ()))
    changes = [each for each in operations if each.kind in {"write", "cas", "add"}]
    return Outcome(
        operations=len(operations),
        acknowledged=sum(each.is_known for each in changes),
        unknown=sum(not each.is_known for each in changes),
        lost=lost,
        unexpected=tuple(value for members in found.values() for value in members if value not in tried),
        story=judge(operations).story,
    )
