"""Between playwright and a Firefox that is older than it: run as a program in place of Firefox, with Firefox's arguments.

Both speak WebDriver BiDi, and playwright asks each Firefox for all that the newest can emulate. Debian's is the long-term one:
what it does not know of `emulation` is answered as done here, and the page is then as Firefox is by itself. All else passes as
it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import sys
from typing import Any

import aiohttp
from aiohttp import web

NAMES = ("firefox-esr", "firefox")
LISTENS = re.compile(rb"WebDriver BiDi listening on (ws://\S+)")
MESSAGE_BYTES_MAX = 256 * 1024 * 1024
SPARED = "emulation."


def program() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Between:
    def __init__(self, firefox: str) -> None:
        self._firefox = firefox
        self._asked: dict[int, str] = {}

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        asking = web.WebSocketResponse(max_msg_size=MESSAGE_BYTES_MAX)
        await asking.prepare(request)
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{self._firefox}/session", max_msg_size=MESSAGE_BYTES_MAX) as firefox,
        ):
            answers = asyncio.create_task(self._back(firefox, asking))
            try:
                async for message in asking:
                    told = json.loads(message.data)
                    if told["method"].startswith(SPARED):
                        self._asked[told["id"]] = told["method"]
                    await firefox.send_str(message.data)
            finally:
                answers.cancel()
                await asyncio.gather(answers, return_exceptions=True)
        return asking

    async def _back(self, firefox: aiohttp.ClientWebSocketResponse, asking: web.WebSocketResponse) -> None:
        async for message in firefox:
            told = json.loads(message.data)
            spared = self._asked.pop(told.get("id", -1), None)
            if spared and told.get("error") in {"unknown command", "unsupported operation"}:
                await asking.send_json({"type": "success", "id": told["id"], "result": {}})
            else:
                await asking.send_str(message.data)
        await asking.close()


async def run(arguments: list[str]) -> int:
    found = program()
    assert found, "there is no Firefox here"
    process = await asyncio.create_subprocess_exec(found, *arguments, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    runner: web.AppRunner | None = None
    try:
        async for line in process.stderr:
            match = LISTENS.search(line)
            if match and runner is None:
                runner, told = await listening(match[1].decode())
                sys.stderr.write(f"WebDriver BiDi listening on {told}\n")
            else:
                sys.stderr.write(line.decode(errors="replace"))
            sys.stderr.flush()
        return await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        if runner is not None:
            await runner.cleanup()


async def listening(firefox: str) -> tuple[web.AppRunner, str]:
    app = web.Application()
    app.router.add_get("/session", Between(firefox).serve)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    addresses: Any = runner.addresses
    return runner, f"ws://127.0.0.1:{addresses[0][1]}"


if __name__ == "__main__":
    sys.exit(asyncio.run(run(sys.argv[1:])))
