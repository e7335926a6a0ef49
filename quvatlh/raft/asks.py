"""Questions and answers over one link: ["ask", number, kind, body] and ["answer", number, True, body] or
["answer", number, False, [class, code, detail]].

Each question ends in exactly one way: an answer, the LogError that the other side's handler raised, Unknown (deadline,
link lost, a fault there), or Unavailable (certainly not delivered). What waits is bounded on both sides. The link is
not here, only the sending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from quvatlh.ports import LogError, Refused, RequestHandler, Unavailable, Unknown
from quvatlh.raft.notices import Note
from quvatlh.raft.settings import Settings
from quvatlh.raft.wire import Message, WireError

ASKS_MAX = 10_000
"""Questions waiting on one link, each way."""
KIND_CHARS_MAX = 64
DETAIL_CHARS_MAX = 4_000
ENVELOPE_BYTES = 1024
"""Room that a frame needs beside the body."""

Send = Callable[[Message], bool]
Spawn = Callable[[Coroutine[Any, Any, None]], None]
Handlers = dict[str, RequestHandler]


class Asks:
    def __init__(
        self, node_id: str, *, send: Send, spawn: Spawn, handlers: Handlers, settings: Settings, note: Note
    ) -> None:
        self._node_id = node_id
        self._send = send
        self._spawn = spawn
        self._handlers = handlers
        self._settings = settings
        self._note = note
        self._number = 0
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._serving = 0
        self._serving_bytes = 0

    async def ask(self, kind: str, body: bytes, deadline: float) -> bytes:
        """The answer within `deadline` seconds, or a LogError."""
        if len(body) > self._settings.frame_bytes_max - ENVELOPE_BYTES:
            raise Refused(f"a request of {len(body)} bytes is too large for the peer link", "too_large")
        if deadline <= 0:
            raise Unavailable("the deadline is over")
        if len(self._waiting) >= ASKS_MAX:
            raise Unavailable(f"{ASKS_MAX} requests to {self._node_id} wait already")
        self._number = number = self._number + 1
        self._waiting[number] = answer = asyncio.get_running_loop().create_future()
        try:
            if not self._send(["ask", number, kind, body]):
                raise Unavailable(f"not connected to {self._node_id}")
            async with asyncio.timeout(deadline):
                result: bytes = await answer
        except TimeoutError:
            raise Unknown(f"no answer from {self._node_id} within {deadline:g} s") from None
        finally:
            del self._waiting[number]
        return result

    def lost(self, reason: str) -> None:
        """The link is gone: who waits will not be answered."""
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(Unknown(f"the link to {self._node_id} was lost: {reason}"))

    def on_ask(self, message: Message) -> None:
        """Serve it in a task of its own, or say that there are too many."""
        if [type(one) for one in message] != [str, int, str, bytes] or len(message[2]) > KIND_CHARS_MAX:
            raise WireError("an ask of the wrong shape")
        _, number, kind, body = message
        held_bytes = self._serving_bytes + len(body)
        if self._serving >= ASKS_MAX or held_bytes > self._settings.link_buffer_bytes_max:
            self._fail(number, Unavailable("too many requests over this link"))
            return
        self._serving += 1
        self._serving_bytes = held_bytes
        self._spawn(self._serve(number, kind, body))

    def on_answer(self, message: Message) -> None:
        """Hand it to who waits; one that came after its deadline is dropped."""
        if [type(one) for one in message[:3]] != [str, int, bool] or len(message) != 4:
            raise WireError("an answer of the wrong shape")
        _, number, done, body = message
        result = body if done and type(body) is bytes else _fault(body) if not done else None
        if result is None:
            raise WireError("an answer of the wrong shape")
        waiting = self._waiting.get(number)
        if waiting is None or waiting.done():
            return
        if isinstance(result, LogError):
            waiting.set_exception(result)
        else:
            waiting.set_result(result)

    async def _serve(self, number: int, kind: str, body: bytes) -> None:
        try:
            answer = await self._handled(kind, body)
        except LogError as error:
            self._fail(number, error)
        except Exception as error:  # noqa: BLE001 - RequestHandler's contract: what it raises is Unknown to the asker
            self._note("handler_failed", {"node": self._node_id, "request": kind, "reason": repr(error)})
            self._fail(number, Unknown(f"{type(error).__name__} in the handler of {kind!r}"))
        else:
            self._send(["answer", number, True, answer])
        finally:
            self._serving -= 1
            self._serving_bytes -= len(body)

    async def _handled(self, kind: str, body: bytes) -> bytes:
        handler = self._handlers.get(kind)
        if handler is None:
            raise Unavailable(f"this node does not answer requests of kind {kind!r}")
        answer = bytes(await handler(self._node_id, body))
        if len(answer) > self._settings.frame_bytes_max - ENVELOPE_BYTES:
            raise Unknown(f"the answer has {len(answer)} bytes, too many for the peer link")
        return answer

    def _fail(self, number: int, error: LogError) -> None:
        name = (
            "unavailable" if isinstance(error, Unavailable) else "refused" if isinstance(error, Refused) else "unknown"
        )
        self._send(["answer", number, False, [name, error.code, sendable(error.detail)]])


def sendable(text: str) -> str:
    """Text of any origin, short and encodable."""
    return text[:DETAIL_CHARS_MAX].encode("utf-8", "replace").decode()


def _fault(body: object) -> LogError | None:
    """The exception that the other side raised; None when `body` does not say."""
    if not (isinstance(body, list) and [type(one) for one in body] == [str, str, str]):
        return None
    name, code, detail = body
    if name == "unavailable":
        return Unavailable(detail, code)
    if name == "refused":
        return Refused(detail, code)
    return Unknown(detail) if name == "unknown" else None
