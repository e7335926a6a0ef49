"""Start-time fair queueing: flows share what there is by their weights, whatever each of them asks for.

A task's start tag is the greater of the virtual time and its flow's last finish tag, its finish tag lies cost / weight
behind that, the task with the least start tag is next, and virtual time is the start tag of what was started last. Tags
are looked at when something may start, and only those of flows that have something that may: so a flow that was idle,
or held by its limit, saves up nothing, and one that comes late is owed nothing. For flows that wait all along this gives
the very tags that they would have had when they became first.

Whatever comes, of two flows that both always had something that might run, the service in any span differs by at most
cost/weight of the one and cost/weight of the other, and D + 1 times that with D at once (held by tests/core/disciplines).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

PARTS: Final = 720_720
"""Parts of a cost of 1 at weight 1: a multiple of 1 to 16, so that small weights divide it exactly."""
TAG_MAX: Final = 2**61
"""From here on tags start over at 0; the largest cost adds 7e11, so sums stay far below the 64 bits of a column."""


@lru_cache(maxsize=1024)
def span(cost: int, weight: int) -> int:
    """How far a service moves its flow's tags: cost by weight, rounded, never nothing."""
    return max(1, (cost * PARTS + weight // 2) // weight)


class Fair:
    """The tags of a set of flows. Those at or below the virtual time mean the same as none and are forgotten."""

    def __init__(self, virtual: int = 0, finish: Mapping[str, int] | None = None) -> None:
        self.virtual = virtual
        self.finish: dict[str, int] = dict(finish or {})

    def start_tag(self, flow: str) -> int:
        """Of the flow's next task, if it were started now."""
        return max(self.virtual, self.finish.get(flow, 0))

    def serve(self, flow: str, cost: int, weight: int) -> int:
        """Its next task has been started; with which tag."""
        tag = self.start_tag(flow)
        self.virtual = tag
        self.finish[flow] = tag + span(cost, weight)
        return tag

    def forget(self) -> None:
        """What says nothing any more."""
        self.finish = {flow: tag for flow, tag in self.finish.items() if tag > self.virtual}
