"""The handlers of schedules: a rule, and the task that each of its slots adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from quvatlh.api import shapes, tasks
from quvatlh.api.checks import Fault, Faults, Field, Kind, boolean, choice, duration, named, object_of, rejected, text
from quvatlh.api.exchange import Exchange
from quvatlh.api.formats import duration_text, time_text
from quvatlh.api.params import LIMIT_DEFAULT, LIST_PARAMS, Param
from quvatlh.core.limits import NAME_CHARS_MAX
from quvatlh.service.calendar import EVERY_MS_MIN, BadRule, find_zone
from quvatlh.service.pool import Json, Rejected

NAME: Final = named()
LEDGER_PARAMS: Final[Mapping[str, Param]] = {name: LIST_PARAMS[name] for name in ("limit", "cursor")}
_OWN: Final = {
    "id": "is made anew for each task",
    "at": "is for the schedule to say",
    "delay": "is for the schedule to say; `jitter` spreads its tasks",
}
_EVERY: Final = "@every"
"""Before a span of time, in place of cron's five fields."""


def _task(given: Any) -> Json:
    """`kept_env`: variables whose values nobody is shown, and which stay as they are."""
    given, kept_env = _without_hidden(given)
    checked: Json = {**tasks.check(given)}
    if kept_env:
        checked["kept_env"] = kept_env
    faults = [Fault(f".{name}", words) for name, words in _OWN.items() if given.get(name) is not None]
    if "expires_ms" in checked:
        faults.append(Fault(".expires", "must be a duration, such as 10m: it counts from each task's start"))
    if faults:
        raise Faults(*faults)
    return checked


def _without_hidden(given: Any) -> tuple[Any, list[str]]:
    work: Any = given.get("work") if isinstance(given, dict) else None
    env: Any = work.get("env") if isinstance(work, dict) else None
    hidden = [name for name, value in env.items() if value is None] if isinstance(env, dict) else []
    if not hidden:
        return given, []
    return {**given, "work": {**work, "env": {name: env[name] for name in env if name not in hidden}}}, hidden


def _zone(given: Any) -> str:
    name: str = NAME_OF_ZONE.check(given)
    try:
        find_zone(name)
    except BadRule as error:
        raise ValueError(str(error)) from None
    return name


NAME_OF_ZONE: Final = text(NAME_CHARS_MAX, chars_min=1)
_ANY_SPAN: Final = duration(0)


def _span_of(given: Any) -> int:
    ms: int = _ANY_SPAN.check(given)
    if ms < EVERY_MS_MIN:
        raise ValueError("must be 1s or more")
    return ms


_SPAN: Final = Kind(_span_of, _ANY_SPAN.schema)
_SCHEMA: Final = dict(tasks.TASK.schema)
_SCHEMA["properties"] = {name: each for name, each in _SCHEMA["properties"].items() if name not in _OWN}
_SCHEDULE: Final = object_of(
    {
        "cron": Field(text(NAME_CHARS_MAX, chars_min=1)),
        "every": Field(_SPAN, "every_ms"),
        "zone": Field(Kind(_zone, NAME_OF_ZONE.schema)),
        "task": Field(Kind(_task, _SCHEMA)),
        "catchup": Field(choice("skip", "last", "all")),
        "overlap": Field(choice("allow", "skip", "queue", "replace")),
        "jitter": Field(duration(), "jitter_ms"),
        "paused": Field(boolean()),
    },
    "task",
)


def _schedule(given: Any) -> Json:
    checked: Json = {**_SCHEDULE.check(given)}
    cron = checked.get("cron", "")
    if cron.startswith(_EVERY) and "every_ms" not in checked:
        checked["every_ms"] = _span(cron.removeprefix(_EVERY).strip())
        del checked["cron"]
    if ("cron" in checked) == ("every_ms" in checked):
        raise ValueError("must have exactly one of cron, every")
    task = checked.pop("task")
    beside = {name: task[name] for name in ("payload", "payload_json", "kept_env") if name in task}
    expires = {"expires_in_ms": task["expires_in_ms"]} if "expires_in_ms" in task else {}
    return checked | {"task": task["spec"]} | expires | beside


