"""Functions that are tasks: `app = App()`, `@app.task`, `add.enqueue(1, 2).result()`.

The face of the library for Python programs. Here a function becomes a task's work and its arguments are checked, before
anything is sent. Imported by workers too, so it loads no network; the first call does.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

import msgspec

from quvatlh import task as inside
from quvatlh.client import plain, taskoptions
from quvatlh.client.feed import Written, aanswered, answered
from quvatlh.client.handles import Handle
from quvatlh.client.sides import Cluster, Inline, Taker
from quvatlh.client.taskoptions import Json, TaskOptions

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")
"""What the plain function gives: of an async one, a coroutine."""
URL_VARIABLE, CA_VARIABLE = "QUVATLH_URL", "QUVATLH_CA"
DEADLINE_S = 10.0


class App:
    """Where to enqueue. Used by any number of threads and loops; a fork has its own connections. Whatever is not given
    is found as the command line finds it: QUVATLH_URL, QUVATLH_TOKEN, QUVATLH_CA, the data directory."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        ca: str | None = None,
        data: str | None = None,
        deadline_s: float = DEADLINE_S,
        inline: bool = False,
    ) -> None:
        """`url` may be several, with commas. So long as `deadline_s` a call asks around before it says Unavailable.
        `inline`: tasks run here, while they are enqueued."""
        self._place = (url, token, ca, data)
        self._deadline_s = deadline_s
        self._here = Inline() if inline else None
        self._cluster: Cluster | None = None
        self._lock = threading.Lock()
        _apps.add(self)

    # --- tasks ---

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R, R]: ...

    @overload
    def task(self, function: None = None, /, **options: Unpack[TaskOptions]) -> Decorator: ...

    def task(self, function: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]) -> Any:
        """`@app.task` or `@app.task(queue=…, retry=…)`. Called, it is the function it was."""
        if function is None:
            return lambda wrapped: Task(self, wrapped, options)
        return Task(self, function, options)

    def enqueue_many(self, calls: Iterable[Call[R]]) -> list[Handle[R]]:
        """As many events as it takes; returns when all are written, raises the first refusal when all have an answer."""
        side = self._side()
        ways = [side.put(call) for call in calls]
        answered(ways)
        return [Handle(side, way) for way in ways]

    async def aenqueue_many(self, calls: Iterable[Call[R]]) -> list[Handle[R]]:
        side = self._side()
        ways = [await side.aput(call) for call in calls]
        await aanswered(ways)
        return [Handle(side, way) for way in ways]

    def handle(self, task_id: str) -> Handle[Any]:
        """Of a task that is known by its id alone."""
        written: Future[Written] = Future()
        written.set_result(Written(task_id, existing=True))
        return Handle(self._side(), written)

    def flush(self, timeout: float | None = None) -> None:
        """Until all that was enqueued without waiting is written; raises the first failure of it. TimeoutError."""
        cluster = self._cluster
        if cluster is None:
            return
        motor = cluster.motor
        motor.feed.all_settled().result(timeout)
        error, count = motor.feed.take_lost()
        if error is not None:
            error.add_note(f"{count} task(s) were not enqueued")
            raise error

    def close(self) -> None:
        """Writes what is on its way, and ends its connections; the next call opens others."""
        with self._lock:
            cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.motor.close()

    @contextlib.contextmanager
    def inline(self) -> Iterator[None]:
        """For tests: inside, tasks run here, while they are enqueued; arguments and results pass through JSON."""
        before, self._here = self._here, Inline()
        try:
            yield
        finally:
            self._here = before

    def _side(self) -> Taker:
        if self._here is not None:
            return self._here
        if self._cluster is None:
            with self._lock:
                if self._cluster is None:
                    self._cluster = self._connected()
        return self._cluster

    def _connected(self) -> Cluster:
        from quvatlh.client.http import Options  # noqa: PLC0415 - the network is loaded by who uses it
        from quvatlh.client.motor import Motor  # noqa: PLC0415
        from quvatlh.client.places import URL_DEFAULT, find_token, parse_urls  # noqa: PLC0415

        url, token, ca, data = self._place
        urls = parse_urls(url or os.environ.get(URL_VARIABLE) or URL_DEFAULT)
        found = find_token(token, os.environ, data, is_root=os.geteuid() == 0)
        looked = "; ".join(f"{place}: {what}" for place, what in found.looked).replace("--token", "App(token=…)")
        options = Options(urls, found.value, ca or os.environ.get(CA_VARIABLE), self._deadline_s)
        return Cluster(Motor(options, f"The token was looked for: {looked}."))

    def _forget(self) -> None:
        """In a forked child: the thread, and what it held, are the parent's."""
        self._lock = threading.Lock()
        self._cluster = None


