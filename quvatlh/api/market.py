"""The handlers of placement: why a task waits, workers and what they run, policies, announcements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, get_args

from aiohttp import web

from quvatlh.api import shapes, tasks
from quvatlh.api.checks import Fault, Field, Kind, choice, integer, list_of, named, object_of, rejected, text
from quvatlh.api.exchange import JSON, LUA, Exchange
from quvatlh.api.params import CURSOR, LIMIT, LIMIT_DEFAULT, Param
from quvatlh.api.tasks import ID, TASK
from quvatlh.api.views import task_id
from quvatlh.config import kinds
from quvatlh.core.owned import OwnedBy, OwnedFilter
from quvatlh.service.pool import Json, Rejected

SLOTS_MAX: Final = 1_000_000
NAME: Final = named()
SOURCE: Final = text(chars_min=1)
SOURCE_TYPES: Final[Mapping[str, str]] = {LUA: "the source as it is"}
POLICY: Final = object_of({"source": Field(SOURCE)}, "source")
GROUP_PARAM: Final = {"group": Param(NAME)}
_OWNED: Final = ("group", "queue", "worker")
OWNED_PARAMS: Final[Mapping[str, Param]] = {
    **{name: Param(NAME) for name in _OWNED},
    "kind": Param(choice("job", "service")),
    "group_by": Param(choice(*get_args(OwnedBy)), about="how many each has, instead of the list"),
    "limit": LIMIT,
    "cursor": CURSOR,
}
ENVIRONMENT_PARAM: Final = {"environment": Param(NAME, about="else all of them")}


def _further(judge: Callable[[object], str]) -> Kind:
    """A name that the configuration, too, would take."""
    return Kind(
        lambda given: judge(NAME.check(given)),
        {**NAME.schema, "pattern": r"^[^!\u0000-\u001f\u007f/][^\u0000-\u001f\u007f/]*$"},
    )


_WORKER: Final = object_of(
    {
        "tags": Field(list_of(_further(kinds.tag))),
        "queues": Field(list_of(_further(kinds.pattern))),
        "slots": Field(integer(0, SLOTS_MAX)),
    }
)


def _changes(given: Any) -> dict[str, Any]:
    changes: dict[str, Any] = _WORKER.check(given)
    if not changes:
        raise ValueError(f"must name at least one of {', '.join(_WORKER.schema['properties'])}")
    return changes


WORKER: Final = Kind(_changes, {**_WORKER.schema, "minProperties": 1})


def _task(given: Any) -> Any:
    """One that stands, by its id, or one that might be added."""
    if type(given) is str:
        return ID.check(given)
    return tasks.check(given)


def _state(given: Any) -> Any:
    """As a policy sees it: what it is judged by is looked at, the rest is the policy's business."""
    for path, kind, words in _OF_A_STATE:
        found = given
        for name in path:
            found = found.get(name) if type(found) is dict else None
        if type(found) is not kind:
            raise ValueError(f"must be a worker's state: {'.'.join(path) or 'it'} must be {words}")
    group = given["cluster"]["group"]
    if not all(type(count) is int for count in group.values()):
        raise ValueError("must be a worker's state: cluster.group must be numbers by worker")
    return given


_OF_A_STATE: Final = (
    ((), dict, "an object"),
    (("worker", "name"), str, "text"),
    (("cluster", "group"), dict, "an object"),
)
STATES_MAX: Final = 100
"""Judged one after the other, each for at most half a second."""
POLICY_TEST: Final = object_of(
    {
        "source": Field(SOURCE),
        "task": Field(Kind(_task, {"anyOf": [ID.schema, TASK.schema]})),
        "worker": Field(NAME),
        "states": Field(list_of(Kind(_state, {"type": "object"}), STATES_MAX, items_min=1)),
    },
    "source",
    "task",
)


async def get_explain(exchange: Exchange) -> web.StreamResponse:
    return exchange.answer(shapes.wire(await exchange.pool.explain(exchange.call(), task_id(exchange))))


async def get_workers(exchange: Exchange) -> web.StreamResponse:
    return _list(exchange, await exchange.pool.workers(exchange.call()))


