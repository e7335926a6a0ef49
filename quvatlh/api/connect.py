"""GET /v1/work/connect: the WebSocket of a worker of role `worker`. Only frames pass here; what they say is service's."""

from __future__ import annotations

import contextlib
from typing import Final

from aiohttp import WSCloseCode, WSMsgType, web

from quvatlh.api.exchange import Exchange
from quvatlh.service.pool import Problem, Rejected
from quvatlh.service.wire import FRAME_BYTES_MAX

HEARTBEAT_S: Final = 5.0
"""A worker that does not answer a ping within half of this is gone."""
CLOSE_S: Final = 1.0


class ServerLine:
    """wire.Line, of the node."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket

    async def send(self, frame: bytes) -> None:
        await self._socket.send_bytes(frame)

    async def receive(self) -> bytes | None:
        message = await self._socket.receive()
        if message.type is WSMsgType.BINARY:
            data: bytes = message.data
            return data
        return None

    async def close(self) -> None:
        with contextlib.suppress(OSError):
            await self._socket.close(code=WSCloseCode.GOING_AWAY, drain=False)


async def connect(exchange: Exchange) -> web.StreamResponse:
    socket = web.WebSocketResponse(timeout=CLOSE_S, heartbeat=HEARTBEAT_S, max_msg_size=FRAME_BYTES_MAX, compress=False)
    if not socket.can_prepare(exchange.request).ok:
        raise Rejected("bad_request", "a worker connects with a WebSocket: Connection: Upgrade, Upgrade: websocket")
    await socket.prepare(exchange.request)
    try:
        await exchange.pool.connect(exchange.call(), ServerLine(socket))
    except Problem as problem:
        await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=f"{problem.code}: {problem}".encode()[:120])
    return socket
