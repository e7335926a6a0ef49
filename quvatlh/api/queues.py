"""Queues and classes as people write them (DESIGN.md section 4), checked field by field, and the handlers of their routes.

A setting that is given as null goes back to what it is without being set: in a PATCH that takes it away, in a PUT it is as
if it were not there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

from aiohttp import web

from quvatlh.api import shapes
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
    map_of,
    named,
    object_of,
    rejected,
    shown,
)
from quvatlh.api.exchange import Exchange
from quvatlh.api.formats import DURATION_PATTERN, duration_ms, duration_text
from quvatlh.api.params import CURSOR, LIMIT, LIMIT_DEFAULT, Param
from quvatlh.api.tasks import COUNT_MAX, LEASE, RETRY, RETRY_PART, UNIQUE, UNIQUE_PART
from quvatlh.core.limits import DAY_MS, INTEGER_MAX, SECOND_MS
from quvatlh.core.model import WAITING, HtbClass, Keep, QueueSettings
from quvatlh.core.verbs.classes import ROOT_CEIL
from quvatlh.core.verbs.queues import BURST_ALONE
from quvatlh.service.pool import Bulk, Json, Rejected
from quvatlh.service.queueing import PURGED, QueueSort

NAME: Final = named()
NEW_NAME: Final = addressed()
WEIGHT_MAX: Final = 1_000_000
MILLI: Final = 1000
RATE_FORM: Final = "a rate such as 100/m, 5/s or 1/30s"
_RATE: Final = re.compile(r"([0-9]{1,10})/(?:(ms|s|m|h|d)|" + DURATION_PATTERN + ")", re.ASCII)
UNIT_MS: Final = {"ms": 1, "s": SECOND_MS, "m": 60 * SECOND_MS, "h": 3600 * SECOND_MS, "d": DAY_MS}


def _rate(given: Any) -> dict[str, int]:
    """`100/m` is 100 in a minute."""
    match = _RATE.fullmatch(given) if type(given) is str else None
    if match is None:
        raise ValueError(f"must be {RATE_FORM}, not {shown(given)}")
    count, unit = int(match[1]), match[2]
    per_ms = UNIT_MS[unit] if unit else duration_ms(given.partition("/")[2])
    if not 1 <= count <= COUNT_MAX:
        raise ValueError(f"must be of 1 to {COUNT_MAX}, not {shown(given)}")
    if not 1 <= per_ms <= DAY_MS:
        raise ValueError(f"must be in 1ms to 1d, not {shown(given)}")
    return {"count": count, "per_ms": per_ms}


def rate_text(count: int, per_ms: int) -> str:
    unit = next((name for name, ms in UNIT_MS.items() if ms == per_ms), None)
    return f"{count}/{unit or duration_text(per_ms)}"


RATE: Final = Kind(_rate, {"type": "string", "pattern": f"^{_RATE.pattern}$", "description": RATE_FORM})

_AGE: Final = duration()
_KEEP_FIELDS: Final = {"age": Field(_AGE, "age_ms"), "count": Field(integer(0, INTEGER_MAX))}
_KEEP: Final = object_of(_KEEP_FIELDS)


def _keep(default: Keep) -> Kind:
    """An age, or age and count; what is not given of them is as without."""

    def check(given: Any) -> dict[str, int]:
        kept = _KEEP.check(given) if type(given) is dict else {"age_ms": _AGE.check(given)}
        return {"age_ms": default.age_ms, "count": default.count} | kept

    return Kind(check, {"anyOf": [_AGE.schema, _KEEP.schema]})


def _keep_part(default: Keep) -> Kind:
    """The same in a PATCH: what is not given of them stays, and null takes it back."""
    whole = {"age_ms": default.age_ms, "count": default.count}

    def check(given: Any) -> dict[str, int]:
        if type(given) is not dict:
            return {"age_ms": _AGE.check(given)}
        kept: dict[str, int] = _KEEP.check(given)
        back = {_KEEP_FIELDS[name].key or name for name, each in given.items() if each is None}
        return kept | {key: whole[key] for key in back}

    return Kind(check, {"anyOf": [_AGE.schema, _KEEP.schema]})


def _limit() -> Field:
    return Field(integer(0, COUNT_MAX))


_PLAIN: Final = QueueSettings()
QUEUE_FIELDS: Final[Mapping[str, Field]] = {
    "discipline": Field(NAME),
    "weight": Field(integer(1, WEIGHT_MAX)),
    "limit": _limit(),
    "limit_per_key": _limit(),
    "limit_per_worker": _limit(),
    "rate": Field(RATE),
    "burst": Field(integer(1, COUNT_MAX)),
    "paused": Field(boolean()),
    "unique": Field(UNIQUE),
    "retry": Field(RETRY),
    "lease": Field(LEASE, "lease_ms"),
    "keep": Field(_keep(_PLAIN.keep)),
    "keep_failed": Field(_keep(_PLAIN.keep_failed)),
    "workers": Field(list_of(NAME, items_min=1)),
    "class": Field(NAME),
    "key_weights": Field(map_of(named(slash=True), integer(1, WEIGHT_MAX))),
}
_QUEUE_DEFAULTS: Final[Json] = {
    "discipline": _PLAIN.discipline,
    "weight": _PLAIN.weight,
    "paused": _PLAIN.paused,
    "keep_part": {"age_ms": _PLAIN.keep.age_ms, "count": _PLAIN.keep.count},
    "keep_failed_part": {"age_ms": _PLAIN.keep_failed.age_ms, "count": _PLAIN.keep_failed.count},
    "workers": list(_PLAIN.workers),
    "key_weights": {},
}
"""Of those that cannot be without a value."""


def _htb_rate(given: Any) -> int:
    """Thousandths: of slots, or of starts a second; what `100/m` is not exactly is rounded down, so that parts never add up
    to more than their whole."""
    if type(given) is str and "/" in given:
        rate = _rate(given)
        milli = rate["count"] * SECOND_MS * MILLI // rate["per_ms"]
        if not milli:
            raise ValueError(f"must be at least one in a thousand seconds, not {shown(given)}")
        return milli
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= COUNT_MAX:
        raise ValueError(f"must be a number of slots, or {RATE_FORM}, from 0 to {COUNT_MAX}, not {shown(given)}")
    milli = round(given * MILLI)
    if given and not milli:
        raise ValueError(f"must be 0, or at least {1 / MILLI}, not {shown(given)}")
    return milli


HTB_RATE: Final = Kind(
    _htb_rate,
    {
        "type": ["number", "string"],
        "minimum": 0,
        "maximum": COUNT_MAX,
        "pattern": RATE.schema["pattern"],
        "description": "slots, or starts a second or as 100/m",
    },
)
CLASS_FIELDS: Final[Mapping[str, Field]] = {
    "parent": Field(NAME),
    "rate": Field(HTB_RATE, "rate_milli"),
    "ceil": Field(HTB_RATE, "ceil_milli"),
    "burst": Field(integer(0, COUNT_MAX)),
    "priority": Field(integer(-(2**31), COUNT_MAX)),
    "of": Field(choice("slots", "starts")),
}
_ROOT: Final = HtbClass()
_CLASS_DEFAULTS: Final[Json] = {
    "rate_milli": _ROOT.rate_milli,
    "burst": _ROOT.burst,
    "priority": _ROOT.priority,
    "of": _ROOT.of,
}


def _relations(checked: Json) -> None:
    """What one request says against itself; what it says against the rest, the tree knows."""
    rate, ceil = checked.get("rate_milli"), checked.get("ceil_milli")
    if rate is not None and ceil is not None and ceil < rate:
        raise Faults(Fault("ceil", "must not be below the rate"))


def _whole_queue(checked: Json) -> None:
    if "burst" in checked and "rate" not in checked:
        raise Faults(Fault(".burst", BURST_ALONE))


def _whole_class(checked: Json) -> None:
    _relations(checked)
    if checked.get("parent") is None and checked.get("ceil_milli", 0) > checked.get("rate_milli", _ROOT.rate_milli):
        raise Faults(Fault(".ceil", ROOT_CEIL))


def _putting(fields: Mapping[str, Field], judge: Callable[[Json], None]) -> Kind:
    kind = object_of(fields)

    def check(given: Any) -> Json:
        checked: Json = kind.check(given)
        judge(checked)
        return checked

    return Kind(check, kind.schema)


def _patching(fields: Mapping[str, Field], defaults: Json) -> Kind:
    kind = object_of(fields)

    def check(given: Any) -> Json:
        checked: Json = kind.check(given)
        for name in given:
            if given[name] is None:
                key = fields[name].key or name
                checked[key] = defaults.get(key)
        if not checked:
            raise ValueError(f"must name at least one of {', '.join(fields)}")
        _relations(checked)
        return checked

    return Kind(check, {**kind.schema, "minProperties": 1})


PUT_QUEUE: Final = _putting(QUEUE_FIELDS, _whole_queue)
PATCH_QUEUE: Final = _patching(
    {
        **QUEUE_FIELDS,
        "keep": Field(_keep_part(_PLAIN.keep), "keep_part"),
        "keep_failed": Field(_keep_part(_PLAIN.keep_failed), "keep_failed_part"),
        "retry": Field(RETRY_PART, "retry_part"),
        "unique": Field(UNIQUE_PART, "unique_part"),
    },
    _QUEUE_DEFAULTS,
)
PUT_CLASS: Final = _putting(CLASS_FIELDS, _whole_class)
PATCH_CLASS: Final = _patching(CLASS_FIELDS, _CLASS_DEFAULTS)
PURGE: Final = object_of({"states": Field(list_of(choice(*PURGED), len(PURGED), items_min=1))})
SLICE: Final = 50
"""Queues shown between two turns of the loop."""
PAGE_PARAMS: Final = {
    "sort": Param(choice(*get_args(QueueSort)), about="by name, or those with most such tasks first"),
    "limit": LIMIT,
    "cursor": CURSOR,
}


# --- how they look ---


def queue_shape(record: Json) -> Json:
    """A queue of section 9."""
    shown_queue: Json = {}
    for name, value in record.items():
        shape = _SHAPES.get(name)
        if shape is None or value is None:
            shown_queue |= shapes.wire({name: value})
        else:
            shown_queue[name] = shape(value)
    return shown_queue


_SHAPES: Final[Mapping[str, Callable[[Json], Any]]] = {
    "rate": lambda rate: rate_text(rate["count"], rate["per_ms"]),
    "unique": shapes.unique,
    "retry": shapes.retry,
    "key_weights": dict,
}


def class_shape(record: Json) -> Json:
    return {
        "name": record["name"],
        "parent": record["parent"],
        "rate": _number(record["rate_milli"]),
        "ceil": None if record["ceil_milli"] is None else _number(record["ceil_milli"]),
        "burst": record["burst"],
        "priority": record["priority"],
        "of": record["of"],
    }


def _number(milli: int) -> float:
    return milli // MILLI if milli % MILLI == 0 else milli / MILLI


# --- handlers ---


async def get_queues(exchange: Exchange) -> web.StreamResponse:
    query = exchange.query
    limit = query.get("limit", LIMIT_DEFAULT)
    page = await exchange.pool.queueing.queues(exchange.call(), limit, query.get("cursor"), query.get("sort", "name"))
    items: list[Json] = []
    for one in page.items:
        items.append(queue_shape(one))
        if len(items) % SLICE == 0:
            await asyncio.sleep(0)
    return exchange.answer({"items": items, "next": page.next, "total": page.total})


async def get_queue(exchange: Exchange) -> web.StreamResponse:
    return exchange.answer(queue_shape(await exchange.pool.queueing.queue(exchange.call(), _known(exchange, "queue"))))


async def put_queue(exchange: Exchange) -> web.StreamResponse:
    name = _new(exchange)
    settings, key = await exchange.json()
    return exchange.answer(queue_shape(await exchange.pool.queueing.put_queue(exchange.call(key), name, settings)))


async def patch_queue(exchange: Exchange) -> web.StreamResponse:
    name = _new(exchange)
    changes, key = await exchange.json()
    return exchange.answer(queue_shape(await exchange.pool.queueing.patch_queue(exchange.call(key), name, changes)))


async def pause(exchange: Exchange) -> web.StreamResponse:
    """Or the opposite, by the last part of its route's path. A queue that is not there yet may be paused before it is used."""
    changes = {"paused": exchange.route.path.endswith("/pause")}
    call = exchange.call(exchange.key())
    return exchange.answer(queue_shape(await exchange.pool.queueing.patch_queue(call, _new(exchange), changes)))


