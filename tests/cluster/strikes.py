"""How long nobody's writes are answered after a strike at the master."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from tests.cluster.cluster import Cluster, now
from tests.cluster.load import Load
from tests.cluster.node import Node


async def gap_after(strike: Callable[[], object], load: Load, through: list[Node]) -> float:
    """Seconds from the strike until a write that was sent after it is answered, through any of these nodes."""
    lines = [node.line() for node in through]
    try:
        for line in lines:
            await line.open()
        struck = now()
        strike()
        probes = {asyncio.ensure_future(load.probe(node, line)) for node, line in zip(through, lines, strict=True)}
        try:
            done, _ = await asyncio.wait(probes, return_when=asyncio.FIRST_COMPLETED)
            return min(each.result() for each in done) - struck
        finally:
            for probe in probes:
                probe.cancel()
            await asyncio.gather(*probes, return_exceptions=True)
    finally:
        for line in lines:
            line.close()


@dataclass(frozen=True, slots=True)
class Gaps:
    """Sorted seconds."""

    seconds: tuple[float, ...]

    def at(self, part: float) -> float:
        return self.seconds[min(len(self.seconds) - 1, int(len(self.seconds) * part))]

    def __str__(self) -> str:
        if not self.seconds:
            return "none"
        figures = " ".join(f"p{round(part * 100)} {self.at(part):.3f}" for part in (0.5, 0.9, 0.99))
        return f"{len(self.seconds)} times: {figures} max {self.seconds[-1]:.3f} s"


async def kill_the_master(cluster: Cluster, load: Load) -> float:
    """And bring it back, caught up."""
    master = await cluster.master()
    await load.goes_on()
    gap = await gap_after(master.strike, load, cluster.others(master))
    await master.ended()
    await master.start()
    await cluster.caught_up(master)
    return gap


async def freeze_the_master(cluster: Cluster, load: Load) -> float:
    """Let the others go on without it, and thaw it: it must follow."""
    master = await cluster.master()
    await load.goes_on()
    gap = await gap_after(master.freeze, load, cluster.others(master))
    await load.goes_on()
    heir = await cluster.master(cluster.others(master))
    master.thaw()
    await master.until(lambda status: status["master"] == heir.id and not status["acts"], "follows the heir")
    await cluster.caught_up(master)
    return gap
