"""The handlers of tasks, cluster and tokens: from a checked request to one call of the pool, and its answer's shape."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from aiohttp import web

from quvatlh.api import lines, shapes, tasks
from quvatlh.api.checks import (
    Fault,
    Faults,
    Field,
    Kind,
    choice,
    list_of,
    named,
    object_of,
    rejected,
    shown,
    text,
    unknown,
)
from quvatlh.api.exchange import NDJSON_NAMES, Exchange
from quvatlh.api.params import LIMIT_MAX, MATCH, task_query, wanted
from quvatlh.api.tasks import ID, TASKS
from quvatlh.config import address
from quvatlh.core.filters import TaskFilter
from quvatlh.core.limits import ADD_TASKS_MAX, BATCH_MAX, URL_CHARS_MAX
from quvatlh.service.pool import Bulk, Rejected, Turn

BYTES: Final = "application/octet-stream"
TEXT: Final = "text/plain; charset=utf-8"
IDS: Final = list_of(ID, BATCH_MAX, items_min=1)

_ADD: Final = object_of({"event": Field(choice("ADD")), "tasks": Field(TASKS)}, "event", "tasks")
_WHICH: Final = {"ids": Field(IDS), "match": Field(MATCH)}
_DELETE: Final = object_of({"event": Field(choice("DELETE"))} | _WHICH, "event")
_EVENTS: Final = {"ADD": _ADD, "DELETE": _DELETE}
_VERB: Final = object_of(_WHICH)


def _event(given: Any) -> Any:
    if type(given) is not dict:
        raise ValueError(f"must be an object, not {shown(given)}")
    kind = _EVENTS.get(given["event"]) if type(given.get("event")) is str else None
    if kind is None:
        fault = (
            f"must be one of {', '.join(_EVENTS)}, not {shown(given.get('event'))}"
            if "event" in given
            else "is required"
        )
        raise Faults(Fault(".event", fault))
    listed = given.get("tasks")
    if kind is _ADD and type(listed) is list and len(listed) > ADD_TASKS_MAX:
        raise Faults(Fault(".tasks", f"must be at most {ADD_TASKS_MAX}, not {len(listed)}", "too_large"))
    event = kind.check(given)
    return event if kind is _ADD else _one_of(event)


def _one_of(given: dict[str, Any]) -> dict[str, Any]:
    if ("ids" in given) == ("match" in given):
        raise ValueError("must have exactly one of ids, match")
    return given


EITHER: Final = {"oneOf": [{"required": ["ids"]}, {"required": ["match"]}]}
EVENT: Final = Kind(_event, {"oneOf": [_ADD.schema, {**_DELETE.schema, **EITHER}]})
VERB: Final = Kind(lambda given: _one_of(_VERB.check(given)), {**_VERB.schema, **EITHER})


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


async def post_events(exchange: Exchange) -> web.StreamResponse:
    content_type = exchange.content_type()
    if content_type in NDJSON_NAMES:
        return await lines.add_lines(exchange)
    if "ids" in exchange.query:
        raise rejected([unknown("ids", ("deadline",), "parameter of a JSON body")])
    event, key = await exchange.json(content_type)
    if event["event"] == "DELETE":
        return await _act(exchange, event, key)
    made = await tasks.check_each(event["tasks"], tasks.check, "tasks")
    added = await exchange.pool.add(exchange.call(key), made)
    existing = {str(position): why for position, why in added.existing.items()}
    answer = {"ids": added.ids, "index": added.index, "existing": existing}
    return exchange.answer(answer, 201 if len(existing) < len(added.ids) else 200)


async def post_verb(exchange: Exchange) -> web.StreamResponse:
    """The verb is the last part of its route's path."""
    which, key = await exchange.json()
    return await _act(exchange, which, key)


async def _act(exchange: Exchange, which: dict[str, Any], key: Any) -> web.StreamResponse:
    chosen: Sequence[str] | TaskFilter = which["ids"] if "ids" in which else which["match"]
    done = await exchange.pool.act(exchange.call(key), Turn("delete"), chosen)
    if isinstance(done, Bulk):
        return exchange.answer({"bulk": done.id}, 202)
    return exchange.answer({"matched": done.matched, "done": done.done, "index": done.index})