def _span(given: str) -> int:
    try:
        return int(_SPAN.check(given))
    except ValueError as error:
        raise Faults(Fault(".cron", f"after @every {error}")) from None


SCHEDULE: Final = Kind(_schedule, _SCHEDULE.schema)


async def get_schedules(exchange: Exchange) -> web.StreamResponse:
    found = [_shape(each) for each in await exchange.pool.schedules(exchange.call())]
    return exchange.answer({"items": found, "next": None, "total": len(found)})


async def get_schedule(exchange: Exchange) -> web.StreamResponse:
    return exchange.answer(_shape(await exchange.pool.schedule(exchange.call(), _name(exchange))))


async def put_schedule(exchange: Exchange) -> web.StreamResponse:
    name = exchange.path["name"]
    try:
        NAME.check(name)
    except ValueError as error:
        raise rejected([Fault(".name", str(error))]) from None
    given, key = await exchange.json()
    return exchange.answer(_shape(await exchange.pool.put_schedule(exchange.call(key), name, given)))


async def delete_schedule(exchange: Exchange) -> web.StreamResponse:
    name = _name(exchange)
    await exchange.pool.delete_schedule(exchange.call(exchange.key()), name)
    return exchange.answer({"name": name})


async def pause_schedule(exchange: Exchange) -> web.StreamResponse:
    """Or the opposite, by the last part of its route's path."""
    paused = exchange.route.path.endswith("/pause")
    call = exchange.call(exchange.key())
    return exchange.answer(_shape(await exchange.pool.pause_schedule(call, _name(exchange), paused=paused)))


async def run_schedule(exchange: Exchange) -> web.StreamResponse:
    return exchange.answer(await exchange.pool.run_schedule(exchange.call(exchange.key()), _name(exchange)))


async def get_ledger(exchange: Exchange) -> web.StreamResponse:
    limit = exchange.query.get("limit", LIMIT_DEFAULT)
    page = await exchange.pool.ledger(exchange.call(), _name(exchange), limit, exchange.query.get("cursor"))
    return exchange.answer({"items": shapes.wire(page.items), "next": page.next, "total": page.total})


def _shape(record: Json) -> Json:
    """As it was given, with its defaults, and what follows from it. A PUT of its rule and task says the same again."""
    spec = _DEFAULTS | record["spec"]
    given = spec.pop("task")
    task = shapes.spec(given) | {"expires": None} | {field: None for field, key in _QUEUES.items() if key not in given}
    if (expires := spec.pop("expires_in_ms", None)) is not None:
        task["expires"] = duration_text(expires)
    task |= shapes.payload(record)
    if spec["every_ms"] is not None:
        spec["zone"] = None
    told: Json = {
        "name": record["name"],
        **shapes.wire(spec),
        "task": task,
        "text": record["text"],
        "next": [time_text(ms) for ms in record["next_ms"]],
        "last_slot": None if record["last_slot_ms"] is None else time_text(record["last_slot_ms"]),
        "last_task": record["last_task"],
        "version": record["version"],
    }
    return told


_QUEUES: Final = {"retry": "retry", "lease": "lease_ms", "limit": "limit"}
"""What is not given of these is not the schedule's to say: the queue's, or the kind's, when its task is added."""
_DEFAULTS: Final[Json] = {
    "cron": None,
    "every_ms": None,
    "zone": "UTC",
    "catchup": "last",
    "overlap": "skip",
    "jitter_ms": 0,
    "paused": False,
}


def _name(exchange: Exchange) -> str:
    """What cannot be a name names nothing."""
    name = exchange.path["name"]
    try:
        NAME.check(name)
    except ValueError:
        raise Rejected("not_found", f"there is no schedule named {name[:60]!r}") from None
    return name
