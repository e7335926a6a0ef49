"""The least moves that even a load: arithmetic of BALANCE, on names and numbers alone.

Load of a worker is its actions for each of its slots; even is where the sum over workers of actions² / slots is smallest,
which for workers alike means that no two differ by more than one, as far as tags allow. Of all such placements the one with
the fewest moves is found: negative cycles are taken out of the graph of workers until there is none, and then no better
placement exists (minimum-cost flow with convex costs).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from typing import Final, NamedTuple

_POOL: Final = -1
"""Where units of load come from and go to: closes the cycle of a move."""


@dataclass(frozen=True, slots=True)
class Piece:
    """An action that may move."""

    id: str
    at: str
    able: Collection[str]
    """Workers that may run it; where it is counts in any case."""


@dataclass(frozen=True, slots=True)
class Place:
    """A worker."""

    slots: int
    fixed: int = 0
    """Actions of the group that cannot move."""
    room: int | None = None
    """How many of the pieces it can take; None: any number."""


class Shift(NamedTuple):
    id: str
    source: str
    target: str


def even(pieces: Sequence[Piece], places: Mapping[str, Place]) -> list[Shift]:
    """The moves, those from the fullest worker first."""
    plan = _Plan([piece for piece in pieces if piece.at in places], places)
    while plan.improve():
        pass
    return plan.shifts()


class _Kind(NamedTuple):
    """Pieces that are equal to the plan."""

    home: int
    at: int
    able: frozenset[int]


class _Edge(NamedTuple):
    cost: int
    kind: _Kind | None
    """What moves along it; None of an edge to or from the pool."""


Arc = tuple[int, int]


class _Plan:
    def __init__(self, pieces: Sequence[Piece], places: Mapping[str, Place]) -> None:
        self._names = sorted(places)
        number = {name: n for n, name in enumerate(self._names)}
        self._places = [places[name] for name in self._names]
        self._count = [0] * len(self._names)
        self._kinds: list[dict[_Kind, list[str]]] = [{} for _ in self._names]
        """By worker; ids of each kind."""
        for piece in sorted(pieces, key=lambda piece: piece.id, reverse=True):
            home = number[piece.at]
            able = frozenset({home, *(number[name] for name in piece.able if name in number)})
            self._put(_Kind(home, home, able), piece.id)
        self._room = [
            None if place.room is None else max(place.room, count)
            for place, count in zip(self._places, self._count, strict=True)
        ]
        """What was planned away may be planned back: it is there."""
        whole = lcm(*(max(1, place.slots) for place in self._places)) if self._places else 1
        self._unit = [whole // max(1, place.slots) for place in self._places]
        self._heavy = 2 * len(pieces) + 1
        """What the smallest gain in evenness outweighs: more than all moves together."""

    def shifts(self) -> list[Shift]:
        moved = [
            (kind.home, id_, kind.at)
            for kinds in self._kinds
            for kind, ids in kinds.items()
            for id_ in ids
            if kind.home != kind.at
        ]
        load = Counter(home for home, _, _ in moved)
        moved.sort(key=lambda move: (-load[move[0]], move[1]))
        return [Shift(id_, self._names[home], self._names[at]) for home, id_, at in moved]

    def improve(self) -> bool:
        """Take a negative cycle out, as often as it is one."""
        cycle = _negative_cycle(self._edges(), [_POOL, *range(len(self._names))])
        if not cycle:
            return False
        edges = self._along(cycle)
        while edges is not None:
            for (_, target), edge in edges:
                if edge.kind is not None:
                    self._put(edge.kind._replace(at=target), self._take(edge.kind))
            edges = self._along(cycle)
        return True

    def _along(self, cycle: Sequence[Arc]) -> list[tuple[Arc, _Edge]] | None:
        """The edges of a cycle as they are now; None if it is no negative one any more."""
        found = []
        cost = 0
        for source, target in cycle:
            edge = self._edge(source, target)
            if edge is None:
                return None
            found.append(((source, target), edge))
            cost += edge.cost
        return found if cost < 0 else None

    def _edges(self) -> dict[Arc, _Edge]:
        nodes = (_POOL, *range(len(self._names)))
        found = {(a, b): self._edge(a, b) for a in nodes for b in nodes if a != b}
        return {arc: edge for arc, edge in found.items() if edge is not None}

    def _edge(self, source: int, target: int) -> _Edge | None:
        if _POOL in {source, target}:
            return self._pool_edge(source, target)
        cheapest: _Edge | None = None
        for kind in self._kinds[source]:
            if target in kind.able:
                edge = _Edge((target != kind.home) - (source != kind.home), kind)
                if cheapest is None or edge.cost < cheapest.cost:
                    cheapest = edge
        return cheapest

    def _pool_edge(self, source: int, target: int) -> _Edge | None:
        """One unit of load less at the target of the pool, or one more at its source."""
        n = target if source == _POOL else source
        place, count = self._places[n], self._count[n]
        scale = self._heavy * self._unit[n]
        if source == _POOL:
            return _Edge(-scale * (2 * (count + place.fixed) - 1), None) if count else None
        room = self._room[n]
        if room is not None and count >= room:
            return None
        return _Edge(scale * (2 * (count + place.fixed) + 1), None)

    def _put(self, kind: _Kind, id_: str) -> None:
        self._kinds[kind.at].setdefault(kind, []).append(id_)
        self._count[kind.at] += 1

    def _take(self, kind: _Kind) -> str:
        ids = self._kinds[kind.at][kind]
        id_ = ids.pop()
        if not ids:
            del self._kinds[kind.at][kind]
        self._count[kind.at] -= 1
        return id_


def _negative_cycle(edges: Mapping[Arc, _Edge], nodes: Sequence[int]) -> list[Arc]:
    """By Bellman and Ford, from all nodes at once; empty where there is none."""
    cost = dict.fromkeys(nodes, 0)
    before: dict[int, int] = {}
    while True:
        relaxed = False
        for (source, target), edge in edges.items():
            if cost[source] + edge.cost < cost[target]:
                cost[target] = cost[source] + edge.cost
                before[target] = source
                relaxed = True
        if not relaxed:
            return []
        cycle = _cycle(before)
        if cycle:
            return cycle


def _cycle(before: Mapping[int, int]) -> list[Arc]:
    """Among the nodes that costs came from; such a cycle is a negative one."""
    clean: set[int] = set()
    for start in before:
        path: dict[int, None] = {}
        node: int | None = start
        while node is not None and node not in clean and node not in path:
            path[node] = None
            node = before.get(node)
        if node is not None and node in path:
            arcs = [(before[node], node)]
            step = before[node]
            while step != node:
                arcs.append((before[step], step))
                step = before[step]
            return arcs
        clean.update(path)
    return []
