"""Functions as tasks. Here a call becomes a task's work and its arguments are checked, before anything is sent; and here a
worker's child calls the function, with its hooks around it. Imported by workers too, so it loads no network.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import types
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast

import msgspec

from quvatlh import task as inside
from quvatlh.client import ending, forms, taskoptions
from quvatlh.client.forms import Form
from quvatlh.client.handles import Handle
from quvatlh.client.hooks import Attempt, Hooks
from quvatlh.client.sides import Inline, Taker
from quvatlh.client.taskoptions import Duration, Json, TaskOptions

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")
"""What the plain function gives: of an async one, a coroutine."""


class Home(Protocol):
    """What a task needs of its app."""

    hooks: Hooks

    def side(self) -> Taker:
        """Where tasks run."""
        ...

    def handle_of(self, task_id: str, form: Form, /) -> Handle[Any]: ...


class Call(Generic[R]):
    """A function with its arguments, checked and in JSON: what `enqueue` sends."""

    __slots__ = ("body", "form", "run")

    def __init__(self, run: Callable[..., Any], body: bytes, form: Form) -> None:
        self.run = run
        """By a worker, with the arguments as JSON has them."""
        self.body = body
        self.form = form


class Task(Generic[P, R, V]):
    """A function that can be enqueued. Methods that begin with `a` are the same for coroutines."""

    def __init__(self, home: Home, function: Callable[P, Any], options: TaskOptions, form: Form | None = None) -> None:
        if isinstance(function, Task):
            raise TypeError(f"{function.target} is a task already; @app.schedule stands above @app.task, not below it")
        if isinstance(function, type) or not _is_named(function):
            raise TypeError(f"a task is a function, which workers find by its module and name, not {function!r}")
        self._home = home
        self._options = options
        self._wire = taskoptions.wire(options)
        self._environment = self._wire.pop("environment", None)
        self._is_packed = self._wire.pop("result", "json") == "msgpack"
        self.form = Form(function) if form is None else form
        is_alike = "unique" in self._wire and self._wire["unique"].get("key") is None
        self._written = self.form.alike if is_alike else self.form.written
        self.__wrapped__ = function
        self.__qualname__: str = function.__qualname__
        self.__name__: str = getattr(function, "__name__", self.__qualname__.rpartition(".")[2])
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self.target: str = f"{_module(self.__module__)}:{self.__qualname__}"
        """By which workers find it."""

    def __repr__(self) -> str:
        return f"<quvatlh.Task {self.target}>"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """As a function, by where it is found; with the options that it was told since."""
        where = self.__module__, self.__qualname__
        if not isinstance(found := _at(*where), Task) or found.target != self.target:
            raise TypeError(f"{self.target}: only a task that its module has under its name can be pickled")
        return _pickled, (*where, self._options)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> V:
        return cast("V", self.__wrapped__(*args, **kwargs))

    def options(self, **options: Unpack[TaskOptions]) -> Task[P, R, V]:
        """The same task, told more, or otherwise."""
        if "result" in options:
            raise TypeError("result: belongs to @app.task, since the worker knows of no call's options")
        return Task(self._home, self.__wrapped__, cast("TaskOptions", {**self._options, **options}), self.form)

    def told(self, options: TaskOptions) -> Task[P, R, V]:
        """With these options, and no others."""
        return self if options == self._options else Task(self._home, self.__wrapped__, options, self.form)

    # --- to be enqueued ---

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """For `enqueue_many`. TypeError where the arguments do not fit the function, or cannot be sent."""
        try:
            sent_args, sent_kwargs = self._written(args, kwargs)
        except TypeError as error:
            raise TypeError(f"{self.__name__}(): {error}") from None
        except forms.Unfit as error:
            raise TypeError(f"{self.__name__}(): argument {error}") from None
        work: Json = {"python": self.target, "args": sent_args, "kwargs": sent_kwargs}
        if self._environment is not None:
            work["environment"] = self._environment
        try:
            body = msgspec.json.encode({"name": self.__name__, **self._wire, "work": work})
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise TypeError(f"{self.__name__}(): has no form in JSON: {error}") from None
        return Call(self.__quvatlh_run__, body, self.form)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Returns when it is written: on disk, by a majority."""
        side = self._side()
        way = side.put(self.call(*args, **kwargs))
        way.waited()
        return Handle(side, way, self.form)

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        side = self._side()
        way = await side.aput(self.call(*args, **kwargs))
        await way.awaited()
        return Handle(side, way, self.form)

    def enqueue_nowait(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Returns before it is written, if there is room; `app.flush()` says how it went, the end of the program waits
        for it. Inside a task the same as `enqueue`, since a worker's child may end without a last word; and in `atexit`,
        which is the last word."""
        if inside.running.get() is not None or ending.is_late():
            return self.enqueue(*args, **kwargs)
        side = self._side()
        return Handle(side, side.put(self.call(*args, **kwargs), watched=False), self.form)

    def delay(self, span: Duration, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueued now, to run no sooner than in so long: `remind.delay("5m", "me")`."""
        return self.options(delay=span).enqueue(*args, **kwargs)

    async def adelay(self, span: Duration, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        return await self.options(delay=span).aenqueue(*args, **kwargs)

    def at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueued now, to run no sooner than then: a datetime with its zone."""
        return self.options(at=when).enqueue(*args, **kwargs)

    async def aat(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        return await self.options(at=when).aenqueue(*args, **kwargs)

    def handle(self, task_id: str) -> Handle[R]:
        """Of a task of this function that is known by its id alone."""
        return self._home.handle_of(task_id, self.form)

    def _side(self) -> Taker:
        side = self._home.side()
        if "<" in self.target and not isinstance(side, Inline):
            raise ValueError(f"{self.target}: workers find only functions of a module's top level")
        return side

    # --- to be run ---

    def __quvatlh_run__(self, /, *args: Any, **kwargs: Any) -> Any:
        """The function, as a worker calls it (runner/pools/DESIGN.md): arguments and result are those of JSON."""
        function, hooks = self.__wrapped__, self._home.hooks
        if self.form.slots or hooks:
            args, kwargs = self._read(args, kwargs)
        if hooks:
            attempt = Attempt(self.target, inside.current(), args, kwargs)
            return hooks.around(attempt, function, self._packed)
        try:
            value = function(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:  # by the call itself
                raise inside.Unfit(f"its arguments do not fit: {error}") from None
            raise
        return self._awaited(value) if hasattr(type(value), "__await__") else self._packed(value)

    async def _awaited(self, value: Any) -> object:
        return self._packed(await value)

    def _packed(self, value: object) -> object:
        try:
            return inside.Packed(forms.in_msgpack(value)) if self._is_packed else forms.packed(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            form = "msgpack" if self._is_packed else "JSON"
            raise inside.Unfit(f"what it returned has no form in {form}: {error}") from None

    def _read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            read_args, read_kwargs = self.form.read(args, kwargs)
        except (TypeError, forms.Unfit) as error:
            raise inside.Unfit(f"its arguments do not fit: {error}") from None
        return read_args, dict(read_kwargs)


def _at(module: str, path: str) -> object:
    try:
        return functools.reduce(getattr, path.split("."), importlib.import_module(module))
    except (ImportError, AttributeError):
        return None


def _pickled(module: str, path: str, options: TaskOptions) -> Task[..., Any, Any]:
    found = _at(module, path)
    if not isinstance(found, Task):
        raise TypeError(f"{module}.{path} is no task here")
    return found.told(options)


def _is_named(function: Callable[..., Any]) -> bool:
    """A partial has no name, nor has an instance; a method has its class's, where it is not bound to what it is to have."""
    names = (getattr(function, "__module__", None), getattr(function, "__qualname__", None))
    bound_to = getattr(function, "__self__", None)
    is_free = bound_to is None or isinstance(bound_to, type | types.ModuleType)
    return is_free and all(isinstance(name, str) for name in names)


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
