"""What a worker that is connected to a node and that node say to each other: frames, and a link that carries both ways.

A frame asks (`Call`), answers, or tells. What is asked and told, and in which form, stands in the two tables below: they are
the seat's methods and the occupant's, by name. Frames are of a bounded size, what waits to be sent too; a link whose other
end does not take it ends, and what was missed is told anew on the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from msgspec import Struct

from quvatlh.core.model import Name
from quvatlh.core.rejections import Rejection
from quvatlh.ports import LogError, Refused, Unavailable, Unknown
from quvatlh.service import asks, seat
from quvatlh.service.door import Refusal

FRAME_BYTES_MAX: Final = 8 * 1024 * 1024
CLAIMS_BYTES: Final = 2 * 1024 * 1024
"""Payloads in one frame of claims, a last one of at most 1 MiB beside."""
OUT_BYTES_MAX: Final = 64 * 1024 * 1024
OUT_FRAMES_MAX: Final = 10_000
CALLS_MAX: Final = 64
"""Carried out at once for the other end; what is asked beyond waits in its socket."""


class Line(Protocol):
    """A WebSocket, whichever end of it."""

    async def send(self, frame: bytes) -> None:
        """OSError when it is over."""
        ...

    async def receive(self) -> bytes | None:
        """None when it is over."""
        ...

    async def close(self) -> None: ...


class Hello(Struct, frozen=True, array_like=True, tag="hello"):
    """The first frame, of the worker."""

    worker: Name


class Welcome(Struct, frozen=True, array_like=True, tag="welcome"):
    """The node's answer; said again when the cluster has other nodes."""

    node: str
    servers: tuple[str, ...]
    """host:port of the HTTP side of every node."""


class Call(Struct, frozen=True, array_like=True, tag="call"):
    n: int
    kind: str
    body: bytes


class Answer(Struct, frozen=True, array_like=True, tag="answer"):
    n: int
    body: bytes


class Failed(Struct, frozen=True, array_like=True, tag="failed"):
    n: int
    no: asks.No


class Tell(Struct, frozen=True, array_like=True, tag="tell"):
    kind: str
    body: bytes


FRAME: Final = asks.Form(Hello | Welcome | Call | Answer | Failed | Tell)

_NOTHING: Final = asks.Form(None)
_TOKENS: Final = asks.Form(tuple[int, ...])
CALLS: Final[Mapping[str, tuple[asks.Form, asks.Form]]] = {
    "open": (asks.Form(asks.Open), asks.Form(int)),
    "beat": (asks.BEAT, asks.BEAT_ANSWER),
    "follow": (asks.Form(str), _NOTHING),
    "report": (asks.Form(seat.Report), _NOTHING),
    "offer": (asks.OFFERS, _NOTHING),
    "look": (_NOTHING, asks.Form(seat.Look)),
    "listed": (asks.Form(seat.Listed), _TOKENS),
    # And what the node asks the worker.
    "output": (asks.OUTPUT_ASK, asks.OUTPUT_ANSWER),
    "result": (asks.RESULT_ASK, asks.RESULT_ANSWER),
    "judge": (asks.JUDGE_ASK, asks.JUDGE_ANSWER),
    "reload": (asks.RELOAD_ASK, asks.RELOAD_ANSWER),
}
TELLS: Final[Mapping[str, asks.Form]] = {
    "claimed": asks.Form(tuple[seat.Claim, ...]),
    "stop_actions": _TOKENS,
    "not_ours": _TOKENS,
    "over": asks.Form(str),
    "moved": _NOTHING,
    "stands": asks.Form(seat.Standing),
    "news": _NOTHING,
    "decided": _TOKENS,
}

Do = Callable[[str, Any], Awaitable[Any]]
Told = Callable[[str, Any], None]


