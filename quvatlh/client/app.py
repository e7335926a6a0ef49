"""Functions that are tasks: `app = App()`, `@app.task`, `add.enqueue(1, 2).result()`.

The face of the library for Python programs: what belongs to all tasks of a program. A single one is `tasks`. Imported by
workers too, so it loads no network; the first call does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
import weakref
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn, ParamSpec, Protocol, TypeVar, Unpack, overload

import msgspec

from quvatlh.client import many, timetable
from quvatlh.client.forms import Form
from quvatlh.client.handles import Handle
from quvatlh.client.hooks import Hook, Hooks
from quvatlh.client.outcomes import Outcomes
from quvatlh.client.sides import Cluster, Inline, Taker
from quvatlh.client.taskoptions import Duration, Json, TaskOptions
from quvatlh.client.tasks import Call, Task
from quvatlh.client.timetable import OWN, Changes, Rule
from quvatlh.client.ways import Way, Written

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")
H = TypeVar("H", bound=Hook)
URL_VARIABLE, CA_VARIABLE = "QUVATLH_URL", "QUVATLH_CA"
DEADLINE_S = 10.0
_TOKEN: Final = re.compile(r"[!-~]+")


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
        self._forms: dict[str, Form] = {}
        """By target, of all its tasks: what their results are."""
        self._schedules: dict[str, tuple[Json, Callable[[], bytes]]] = {}
        self.hooks = Hooks()
        apps.add(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an App has connections and cannot be pickled; its tasks can, as functions: by module and name")

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
            return lambda wrapped: self._made(wrapped, options)
        return self._made(function, options)

    def _made(self, function: Callable[..., Any], options: TaskOptions) -> Task[..., Any, Any]:
        made: Task[..., Any, Any] = Task(self, function, options)
        self._forms[made.target] = made.form
        return made

    def schedule(
        self,
        cron: str | None = None,
        /,
        *,
        every: Duration | None = None,
        name: str | None = None,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        **rule: Unpack[Rule],
    ) -> Scheduler:
        """`@app.schedule("*/5 * * * *", zone="Europe/Berlin")` over a function, or over a task for its options. Workers
        that are told of its module (`quvatlh run --app`) put it as they start. Several over one function need names."""
        said = timetable.rule(cron, every, rule)

        def scheduled(function: Any) -> Any:
            made: Task[..., Any, Any] = function if isinstance(function, Task) else self._made(function, {})
            short = made.__qualname__ if name is None else name
            if short in self._schedules:
                raise ValueError(f"{short}: there is such a schedule already; give this one another name=")
            self._schedules[short] = said, lambda: made.call(*args, **(kwargs or {})).body
            return made

        return scheduled

    # --- hooks: see hooks.py ---

    def before(self, hook: H) -> H:
        """Called with the Attempt before each task of this app, where it runs. May be async, as the others."""
        self.hooks.before.append(hook)
        return hook

    def on_failure(self, hook: H) -> H:
        """Called when anything was raised."""
        self.hooks.on_failure.append(hook)
        return hook

    def after(self, hook: H) -> H:
        """Called after it, whatever became of it."""
        self.hooks.after.append(hook)
        return hook

    # --- enqueued ---

    def enqueue_many(self, calls: Iterable[Call[R]]) -> list[Handle[R]]:
        """As many events as it takes, the first under way while later calls are still made; returns when all are written,
        raises the first refusal when all have an answer. What `calls` raises comes out then, too: those before it are written."""
        return many.enqueued(self.side(), calls)

    async def aenqueue_many(self, calls: Iterable[Call[R]]) -> list[Handle[R]]:
        """Other coroutines have their turns between two calls, not while one is made. Cancelled, it takes back those that
        are not on their way yet."""
        return await many.aenqueued(self.side(), calls)

    def handle(self, task_id: str) -> Handle[Any]:
        """Of a task that is known by its id alone. `add.handle(id)` knows its type, too."""
        return self.handle_of(task_id, None)

    def handle_of(self, task_id: str, form: Form | None, /) -> Handle[Any]:
        return Handle(self.side(), Way(Written(task_id, existing=True)), form or self._form_of)

    @overload
    def results(self, tasks: Iterable[Handle[R]], /) -> Outcomes[R]: ...

    @overload
    def results(
        self, tasks: Iterable[str | Handle[Any]] | None = None, /, *, since: str | None = None, **match: str
    ) -> Outcomes[Any]: ...

    def results(
        self, tasks: Iterable[str | Handle[Any]] | None = None, /, *, since: str | None = None, **match: str
    ) -> Outcomes[Any]:
        """What becomes of tasks, as they finish: `for` or `async for`. Of those named (ids or handles) each once, until all
        have; else of all that match `queue`, `group`, `name` or `key`, without end, from now on or after the `place` of an
        Outcome that was seen. Goes on over reconnects and nodes that are lost. The nodes keep what they tell in memory: after
        all of them were restarted, a lone one too, named tasks go on, and all that match end with Rejected, code `gone`, as
        does a `since` from before. Then read what has finished since (`Client.tasks(finished_after=…)`), and begin anew."""
        if isinstance(tasks, str | Handle):
            raise TypeError("results(): takes a list of ids or handles; for one, [it], or its result()")
        ids = None if tasks is None else [each if isinstance(each, str) else each.id for each in tasks]
        return Outcomes(self.side(), self._form_of, ids, since, match)

    def put_schedules(self, owner: str) -> Changes:
        """The cluster's table to what this app's schedules say now, under the name of an owner; what stands there under
        it and is none of them is deleted. Workers do it for the module of `run --app`."""
        return self._cluster_side().put_schedules(owner, self.schedules()).result()

    async def aput_schedules(self, owner: str) -> Changes:
        return await asyncio.wrap_future(self._cluster_side().put_schedules(owner, self.schedules()))

    @property
    def targets(self) -> Collection[str]:
        """Of its tasks: `pkg.mod:function`."""
        return self._forms.keys()

    def schedules(self) -> dict[str, Json]:
        """By name, each as the cluster is told. TypeError and ValueError for one that cannot be."""
        return {name: said | {"task": _scheduled(name, body())} for name, (said, body) in self._schedules.items()}

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
        """Writes what is on its way, and ends its connections; the next call opens others. What could not be written and
        `flush` was not asked about is told on standard error."""
        with self._lock:
            cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.motor.close()
            cluster.motor.tell_lost()

    @contextlib.contextmanager
    def inline(self) -> Iterator[None]:
        """For tests: inside, tasks run here, while they are enqueued; arguments and results pass through JSON. Not as in the
        cluster: times, queues, uniqueness; values of options and the size of arguments, which nodes judge; and in a running
        loop a plain task that calls `asyncio.run` works with `aenqueue` alone, since `enqueue` runs it in the loop's thread."""
        before, self._here = self._here, Inline()
        try:
            yield
        finally:
            self._here = before

    def side(self) -> Taker:
        """Where its tasks run."""
        return self._cluster_side() if self._here is None else self._here

    def _cluster_side(self) -> Cluster:
        found = self._cluster
        if found is None or found.motor.is_closed:
            with self._lock:
                found = self._cluster
                if found is None or found.motor.is_closed:
                    found = self._cluster = self._connected()
        return found

    def _form_of(self, task: Json) -> Form | None:
        return self._forms.get((task.get("work") or {}).get("python", ""))

    def _connected(self) -> Cluster:
        from quvatlh.client.http import Options  # noqa: PLC0415 - the network is loaded by who uses it
        from quvatlh.client.motor import Motor  # noqa: PLC0415
        from quvatlh.client.places import URL_DEFAULT, find_token, parse_urls  # noqa: PLC0415

        url, token, ca, data = self._place
        urls = parse_urls(url or os.environ.get(URL_VARIABLE) or URL_DEFAULT)
        given = "--token", "App(token=…)"
        found = find_token(token, os.environ, data, is_root=os.geteuid() == 0)
        if found.value is not None and not _TOKEN.fullmatch(found.value):
            raise ValueError(
                f"the token of {found.source} holds what none does: spaces, lines or odd letters".replace(*given)
            )
        looked = "; ".join(f"{place}: {what}" for place, what in found.looked).replace(*given)
        options = Options(urls, found.value, ca or os.environ.get(CA_VARIABLE), self._deadline_s)
        return Cluster(Motor(options, f"The token was looked for: {looked}."))

    def _forget(self) -> None:
        """In a forked child: the thread, and what it held, are the parent's."""
        self._lock = threading.Lock()
        if self._cluster is not None:
            self._cluster.leave_to(self._cluster_side)
        self._cluster = None


class Decorator(Protocol):
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...


class Scheduler(Protocol):
    @overload  # a task can be called, too; the first that fits is meant
    def __call__(  # type: ignore[overload-overlap]
        self, function: Task[P, R, V], /
    ) -> Task[P, R, V]: ...

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...


def _scheduled(name: str, body: bytes) -> Json:
    task: Json = msgspec.json.decode(body)
    for option in OWN:
        if option in task:
            raise ValueError(f"schedule {name}: its task must not say {option}: that is for the schedule")
    return task


apps: weakref.WeakSet[App] = weakref.WeakSet()
"""All there are."""


def _forked() -> None:
    for app in list(apps):
        app._forget()  # noqa: SLF001 - one module


os.register_at_fork(after_in_child=_forked)
