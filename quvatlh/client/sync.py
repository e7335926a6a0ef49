"""The same client for code without an event loop. Nothing is done here but waiting for what calls.py does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from quvatlh.client.calls import Client
from quvatlh.client.http import Options

P = ParamSpec("P")
T = TypeVar("T")


def _waiting(
    call: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingClient, P], T]:
    def wait(self: BlockingClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._runner.run(call(self._client, *args, **kwargs))

    wait.__doc__ = call.__doc__
    return wait


def _iterating(
    call: Callable[Concatenate[Client, P], AsyncIterator[T]],
) -> Callable[Concatenate[BlockingClient, P], Iterator[T]]:
    def iterate(self: BlockingClient, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._each(call(self._client, *args, **kwargs))

    iterate.__doc__ = call.__doc__
    return iterate


class BlockingClient:
    """Entered, used by one thread, left."""

    def __init__(self, options: Options) -> None:
        self._client = Client(options)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self._runner.run(self._client.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._runner.run(self._client.__aexit__(kind, error, trace))
        finally:
            self._runner.close()

    add = _waiting(Client.add)
    add_lines = _iterating(Client.add_lines)
    tasks = _waiting(Client.tasks)
    all_tasks = _iterating(Client.all_tasks)
    task = _waiting(Client.task)
    actions = _waiting(Client.actions)
    result = _waiting(Client.result)
    act = _waiting(Client.act)
    queues = _waiting(Client.queues)
    queue = _waiting(Client.queue)
    put_queue = _waiting(Client.put_queue)
    patch_queue = _waiting(Client.patch_queue)
    pause_queue = _waiting(Client.pause_queue)
    resume_queue = _waiting(Client.resume_queue)
    purge_queue = _waiting(Client.purge_queue)
    delete_queue = _waiting(Client.delete_queue)
    classes = _waiting(Client.classes)
    queue_class = _waiting(Client.queue_class)
    put_class = _waiting(Client.put_class)
    patch_class = _waiting(Client.patch_class)
    delete_class = _waiting(Client.delete_class)
    link = _waiting(Client.link)
    history = _waiting(Client.history)
    explain = _waiting(Client.explain)
    balance = _waiting(Client.balance)
    workers = _waiting(Client.workers)
    worker = _waiting(Client.worker)
    patch_worker = _waiting(Client.patch_worker)
    drain = _waiting(Client.drain)
    undrain = _waiting(Client.undrain)
    reload = _waiting(Client.reload)
    announcements = _waiting(Client.announcements)
    live = _waiting(Client.live)
    policies = _waiting(Client.policies)
    policy = _waiting(Client.policy)
    put_policy = _waiting(Client.put_policy)
    delete_policy = _waiting(Client.delete_policy)
    test_policy = _waiting(Client.test_policy)
    schedules = _waiting(Client.schedules)
    schedule = _waiting(Client.schedule)
    put_schedule = _waiting(Client.put_schedule)
    delete_schedule = _waiting(Client.delete_schedule)
    run_schedule = _waiting(Client.run_schedule)
    pause_schedule = _waiting(Client.pause_schedule)
    resume_schedule = _waiting(Client.resume_schedule)
    ledger = _waiting(Client.ledger)
    events = _iterating(Client.events)
    cluster = _waiting(Client.cluster)
    add_member = _waiting(Client.add_member)
    remove_member = _waiting(Client.remove_member)
    tokens = _waiting(Client.tokens)

    def log(self, *args: Any, **kwargs: Any) -> Iterator[bytes]:
        """As Client.log."""
        return self._each(aiter(self._client.log(*args, **kwargs)))

    def backup(self, path: str) -> int:
        """As Client.backup: to a file; its bytes."""
        return self._runner.run(self._client.backup().to(path))

    def _each(self, items: AsyncIterator[T]) -> Iterator[T]:
        async def following() -> T:
            return await anext(items)

        try:
            while True:
                try:
                    yield self._runner.run(following())
                except StopAsyncIteration:
                    return
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                self._runner.run(close())
