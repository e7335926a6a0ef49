"""Where the tasks of an app run: in the cluster that its motor speaks with, or here, one after the other, for tests."""

from __future__ import annotations

import asyncio
import base64
import contextvars
import json
import sys
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from quvatlh import task as inside
from quvatlh.client.errors import Rejected, Unavailable
from quvatlh.client.feed import Item
from quvatlh.client.handles import FINISHED, TRACE, Side
from quvatlh.client.outcomes import MATCHED, Finished, Flow, Wanted
from quvatlh.client.timetable import Changes, bring
from quvatlh.client.ways import Way, Written
from quvatlh.core.limits import LARGE_RESULT_BYTES_MAX
from quvatlh.service.depths import is_deeper

if TYPE_CHECKING:
    from quvatlh.client.calls import Client
    from quvatlh.client.motor import Motor
    from quvatlh.client.taskoptions import Json

T = TypeVar("T")
WAIT_S: Final = 30.0
"""Of one question for an end; then it is asked again."""
KEPT_TASKS_MAX: Final = 10_000
"""Of those that ran here: older ones are forgotten."""
RESULT_LEVELS_MAX: Final = 256
"""As of a worker (runner/pools/DESIGN.md)."""


class Sent(Protocol):
    """A call, ready to go."""

    @property
    def body(self) -> bytes:
        """A task as ADD takes it, in JSON."""

    @property
    def run(self) -> Callable[..., Any]:
        """As a worker's child calls it."""


class Taker(Side, Protocol):
    """`put` and `aput` give the place of an answer, as soon as there is room for the task."""

    def outcomes(self, wanted: Wanted) -> Flow:
        """Of tasks as they finish."""
        ...

    def put(self, call: Sent, *, watched: bool = True, ahead: int | None = None) -> Way:
        """Unwatched: nobody will look at the answer, so a failure is kept for `flush`. `ahead`: as of Feed.offer."""

    async def aput(self, call: Sent, *, ahead: int | None = None) -> Way: ...


class Cluster:
    def __init__(self, motor: Motor) -> None:
        self._motor = motor
        self._heir: Callable[[], Cluster] | None = None

    @property
    def motor(self) -> Motor:
        return self._motor if self._heir is None else self._heir().motor

    def leave_to(self, heir: Callable[[], Cluster]) -> None:
        """In a forked child, where the motor has no thread: handles of the parent ask this one."""
        self._heir = heir

    def put(self, call: Sent, *, watched: bool = True, ahead: int | None = None) -> Way:
        item = Item(call.body, unwatched=not watched)
        self._motor.put(item, ahead=ahead)
        return item.done

    async def aput(self, call: Sent, *, ahead: int | None = None) -> Way:
        item = Item(call.body)
        await self._motor.aput(item, ahead=ahead)
        return item.done

    def finished(self, task_id: str, timeout_s: float | None) -> Future[Json]:
        return self.motor.call(lambda client: _finished(client, task_id, timeout_s))

    def look(self, task_id: str) -> Future[Json]:
        return self.motor.call(lambda client: client.task(task_id))

    def result(self, task_id: str) -> Future[Any]:
        return self.motor.call(lambda client: client.result(task_id))

    def outcomes(self, wanted: Wanted) -> Flow:
        from quvatlh.client.finishing import finishing  # noqa: PLC0415 - the network is loaded by who uses it

        flow: AsyncGenerator[Finished, None] | None = None
        motor: Motor | None = None
        """Of the first call: what it opened is of its loop, and no fork's."""

        async def following(client: Client) -> Finished:
            nonlocal flow
            flow = flow or finishing(client, wanted)
            return await anext(flow)

        def follow() -> Future[Finished]:
            nonlocal motor
            motor = motor or self.motor
            return motor.call(following)

        async def closing(_client: Client) -> None:
            if flow is not None:
                await flow.aclose()

        def close() -> Future[None]:
            """By the garbage collector too, when the motor has ended, or its thread with the interpreter: then it is closed."""
            if flow is None or motor is None or sys.is_finalizing():
                return _nothing()
            try:
                return motor.call(closing)
            except Unavailable:
                return _nothing()

        return Flow(follow, close)

    def put_schedules(self, owner: str, wanted: Mapping[str, Json]) -> Future[Changes]:
        return self.motor.call(lambda client: bring(client, owner, wanted, (Rejected,)))

    def act(self, verb: str, task_id: str) -> Future[None]:
        async def act(client: Client) -> None:
            await client.act(verb, ids=[task_id])

        return self.motor.call(act)


