"""What pull workers say of their actions, on the master: whose each is, renewed in memory, the rest made entries.

A report names an action and its token and nothing else; the session is the action's own. What comes again is ok once more:
which task a token was for is remembered from the feed, on every node, and of times before that looked for in the table.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from quvatlh.core import commands as c
from quvatlh.core.events import Event
from quvatlh.core.limits import OUTPUT_TAIL_BYTES_MAX
from quvatlh.core.rejections import Rejection
from quvatlh.core.results import Reported
from quvatlh.core.rows import LiveRow, json_list
from quvatlh.core.scopes import matches_any, of_column
from quvatlh.ports import Clock, Entropy, Log, LogError, Refused, Role, Unavailable
from quvatlh.service import pulltimes, tails
from quvatlh.service.door import Door
from quvatlh.service.presence import Presence, is_pull
from quvatlh.service.pullasks import Heard, Report, Reports
from quvatlh.service.pulls import Pulls
from quvatlh.service.readers import Reading
from quvatlh.service.seat import serial_of
from quvatlh.service.state import State

BATCH_MAX: Final = 500
BATCH_BYTES_MAX: Final = 512 * 1024
PART_BYTES: Final = 200
KNOWN_MAX: Final = 100_000
"""Tokens of pull workers whose tasks are remembered here."""
SLICE: Final = 50_000
"""Tasks looked at in one read, where nothing is remembered: some ten milliseconds, off the loop."""
START_S: Final = 2.0
STALE: Final = "stale_token"
STOPPED: Final = "gone"
"""Somebody asked for its end, or its time is over: its lease is renewed no more."""


class _Part(NamedTuple):
    """A report's place in what was asked, and what becomes of it."""

    place: int
    session: str
    value: Any
    size: int = 0


