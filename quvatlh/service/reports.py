"""What a worker has to say of its actions, on its way into the log: batched, kept until applied, said once.

Starts wait a moment for company, and for what the action announces; one that has ended meanwhile goes with its finish.
There is one batch under way at a time: what comes meanwhile is the next one, so the busier, the larger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from quvatlh.core import commands as c
from quvatlh.core.rows import json_text
from quvatlh.ports import ActionFinished, Entropy, LogError
from quvatlh.service import tails
from quvatlh.service.door import Refusal
from quvatlh.service.records import signal_number
from quvatlh.service.seat import Report, Seat

START_S: Final = 0.1
"""A start is told at most so long after it."""
BATCH_MAX: Final = 1000
BATCH_BYTES_MAX: Final = 512 * 1024
START_BYTES: Final = 30
END_BYTES: Final = 200
DEADLINE_S: Final = 5.0
TEXT_CHARS_MAX: Final = 1000
UNSAYABLE: Final = frozenset({"bad_request", "too_large"})
"""What is refused so is not said again as it is."""


class Reports:
    def __init__(self, seat: Seat, entropy: Entropy, session: Callable[[], str | None]) -> None:
        self.deadline_s = DEADLINE_S
        """Of one attempt; what was not taken is said again."""
        self.on_settled: Callable[[Sequence[int]], None] = lambda _tokens: None
        """Ends and gifts that are applied, or refused for good."""
        self._seat = seat
        self._entropy = entropy
        self._session = session
        self._starts: dict[int, int] = {}
        self._tables: dict[int, dict[str, Any]] = {}
        """What was announced; it goes with the start, or after it."""
        self._words: dict[int, tuple[int | None, str]] = {}
        """Progress: percent and text, the last said."""
        self._ends: dict[int, c.End] = {}
        self._alone = 0
        """So many ends are said one by one: together they were refused."""
        self._gifts: dict[int, None] = {}
        self._of_self: c.PatchWorker | None = None
        self._more = asyncio.Event()
        self._starts_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._flushed = asyncio.Event()
        self._flushed.set()

    # --- from the worker ---

    def knows(self, token: int) -> bool:
        """Whether its end is on its way."""
        return token in self._ends or token in self._gifts

    def started(self, token: int, started_ms: int) -> None:
        self._starts[token] = started_ms
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(START_S, self._tell_starts)

    def announced(self, token: int, table: dict[str, Any]) -> None:
        """Of an action that has not ended."""
        self._tables[token] = table
        if token not in self._starts:
            self._more.set()

    def said(self, token: int, text: str, percent: int | None = None) -> None:
        """A word on an action that goes on."""
        self._words[token] = percent, text[:TEXT_CHARS_MAX]
        self._more.set()

    def of_self(self, patch: c.PatchWorker) -> None:
        """What the worker says of itself: the last word counts."""
        self._of_self = patch
        self._more.set()

    def finished(self, token: int, task: int, event: ActionFinished, *, stopped: bool) -> None:
        self.ended(c.End(token, task, _how(event, stopped=stopped), event.started_at_ms or 0, self._detail(event)))

    def ended(self, end: c.End) -> None:
        self.forget(end.token)
        self._ends[end.token] = end
        self._push()

    def give_back(self, token: int) -> None:
        self.forget(token)
        self._gifts[token] = None
        self._push()

    def forget(self, token: int) -> None:
        for waiting in (self._starts, self._tables, self._words):
            if waiting:
                waiting.pop(token, None)

    def clear(self) -> None:
        """The session is over: nobody wants to hear it any more."""
        for waiting in (self._starts, self._tables, self._words, self._ends, self._gifts):
            waiting.clear()
        self._flushed.set()

    async def flush(self, at_most_s: float) -> None:
        try:
            async with asyncio.timeout(at_most_s):
                await self._flushed.wait()
        except TimeoutError:
            pass

    # --- the loop ---

    async def run(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            while await self._send_some():
                pass
            if not self._ends and not self._gifts:
                self._flushed.set()

    def look_again(self) -> None:
        """There is a session to speak for."""
        self._more.set()

    async def _send_some(self) -> bool:
        """One batch, of what is most wanted; whether there was any."""
        session = self._session()
        if session is None:
            return False
        if self._ends:
            await self._send_ends(session)
        elif self._gifts:
            tokens = list(self._gifts)[:BATCH_MAX]
            await self._settle(c.GiveBack(session, tuple(tokens)), self._gifts, tokens)
        elif self._starts_due and self._starts:
            await self._send_starts(session)
        elif self._tables.keys() - self._starts.keys():
            token = next(token for token in self._tables if token not in self._starts)
            if await self._say(c.Announce(session, token, self._tables[token])):
                self._tables.pop(token, None)
        elif self._words:
            words = list(self._words.items())[:BATCH_MAX]
            command = c.Progress(session, tuple(c.ProgressReport(token, *word) for token, word in words))
            await self._clear(command, self._words, [token for token, _ in words])
        elif self._of_self is not None:
            patch = self._of_self
            if await self._say(patch) and self._of_self is patch:
                self._of_self = None
        else:
            self._starts_due = False
            return False
        return True

    async def _send_ends(self, session: str) -> None:
        """An end that the log does not take must not be taken for told: its action would be live for ever."""
        ends = self._next_ends()
        try:
            await self._seat.report(c.Finish(session, ends), self.deadline_s)
        except Refusal:
            self._refused(ends)
        except LogError as error:
            if error.code in UNSAYABLE:
                self._refused(ends)
            else:
                await asyncio.sleep(START_S)
        else:
            self._ended(ends)

    def _refused(self, ends: Sequence[c.End]) -> None:
        """Each is said alone; one that is refused alone, without its details."""
        if len(ends) > 1:
            self._alone = len(ends)
            return
        (end,) = ends
        bare = _bare(end)
        if end == bare:
            self._ended(ends)
        else:
            self._ends[end.token] = bare

    def _ended(self, ends: Sequence[c.End]) -> None:
        self._alone = max(0, self._alone - len(ends))
        tokens = [end.token for end in ends]
        for token in tokens:
            self._ends.pop(token, None)
        self.on_settled(tokens)

    async def _send_starts(self, session: str) -> None:
        starts = self._next_starts()
        if await self._clear(c.Start(session, starts), self._starts, [each.token for each in starts]):
            for each in starts:
                if each.announcement is not None:
                    self._tables.pop(each.token, None)

    async def _settle(self, command: Report, waiting: dict[int, Any], tokens: Sequence[int]) -> None:
        if await self._clear(command, waiting, tokens):
            self.on_settled(tokens)

    async def _clear(self, command: Report, waiting: dict[int, Any], tokens: Sequence[int]) -> bool:
        """Said and answered, it need not be said again, unless there is a newer word by then."""
        said = {token: waiting.get(token) for token in tokens}
        done = await self._say(command)
        for token, word in said.items() if done else ():
            if waiting.get(token) is word:
                waiting.pop(token, None)
        return done

    async def _say(self, command: Report) -> bool:
        """Whether it was taken or refused for good; else it is said again."""
        try:
            await self._seat.report(command, self.deadline_s)
        except Refusal:
            return True
        except LogError:
            await asyncio.sleep(START_S)
            return False
        return True

    def _next_starts(self) -> tuple[c.Started, ...]:
        starts: list[c.Started] = []
        size = 0
        for token, started_ms in self._starts.items():
            table = self._tables.get(token)
            size += START_BYTES + (0 if table is None else len(json_text(table) or ""))
            if starts and (size > BATCH_BYTES_MAX or len(starts) >= BATCH_MAX):
                break
            starts.append(c.Started(token, started_ms, table))
        return tuple(starts)

    def _next_ends(self) -> tuple[c.End, ...]:
        ends: list[c.End] = []
        size = 0
        for end in self._ends.values():
            size += END_BYTES + (0 if end.detail is None else _bytes(end.detail))
            if ends and (size > BATCH_BYTES_MAX or len(ends) >= (1 if self._alone else BATCH_MAX)):
                break
            ends.append(end)
        return tuple(ends)

    def _push(self) -> None:
        self._flushed.clear()
        self._more.set()

    def _tell_starts(self) -> None:
        self._timer = None
        if self._starts:
            self._starts_due = True
            self._more.set()

    def _detail(self, event: ActionFinished) -> c.EndDetail | None:
        """Nothing of a plain success: nearly all there is."""
        error = event.error
        if error is None and event.result is None and not event.stdout_bytes and not event.stderr_bytes:
            return None
        tail = tails.pack(event)
        after_s = None if error is None else error.retry_after_s
        return c.EndDetail(
            exit_code=event.exit_code,
            signal=None if event.signal is None else signal_number(event.signal),
            error_code=None if error is None else error.code,
            error_text=None if error is None else error.text[:TEXT_CHARS_MAX],
            status=event.status,
            exception=None if error is None else error.exception or None,
            permanent=error is not None and error.permanent,
            retry_after_ms=None if after_s is None else round(after_s * 1000),
            no_sooner_ms=event.no_sooner_ms,
            result=event.result,
            output_tail=tail,
            chance=int.from_bytes(self._entropy.token(4), "big"),
        )


def _bytes(detail: c.EndDetail) -> int:
    return len(detail.output_tail) + len(detail.result or b"") + TEXT_CHARS_MAX


def _how(event: ActionFinished, *, stopped: bool) -> int:
    if event.error is None:
        return 0
    return 2 if stopped or event.error.code in {"stopped", "lease"} else 1


def _bare(end: c.End) -> c.End:
    text = "the log did not take what its worker had to say of this end"
    return c.End(end.token, end.task, end.how, 0, c.EndDetail(error_text=text) if end.how else None)
