"""An app that a worker is told of (`run --app`): looked at as the worker starts and whenever its environment is loaded anew.

What a look finds is said to whoever watches, and the cluster's schedules are brought to it. An app that cannot be loaded stops
no node, since others may depend on that: it is said, and its tasks fail until it can. For development its files are watched,
and a change loads everything anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol

from quvatlh.api.schedules import NAME, SCHEDULE
from quvatlh.client import errors
from quvatlh.client.timetable import Changes, Table, bring
from quvatlh.config.environments import Environment
from quvatlh.observe import logs
from quvatlh.runner.settings import inherited
from quvatlh.runner.survey import Survey, survey
from quvatlh.service import pool
from quvatlh.service.pool import Call, Json, Principal
from quvatlh.service.timetable import Timetable

WATCH_S: Final = 0.3
"""Between two looks at the files. A stat each."""
AGAIN_S: Final = 1.0
"""After a cluster that took no writes."""

Note = Callable[..., None]


class Reloadable(Protocol):
    """Of the executor, what is needed here."""

    on_reloaded: Callable[[], None]

    async def reload(self, environment: str | None) -> Collection[str]: ...


class Told(NamedTuple):
    """Who hears what."""

    info: Note
    warning: Note
    error: Note


class Noes(NamedTuple):
    """What a table raises."""

    refused: tuple[type[Exception], ...]
    """By a schedule's own fault, or for want of rights."""
    later: tuple[type[Exception], ...]


@dataclass(frozen=True, slots=True)
class Look:
    """At what, and how."""

    app: str
    environment: Environment
    """That runs it."""
    watch: bool


class Hosting:
    def __init__(self, look: Look, executor: Reloadable, table: Table, noes: Noes, told: Told) -> None:
        self._app = look.app
        self._look = look
        self._executor = executor
        self._table = table
        self._noes = noes
        self._told = told
        executor.on_reloaded = self.again
        self._due = asyncio.Event()
        self._said: object = None

    def again(self) -> None:
        """It was loaded anew: it may be another."""
        self._due.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        known: Mapping[str, object] = {}
        while True:
            self._due.clear()
            before = _stamps(known)
            found = await survey(self._look.environment, inherited(os.environ), self._app)
            known = _stamps(found.files) | {path: before[path] for path in found.files if path in before}
            self._say(found)
            if not found.error:
                await self._bring(found.schedules)
            if self._look.watch:
                await self._changed(known)
            else:
                await self._due.wait()

    def _say(self, found: Survey) -> None:
        """Once, as long as it is the same."""
        said = found.error, found.tasks, found.apps, tuple(found.schedules)
        if said == self._said:
            return
        self._said = said
        if found.error:
            trace = f"\n{found.trace.rstrip()}" if found.trace else ""
            self._told.error(f"app {self._app} cannot be loaded: {found.error}{trace}")
        elif not found.apps:
            words = "has no App: its functions can be called by name, and that is all"
            self._told.warning(f"app {self._app} {words} (from quvatlh import App; app = App(); @app.task)")
        else:
            self._told.info(f"app {self._app} loaded", tasks=found.tasks, schedules=len(found.schedules))

    async def _bring(self, wanted: Mapping[str, Json]) -> None:
        """As soon as the cluster takes writes."""
        while not self._due.is_set():
            try:
                changes = await bring(self._table, self._app, wanted, self._noes.refused)
            except self._noes.later:
                await asyncio.sleep(AGAIN_S)
            except self._noes.refused as problem:
                self._told.warning(f"the schedules of app {self._app} cannot be put from here: {problem}")
                return
            else:
                self._tell(changes)
                return

    def _tell(self, changes: Changes) -> None:
        if changes.put or changes.gone:
            self._told.info(f"schedules of app {self._app} put", put=list(changes.put), gone=list(changes.gone))
        for name, why in changes.refused.items():
            self._told.error(f"schedule {name} is refused: {why}")

    async def _changed(self, before: Mapping[str, object]) -> None:
        """Until a file is another than it was, and everything is loaded anew; or somebody has had it loaded."""
        while not self._due.is_set() and _stamps(before) == before:  # noqa: ASYNC110 - files tell nobody
            await asyncio.sleep(WATCH_S)
        if not self._due.is_set():
            self._told.info(f"app {self._app} changed: it is loaded anew")
            with contextlib.suppress(OSError):  # there is no executor now: the next one loads it anyway
                await self._executor.reload(self._look.environment.name)


@contextlib.asynccontextmanager
async def hosted(
    look: Look, executor: Reloadable, table: Table, noes: Noes, on_fatal: Callable[[BaseException], None]
) -> AsyncIterator[None]:
    """As long as it is entered. `on_fatal`: a bug ended it."""

    def ended(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            on_fatal(error)

    told = Told(*(logs.noter("quvatlh.app", level) for level in ("info", "warning", "error")))
    running = asyncio.create_task(Hosting(look, executor, table, noes, told).run(), name="app")
    running.add_done_callback(ended)
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


class NodeTable:
    """A node's own: client.timetable.Table by what its door may ask."""

    def __init__(self, pool: Timetable) -> None:
        self._pool = pool
        self._call = Call(Principal("app", "admin"))

    async def schedules(self) -> Sequence[Json]:
        found = await self._pool.schedules(replace(self._call, consistent=True))
        return [
            {"name": each["name"], "version": each["version"], "paused": each["spec"].get("paused")} for each in found
        ]

    async def put_schedule(self, name: str, schedule: Mapping[str, Any], /) -> Json:
        NAME.check(name)
        return await self._pool.put_schedule(self._call, name, SCHEDULE.check({**schedule}))

    async def delete_schedule(self, name: str, /) -> None:
        await self._pool.delete_schedule(self._call, name)


NODES_NOES: Final = Noes((pool.Rejected, ValueError), (pool.Unavailable, pool.Unknown))
CLIENTS_NOES: Final = Noes((errors.Rejected,), (errors.Unavailable, errors.Unknown))


def _stamps(files: Collection[str]) -> dict[str, object]:
    """What tells a file from what it was; None of one that is not there."""
    return {path: _stamp(path) for path in files}


def _stamp(path: str) -> Sequence[int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
