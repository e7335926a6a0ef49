"""A task that was enqueued: its end waited for, and what it returned or raised."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast

import msgspec

from quvatlh.client.errors import Rejected
from quvatlh.client.forms import Form
from quvatlh.client.ways import Way

if TYPE_CHECKING:
    from quvatlh.client.taskoptions import Json

R_co = TypeVar("R_co", covariant=True)
FINISHED = frozenset({"succeeded", "failed", "deleted"})
LARGE: Final = {"file", "bytes", "worker", "path"}
"""What stands in place of a result that is a file of its worker."""
TRACE = "Traceback (most recent call last):\n"


class Side(Protocol):
    """Where tasks run: a cluster, or this process."""

    def finished(self, task_id: str, timeout_s: float | None) -> Future[Json]:
        """The task once it has; TimeoutError."""

    def look(self, task_id: str) -> Future[Json]: ...

    def result(self, task_id: str) -> Future[Any]:
        """Of one that succeeded, from the worker's file. Rejected where that is not to be had."""
        ...

    def act(self, verb: str, task_id: str) -> Future[None]: ...


class RemoteTraceback(Exception):
    """What the worker wrote of it; the cause of a TaskFailed."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class TaskFailed(Exception):
    """The task has finished, and not well."""

    def __init__(self, task: str, code: str, text: str, traceback: str = "", attempts: int = 0) -> None:
        super().__init__(f"task {task}: {text or code}")
        self.task = task
        self.code = code
        """`exception`, `timeout`, `crash`, `killed`, `deleted` and what else the node may say."""
        self.text = text
        """Of an exception: `ValueError: no good`."""
        self.traceback = traceback
        self.attempts = attempts


class ResultElsewhere(Exception):
    """It succeeded, and what it returned is too large for the cluster's state: a file of a worker that is not there now, or
    keeps it no more. `why` says which."""

    def __init__(self, task: str, worker: str, path: str, size_bytes: int, why: str) -> None:
        super().__init__(f"task {task}: its result, {size_bytes} bytes, is {path} of worker {worker}: {why}")
        self.task = task
        self.worker = worker
        self.path = path
        self.size_bytes = size_bytes
        self.why = why


FormOf = Callable[["Json"], Form | None]


class Handle(Generic[R_co]):
    """Methods that begin with `a` are the same for coroutines."""

    __slots__ = ("_form", "_side", "_written")

    def __init__(self, side: Side, written: Way, form: Form | FormOf | None = None) -> None:
        """`form`: of its function, or who knows it by the task."""
        self._side = side
        self._written = written
        self._form = form

    def __repr__(self) -> str:
        known = self._written.is_settled and self._written.exception() is None
        return f"<quvatlh.Handle {self.id if known else 'on its way'}>"

    @property
    def id(self) -> str:
        """Of the task that stands for it; waits where it is not written yet."""
        return self._written.result().id

    @property
    def existing(self) -> bool:
        """It was there before, by its `id` or its unique key."""
        return self._written.result().existing

    def result(self, timeout: float | None = None) -> R_co:
        """What the function returned, as its annotation says. TaskFailed, its cause the traceback; TimeoutError after so
        many seconds; Unavailable when no node answers; ResultElsewhere; ResultUnfit."""
        task = self._side.finished(self.id, _seconds(timeout)).result()
        value = value_of(task)
        return cast("R_co", read(self._form, task, whole(self._side, task).result() if is_elsewhere(value) else value))

    async def aresult(self, timeout: float | None = None) -> R_co:
        task = await asyncio.wrap_future(self._side.finished(await self._aid(), _seconds(timeout)))
        value = value_of(task)
        if is_elsewhere(value):
            value = await asyncio.wrap_future(whole(self._side, task))
        return cast("R_co", read(self._form, task, value))

    def task(self) -> Json:
        """As the node tells it now: state, attempts, actions and all."""
        return self._side.look(self.id).result()

    async def atask(self) -> Json:
        return await asyncio.wrap_future(self._side.look(await self._aid()))

    def cancel(self) -> None:
        """It never begins, or is stopped; `result` says TaskFailed, code `deleted`. Nothing happens to what has finished."""
        self._side.act("delete", self.id).result()

    async def acancel(self) -> None:
        await asyncio.wrap_future(self._side.act("delete", await self._aid()))

    def retry(self) -> None:
        """A failed one runs again."""
        self._side.act("retry", self.id).result()

    async def aretry(self) -> None:
        await asyncio.wrap_future(self._side.act("retry", await self._aid()))

    async def _aid(self) -> str:
        return (await asyncio.shield(asyncio.wrap_future(self._written.future))).id


def _seconds(timeout: float | None) -> float | None:
    if timeout is not None and not isinstance(timeout, int | float):
        raise TypeError(f"timeout: must be seconds, not {timeout!r:.100}")
    return timeout


def value_of(task: Json) -> Any:
    """In the own types of JSON, or of msgpack, or where it is. TaskFailed."""
    if task["state"] != "succeeded":
        raise failure(task)
    if (packed := task.get("result_msgpack")) is not None:
        return msgspec.msgpack.decode(base64.b64decode(packed))
    raw = task.get("result_base64")
    return task.get("result") if raw is None else base64.b64decode(raw)


def is_elsewhere(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == LARGE


def whole(side: Side, task: Json) -> Future[Any]:
    """A large result, from whichever node. ResultElsewhere."""
    place, told = task["result"], Future[Any]()

    def came(answer: Future[Any]) -> None:
        error = answer.exception()
        if isinstance(error, Rejected):
            error = ResultElsewhere(task["id"], place["worker"], place["path"], place["bytes"], error.detail)
        if error is None:
            told.set_result(answer.result())
        else:
            told.set_exception(error)

    side.result(task["id"]).add_done_callback(came)
    return told


def read(form: Form | FormOf | None, task: Json, value: object) -> Any:
    """As the function's annotation says."""
    found = form if form is None or isinstance(form, Form) else form(task)
    return value if found is None else found.result(task["id"], value)


def failure(task: Json) -> TaskFailed:
    error = task.get("error") or {"code": task["state"], "text": f"was {task['state']}"}
    actions = task.get("actions") or [{}]
    _, found, rest = (actions[-1].get("output_tail") or "").rpartition(TRACE)
    trace = found + rest if error["code"] == "exception" else ""
    failed = TaskFailed(task["id"], error["code"], error.get("text", ""), trace, task.get("attempts", 0))
    if trace:
        failed.__cause__ = RemoteTraceback(trace)
    return failed
