"""Requests as actions: what an `http` work asks for, sent by the daemon itself, through ports.Sender.

There is no process: an errand dies with its daemon, and the cluster gives its task to somebody else. While it is under way it
is held to its lease as everything is: out of touch for longer, it is broken off. What has been sent by then has been sent;
who receives tells a second time from the first by the delivery's id, or by what the request itself says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final

from quvatlh.ports import (
    ActionFinished,
    ActionStarted,
    Clock,
    Incoming,
    Outgoing,
    RunError,
    RunFault,
    RunnerListener,
    Sender,
    SendFault,
)
from quvatlh.service import webrequests
from quvatlh.service.webrequests import AS_END, WebRequest

TIMEOUT_S: Final = 30.0
"""Of one without a timeout of its own."""
AT_ONCE: Final = 64
"""Under way; others wait, claimed."""
TAIL_BYTES_MAX: Final = 4000
"""Of an answer, what travels with the end. A longer one is a file of the worker, and so is one that is no text."""
RETRY_AFTER_S_MAX: Final = 24 * 3600


@dataclass(frozen=True, slots=True)
class Errand:
    """One action of an http work."""

    action_id: str
    task_id: str
    request: Mapping[str, Any]
    payload: bytes | None
    payload_json: bool
    timeout_s: float | None
    lease_s: float


class Courier:
    """Of one worker. What it begins is live until its end is told."""

    def __init__(self, sender: Sender, clock: Clock, keep: Callable[[str, bytes], Awaitable[None]]) -> None:
        self._sender = sender
        self._keep = keep
        """ports.Executor's: an answer as a file."""
        self._clock = clock
        self._listener: RunnerListener | None = None
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._stopped: set[str] = set()
        self._room = asyncio.Semaphore(AT_ONCE)
        self._renewed_s = 0.0
        """The boot time from which leases count."""

    def listen(self, listener: RunnerListener) -> None:
        self._listener = listener

    def live(self) -> Collection[str]:
        return tuple(self._under_way)

    def renew(self, sent_s: float) -> None:
        self._renewed_s = max(self._renewed_s, sent_s)

    def start(self, errand: Errand) -> None:
        """ValueError for what is no request: it can never be carried out."""
        request = webrequests.asked(errand.request)
        run = asyncio.get_running_loop().create_task(self._run(errand, request), name=f"errand {errand.action_id}")
        self._under_way[errand.action_id] = run
        run.add_done_callback(lambda done: self._over(errand, done))

    def stop(self, action_id: str) -> None:
        """At once: nobody can be asked to come to an end. Of others it knows nothing."""
        run = self._under_way.get(action_id)
        if run is not None:
            self._stopped.add(action_id)
            run.cancel()

    async def drop(self) -> None:
        """All of them, and nobody is told."""
        dropped = list(self._under_way.values())
        self._under_way.clear()
        for run in dropped:
            run.cancel()
        await asyncio.gather(*dropped, return_exceptions=True)

    # --- one errand ---

    async def _run(self, errand: Errand, request: WebRequest) -> None:
        began_ms: int | None = None
        answer: Incoming | None = None
        error: RunError | None
        try:
            async with self._room:
                began_ms = self._clock.wall_ms()
                self._tell_started(errand, began_ms)
                answer, error = await self._send(errand, request)
                if answer is not None and not _is_short(answer.body):
                    await self._keep(errand.action_id, answer.body)
        except asyncio.CancelledError:
            if errand.action_id not in self._stopped:
                raise
            error = RunError("stopped", "it was stopped")
        self._tell_finished(errand, began_ms, answer, error)

    def _over(self, errand: Errand, run: asyncio.Task[None]) -> None:
        """Its end is told in any case: also of one that was stopped before its first step, or that broke."""
        if self._under_way.get(errand.action_id) is not run:
            return
        if not run.cancelled():
            self._tell_finished(errand, None, None, RunError("resources", f"it broke: {run.exception()!r}"))
        elif errand.action_id in self._stopped:
            self._tell_finished(errand, None, None, RunError("stopped", "it was stopped"))

    async def _send(self, errand: Errand, request: WebRequest) -> tuple[Incoming | None, RunError | None]:
        """Until its lease is over."""
        sending = asyncio.ensure_future(self._sender.send(_outgoing(errand, request)))
        try:
            while not sending.done():
                left_s = self._renewed_s + errand.lease_s - self._clock.boot()
                if left_s <= 0:
                    return None, RunError("lease", "its worker was out of touch for longer than its lease")
                await asyncio.wait({sending}, timeout=left_s)
            answer = sending.result()
        except SendFault as fault:
            return None, RunError(_FAULTS[fault.code], fault.text, final=fault.code == "too_large")
        except ValueError as error:
            return None, RunError("unrunnable", str(error))
        finally:
            sending.cancel()
        return answer, webrequests.judged(request, answer)

    def _tell_started(self, errand: Errand, began_ms: int) -> None:
        if self._listener is not None and errand.action_id in self._under_way:
            self._listener.started(ActionStarted(errand.action_id, 0, began_ms))

    def _tell_finished(
        self, errand: Errand, began_ms: int | None, answer: Incoming | None, error: RunError | None
    ) -> None:
        self._stopped.discard(errand.action_id)
        if self._under_way.pop(errand.action_id, None) is None or self._listener is None:
            return
        tail = b"" if answer is None else answer.body[-TAIL_BYTES_MAX:]
        finished = ActionFinished(
            action_id=errand.action_id,
            exit_code=None,
            signal=None,
            error=error,
            stdout_tail=tail.decode(errors="replace"),
            stderr_tail="",
            stdout_bytes=0 if answer is None else answer.body_bytes,
            stderr_bytes=0,
            started_at_ms=began_ms,
            finished_at_ms=self._clock.wall_ms(),
            result=None if answer is None or error is not None else b'{"status":%d}' % answer.status,
            status=None if answer is None else answer.status,
            no_sooner_ms=None if answer is None or error is None else self._no_sooner_ms(answer),
        )
        self._listener.finished(finished)

    def _no_sooner_ms(self, answer: Incoming) -> int | None:
        """What the receiver asks for: seconds, or a date by its own clock."""
        given = answer.headers.get("retry-after", "").strip()
        if not given:
            return None
        if given.isascii() and given.isdigit():
            seconds = float(given[:9])
        else:
            try:
                seconds = parsedate_to_datetime(given).timestamp() - self._receivers_time_s(answer)
            except (ValueError, TypeError, OverflowError):
                return None
        return round(min(max(seconds, 0.0), RETRY_AFTER_S_MAX) * 1000)

    def _receivers_time_s(self, answer: Incoming) -> float:
        try:
            return parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
        except (ValueError, TypeError, OverflowError):
            return self._clock.wall_ms() / 1000


_FAULTS: Final[Mapping[str, RunFault]] = {
    "timeout": "timeout",
    "unreachable": "unreachable",
    "forbidden": "unrunnable",
    "too_large": "status",
}


def _is_short(body: bytes) -> bool:
    """The end says every byte of it."""
    return len(body) <= TAIL_BYTES_MAX and body.decode(errors="replace").encode() == body


def _outgoing(errand: Errand, asked: WebRequest) -> Outgoing:
    body = (errand.payload or b"") if asked.body is None else asked.body.encode()
    method = asked.method or ("POST" if body else "GET")
    delivery = errand.task_id if asked.sign else None
    timeout_s = errand.timeout_s or TIMEOUT_S
    is_end = asked.sign == AS_END
    headers = asked.headers
    is_json = asked.body is None and errand.payload is not None and errand.payload_json
    if is_json and not any(name.lower() == "content-type" for name in headers):
        headers = {**headers, "content-type": "application/json"}
    return Outgoing(method.upper(), asked.url, headers, body, timeout_s, delivery, asked.max_bytes, is_end)
