"""Whom to ask next, when, and what to say when there is nobody left to ask. Pure: it is told the time.

A node that failed rests: as long as it said (Retry-After), else briefly and longer each time. The node that rested
longest is next. A write that a node may have taken is in doubt until some node answers for it: then the end of all
patience is Unknown, however certain the last failures are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from quvatlh.client.errors import Problem, Rejected, Unavailable, Unknown, Unreachable

REST_FIRST_S = 0.05
REST_MAX_S = 1.0
LOCAL_NOES = frozenset({"unauthorized", "forbidden"})
"""What one node says by itself: of a write that another may have taken, it says nothing."""


class Next(NamedTuple):
    node: int
    wait_s: float


@dataclass(slots=True)
class _Node:
    url: str
    ready_at: float = 0.0
    failed: int = 0
    why: str = ""
    is_away: bool = False
    """Nobody took the last connection."""
    is_hopeless: bool = False
    """And nobody will: a certificate does not become good by waiting."""


class Tries:
    def __init__(
        self, urls: Sequence[str], first: int, deadline: float, *, patient: bool = True, is_write: bool = False
    ) -> None:
        self._nodes = [_Node(url) for url in urls]
        self._first = first
        self._deadline = deadline
        self.is_patient = patient
        """False: when nobody listens anywhere, that is told at once."""
        self._is_write = is_write
        self._in_doubt = ""
        self._last: Unavailable | None = None

    def next(self, now: float) -> Next:
        """Raises the outcome when there is nobody left to ask in time."""
        away = all(node.is_away for node in self._nodes)
        if away and not self._in_doubt and (not self.is_patient or all(node.is_hopeless for node in self._nodes)):
            raise self._outcome()
        count = len(self._nodes)
        chosen = min(range(count), key=lambda each: (self._nodes[each].ready_at, (each - self._first) % count))
        ready_at = max(self._nodes[chosen].ready_at, now)
        if ready_at >= self._deadline:
            raise self._outcome()
        return Next(chosen, ready_at - now)

    def not_sent(self, node: int, now: float, why: str, *, hopeless: bool = False) -> None:
        """No connection: this node has certainly not seen it."""
        self._rest(node, now, why, away=True)
        self._nodes[node].is_hopeless = hopeless

    def lost(self, node: int, now: float, why: str) -> None:
        """Sent, perhaps, and no whole answer came."""
        self._rest(node, now, why, away=False)
        if self._is_write:
            self._in_doubt = f"{self._nodes[node].url}: {why}"

    def refused(self, node: int, now: float, problem: Problem) -> None:
        """An answer that is a no: raised again unless asking once more may help."""
        if isinstance(problem, Unavailable):
            self._rest(node, now, problem.detail, away=False)
            self._nodes[node].ready_at = now + problem.retry_after_s
            self._last = problem
        elif isinstance(problem, Unknown):
            self.lost(node, now, problem.detail)
            if not self._is_write:  # nothing can have happened
                self._last = Unavailable(problem.code, problem.detail, problem.errors, url=problem.url)
        elif self._in_doubt and isinstance(problem, Rejected) and problem.code in LOCAL_NOES:
            raise self._unknown(f"{self._in_doubt}; then {problem.url}: {problem.detail}") from problem
        else:
            raise problem

    def _rest(self, node: int, now: float, why: str, *, away: bool) -> None:
        one = self._nodes[node]
        one.ready_at = now + min(REST_FIRST_S * 2**one.failed, REST_MAX_S)
        one.failed += 1
        one.why = why
        one.is_away = away

    def _outcome(self) -> Problem:
        if self._in_doubt:
            return self._unknown(self._in_doubt)
        if self._last is not None:
            return self._last
        return Unreachable({node.url: node.why or "not asked in time" for node in self._nodes})

    @staticmethod
    def _unknown(story: str) -> Unknown:
        return Unknown("unknown", f"no answer came for it ({story})")