async def get_worker(exchange: Exchange) -> web.StreamResponse:
    return exchange.answer(shapes.wire(await exchange.pool.worker(exchange.call(), _name(exchange, "worker"))))


async def get_worker_load(exchange: Exchange) -> web.StreamResponse:
    return exchange.answer(shapes.wire(await exchange.pool.worker_load(exchange.call(), _name(exchange, "worker"))))


async def patch_worker(exchange: Exchange) -> web.StreamResponse:
    changes, key = await exchange.json()
    worker = await exchange.pool.patch_worker(exchange.call(key), _name(exchange, "worker"), changes)
    return exchange.answer(shapes.wire(worker))


async def drain(exchange: Exchange) -> web.StreamResponse:
    """Or the opposite, by the last part of its route's path."""
    name = _name(exchange, "worker")
    draining = exchange.route.path.endswith("/drain")
    worker = await exchange.pool.patch_worker(exchange.call(exchange.key()), name, {"draining": draining})
    return exchange.answer(shapes.wire(worker))


async def reload(exchange: Exchange) -> web.StreamResponse:
    name, environment = _name(exchange, "worker"), exchange.query.get("environment")
    return exchange.answer(await exchange.pool.reload_worker(exchange.call(), name, environment))


async def get_policies(exchange: Exchange) -> web.StreamResponse:
    return _list(exchange, await exchange.pool.policies(exchange.call()))


async def get_policy(exchange: Exchange) -> web.StreamResponse:
    return exchange.answer(shapes.wire(await exchange.pool.policy(exchange.call(), _name(exchange, "policy"))))


async def put_policy(exchange: Exchange) -> web.StreamResponse:
    name = exchange.path["name"]
    try:
        NAME.check(name)
    except ValueError as error:
        raise rejected([Fault(".name", str(error))]) from None
    source, key = await _source(exchange)
    return exchange.answer(shapes.wire(await exchange.pool.put_policy(exchange.call(key), name, source)))


async def _source(exchange: Exchange) -> tuple[str, Any]:
    content_type = exchange.content_type()
    if content_type == JSON:
        given, key = await exchange.json()
        return given["source"], key
    raw = await exchange.body()
    try:
        return SOURCE.check(raw.decode()), exchange.key(raw)
    except UnicodeDecodeError as error:
        raise Rejected("bad_request", f"the body is not UTF-8 at byte {error.start}") from None
    except ValueError as error:
        raise rejected([Fault(".source", str(error))]) from None


async def delete_policy(exchange: Exchange) -> web.StreamResponse:
    name = _name(exchange, "policy")
    await exchange.pool.delete_policy(exchange.call(exchange.key()), name)
    return exchange.answer({"name": name})


async def test_policy(exchange: Exchange) -> web.StreamResponse:
    given, _ = await exchange.json()
    wanted = given["source"], given["task"], given.get("worker"), given.get("states")
    return _list(exchange, await exchange.pool.test_policy(exchange.call(), *wanted))


async def get_announcements(exchange: Exchange) -> web.StreamResponse:
    return _list(exchange, await exchange.pool.announcements(exchange.call(), exchange.query.get("group")))


async def get_actions(exchange: Exchange) -> web.StreamResponse:
    """Of the whole cluster, those that are live."""
    query, pool = exchange.query, exchange.pool
    wanted = OwnedFilter(**{name: query[name] for name in (*_OWNED, "kind") if name in query})
    if "group_by" in query:
        found = await pool.count_owned(exchange.call(), wanted, query["group_by"])
        return exchange.answer({"groups": found.groups})
    page = await pool.owned(exchange.call(), wanted, query.get("limit", LIMIT_DEFAULT), query.get("cursor"))
    return exchange.answer({"items": shapes.wire(page.items), "next": page.next, "total": page.total})


def _list(exchange: Exchange, items: Sequence[Json]) -> web.StreamResponse:
    """Whole: there are never so many that it would need pages."""
    return exchange.answer({"items": shapes.wire(items), "next": None, "total": len(items)})


def _name(exchange: Exchange, what: str) -> str:
    """What cannot be a name names nothing."""
    name = exchange.path["name"]
    try:
        NAME.check(name)
    except ValueError:
        raise Rejected("not_found", f"there is no {what} {name[:60]!r}") from None
    return name
