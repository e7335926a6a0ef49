"""The handlers that tell how the node is: health, readiness, numbers, the description of the interface."""

from __future__ import annotations

from aiohttp import web

from quvatlh.api import meter
from quvatlh.api.exchange import HEADERS, JSON_HEADERS, Exchange
from quvatlh.service.pool import Unavailable


async def healthz(exchange: Exchange) -> web.StreamResponse:
    """That it is answered is the answer: the loop turns."""
    return exchange.answer({"status": "ok"})


async def readyz(exchange: Exchange) -> web.StreamResponse:
    readiness = exchange.pool.readiness()
    if not readiness.ready:
        raise Unavailable(readiness.code, readiness.detail)
    but = {"code": readiness.code, "detail": readiness.detail} if readiness.detail else {}
    return exchange.answer({"status": "ready"} | but)


async def metrics(exchange: Exchange) -> web.StreamResponse:
    shared = exchange.shared
    found = [*shared.pool.metrics(), *await shared.pool.queueing.numbers()]
    text = shared.meter.text(found, len(shared.streams.open))
    return web.Response(body=text.encode(), headers=HEADERS | {"Content-Type": meter.CONTENT_TYPE})


async def openapi(exchange: Exchange) -> web.StreamResponse:
    return web.Response(body=exchange.shared.documents["openapi"], headers=JSON_HEADERS)
