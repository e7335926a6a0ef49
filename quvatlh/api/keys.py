"""The handlers of tokens: who there is, another one, one less."""

from __future__ import annotations

from typing import Any, Final, get_args

from aiohttp import web

from quvatlh.api import shapes
from quvatlh.api.checks import Fault, Faults, Field, Kind, choice, duration, list_of, named, object_of, time
from quvatlh.api.exchange import Exchange
from quvatlh.api.formats import DURATION_FORM, TIME_FORM
from quvatlh.core.model import Role
from quvatlh.core.scopes import Scope
from quvatlh.service.pool import NEVER, Rejected, Until

NAME_CHARS_MAX: Final = 200
PATTERNS_MAX: Final = 100
"""Of queues, and of groups: each task is held against all of them."""
NAME: Final = named()


def _name(given: Any) -> str:
    name: str = NAME.check(given)
    if len(name) > NAME_CHARS_MAX:
        raise ValueError(f"must be at most {NAME_CHARS_MAX} characters")
    return name


def _pattern(given: Any) -> str:
    pattern: str = NAME.check(given)
    if "[" in pattern or "]" in pattern:
        raise ValueError("may hold * and ?, but neither [ nor ]")
    return pattern


def _until(given: Any) -> Until:
    if type(given) is str and "-" in given[1:]:
        return Until(at_ms=_TIME.check(given))
    try:
        in_ms = _SPAN.check(given)
    except ValueError as error:
        words = str(error)
        raise ValueError(f"must be {TIME_FORM}, or {DURATION_FORM}" if DURATION_FORM in words else words) from None
    if not in_ms:
        raise ValueError("must be later than now")
    return Until(in_ms=in_ms)


_TIME: Final = time()
_SPAN: Final = duration()
_UNTIL: Final = Kind(_until, {"anyOf": [_TIME.schema, _SPAN.schema]})
_PATTERNS: Final = list_of(Kind(_pattern, NAME.schema), PATTERNS_MAX, items_min=1)
_TOKEN: Final = object_of(
    {
        "name": Field(Kind(_name, {**NAME.schema, "maxLength": NAME_CHARS_MAX})),
        "role": Field(choice(*get_args(Role))),
        "queues": Field(_PATTERNS),
        "groups": Field(_PATTERNS),
        "expires": Field(_UNTIL, "until"),
    },
    "name",
    "role",
)


def _token(given: Any) -> dict[str, Any]:
    checked: dict[str, Any] = _TOKEN.check(given)
    scope = Scope(tuple(checked.pop("queues", ("*",))), tuple(checked.pop("groups", ("*",))))
    if checked["role"] == "admin" and not scope.is_all:
        field = ".queues" if not scope.has_all_queues else ".groups"
        raise Faults(Fault(field, "must be left out for role admin: who makes tokens has no bounds"))
    if checked["role"] == "worker" and not scope.has_all_groups:
        raise Faults(Fault(".groups", "must be left out for role worker: work is given out by queues"))
    return checked | {"scope": scope}


TOKEN: Final = Kind(_token, _TOKEN.schema)


async def get_tokens(exchange: Exchange) -> web.StreamResponse:
    tokens = await exchange.pool.tokens(exchange.call())
    return exchange.answer({"items": shapes.wire(tokens), "next": None, "total": len(tokens)})


async def get_token(exchange: Exchange) -> web.StreamResponse:
    return exchange.answer(shapes.wire(await exchange.pool.token(exchange.call(), exchange.path["name"])))


async def post_token(exchange: Exchange) -> web.StreamResponse:
    """Takes no Idempotency-Key: the secret would have to be remembered."""
    given, _ = await exchange.json()
    until = given.get("until", NEVER)
    made = await exchange.pool.add_token(exchange.call(), given["name"], given["role"], given["scope"], until)
    return exchange.answer(shapes.wire(made), 201)


async def delete_token(exchange: Exchange) -> web.StreamResponse:
    name = exchange.path["name"]
    try:
        NAME.check(name)
    except ValueError:
        raise Rejected("not_found", f"there is no token {name[:60]!r}") from None
    await exchange.pool.revoke_token(exchange.call(), name)
    return exchange.answer({"name": name})