class PullReports:
    """A Hearer."""

    def __init__(
        self,
        log: Log,
        door: Door,
        state: State,
        readers: Reading,
        presence: Presence,
        pulls: Pulls,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._log = log
        self._door = door
        self._state = state
        self._readers = readers
        self._presence = presence
        self._pulls = pulls
        self._clock = clock
        self._entropy = entropy
        self._tasks: dict[int, int] = {}
        """Token -> seq of its task, of pull workers' actions since `_floor`."""
        self._floor: int | None = None
        """Tokens up to this one may be unknown here; None: any."""
        self._looking = asyncio.Lock()
        self._beginning: set[asyncio.Task[None]] = set()
        self._begun: set[int] = set()

    async def take(self, ask: Reports) -> Heard:
        """A code for each, in order."""
        arrived = self._clock.boot()
        if not self._log.acts() or not self._state.is_open:
            raise Unavailable("this node is not master")
        rows = {row.token: row for row in self._pulls.live([each.token for each in ask.reports])}
        late = self._pulls.overran(list(rows.values()))
        codes = [self._judged(ask, each, rows.get(each.token), late, arrived) for each in ask.reports]
        if ask.verb == "renew":
            return Heard(self._log.applied_index, tuple(codes))
        parts = await self._parts(ask, rows, late, codes)
        index = await self._propose(ask, parts, codes)
        return Heard(index, tuple(codes))

    def _judged(
        self, ask: Reports, report: Report, row: LiveRow | None, late: Mapping[int, int], arrived: float
    ) -> str:
        """Empty: it may go on. A finish of what is not live any more may have come before."""
        if serial_of(report.action) != report.token or (row is not None and not is_pull(row.session)):
            return STALE
        if row is not None and not matches_any(row.queue, ask.queues):
            return STALE
        if ask.verb in {"finish", "fail"}:
            return ""
        if row is None:
            return STALE
        return STOPPED if row.token in late else self._renewed(row, arrived)

    def _renewed(self, row: LiveRow, arrived: float) -> str:
        if row.state == "stopping":
            return STOPPED
        if not self._presence.renew(row, arrived):
            return STALE
        if row.started_at is None and row.token not in self._begun:
            self._begin(row)
        return ""

    # --- starts ---

    def _begin(self, row: LiveRow) -> None:
        """Its first sign of life tells that it runs. Told again with the next one, if this is not taken."""
        self._begun.add(row.token)
        start = c.Start(row.session, (c.Started(row.token, row.awarded_at),))

        async def run() -> None:
            with contextlib.suppress(LogError):
                await self._door.propose(start, START_S)
            self._begun.discard(row.token)

        task = asyncio.get_running_loop().create_task(run())
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    # --- entries ---

    async def _parts(
        self, ask: Reports, rows: dict[int, LiveRow], late: Mapping[int, int], codes: list[str]
    ) -> list[_Part]:
        over = [
            each.token for each, code in zip(ask.reports, codes, strict=True) if not code and each.token not in rows
        ]
        tasks = self._in_queues(ask, await self._tasks_of(over)) if over else {}
        some_session = next((row.session for row in rows.values()), "pull")
        parts: list[_Part] = []
        for place, report in enumerate(ask.reports):
            row = rows.get(report.token)
            if codes[place]:
                continue
            if ask.verb == "progress":
                assert row is not None
                parts.append(_Part(place, row.session, c.ProgressReport(report.token, report.percent, report.text)))
            elif row is not None:
                began = row.started_at or row.awarded_at
                detail = self._detail(ask.verb, report, late.get(row.token))
                end = c.End(report.token, row.task, _how(ask.verb, row), began, detail)
                parts.append(_Part(place, row.session, end, _size(report)))
            elif report.token in tasks and not self._came_late(ask.verb, report.token, tasks[report.token]):
                parts.append(
                    _Part(place, some_session, c.End(report.token, tasks[report.token], int(ask.verb == "fail")))
                )
            else:
                codes[place] = STALE
        return parts

    def _came_late(self, verb: str, token: int, task: int) -> bool:
        """A success of what had timed out is none."""
        return verb == "finish" and pulltimes.has_timed_out(self._state.db, task, token)

    def _detail(self, verb: str, report: Report, late_ms: int | None) -> c.EndDetail | None:
        """`late_ms`: the timeout that it overran, which is why it fails."""
        tail = tails.of_text(report.output or "")
        if verb == "finish":
            is_plain = report.result is None and not tail
            return None if is_plain else c.EndDetail(result=report.result, output_tail=tail)
        if late_ms is not None:
            return pulltimes.detail(late_ms, int.from_bytes(self._entropy.token(4), "big"), tail)
        return c.EndDetail(
            error_code=report.error or "failed",
            error_text=report.text,
            exception=report.error,
            permanent=report.permanent,
            retry_after_ms=report.retry_after_ms,
            output_tail=tail,
            chance=int.from_bytes(self._entropy.token(4), "big"),
        )

    async def _propose(self, ask: Reports, parts: Sequence[_Part], codes: list[str]) -> int:
        """All in one turn of the loop, so mostly in one entry. Said again, it is ok again."""
        make = _progress if ask.verb == "progress" else _finish
        batches = list(_batches(parts))
        written = await asyncio.gather(
            *(self._door.propose(make(batch), ask.deadline_s) for batch in batches), return_exceptions=True
        )
        index = self._log.applied_index
        for batch, done in zip(batches, written, strict=True):
            if isinstance(done, BaseException):
                raise done
            if isinstance(done.answer, Rejection):
                raise Refused(done.answer.detail, done.answer.code)
            assert isinstance(done.answer, Reported)
            for n, code in done.answer.refused.items():
                codes[batch[n].place] = code
            index = max(index, done.index)
        return index

    # --- which task a token was for ---

    async def _tasks_of(self, tokens: Sequence[int]) -> dict[int, int]:
        found = {token: self._tasks[token] for token in tokens if token in self._tasks}
        floor = self._last_token() if self._floor is None else self._floor
        older = [token for token in tokens if token not in found and token <= floor]
        if older:
            async with self._looking:
                found |= await self._look_for(older)
        return found

    async def _look_for(self, tokens: Sequence[int]) -> dict[int, int]:
        """No index leads from a token to its task, so the table is walked, the youngest first: a report that comes again
        comes soon."""
        found: dict[int, int] = {}
        low, high = await self._readers.read(_span)
        while high >= low and len(found) < len(tokens):
            found.update(await self._readers.read(_finder(max(low, high - SLICE + 1), high, tokens)))
            high -= SLICE
        return found

    def _in_queues(self, ask: Reports, tasks: dict[int, int]) -> dict[int, int]:
        """Those that the token which reports may know of."""
        if "*" in ask.queues:
            return tasks
        where, values = of_column("queue", ask.queues)
        sql = f"SELECT seq FROM task WHERE seq IN (SELECT value FROM json_each(?)) AND {where}"  # noqa: S608 - text of our own
        seen = {row[0] for row in self._state.db.execute(sql, (json_list(sorted(tasks.values())), *values))}
        return {token: seq for token, seq in tasks.items() if seq in seen}

    def _last_token(self) -> int:
        row = self._state.db.execute("SELECT n FROM serial WHERE name = 'token'").fetchone()
        return 0 if row is None else int(row[0])

    # --- a Hearer ---

    def heard(self, _index: int, events: Sequence[Event]) -> None:
        claimed = [event for event in events if event.kind == "task.claimed"]
        if claimed and self._floor is None:
            self._floor = claimed[0].token - 1
        workers = {worker: self._presence.workers().get(worker) for worker in {event.worker for event in claimed}}
        pulls = {worker for worker, view in workers.items() if view is not None and view.facts.role == "pull"}
        if pulls:
            self._tasks.update({event.token: event.seq for event in claimed if event.worker in pulls})
        while len(self._tasks) > KNOWN_MAX:
            oldest = next(iter(self._tasks))
            del self._tasks[oldest]
            self._floor = max(self._floor or 0, oldest)

    def role_changed(self, _role: Role) -> None:
        pass

    def reset(self, _index: int) -> None:
        """What was missed is not known."""
        self._floor = None

    def stop(self) -> None:
        for task in self._beginning:
            task.cancel()


def _how(verb: str, row: LiveRow) -> int:
    """To give up what somebody wants ended is to stop."""
    return 0 if verb == "finish" else 2 if row.state == "stopping" else 1


def _size(report: Report) -> int:
    return len(report.result or b"") + len(report.text or "") + min(len(report.output or ""), OUTPUT_TAIL_BYTES_MAX)


def _finish(batch: Sequence[_Part]) -> c.AnyCommand:
    return c.Finish(batch[0].session, tuple(part.value for part in batch))


def _progress(batch: Sequence[_Part]) -> c.AnyCommand:
    return c.Progress(batch[0].session, tuple(part.value for part in batch))


def _batches(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Of one session each, and none too large for an entry."""
    sessions: dict[str, list[_Part]] = {}
    for part in parts:
        sessions.setdefault(part.session, []).append(part)
    for its in sessions.values():
        batch: list[_Part] = []
        size = 0
        for part in its:
            size += PART_BYTES + part.size
            if batch and (size > BATCH_BYTES_MAX or len(batch) >= BATCH_MAX):
                yield batch
                batch, size = [], PART_BYTES + part.size
            batch.append(part)
        yield batch


def _span(db: sqlite3.Connection) -> tuple[int, int]:
    low, high = db.execute("SELECT (SELECT min(seq) FROM task), (SELECT max(seq) FROM task)").fetchone()
    return low or 0, -1 if high is None else high


def _finder(low: int, high: int, tokens: Sequence[int]) -> Callable[[sqlite3.Connection], dict[int, int]]:
    sql = "SELECT token, seq FROM task WHERE seq BETWEEN ? AND ? AND token IN (SELECT value FROM json_each(?))"
    return lambda db: dict(db.execute(sql, (low, high, json_list(tokens))).fetchall())
