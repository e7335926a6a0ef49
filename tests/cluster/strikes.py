"""How long nobody's writes are answered after a strike at the master."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tests.cluster.cluster import Cluster, now
from tests.cluster.line import Line
from tests.cluster.netns import Net
from tests.cluster.node import Node


class Traffic(Protocol):
    """Clients at work, and one that asks for nothing but an answer."""

    async def goes_on(self) -> None:
        """Once more has been answered."""
        ...

    async def probe(self, node: Node, line: Line) -> float:
        """Write through this node until it is answered; when."""
        ...


async def gap_after(strike: Callable[[], object], load: Traffic, through: list[Node]) -> float:
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


async def kill_the_master(cluster: Cluster, load: Traffic) -> float:
    """And bring it back, caught up."""
    master = await cluster.master()
    await load.goes_on()
    gap = await gap_after(master.strike, load, cluster.others(master))
    await master.ended()
    await master.start()
    await cluster.caught_up(master)
    return gap


async def freeze_the_master(cluster: Cluster, load: Traffic) -> float:
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


async def cut_the_master_off(cluster: Cluster, net: Net, load: Traffic) -> float:
    """Let the others go on without it until it has given up, and heal the wires: it must follow."""
    await load.goes_on()
    master = await cluster.master()
    rest = cluster.others(master)
    number = cluster.nodes.index(master)
    others = [cluster.nodes.index(node) for node in rest]
    gap = await gap_after(lambda: net.cut([number], others), load, rest)
    await cluster.master(rest)
    await master.until(lambda status: not status["acts"] and status["master"] is None, "gave up its leadership")
    await load.goes_on()
    net.heal()
    await cluster.master()
    await cluster.caught_up(master)
    return gap
