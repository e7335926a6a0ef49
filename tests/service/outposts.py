"""A worker of role `worker` beside the stands: an outpost on the executor's fake, and lines in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from quvatlh.core.model import WorkerFacts
from quvatlh.service.outpost import Outpost
from quvatlh.service.pool import Call, Principal, Problem
from quvatlh.service.wire import Line
from quvatlh.service.workplace import Craft
from tests.fakes.clock import FakeClock
from tests.fakes.entropy import FakeEntropy
from tests.fakes.executor import FakeHost
from tests.fakes.judge import FakeJudge
from tests.service.stand import Stand

WORKER = Principal("w", "worker")


class Cable:
    """wire.Line, twice."""

    def __init__(self) -> None:
        self.near, self.far = asyncio.Queue[bytes | None](), asyncio.Queue[bytes | None]()
        self.deaf = False
        """What the worker says gets lost."""

    def end(self, at_worker: bool) -> Line:
        return _End(self, self.near if at_worker else self.far, self.far if at_worker else self.near, at_worker)


class _End:
    def __init__(
        self, cable: Cable, inbox: asyncio.Queue[bytes | None], outbox: asyncio.Queue[bytes | None], up: bool
    ) -> None:
        self._cable = cable
        self._inbox = inbox
        self._outbox = outbox
        self._up = up

    async def send(self, frame: bytes) -> None:
        if not (self._up and self._cable.deaf):
            self._outbox.put_nowait(frame)

    async def receive(self) -> bytes | None:
        return await self._inbox.get()

    async def close(self) -> None:
        self._inbox.put_nowait(None)
        self._outbox.put_nowait(None)


class Field:
    """The nodes that can be dialled, by URL."""

    def __init__(self, *stands: Stand) -> None:
        self.stands = {f"http://{stand.name}:7420": stand for stand in stands}
        self.down: set[str] = set()
        self.cables: list[tuple[str, Cable]] = []
        self.principal = WORKER
        self._serving: set[asyncio.Task[None]] = set()

    async def dial(self, url: str) -> Line:
        if url in self.down or url not in self.stands:
            raise ConnectionRefusedError(url)
        cable = Cable()
        self.cables.append((url, cable))
        task = asyncio.get_running_loop().create_task(self._serve(self.stands[url], cable))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        return cable.end(at_worker=True)

    def drop(self, name: str) -> None:
        """The node goes."""
        url = f"http://{name}:7420"
        self.down.add(url)
        for where, cable in self.cables:
            if where == url:
                cable.near.put_nowait(None)
                cable.far.put_nowait(None)

    async def _serve(self, stand: Stand, cable: Cable) -> None:
        line = cable.end(at_worker=False)
        try:
            await stand.pool.connect(Call(self.principal), line)
        except Problem:
            await line.close()

    async def ended(self) -> None:
        await asyncio.gather(*self._serving, return_exceptions=True)


class Post:
    def __init__(self, field: Field, clock: FakeClock, *, slots: int = 2, name: str = "w1") -> None:
        self.field = field
        self.host = FakeHost(clock, FakeEntropy(9))
        self.judge = FakeJudge(clock)
        self.notes: list[str] = []
        self.fatal: list[BaseException] = []
        craft = Craft(
            self.host.executor(name),
            self.judge,
            clock,
            FakeEntropy(7),
            note=lambda text, **_: self.notes.append(text),
        )
        self.outpost = Outpost(
            field.dial,
            list(field.stands)[:1],
            craft,
            facts=WorkerFacts(name, "worker", slots=slots),
            directory=f"directory of {name}",
            on_fatal=self.fatal.append,
        )

    def running(self) -> list[str]:
        return [] if self.host.process is None else self.host.process.running()

    def end(self, name: str) -> None:
        assert self.host.process is not None
        self.host.process.end(name)

    async def until(self, holds: Callable[[], object]) -> None:
        await next(iter(self.field.stands.values())).until(holds)

    async def working(self) -> None:
        await self.until(lambda: self.outpost.workplace.session.is_confirmed)


@contextlib.asynccontextmanager
async def posted(field: Field, clock: FakeClock, **how: Any) -> AsyncIterator[Post]:
    post = Post(field, clock, **how)
    post.outpost.start()
    try:
        yield post
    finally:
        await post.outpost.stop()
        await field.ended()
    assert post.fatal == []