class Link:
    """One end of a line, from its first frame to its end."""

    def __init__(
        self, line: Line, do: Do, told: Told, greeted: Callable[[Hello | Welcome], None] = lambda _greeting: None
    ) -> None:
        self._line = line
        self._do = do
        self._told = told
        self._greeted = greeted
        self._out: deque[bytes] = deque()
        self._out_bytes = 0
        self._out_more = asyncio.Event()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._serial = 0
        self._room = asyncio.Semaphore(CALLS_MAX)
        self._doing: set[asyncio.Task[None]] = set()
        self._ended = False

    @property
    def is_up(self) -> bool:
        return not self._ended

    async def run(self) -> None:
        """Until either end has had enough."""
        writing = asyncio.get_running_loop().create_task(self._write())
        try:
            while not self._ended:
                data = await self._line.receive()
                if data is None:
                    break
                await self._take(FRAME.decode(data))
        except (asks.Unreadable, OSError):
            pass
        finally:
            self.end()
            for task in (writing, *self._doing):
                task.cancel()
            await asyncio.gather(writing, *self._doing, return_exceptions=True)
            await self._line.close()

    def end(self) -> None:
        """Nothing more is taken or said; who waits for an answer is told that none will come."""
        self._ended = True
        self._out_more.set()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(Unknown("the connection ended before the answer came"))

    async def call(self, kind: str, value: object, deadline_s: float) -> Any:
        if self._ended:
            raise Unavailable("there is no connection")
        self._serial += 1
        n = self._serial
        future = self._waiting[n] = asyncio.get_running_loop().create_future()
        ask, answer = CALLS[kind]
        self.put(Call(n, kind, ask.encode(value)))
        try:
            async with asyncio.timeout(deadline_s):
                return answer.decode(await future)
        except TimeoutError:
            raise Silent(f"no answer to {kind} in time") from None
        finally:
            self._waiting.pop(n, None)

    def tell(self, kind: str, value: object) -> None:
        self.put(Tell(kind, TELLS[kind].encode(value)))

    def put(self, frame: Hello | Welcome | Call | Answer | Failed | Tell) -> None:
        """To be sent soon. An end that takes too little is given up."""
        if self._ended:
            return
        data = FRAME.encode(frame)
        self._out.append(data)
        self._out_bytes += len(data)
        if len(self._out) > OUT_FRAMES_MAX or self._out_bytes > OUT_BYTES_MAX:
            self.hang_up()
        self._out_more.set()

    def hang_up(self) -> None:
        """`run` comes to its end."""
        self.end()
        closing = asyncio.get_running_loop().create_task(self._line.close())
        self._closing = closing

    async def _write(self) -> None:
        try:
            while not self._ended:
                while self._out:
                    data = self._out.popleft()
                    self._out_bytes -= len(data)
                    await self._line.send(data)
                self._out_more.clear()
                await self._out_more.wait()
        except OSError:
            self.hang_up()

    async def _take(self, frame: Hello | Welcome | Call | Answer | Failed | Tell) -> None:
        if isinstance(frame, Tell):
            form = TELLS.get(frame.kind)
            if form is not None:  # what a newer node tells is not needed here
                self._told(frame.kind, form.decode(frame.body))
        elif isinstance(frame, Call):
            await self._room.acquire()
            task = asyncio.get_running_loop().create_task(self._carry_out(frame))
            self._doing.add(task)
            task.add_done_callback(self._done)
        elif isinstance(frame, Answer | Failed):
            future = self._waiting.pop(frame.n, None)
            if future is None or future.done():
                return
            if isinstance(frame, Answer):
                future.set_result(frame.body)
            else:
                future.set_exception(_raised(frame.no))
        else:
            self._greeted(frame)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._doing.discard(task)
        self._room.release()

    async def _carry_out(self, call: Call) -> None:
        forms = CALLS.get(call.kind)
        try:
            if forms is None:
                raise Refused(f"{call.kind} is not known here", "bad_request")
            value = await self._do(call.kind, forms[0].decode(call.body))
            self.put(Answer(call.n, forms[1].encode(value)))
        except asks.Unreadable as error:
            self.put(Failed(call.n, asks.No("refused", "bad_request", str(error))))
        except (LogError, Refusal) as error:
            self.put(Failed(call.n, _no(error)))


class Silent(Unknown):
    """The other end itself has not answered."""


def _no(error: LogError | Refusal) -> asks.No:
    if isinstance(error, Refusal):
        return asks.No("refusal", error.rejection.code, error.rejection.detail)
    kind = "unavailable" if isinstance(error, Unavailable) else "refused" if isinstance(error, Refused) else "unknown"
    return asks.No(kind, error.code, error.detail)


def _raised(no: asks.No) -> Exception:
    if no.kind == "refusal":
        return Refusal(Rejection(no.code, no.detail))  # type: ignore[arg-type]  # a code of a Rejection, by _no
    if no.kind == "unavailable":
        return Unavailable(no.detail, no.code)
    return Refused(no.detail, no.code) if no.kind == "refused" else Unknown(no.detail)