async def _finished(client: Client, task_id: str, timeout_s: float | None) -> Json:
    ends = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left_s = WAIT_S if ends is None else max(0.0, min(WAIT_S, ends - time.monotonic()))
        task = await client.task(task_id, wait_s=left_s)
        if task["state"] in FINISHED:
            return task
        if ends is not None and time.monotonic() >= ends:
            raise TimeoutError(f"task {task_id} is {task['state']} after {timeout_s:g} s")


class Inline:
    """Each task runs while it is enqueued; arguments and results pass through JSON as they would. Times, queues and
    uniqueness mean nothing here; attempts follow at once, one where `retry` was not given. Values of options are not judged.
    `put` runs the task in the thread that enqueues it: under a loop one that calls `asyncio.run` needs `aput`."""

    def __init__(self) -> None:
        self._tasks: OrderedDict[str, tuple[Json, Sent]] = OrderedDict()
        self._number = 0
        self._lock = threading.Lock()

    def put(self, call: Sent, *, watched: bool = True, ahead: int | None = None) -> Way:  # noqa: ARG002 - none waits
        spec = json.loads(call.body)
        _check(spec)
        with self._lock:
            self._number += 1
            task_id = spec.get("id") or f"inline-{self._number}"
            existing = task_id in self._tasks
        if not existing:
            self._keep(task_id, _run(task_id, spec, call.run), call)
        return Way(Written(task_id, existing))

    async def aput(self, call: Sent, *, ahead: int | None = None) -> Way:  # noqa: ARG002 - none waits
        return await asyncio.to_thread(self.put, call)

    def finished(self, task_id: str, timeout_s: float | None) -> Future[Json]:  # noqa: ARG002 - it has
        return self.look(task_id)

    def look(self, task_id: str) -> Future[Json]:
        return _told_of(lambda: self._known(task_id)[0])

    def result(self, task_id: str) -> Future[Any]:
        return _told_of(lambda: self._known(task_id)[0]["result"])

    def outcomes(self, wanted: Wanted) -> Flow:
        """All have finished: those that there are, and then the end."""
        ids = list(self._tasks) if wanted.ids is None else wanted.ids
        tasks = (self._known(each)[0] for each in ids)
        found = (Finished(each, each["id"]) for each in tasks if _matches(each, wanted.match))

        def following() -> Finished:
            for each in found:
                return each
            raise StopAsyncIteration

        return Flow(lambda: _told_of(following), _nothing)

    def act(self, verb: str, task_id: str) -> Future[None]:
        def act() -> None:
            task, call = self._known(task_id)
            if verb == "retry" and task["state"] == "failed":
                self._keep(task_id, _run(task_id, json.loads(call.body), call.run), call)

        return _told_of(act)

    def _known(self, task_id: str) -> tuple[Json, Sent]:
        """Rejected, as a node says it."""
        found = self._tasks.get(task_id)
        if found is None:
            raise Rejected("not_found", f"there is no task {task_id}")
        return found

    def _keep(self, task_id: str, task: Json, call: Sent) -> None:
        with self._lock:
            self._tasks[task_id] = task, call
            while len(self._tasks) > KEPT_TASKS_MAX:
                self._tasks.popitem(last=False)


