"""What a worker has to say of its actions, on its way into the log: batched, kept until applied, said once.

Starts wait a moment for company, and for what the action announces; one that has ended meanwhile goes with its finish.
There is one batch under way at a time: what comes meanwhile is the next one, so the busier, the larger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from quvatlh.core import commands as c
from quvatlh.ports import ActionFinished, Entropy, LogError
from quvatlh.service import tails
from quvatlh.service.door import Refusal
from quvatlh.service.records import signal_number
from quvatlh.service.seat import Report, Seat

START_S: Final = 0.1
"""A start is told at most so long after it."""
BATCH_MAX: Final = 500
BATCH_BYTES_MAX: Final = 512 * 1024
END_BYTES: Final = 200
DEADLINE_S: Final = 5.0
TEXT_CHARS_MAX: Final = 1000


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
            ends = self._next_ends()
            await self._settle(c.Finish(session, ends), self._ends, [end.token for end in ends])
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

    async def _send_starts(self, session: str) -> None:
        told = list(self._starts.items())[:BATCH_MAX]
        tables = {token: self._tables[token] for token, _ in told if token in self._tables}
        command = c.Start(session, tuple(c.Started(*each, tables.get(each[0])) for each in told))
        if await self._clear(command, self._starts, [token for token, _ in told]):
            for token in tables:
                self._tables.pop(token, None)

    async def _settle(self, command: Report, waiting: dict[int, Any], tokens: Sequence[int]) -> None:
        if await self._clear(command, waiting, tokens):
            self.on_settled(tokens)

    async def _clear(self, command: Report, waiting: dict[int, Any], tokens: Sequence[int]) -> bool:
        """Said and answered, it need not be said again."""
        done = await self._say(command)
        for token in tokens if done else ():
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

    def _next_ends(self) -> tuple[c.End, ...]:
        ends: list[c.End] = []
        size = 0
        for end in self._ends.values():
            size += END_BYTES + (0 if end.detail is None else _bytes(end.detail))
            if ends and (size > BATCH_BYTES_MAX or len(ends) >= BATCH_MAX):
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
        tail = tails.pack(event)
        if event.error is None and not tail and event.result is None:
            return None
        error = event.error
        after_s = None if error is None else error.retry_after_s
        return c.EndDetail(
            exit_code=event.exit_code,
            signal=None if event.signal is None else signal_number(event.signal),
            error_code=None if error is None else error.code,
            error_text=None if error is None else error.text[:TEXT_CHARS_MAX],
            exception=None if error is None else error.exception or None,
            permanent=error is not None and error.permanent,
            retry_after_ms=None if after_s is None else round(after_s * 1000),
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
