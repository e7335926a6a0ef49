"""Nodes that belong together: founded, watched, and at the end the same."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.line import Answer, NoAnswer, NotSent
from tests.cluster.node import PATIENCE_S, Node, Place, until
from tests.cluster.ports import Reserved

SECRET = "correct horse battery staple, long enough for anybody\n"


@dataclass
class Cluster:
    nodes: list[Node]

    async def start(self) -> None:
        await asyncio.gather(*(node.start() for node in self.nodes if not node.running))

    async def stop(self) -> None:
        """All of them, whatever state they are in."""
        for node in self.nodes:
            if node.frozen:
                node.thaw()
        await asyncio.gather(*(node.kill() for node in self.nodes))

    def by_id(self, node_id: str) -> Node:
        return next(node for node in self.nodes if node.id == node_id)

    def others(self, *nodes: Node) -> list[Node]:
        return [node for node in self.nodes if node not in nodes]

    async def statuses(self, nodes: Iterable[Node] | None = None) -> list[tuple[Node, Answer]]:
        """Of those that answer."""
        asked = [node for node in (self.nodes if nodes is None else nodes) if node.running and not node.frozen]
        found = await asyncio.gather(*(node.status() for node in asked), return_exceptions=True)
        answered = []
        for node, status in zip(asked, found, strict=True):
            if isinstance(status, dict):
                answered.append((node, status))
            elif not isinstance(status, NotSent | NoAnswer):
                raise status
        return answered

    async def master(self, among: Iterable[Node] | None = None, within_s: float = PATIENCE_S) -> Node:
        """The one that acts, and that all who answer take for it."""
        looked = list(self.nodes if among is None else among)
        seen: list[tuple[Node, Answer]] = []
        acting: list[Node] = []

        async def look() -> bool:
            seen[:] = await self.statuses(looked)
            acting[:] = [node for node, status in seen if status["acts"]]
            return len(acting) == 1 and all(status["master"] == acting[0].id for _, status in seen)

        await until(look, lambda: f"one master that all agree on: {[(n.name, s) for n, s in seen]}", within_s)
        return acting[0]

    async def settled(self, within_s: float = PATIENCE_S) -> Answer:
        """Once all nodes answer and have applied the same, with nothing left to apply; the status of one."""
        seen: list[tuple[Node, Answer]] = []

        async def look() -> bool:
            seen[:] = await self.statuses()
            states = {(status["index"], status["digest"]) for _, status in seen}
            done = all(status["committed"] == status["log"]["last"] == status["index"] for _, status in seen)
            return len(seen) == len(self.nodes) and len(states) == 1 and done

        await until(look, lambda: f"all equal: {[(n.name, s) for n, s in seen]}", within_s)
        return seen[0][1]

    async def caught_up(self, node: Node, within_s: float = PATIENCE_S) -> None:
        """Once it has applied what was committed when this was asked."""
        others = await self.statuses(self.others(node))
        wanted = max(status["committed"] for _, status in others)
        await node.until(lambda status: status["index"] >= wanted, f"applied {wanted}", within_s)


@contextlib.asynccontextmanager
async def cluster(
    directory: Path,
    count: int = 3,
    settings: str = "",
    *,
    ticker: bool = False,
    founded: bool = True,
    change: Callable[[Place], Place] = lambda place: place,
) -> AsyncIterator[Cluster]:
    """So many nodes on the loopback, with a master unless they are not to be started. `change` makes of each place
    another one."""
    peer_ports = [Reserved() for _ in range(count)]
    client_ports = [Reserved() for _ in range(count)]
    try:
        peers = tuple(port.address for port in peer_ports)
        places = [
            Place(
                name=f"n{number}",
                directory=directory / f"n{number}",
                peer=peers[number],
                client=client_ports[number].address,
                peers=peers if count > 1 else (),
                secret_file=secret_in(directory),
                settings=settings,
                ticker=ticker,
            )
            for number in range(count)
        ]
        made = Cluster([Node(change(place)) for place in places])
        async with running(made, founded=founded):
            yield made
    finally:
        for port in (*peer_ports, *client_ports):
            port.release()


@contextlib.asynccontextmanager
async def running(made: Cluster, *, founded: bool = True) -> AsyncIterator[Cluster]:
    try:
        if founded:
            await made.start()
            await made.master()
        yield made
    finally:
        await made.stop()


def secret_in(directory: Path) -> Path:
    path = directory / "secret"
    directory.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.touch(0o600)
        path.write_text(SECRET)
    return path


def now() -> float:
    return time.monotonic()
