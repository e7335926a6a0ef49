"""What actions wrote, from any node: of a worker of this node, or of another node's over the peer link, piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final, Protocol

from msgspec import structs

from quvatlh.ports import LogError, OutputChunk, Peers, StreamName
from quvatlh.service import asks
from quvatlh.service.crew import OUTPUT, Crew

CHUNK_BYTES_MAX: Final = 1024 * 1024
"""Of one answer."""
WAIT_S: Final = 10.0
"""A question for more is answered at the latest after this; then it is asked again."""
NOW_S: Final = 0.02
"""What is kept comes at once; a reader that does not follow waits no longer than this for the next piece."""
ANSWER_S: Final = 5.0
_ELSEWHERE: Final = 2**62
"""An offset that no output has: nothing is read of the other stream."""


class Followed(Protocol):
    """Of ports.Executor, what is needed here."""

    def follow(self, action_id: str, stdout_offset: int = 0, stderr_offset: int = 0) -> AsyncIterator[OutputChunk]: ...


class Outputs:
    def __init__(self, crew: Crew, peers: Peers, node_id: str) -> None:
        self._crew = crew
        self._peers = peers
        self._node_id = node_id

    async def piece(self, node_id: str, ask: asks.OutputAsk) -> asks.OutputAnswer:
        """Some of it; a LogError when the owner cannot be asked."""
        if node_id == self._node_id:
            return await self._crew.output(ask)
        body = asks.OUTPUT_ASK.encode(ask)
        answer: asks.OutputAnswer = asks.OUTPUT_ANSWER.decode(
            await self._peers.request(node_id, OUTPUT, body, deadline=ask.wait_s + ANSWER_S)
        )
        return answer

    async def rest(self, node_id: str, first_ask: asks.OutputAsk, first: asks.OutputAnswer) -> AsyncIterator[bytes]:
        """The first piece and what comes right after it. An owner that goes away ends it: what was sent is what there is."""
        piece = first
        while piece.data:
            yield piece.data
            if piece.ended:
                return
            ask = onwards(first_ask, piece.next_offset)
            try:
                piece = await self.piece(node_id, ask)
            except (LogError, asks.Unreadable):
                return
            if is_beyond_gap(ask, piece):
                return


def onwards(ask: asks.OutputAsk, offset: int, wait_s: float = 0.0) -> asks.OutputAsk:
    """The same from there."""
    return structs.replace(ask, offset=offset, wait_s=wait_s)


def is_beyond_gap(ask: asks.OutputAsk, piece: asks.OutputAnswer) -> bool:
    """What stood between the byte asked for and the first of these is not kept."""
    return bool(piece.data) and piece.next_offset - len(piece.data) > ask.offset


async def read(source: Followed, ask: asks.OutputAsk) -> asks.OutputAnswer:
    """What a worker's own executor has, up to the next gap: a piece is of one place."""
    stream: StreamName = "stderr" if ask.stderr else "stdout"
    offsets = {"stdout": _ELSEWHERE, "stderr": _ELSEWHERE, stream: ask.offset}
    chunks = source.follow(ask.action, offsets["stdout"], offsets["stderr"])
    data = bytearray()
    next_offset, ended = ask.offset, False
    wait_s = min(ask.wait_s, WAIT_S) or NOW_S
    try:
        while len(data) < CHUNK_BYTES_MAX:
            chunk = await _next(chunks, NOW_S if data else wait_s)
            if isinstance(chunk, bool):
                ended = chunk
                break
            if chunk.stream == stream:
                if data and chunk.offset != next_offset:
                    break
                data += chunk.data
                next_offset = chunk.offset + len(chunk.data)
    finally:
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()
    return asks.OutputAnswer(bytes(data), next_offset, ended)


async def _next(chunks: AsyncIterator[OutputChunk], at_most_s: float) -> OutputChunk | bool:
    """The next one; True at the end, False when it takes longer."""
    try:
        async with asyncio.timeout(at_most_s):
            return await anext(chunks)
    except StopAsyncIteration:
        return True
    except TimeoutError:
        return False
