from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from quvatlh.client.line import CONNECT_PATH, Dialer


@pytest.mark.parametrize(("status", "advice"), [(401, "QUVATLH_TOKEN"), (403, "quvatlh token add NAME --role worker")])
async def test_a_worker_that_is_refused_is_told_which_token_it_needs(status: int, advice: str) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=status)

    node = web.Application()
    node.router.add_get(CONNECT_PATH, refuse)
    dialer = Dialer("a-token-of-another-cluster")
    async with TestServer(node) as server:
        try:
            with pytest.raises(PermissionError, match=rf"answers {status}: the token .*{advice}"):
                await dialer.dial(str(server.make_url("")).rstrip("/"))
        finally:
            await dialer.close()