async def get_bulk(exchange: Exchange) -> web.StreamResponse:
    return exchange.answer(shapes.wire(await exchange.pool.bulk(exchange.call(), exchange.path["id"])))


async def get_tasks(exchange: Exchange) -> web.StreamResponse:
    query = exchange.query
    if "group_by" in query:
        found = await exchange.pool.groups(exchange.call(), wanted(query), query["group_by"])
        return exchange.answer({"groups": found.groups} | ({"partial": True} if found.partial else {}))
    page = await exchange.pool.tasks(exchange.call(), task_query(query))
    items = [shapes.task(record) for record in page.items[:LIMIT_MAX]]
    return exchange.answer({"items": items, "next": page.next, "total": page.total})


async def get_task(exchange: Exchange) -> web.StreamResponse:
    record = await exchange.pool.task(exchange.call(), _task_id(exchange), exchange.query.get("wait_ms", 0))
    return exchange.answer(shapes.task(record))


async def get_actions(exchange: Exchange) -> web.StreamResponse:
    actions = await exchange.pool.actions(exchange.call(), _task_id(exchange))
    return exchange.answer({"items": shapes.wire(actions), "next": None, "total": len(actions)})


async def get_result(exchange: Exchange) -> web.StreamResponse:
    return exchange.answer(await exchange.pool.result(exchange.call(), _task_id(exchange)))


async def get_log(exchange: Exchange) -> web.StreamResponse:
    query = exchange.query
    output = await exchange.pool.log(
        exchange.call(),
        _task_id(exchange),
        query.get("stream", "stdout"),
        query.get("action"),
        follow=query.get("follow", False),
    )
    return await _send(exchange, output.chunks, TEXT, **({"Quvatlh_Log": "tail"} if output.tail_only else {}))


async def get_cluster(exchange: Exchange) -> web.StreamResponse:
    return exchange.answer(shapes.wire(await exchange.pool.cluster(exchange.call())))


async def post_member(exchange: Exchange) -> web.StreamResponse:
    member, key = await exchange.json()
    member = {"name": member["id"], "http": ""} | member
    return exchange.answer(shapes.wire(await exchange.pool.add_member(exchange.call(key), member)), 201)


async def delete_member(exchange: Exchange) -> web.StreamResponse:
    call = exchange.call(exchange.key(exchange.path["id"].encode()))
    return exchange.answer(shapes.wire(await exchange.pool.remove_member(call, exchange.path["id"])))


async def get_backup(exchange: Exchange) -> web.StreamResponse:
    backup = await exchange.pool.backup(exchange.call())
    name = f'attachment; filename="quvatlh-{backup.index}.backup"'
    return await _send(exchange, backup.chunks, BYTES, Quvatlh_Index=str(backup.index), Content_Disposition=name)


async def get_tokens(exchange: Exchange) -> web.StreamResponse:
    tokens = await exchange.pool.tokens(exchange.call())
    return exchange.answer({"items": shapes.wire(tokens), "next": None, "total": len(tokens)})


async def get_token(exchange: Exchange) -> web.StreamResponse:
    return exchange.answer(shapes.wire(await exchange.pool.token(exchange.call(), exchange.path["name"])))


def _task_id(exchange: Exchange) -> str:
    """What cannot be an id names no task."""
    task_id = exchange.path["id"]
    try:
        ID.check(task_id)
    except ValueError:
        raise Rejected("not_found", f"there is no task {task_id[:60]!r}: an id is {ID.schema['pattern']}") from None
    return task_id


async def _send(
    exchange: Exchange, chunks: AsyncIterator[bytes], content_type: str, **headers: str
) -> web.StreamResponse:
    """Piece by piece, as fast as the client takes them. What fails in the middle ends the connection."""
    try:
        response = await exchange.start(content_type, **headers)
        async for chunk in chunks:
            await response.write(chunk)
        await response.write_eof()
        return response
    finally:
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()
