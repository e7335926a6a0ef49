"""Owner of every loop of this node: who started it, what its end means, and when it is stopped.

A loop handles what its world may do to it; what it raises is a bug, and the node ends by it, told with its story. Nothing
is started anew after a bug: state in memory cannot be trusted then. Duties of the master run while this node acts as one.
Stopped is in the reverse of the order they were started in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from quvatlh.ports import Role

Loop = Callable[[], Coroutine[Any, Any, None]]


class Tree:
    """A feed.Hearer for its role_changed; the rest of the feed does not matter to it."""

    def __init__(self, on_fatal: Callable[[BaseException], None]) -> None:
        self._on_fatal = on_fatal
        self._running: dict[str, asyncio.Task[None]] = {}
        self._duties: dict[str, Loop] = {}
        self._acting = False

    def grow(self, name: str, loop: Loop) -> None:
        """Runs until it returns by itself or the tree ends."""
        task = asyncio.get_running_loop().create_task(self._guard(name, loop), name=name)
        self._running[name] = task
        task.add_done_callback(lambda done: self._gone(name, done))

    def duty(self, name: str, loop: Loop) -> None:
        """Runs while this node is master, in each term anew."""
        self._duties[name] = loop
        if self._acting:
            self.grow(name, loop)

    def named(self, word: str) -> list[asyncio.Task[None]]:
        """Loops whose name begins so."""
        return [task for name, task in self._running.items() if name.startswith(word)]

    def heard(self, _index: int, _events: object) -> None:
        pass

    def reset(self, _index: int) -> None:
        pass

    def role_changed(self, role: Role) -> None:
        if role.acting == self._acting:
            return
        self._acting = role.acting
        for name, loop in self._duties.items():
            if role.acting:
                self.grow(name, loop)
            elif name in self._running:
                self._running.pop(name).cancel()

    async def stop(self, name: str | None = None) -> None:
        """One loop, or all of them, the youngest first."""
        names = [name] if name is not None else list(reversed(self._running))
        for each in names:
            task = self._running.pop(each, None)
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _guard(self, name: str, loop: Loop) -> None:
        try:
            await loop()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a bug, and the node ends by it
            error.add_note(f"in {name}")
            self._on_fatal(error)

    def _gone(self, name: str, task: asyncio.Task[None]) -> None:
        if self._running.get(name) is task:
            del self._running[name]