async def purge(exchange: Exchange) -> web.StreamResponse:
    name = _known(exchange, "queue")
    given, key = await exchange.json_or({})
    done = await exchange.pool.queueing.purge_queue(exchange.call(key), name, given.get("states", WAITING))
    if isinstance(done, Bulk):
        return exchange.answer({"bulk": done.id}, 202)
    return exchange.answer({"matched": done.matched, "done": done.done, "index": done.index})


async def delete_queue(exchange: Exchange) -> web.StreamResponse:
    name = _known(exchange, "queue")
    await exchange.pool.queueing.delete_queue(exchange.call(exchange.key()), name)
    return exchange.answer({"name": name})


async def get_classes(exchange: Exchange) -> web.StreamResponse:
    classes = await exchange.pool.queueing.classes(exchange.call())
    return exchange.answer({"items": [class_shape(one) for one in classes], "next": None, "total": len(classes)})


async def get_class(exchange: Exchange) -> web.StreamResponse:
    found = await exchange.pool.queueing.get_class(exchange.call(), _known(exchange, "class"))
    return exchange.answer(class_shape(found))


async def put_class(exchange: Exchange) -> web.StreamResponse:
    name = _new(exchange)
    settings, key = await exchange.json()
    return exchange.answer(class_shape(await exchange.pool.queueing.put_class(exchange.call(key), name, settings)))


async def patch_class(exchange: Exchange) -> web.StreamResponse:
    name = _new(exchange)
    changes, key = await exchange.json()
    return exchange.answer(class_shape(await exchange.pool.queueing.patch_class(exchange.call(key), name, changes)))


async def delete_class(exchange: Exchange) -> web.StreamResponse:
    name = _known(exchange, "class")
    await exchange.pool.queueing.delete_class(exchange.call(exchange.key()), name)
    return exchange.answer({"name": name})


def _new(exchange: Exchange) -> str:
    """A name that something is given."""
    name = exchange.path["name"]
    try:
        NEW_NAME.check(name)
    except ValueError as error:
        raise rejected([Fault(".name", str(error))]) from None
    return name


def _known(exchange: Exchange, what: str) -> str:
    """What cannot be a name names nothing."""
    name = exchange.path["name"]
    try:
        NAME.check(name)
    except ValueError:
        raise Rejected("not_found", f"there is no {what} {name[:60]!r}") from None
    return name