def _check(spec: Json) -> None:
    """What could not be played. The rest is judged by nodes alone. Rejected, as by them."""
    attempts = spec.get("retry", {}).get("attempts", 1)
    if not isinstance(attempts, int) or attempts < 1:
        raise Rejected("invalid", "retry.attempts: must be a whole number, 1 or more")
    if spec.get("id") == "":
        raise Rejected("invalid", "id: is empty")


def _run(task_id: str, spec: Json, function: Callable[..., Any]) -> Json:
    work = spec["work"]
    attempts = spec.get("retry", {}).get("attempts", 1)
    for attempt in range(1, attempts + 1):
        named = {name: spec[name] for name in MATCHED if name in spec}
        record: Json = named | {"id": task_id, "work": work, "attempts": attempt, "actions": []}
        fields = {
            "task": task_id,
            "id": f"{task_id}-{attempt}",
            "attempt": attempt,
            "token": attempt,
            "worker": "inline",
        }
        context = inside.Context(fields, lambda _said: None, lambda: None)
        try:
            value = contextvars.copy_context().run(_called, context, function, work)
            return record | {"state": "succeeded"} | _told(value)
        except KeyboardInterrupt:  # of a person, who means the test
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a task raises is its own end alone, as in a worker
            record |= {"state": "failed", "error": _error(error)}
            record["actions"] = [{"output_tail": _trace(error)}]
            if attempt == attempts or isinstance(error, inside.PermanentFailure):
                return record
    raise AssertionError("at least one attempt")


def _told(value: object) -> Json:
    """What a node would tell of it. Raises Unfit where a worker does."""
    try:
        data = json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        data = inside.in_msgpack(value, error)
        _check_size(data)
        return {"result": None, "result_msgpack": base64.b64encode(data).decode()}
    _check_size(data)
    found = json.loads(data)
    if data.count(b"[") + data.count(b"{") > RESULT_LEVELS_MAX and is_deeper(found, RESULT_LEVELS_MAX):
        raise inside.Unfit(f"what it returned is nested deeper than {RESULT_LEVELS_MAX} levels")
    return {"result": found}


def _check_size(data: bytes) -> None:
    if len(data) > LARGE_RESULT_BYTES_MAX:
        raise inside.Unfit(f"what it returned has {len(data)} bytes; at most {LARGE_RESULT_BYTES_MAX}")


def _error(error: BaseException) -> Json:
    if isinstance(error, inside.Unfit):
        return {"code": "unrunnable", "text": _text(error)}
    kind = type(error)
    name, text = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."), _text(error)
    return {"code": "exception", "text": f"{name}: {text}" if text else name}


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - an exception may be of any make
        return "(it has no text)"


def _trace(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - as above
        return "".join([TRACE, *traceback.format_tb(error.__traceback__)])


def _matches(task: Json, match: Mapping[str, str]) -> bool:
    return all(task.get(name) == value for name, value in match.items())


def _nothing() -> Future[None]:
    return _told_of(lambda: None)


def _told_of(look: Callable[[], T]) -> Future[T]:
    """What is known at once, as it would come from a node."""
    told: Future[T] = Future()
    try:
        told.set_result(look())
    except Exception as error:  # noqa: BLE001 - raised where it is waited for
        told.set_exception(error)
    return told


def _called(context: inside.Context, function: Callable[..., Any], work: Json) -> Any:
    inside.running.set(context)
    value = function(*work.get("args", ()), **work.get("kwargs", {}))
    if not asyncio.iscoroutine(value):
        return value
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_ended(value)).result()
    found: Future[Future[Any]] = Future()
    around = contextvars.copy_context()

    def aside() -> None:
        try:
            found.set_result(around.run(asyncio.run, _ended(value)))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            found.set_exception(error)

    threading.Thread(target=aside).start()
    return found.result().result()


async def _ended(running: Coroutine[Any, Any, Any]) -> Future[Any]:
    """How it did: an exit that were raised here would end the loop around it, too."""
    end: Future[Any] = Future()
    try:
        end.set_result(await running)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - raised where it is waited for
        end.set_exception(error)
    return end
