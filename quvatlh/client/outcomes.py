"""What becomes of tasks, as they finish: an iterator for threads and for coroutines, over what a side tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

from quvatlh.client.handles import FormOf, Side, is_elsewhere, read, value_of, whole

if TYPE_CHECKING:
    from quvatlh.client.taskoptions import Json

R_co = TypeVar("R_co", covariant=True)
MATCHED: Final = ("queue", "group", "name", "key")
"""By what one may ask for tasks that have not been named."""


@dataclass(frozen=True, slots=True)
class Wanted:
    ids: Sequence[str] | None
    """None: whatever matches."""
    since: str | None
    match: Mapping[str, str]


class Finished(NamedTuple):
    task: Json
    place: str
    """In the cluster's stream: one may go on after it."""


class Flow(NamedTuple):
    following: Callable[[], Future[Finished]]
    """StopAsyncIteration at the end."""
    close: Callable[[], Future[None]]


class Source(Side, Protocol):
    def outcomes(self, wanted: Wanted) -> Flow: ...


class Outcome(Generic[R_co]):
    """One task that has finished."""

    __slots__ = ("_form_of", "_side", "place", "task")

    def __init__(self, side: Side, form_of: FormOf, finished: Finished) -> None:
        self._side = side
        self._form_of = form_of
        self.task = finished.task
        """As the node tells it."""
        self.place = finished.place
        """`app.results(since=place, …)` goes on after it."""

    def __repr__(self) -> str:
        return f"<quvatlh.Outcome {self.id} {self.state}>"

    @property
    def id(self) -> str:
        return cast("str", self.task["id"])

    @property
    def state(self) -> str:
        """`succeeded`, `failed` or `deleted`"""
        return cast("str", self.task["state"])

    def result(self) -> R_co:
        """As Handle.result."""
        value = value_of(self.task)
        return cast("R_co", self._read(whole(self._side, self.task).result() if is_elsewhere(value) else value))

    async def aresult(self) -> R_co:
        value = value_of(self.task)
        if is_elsewhere(value):
            value = await asyncio.wrap_future(whole(self._side, self.task))
        return cast("R_co", self._read(value))

    def _read(self, value: object) -> Any:
        return read(self._form_of, self.task, value)


class Outcomes(Generic[R_co]):
    """To be iterated once."""

    def __init__(
        self, side: Source, form_of: FormOf, ids: Sequence[str] | None, since: str | None, match: Mapping[str, str]
    ) -> None:
        unknown = match.keys() - set(MATCHED)
        if unknown:
            raise TypeError(f"results(): there is no {min(unknown)}; there are {', '.join(MATCHED)}")
        if ids is not None and match:
            raise TypeError("results(): either tasks, or what they match")
        self._side = side
        self._form_of = form_of
        self._flow = side.outcomes(Wanted(ids, since, match))

    def __iter__(self) -> Iterator[Outcome[R_co]]:
        try:
            while True:
                try:
                    found = self._flow.following().result()
                except StopAsyncIteration:
                    return
                yield Outcome(self._side, self._form_of, found)
        finally:
            self._flow.close()

    async def __aiter__(self) -> AsyncIterator[Outcome[R_co]]:
        try:
            while True:
                try:
                    found = await asyncio.wrap_future(self._flow.following())
                except StopAsyncIteration:
                    return
                yield Outcome(self._side, self._form_of, found)
        finally:
            self._flow.close()
