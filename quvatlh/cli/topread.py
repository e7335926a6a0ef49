"""What `quvatlh top` asks the node: one stream that tells what changed, and the readings that this touches.

A reading is made again when its topics changed or it is old, not more often than a few times a second, and for no more
than a small share of the time. A node that is gone is asked once a second; when it answers, all is read anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from quvatlh.cli.topkeys import State, queues_sort, tasks_query
from quvatlh.client import Client, Problem, Rejected

TICK_S: Final = 0.25
SUMMED: Final = "250ms"
GONE_S: Final = 1.0
SHARE: Final = 20
"""A reading that took a second is made again after twenty."""
SLOWEST_S: Final = 20.0
LIST_MAX: Final = 200
FINISHED: Final = frozenset({"succeeded", "failed", "deleted"})

Json = Any
Ask = Callable[[Client, State], Awaitable[Json]]


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    ask: Ask
    views: frozenset[str]
    topics: frozenset[str]
    slow_s: float = 1.0
    every_s: float = 5.0


@dataclass(slots=True)
class Seen:
    """The last answers, and how it stands with the node."""

    answers: dict[str, Json] = field(default_factory=dict)
    heard_ms: int = 0
    gone_ms: int | None = None
    """Since when nobody answers."""
    gone: str = ""
    """In words."""
    refused: str = ""
    """What the node has against the question."""

    def get(self, name: str) -> Json:
        return self.answers.get(name)


async def _opened(client: Client, state: State) -> Json:
    assert state.opened is not None
    kind, name = state.opened
    if kind == "queue":
        settings, page = await asyncio.gather(client.queue(name), client.tasks(queue=name, limit=20))
        return {"queue": settings, "tasks": page["items"]}
    task = await client.task(name)
    waits = task["state"] not in FINISHED and task["state"] != "running"
    return {"task": task, "explain": await client.explain(name) if waits else None}


async def _listed(client: Client, state: State) -> Json:
    return await client.queues(sort=queues_sort(state), limit=LIST_MAX)


async def _history(client: Client, _: State) -> Json | None:
    """Of the whole cluster, and so not for a token of a part of it: that one sees no charts."""
    try:
        return await client.history()
    except Rejected as problem:
        if problem.code != "forbidden":
            raise
        return None


def _source(name: str, ask: Ask, views: str, topics: str, **times: float) -> Source:
    return Source(name, ask, frozenset(views.split()), frozenset(topics.split()), **times)


SOURCES: Final = (
    _source(
        "cluster",
        lambda client, _: client.cluster(),
        "overview queues tasks workers opened",
        "master worker",
        every_s=3.0,
    ),
    _source("history", _history, "overview workers", "task", slow_s=2.0),
    _source("states", lambda client, _: client.tasks(group_by="state"), "overview", "task"),
    _source("queues", lambda client, _: client.queues(sort="-pending", limit=LIST_MAX), "overview", "task queue"),
    _source("listed", _listed, "queues", "task queue"),
    _source("workers", lambda client, _: client.workers(), "overview workers", "task worker master"),
    _source(
        "failures",
        lambda client, _: client.tasks(state="failed", sort="-finished_at", limit=20),
        "overview",
        "task",
    ),
    _source(
        "tasks", lambda client, state: client.tasks(**tasks_query(state), limit=LIST_MAX), "tasks", "task", slow_s=0.5
    ),
    _source("opened", _opened, "opened", "task queue worker", slow_s=0.5, every_s=2.0),
)
OF_QUESTION: Final = frozenset({"tasks", "listed", "opened"})
"""Their answers hang on what the person chose."""


def of_view(state: State) -> list[Source]:
    view = "opened" if state.opened is not None else state.view
    return [source for source in SOURCES if view in source.views]


@dataclass(slots=True)
class _Age:
    dirty: bool = True
    read_s: float = -1e9
    took_s: float = 0.0


class Reader:
    def __init__(
        self,
        client: Client,
        state: Callable[[], State],
        wall_ms: Callable[[], int],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.seen = Seen()
        self._client = client
        self._state = state
        self._wall_ms = wall_ms
        self._on_change = on_change
        self._ages = {source.name: _Age() for source in SOURCES}
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._read_on())

    async def once(self) -> None:
        """All that the view shows; Problem where the node has something against it."""
        state = self._state()
        sources = of_view(state)
        answers = await asyncio.gather(*(source.ask(self._client, state) for source in sources))
        self.seen.answers = dict(zip((source.name for source in sources), answers, strict=True))
        self.seen.heard_ms = self._wall_ms()

    def asked(self) -> None:
        """The person wants to see something else."""
        for name in OF_QUESTION:
            self.seen.answers.pop(name, None)
            self._ages[name] = _Age()
        self.seen.refused = ""
        self._woken.set()

    def resumed(self) -> None:
        self._touch_all()
        self._woken.set()

    async def _follow(self) -> None:
        while True:
            try:
                async for event in self._client.events(every=SUMMED):
                    self._touch(event.data)
            except Problem as problem:
                if not isinstance(problem, Rejected):
                    self._lose(problem)
            self._touch_all()
            await asyncio.sleep(GONE_S)

    def _touch(self, changes: Mapping[str, Any]) -> None:
        topics = set(changes.get("topics", ()))
        for source in SOURCES:
            if changes.get("whole") or topics & source.topics:
                self._ages[source.name].dirty = True

    def _touch_all(self) -> None:
        for age in self._ages.values():
            age.dirty = True

    async def _read_on(self) -> None:
        while True:
            state = self._state()
            await asyncio.gather(*(self._read(source, state) for source in self._due(state)))
            try:
                async with asyncio.timeout(GONE_S if self.seen.gone_ms else TICK_S):
                    await self._woken.wait()
            except TimeoutError:
                continue
            self._woken.clear()

    def _due(self, state: State) -> list[Source]:
        now_s = asyncio.get_running_loop().time()
        sources = of_view(state)
        if self.seen.gone_ms is not None:
            return [source for source in sources if source.name == "cluster" and not state.paused]
        if state.paused:  # what has been seen stays as it is
            return [each for each in sources if each.name not in self.seen.answers and self._is_due(each, now_s)]
        return [source for source in sources if self._is_due(source, now_s)]

    def _is_due(self, source: Source, now_s: float) -> bool:
        age = self._ages[source.name]
        rest_s = min(max(source.slow_s, age.took_s * SHARE), SLOWEST_S)
        return now_s - age.read_s >= (rest_s if age.dirty else max(rest_s, source.every_s))

    async def _read(self, source: Source, state: State) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        age = self._ages[source.name]
        age.dirty = False
        try:
            answer = await source.ask(self._client, state)
        except Rejected as problem:
            if state.question == self._state().question:
                self.seen.refused = problem.detail
        except Problem as problem:
            age.dirty = True
            self._lose(problem)
            return
        else:
            if source.name not in OF_QUESTION or state.question == self._state().question:
                self.seen.answers[source.name] = answer
            if source.name in OF_QUESTION:
                self.seen.refused = ""
            self._heard()
        age.read_s = loop.time()
        age.took_s = age.read_s - began_s
        self._on_change()

    def _heard(self) -> None:
        self.seen.heard_ms = self._wall_ms()
        if self.seen.gone_ms is not None:
            self.seen.gone_ms, self.seen.gone = None, ""
            self._touch_all()

    def _lose(self, problem: Problem) -> None:
        if self.seen.gone_ms is None:
            self.seen.gone_ms = self._wall_ms()
        self.seen.gone = problem.detail
        self._on_change()