class Call(Generic[R]):
    """A function with its arguments, checked and in JSON: what `enqueue` sends."""

    __slots__ = ("body", "function")

    def __init__(self, function: Callable[..., Any], body: bytes) -> None:
        self.function = function
        self.body = body


class Task(Generic[P, R, V]):
    """A function that can be enqueued. Methods that begin with `a` are the same for coroutines."""

    def __init__(self, app: App, function: Callable[P, Any], options: TaskOptions) -> None:
        if isinstance(function, type):
            raise TypeError(f"a task is a function, not {function!r}")
        self._app = app
        self._options = options
        self._wire = taskoptions.wire(options)
        self._environment = self._wire.pop("environment", None)
        self._signature = inspect.signature(function)
        self.__quvatlh_run__ = function
        self.__wrapped__ = function
        self.__name__: str = getattr(function, "__name__", type(function).__name__)
        self.__qualname__: str = getattr(function, "__qualname__", self.__name__)
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self.target = f"{_module(self.__module__)}:{self.__qualname__}"
        """By which workers find it."""

    def __repr__(self) -> str:
        return f"<quvatlh.Task {self.target}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> V:
        return cast("V", self.__quvatlh_run__(*args, **kwargs))

    def options(self, **options: Unpack[TaskOptions]) -> Task[P, R, V]:
        """The same task, told more, or otherwise."""
        return Task(self._app, self.__quvatlh_run__, cast("TaskOptions", {**self._options, **options}))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """For `enqueue_many`. TypeError where the arguments do not fit the function, or have no form in JSON."""
        bound = self._bound(args, kwargs)
        found = plain.fault(bound)
        if found is not None:
            raise TypeError(f"{self.__name__}(): argument {found}")
        work: Json = {"python": self.target, "args": args, "kwargs": kwargs}
        if self._environment is not None:
            work["environment"] = self._environment
        try:
            return Call(self.__quvatlh_run__, msgspec.json.encode({"name": self.__name__, **self._wire, "work": work}))
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise TypeError(f"{self.__name__}(): has no form in JSON: {error}") from None

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Returns when it is written: on disk, by a majority."""
        side = self._side()
        way = side.put(self.call(*args, **kwargs))
        way.result()
        return Handle(side, way)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        side = self._side()
        way = await side.aput(self.call(*args, **kwargs))
        await asyncio.wrap_future(way)
        return Handle(side, way)

    def enqueue_nowait(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Returns before it is written, if there is room; `app.flush()` says how it went, the end of the program waits
        for it. Inside a task the same as `enqueue`: a worker's child may end without a last word."""
        if inside.running.get() is not None:
            return self.enqueue(*args, **kwargs)
        side = self._side()
        return Handle(side, side.put(self.call(*args, **kwargs), watched=False))

    def _side(self) -> Taker:
        side = self._app._side()  # noqa: SLF001 - one module
        if "<" in self.target and not isinstance(side, Inline):
            raise ValueError(f"{self.target}: workers find only functions of a module's top level")
        return side

    def _bound(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Mapping[str, object]:
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self.__name__}(): {error}") from None


class Decorator(Protocol):
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...


def _module(name: str) -> str:
    """Of a program that was started, the name by which others import it."""
    if name != "__main__":
        return name
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    path = getattr(main, "__file__", None)
    return "<main>" if path is None else os.path.splitext(os.path.basename(path))[0]


_apps: weakref.WeakSet[App] = weakref.WeakSet()


def _forked() -> None:
    for app in list(_apps):
        app._forget()  # noqa: SLF001 - one module


os.register_at_fork(after_in_child=_forked)
