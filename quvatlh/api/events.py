"""What changes the pool: events, and the verbs of a person on tasks. From a checked body to one call of the pool."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast, get_args

from aiohttp import web

from quvatlh.api import lines, plain, shapes, tasks
from quvatlh.api.checks import (
    Fault,
    Faults,
    Field,
    Kind,
    addressed,
    boolean,
    choice,
    duration,
    integer,
    list_of,
    named,
    object_of,
    rejected,
    shown,
    time,
    unknown,
)
from quvatlh.api.exchange import NDJSON, YAML, Asked, Exchange
from quvatlh.api.params import MATCH
from quvatlh.api.tasks import COUNT_MAX, ID, TAG, TASKS
from quvatlh.codec.taskfile import read_tasks
from quvatlh.codec.yamltext import BadYaml, Bounds
from quvatlh.core.filters import TaskFilter
from quvatlh.core.limits import ADD_TASKS_MAX, BATCH_MAX
from quvatlh.service.pool import Bulk, NewTask, Rejected, RequestKey, Turn, Verb

IDS: Final = list_of(ID, BATCH_MAX, items_min=1)
Told = tuple[dict[str, Any], int]
"""A yes, and its status."""
VERBS: Final[Sequence[Verb]] = get_args(Verb)
YAML_BOUNDS: Final = Bounds(bytes_max=64 * 1024, depth_max=64, values_max=5_000)
"""What people write by hand, some 400 tasks. It is read on the loop, in 10 ms at the most; programs send JSON."""
EVENT_TYPES: Final[Mapping[str, str]] = {
    NDJSON: "one NewTask a line",
    YAML: f"an ADD: NewTasks as documents or lists; fields may begin with a capital; at most {YAML_BOUNDS.bytes_max} bytes",
}

_ADD: Final = object_of({"event": Field(choice("ADD")), "tasks": Field(TASKS)}, "event", "tasks")
_WHICH: Final = {"ids": Field(IDS), "match": Field(MATCH)}
_DELETE: Final = object_of({"event": Field(choice("DELETE"))} | _WHICH, "event")
_BALANCE: Final = object_of(
    {
        "event": Field(choice("BALANCE")),
        "group": Field(named()),
        "dry_run": Field(boolean()),
        "max": Field(integer(1, COUNT_MAX)),
    },
    "event",
    "group",
)
_EVENTS: Final = {"ADD": _ADD, "DELETE": _DELETE, "BALANCE": _BALANCE}


def _event(given: Any) -> Any:
    if type(given) is not dict:
        raise ValueError(f"must be an object, not {shown(given)}")
    kind = _EVENTS.get(given["event"]) if type(given.get("event")) is str else None
    if kind is None:
        wrong = f"must be one of {', '.join(_EVENTS)}, not {shown(given.get('event'))}"
        raise Faults(Fault(".event", wrong if "event" in given else "is required"))
    listed = given.get("tasks")
    if kind is _ADD and type(listed) is list and len(listed) > ADD_TASKS_MAX:
        raise Faults(Fault(".tasks", f"must be at most {ADD_TASKS_MAX}, not {len(listed)}", "too_large"))
    event = kind.check(given)
    return _one_of(event) if kind is _DELETE else event


def _one_of(given: dict[str, Any]) -> dict[str, Any]:
    if ("ids" in given) == ("match" in given):
        raise ValueError("must have exactly one of ids, match")
    return given


_CLEARED: Final = {"expires": "expires_ms", "limit": "limit", "keep": "keep_ms"}
"""What may be taken away again: here null says that."""
_SET: Final = object_of(
    {
        "queue": Field(addressed()),
        "priority": Field(integer(-(2**31), COUNT_MAX)),
        "tags": Field(list_of(TAG)),
        "at": Field(time(), "at_ms"),
        "expires": Field(time(), "expires_ms"),
        "limit": Field(integer(1, COUNT_MAX)),
        "keep": Field(duration(), "keep_ms"),
    }
)


def _set(given: Any) -> dict[str, Any]:
    changes: dict[str, Any] = _SET.check(given)
    changes |= {key: None for name, key in _CLEARED.items() if name in given and given[name] is None}
    if not changes:
        raise ValueError(f"must name at least one of {', '.join(_SET.schema['properties'])}")
    if (changes.get("expires_ms") or math.inf) <= changes.get("at_ms", -math.inf):
        raise Faults(Fault(".expires", "must be later than the start"))
    return changes


EITHER: Final = {"oneOf": [{"required": ["ids"]}, {"required": ["match"]}]}
EVENT: Final = Kind(_event, {"oneOf": [_ADD.schema, {**_DELETE.schema, **EITHER}, _BALANCE.schema]})


def _verb(more: Mapping[str, Field], *required: str) -> Kind:
    kind = object_of({**_WHICH, **more}, *required)
    schema = {**kind.schema, **EITHER}
    return Kind(lambda given: _one_of(kind.check(given)), schema)


_PLAIN: Final = _verb({})
VERB_BODIES: Final[Mapping[Verb, Kind]] = {
    "delete": _PLAIN,
    "kill": _PLAIN,
    "retry": _verb({"queue": Field(addressed())}),
    "relocate": _verb({"to": Field(named())}),
    "update": _verb({"set": Field(Kind(_set, {**_SET.schema, "minProperties": 1}))}, "set"),
}


async def post_events(exchange: Exchange) -> web.StreamResponse:
    content_type = exchange.content_type()
    if content_type == NDJSON:
        return await lines.add_lines(exchange)
    if "ids" in exchange.query:
        raise rejected([unknown("ids", ("deadline",), f"parameter of a body that is not {NDJSON}")])
    if content_type == YAML:
        return exchange.answer(*await _add(exchange, *await _tasks_of_yaml(exchange)))
    return exchange.answer(*await of_json(exchange, await exchange.body()))


async def of_json(asked: Asked, raw: bytes) -> Told:
    """What such a body comes to."""
    commonest = plain.tasks_of(raw)
    if commonest is not None:
        return await _added(asked, commonest, asked.key(raw))
    event, key = asked.read(raw)
    if event["event"] == "ADD":
        return await _add(asked, event["tasks"], key)
    if event["event"] == "DELETE":
        return await _act(asked, Turn("delete"), event, key)
    return await _balance(asked, event, key)


async def _tasks_of_yaml(exchange: Exchange) -> tuple[list[Any], RequestKey | None]:
    raw = await exchange.body()
    if len(raw) > YAML_BOUNDS.bytes_max:
        raise Rejected("too_large", f"a body of YAML may have {YAML_BOUNDS.bytes_max} bytes; send more as {NDJSON}")
    try:
        given = read_tasks(raw, YAML_BOUNDS)
    except BadYaml as error:
        raise Rejected("bad_request", f"the body: {error}") from None
    if not given:
        raise Rejected("invalid", "the body holds no task")
    return given, exchange.key(raw)


async def _add(asked: Asked, given: Sequence[Any], key: RequestKey | None) -> Told:
    return await _added(asked, await tasks.check_each(given, tasks.check, "tasks"), key)


async def _added(asked: Asked, made: Sequence[NewTask], key: RequestKey | None) -> Told:
    added = await asked.pool.add(asked.call(key), made)
    existing = {str(position): why for position, why in added.existing.items()}
    answer = {"ids": added.ids, "index": added.index, "existing": existing}
    return answer, 201 if len(existing) < len(added.ids) else 200


async def _balance(asked: Asked, event: Mapping[str, Any], key: RequestKey | None) -> Told:
    call = asked.call(key)
    balanced = await asked.pool.balance(call, event["group"], event.get("max"), dry_run=event.get("dry_run", False))
    return {"moves": shapes.wire(balanced.moves), "index": balanced.index}, 200


async def post_verb(exchange: Exchange) -> web.StreamResponse:
    """The verb is the last part of its route's path."""
    given, key = await exchange.json()
    verb = cast("Verb", exchange.route.path.rpartition("/")[2])
    turn = Turn(verb, given.get("to"), given.get("queue"), given.get("set"))
    return exchange.answer(*await _act(exchange, turn, given, key))


async def _act(asked: Asked, turn: Turn, given: Mapping[str, Any], key: RequestKey | None) -> Told:
    which: Sequence[str] | TaskFilter = given["ids"] if "ids" in given else given["match"]
    done = await asked.pool.act(asked.call(key), turn, which)
    if isinstance(done, Bulk):
        return {"bulk": done.id}, 202
    told = {"matched": done.matched, "done": done.done, "index": done.index}
    return told | ({"over": done.over} if done.over else {}), 200


async def get_bulk(exchange: Exchange) -> web.StreamResponse:
    return exchange.answer(shapes.wire(await exchange.pool.bulk(exchange.call(), exchange.path["id"])))
