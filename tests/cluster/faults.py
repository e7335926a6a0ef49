"""Random faults at clusters of the real program, one after another, each healed after a while that chance chose."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.cluster import Cluster
from tests.cluster.daemons import Daemon
from tests.cluster.netns import Net
from tests.cluster.node import Node
from tests.support.executors import end_executor, executors

OUT_S = (0.3, 5.0)
"""How long a node is away: now and then within the lease."""


def lose_machine(node: Node) -> None:
    """Daemon and executor at once, so that all the actions end too."""
    pids = executors(node.place.data)
    node.strike()
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def cut_off(net: Net, nodes: Cluster, node: Node) -> None:
    number = nodes.nodes.index(node)
    net.cut([number], [each for each in range(net.count) if each != number])


def kill_an_action(words: str, chance: random.Random) -> None:
    """Of those whose command line has these words."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if words.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
    if found:
        with suppress(ProcessLookupError):
            os.kill(chance.choice(sorted(found)), signal.SIGKILL)


async def whole(nodes: Cluster) -> None:
    """All run, agree, and are ready."""
    await nodes.start()
    await asyncio.gather(*(node.ready() for node in nodes.nodes if isinstance(node, Daemon)))
    await nodes.master()


@dataclass
class Faults:
    nodes: Cluster
    net: Net
    words: str
    """In the command line of the actions that may be killed."""
    chance: random.Random
    told: list[str] = field(default_factory=list)

    KINDS = ("daemon killed", "machine lost", "executor killed", "daemon frozen", "cut off")
    """In turns, at a node of chance. Each tenth is an action killed instead: services come back slower each time."""

    async def one(self) -> str:
        """Strike, wait, heal; what it was."""
        number = len(self.told)
        kind = "action killed" if number % 10 == 9 else self.KINDS[number % len(self.KINDS)]
        node = self.chance.choice(self.nodes.nodes)
        self.told.append(f"{kind} {node.name}")
        heal = self._hit(kind, node)
        await asyncio.sleep(self.chance.uniform(*OUT_S))
        await heal()
        await whole(self.nodes)
        return kind

    def _hit(self, kind: str, node: Node) -> Callable[[], Awaitable[object]]:
        match kind:
            case "daemon killed":
                node.strike()
                return node.ended
            case "machine lost":
                lose_machine(node)
                return node.ended
            case "executor killed":
                end_executor(node.place.data)
            case "daemon frozen":
                node.freeze()
                return _later(node.thaw)
            case "cut off":
                cut_off(self.net, self.nodes, node)
                return _later(self.net.heal)
            case _:
                kill_an_action(self.words, self.chance)
        return _later(lambda: None)


def _later(heal: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    async def healed() -> None:
        heal()

    return healed
