"""A worker's executor, and beside it what the daemon carries out itself: one ports.Executor for both.

What the daemon carries out ends with the session, with the daemon, and with its lease; nothing of it is found again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from quvatlh.ports import ActionSpec, Executor, ExecutorListener, Life, OutputChunk
from quvatlh.service.courier import Courier, Errand


class Mixed:
    """Keeps ports.Executor. Its listener hears of both kinds alike."""

    def __init__(self, executor: Executor, courier: Courier) -> None:
        self._executor = executor
        self._courier = courier

    @property
    def life(self) -> Life | None:
        return self._executor.life

    def listen(self, listener: ExecutorListener) -> None:
        self._executor.listen(listener)
        self._courier.listen(listener)

    async def open(self) -> Life:
        await self._courier.drop()
        return await self._executor.open()

    def start(self, action: ActionSpec) -> None:
        self._executor.start(action)

    def flush(self) -> None:
        self._executor.flush()

    def send(self, errand: Errand) -> None:
        self._courier.start(errand)

    def stop(self, action_id: str, grace_s: float | None = None) -> None:
        if action_id in self._courier.live():
            self._courier.stop(action_id)
        else:
            self._executor.stop(action_id, grace_s)

    def recall(self) -> None:
        self._executor.recall()

    async def reload(self, environment: str | None) -> Collection[str]:
        return await self._executor.reload(environment)

    def forget(self, action_ids: Collection[str]) -> None:
        self._executor.forget(action_ids)

    async def ask(self) -> float:
        return await self._executor.ask()

    def renew(self, sent_s: float) -> None:
        self._courier.renew(sent_s)
        self._executor.renew(sent_s)

    def live(self) -> Collection[str]:
        return (*self._executor.live(), *self._courier.live())

    def follow(self, action_id: str, stdout_offset: int = 0, stderr_offset: int = 0) -> AsyncIterator[OutputChunk]:
        """Of an errand nothing before its end: what it is answered comes whole."""
        return self._executor.follow(action_id, stdout_offset, stderr_offset)

    async def result(self, action_id: str, offset: int) -> tuple[bytes, int] | None:
        return await self._executor.result(action_id, offset)

    async def keep(self, action_id: str, stdout: bytes) -> None:
        await self._executor.keep(action_id, stdout)

    async def kept(self) -> Collection[str]:
        return await self._executor.kept()

    def prune(self, keep: Collection[str]) -> None:
        self._executor.prune(keep)

    async def close(self, grace_s: float) -> None:
        await self._courier.drop()
        await self._executor.close(grace_s)

    async def leave(self) -> None:
        await self._courier.drop()
        await self._executor.leave()
