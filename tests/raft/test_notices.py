"""One line of a kind a second, and every one counted."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from quvatlh.raft.notices import Notices
from tests.raft.net_parts import simulate
from tests.sim.clock import SimClock
from tests.sim.loop import SimLoop


def test_lines_of_a_kind_are_a_second_apart_and_those_between_are_counted() -> None:
    async def main(loop: SimLoop) -> None:
        lines: list[tuple[float, str, dict[str, Any]]] = []
        notices = Notices(lambda kind, fields: lines.append((loop.time(), kind, fields)), SimClock(loop))
        for number in range(35):
            notices("a", {"n": number})
            if number == 0:
                notices("b", {"n": 100})
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        notices("a", {"n": 35})
        of_a = [(at, fields) for at, kind, fields in lines if kind == "a"]
        assert all(later[0] - earlier[0] >= 0.999 for earlier, later in itertools.pairwise(of_a))
        assert sum(1 + fields.get("suppressed", 0) for _, fields in of_a) == 36
        assert len(of_a) == 6
        assert (of_a[0][1], of_a[-1][1]) == ({"n": 0}, {"n": 35})
        assert [fields for _, kind, fields in lines if kind == "b"] == [{"n": 100}]

    simulate(main)


def test_what_is_held_back_is_told_at_the_end() -> None:
    async def main(loop: SimLoop) -> None:
        lines: list[tuple[str, dict[str, Any]]] = []
        notices = Notices(lambda kind, fields: lines.append((kind, fields)), SimClock(loop))
        for number in range(4):
            notices("a", {"n": number})
        notices.close()
        assert lines == [("a", {"n": 0}), ("a", {"n": 3, "suppressed": 2})]
        await asyncio.sleep(5)
        assert len(lines) == 2

    simulate(main)
