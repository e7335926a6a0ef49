"""The worker's end of the WebSocket to a node: dials, carries frames, ends. Which node, and what is said, is not known here."""

from __future__ import annotations

import contextlib
import ssl
from typing import Final

import aiohttp

from quvatlh.service.wire import FRAME_BYTES_MAX

CONNECT_PATH: Final = "/v1/work/connect"
CLOSE_S: Final = 1.0
REFUSALS: Final = frozenset({401, 403})
_ADVICE: Final = {
    401: ": the token is not known there; give one of that cluster in QUVATLH_TOKEN, or in the file `token` of the data directory",
    403: ": the token may not work there; `quvatlh token add NAME --role worker` makes one that may",
}


class ClientLine:
    """wire.Line, of a worker."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def send(self, frame: bytes) -> None:
        try:
            await self._socket.send_bytes(frame)
        except aiohttp.ClientError as error:
            raise ConnectionResetError(str(error)) from error

    async def receive(self) -> bytes | None:
        message = await self._socket.receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            data: bytes = message.data
            return data
        return None

    async def close(self) -> None:
        with contextlib.suppress(OSError, aiohttp.ClientError):
            await self._socket.close()


class Dialer:
    """Entered once, left when the worker stops."""

    def __init__(self, token: str, ca: str | None = None) -> None:
        """`ca`: PEM file of the authority that signed the nodes' certificates. None: those that the system trusts."""
        self._token = token
        self._ca = ca
        self._session: aiohttp.ClientSession | None = None

    async def dial(self, url: str) -> ClientLine:
        """OSError when the node cannot be reached; PermissionError when it does not take the token."""
        try:
            socket = await self._connected().ws_connect(
                f"{url}{CONNECT_PATH}",
                timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
                max_msg_size=FRAME_BYTES_MAX,
                compress=0,
            )
        except aiohttp.WSServerHandshakeError as error:
            kind = PermissionError if error.status in REFUSALS else ConnectionRefusedError
            raise kind(f"{url} answers {error.status}{_ADVICE.get(error.status, '')}") from error
        except (aiohttp.ClientError, ssl.SSLError) as error:
            raise ConnectionRefusedError(str(error)) from error
        return ClientLine(socket)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            context = None if self._ca is None else ssl.create_default_context(cafile=self._ca)
            headers = {"Authorization": f"Bearer {self._token}", "User-Agent": "quvatlh"}
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=context or True), headers=headers,
                cookie_jar=aiohttp.DummyCookieJar(), trust_env=False,
            )  # fmt: skip
        return self._session
