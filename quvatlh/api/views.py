"""The handlers of tasks and cluster: from a checked request to one call of the pool, and its answer's shape."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from aiohttp import web

from quvatlh.api import shapes
from quvatlh.api.checks import Fault, Field, Kind, named, object_of, rejected, text
from quvatlh.api.exchange import HEADERS, JSON, MSGPACK, Exchange
from quvatlh.api.params import LIMIT_MAX, task_query, wanted
from quvatlh.api.tasks import ID
from quvatlh.config import address
from quvatlh.core.limits import URL_CHARS_MAX
from quvatlh.service.packedresult import PackedResult
from quvatlh.service.pool import BrokeOff, LargeResult, Rejected

BYTES: Final = "application/octet-stream"
TEXT: Final = "text/plain; charset=utf-8"
LOG_HEADERS: Final = {
    "Quvatlh-Action": "id of the run that wrote it; none where nothing has run yet",
    "Quvatlh-Offset": "of the first byte: beyond the one asked for where what stood before it is no longer kept",
    "Quvatlh-Bytes": "that the run wrote to it in all, once it has ended; an answer that stops before is had on at its next byte",
    "Quvatlh-Log": "where only the end is left: `tail` if the run's worker cannot be asked, `end` if it keeps no more",
}
RESULT_HEADERS: Final = {"Quvatlh-Worker": "whose file it is, where it is too large for the record"}
BACKUP_HEADERS: Final = {
    "Quvatlh-Index": "of the last entry of the log that is in it",
    "Content-Disposition": "a name for the file",
    "Content-Length": "its size in bytes",
}


def _peer(given: Any) -> str:
    value: str = _ADDRESS.check(given)
    host, port = address.parse(value)
    if port == 0 or address.is_wildcard(host):
        raise ValueError("must be an address that other nodes can dial")
    return value


_ADDRESS: Final = text(300, chars_min=3)
MEMBER: Final = object_of(
    {
        "id": Field(ID),
        "name": Field(named()),
        "peer": Field(Kind(_peer, _ADDRESS.schema)),
        "http": Field(text(URL_CHARS_MAX)),
    },
    "id",
    "peer",
)


async def get_tasks(exchange: Exchange) -> web.StreamResponse:
    query = exchange.query
    if "parts" in query:
        _check_parts(query)
    if "group_by" in query:
        found = await exchange.pool.groups(exchange.call(), wanted(query), query["group_by"], query.get("parts"))
        return exchange.answer({"groups": found.groups} | ({"partial": True} if found.partial else {}))
    page = await exchange.pool.tasks(exchange.call(), task_query(query))
    items = [shapes.task(record) for record in page.items[:LIMIT_MAX]]
    return exchange.answer({"items": items, "next": page.next, "total": page.total})


def _check_parts(query: Mapping[str, Any]) -> None:
    """They are parts of a stretch of time."""
    missing = [name for name in ("group_by", "finished_after") if name not in query]
    if missing:
        raise rejected([Fault(".parts", f"goes only with {' and '.join(missing)}")])
    if query.get("finished_before", query["finished_after"] + 1) <= query["finished_after"]:
        raise rejected([Fault(".finished_before", "must be later than finished_after")])


async def get_task(exchange: Exchange) -> web.StreamResponse:
    record = await exchange.pool.task(exchange.call(), task_id(exchange), exchange.query.get("wait_ms", 0))
    return exchange.answer(shapes.task(record))


async def get_actions(exchange: Exchange) -> web.StreamResponse:
    actions = await exchange.pool.actions(exchange.call(), task_id(exchange))
    return exchange.answer({"items": shapes.wire(actions), "next": None, "total": len(actions)})


async def get_result(exchange: Exchange) -> web.StreamResponse:
    value = await exchange.pool.result(exchange.call(), task_id(exchange))
    wants_msgpack = MSGPACK in exchange.request.headers.get("Accept", "")
    if isinstance(value, PackedResult):
        if wants_msgpack:
            return web.Response(body=value.data, headers={**HEADERS, "Content-Type": MSGPACK})
        value = value.shown()
    if isinstance(value, bytes):
        return web.Response(body=value, headers={**HEADERS, "Content-Type": BYTES})
    if isinstance(value, LargeResult):
        kind = MSGPACK if value.is_packed else JSON
        return await _send(exchange, value.chunks, kind, {"Quvatlh-Worker": value.worker}, value.size_bytes)
    return exchange.answer(value)


async def get_log(exchange: Exchange) -> web.StreamResponse:
    query = exchange.query
    output = await exchange.pool.log(
        exchange.call(),
        task_id(exchange),
        query.get("stream", "stdout"),
        query.get("action"),
        follow=query.get("follow", False),
        offset=query.get("offset", 0),
    )
    headers = {"Quvatlh-Offset": str(output.offset)}
    if output.action is not None:
        headers["Quvatlh-Action"] = output.action
    if output.bytes_all is not None:
        headers["Quvatlh-Bytes"] = str(output.bytes_all)
    if output.tail_only:
        headers["Quvatlh-Log"] = "end" if output.is_there else "tail"
    return await _send(exchange, output.chunks, TEXT, headers)


async def get_cluster(exchange: Exchange) -> web.StreamResponse:
    return exchange.answer(shapes.wire(await exchange.pool.cluster(exchange.call())))


async def post_member(exchange: Exchange) -> web.StreamResponse:
    member, key = await exchange.json()
    member = {"name": member["id"], "http": ""} | member
    return exchange.answer(shapes.wire(await exchange.pool.add_member(exchange.call(key), member)), 201)


async def delete_member(exchange: Exchange) -> web.StreamResponse:
    call = exchange.call(exchange.key())
    return exchange.answer(shapes.wire(await exchange.pool.remove_member(call, exchange.path["id"])))


async def get_backup(exchange: Exchange) -> web.StreamResponse:
    backup = await exchange.pool.backup(exchange.call())
    name = f'attachment; filename="quvatlh-{backup.index}.backup"'
    headers = {"Quvatlh-Index": str(backup.index), "Content-Disposition": name}
    return await _send(exchange, backup.chunks, BYTES, headers, backup.size_bytes)


def task_id(exchange: Exchange) -> str:
    """Of the address. What cannot be an id names no task."""
    given = exchange.path["id"]
    try:
        ID.check(given)
    except ValueError:
        raise Rejected("not_found", f"there is no task {given[:60]!r}: an id is {ID.schema['pattern']}") from None
    return given


async def _send(
    exchange: Exchange,
    chunks: AsyncIterator[bytes],
    content_type: str,
    headers: Mapping[str, str],
    size_bytes: int | None = None,
) -> web.StreamResponse:
    """Piece by piece, as fast as the client takes them. What fails in the middle ends the connection."""
    try:
        response = await exchange.start(content_type, headers, size_bytes)
        try:
            async for chunk in chunks:
                await response.write(chunk)
            await response.write_eof()
        except BrokeOff:
            exchange.cut_off()
        return response
    finally:
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()
