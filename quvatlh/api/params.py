"""What may stand behind the `?` of an address, and in a `match`: known names, each once, each of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_args
from urllib.parse import unquote_to_bytes

from quvatlh.api.checks import (
    Fault,
    Field,
    Kind,
    choice,
    duration,
    faults_of,
    list_of,
    matching,
    named,
    object_of,
    rejected,
    text,
    time,
    unknown,
)
from quvatlh.core.filters import TaskFilter
from quvatlh.core.limits import DAY_MS
from quvatlh.core.model import TaskState
from quvatlh.service.pool import GroupBy, Rejected, Sort, TaskQuery

LIMIT_MAX: Final = 1000
LIMIT_DEFAULT: Final = 100
PARTS_MIN: Final = 2
PARTS_MAX: Final = 100
"""Of a stretch of time: bars that a row of a table has room for."""
DEADLINE_MS_MAX: Final = 5 * 60 * 1000
WAIT_MS_MAX: Final = DAY_MS
_STATES: Final = get_args(TaskState)
_SORTS: Final = tuple(f"{sign}{sort}" for sort in get_args(Sort) for sign in ("", "-"))


class Param(NamedTuple):
    kind: Kind
    key: str = ""
    """What the handler calls it; empty: the same."""
    about: str = ""


def _flag(given: str) -> bool:
    if given not in {"0", "1", "true", "false"}:
        raise ValueError("must be 1 or 0, true or false")
    return given in {"1", "true"}


def _states(given: str) -> tuple[str, ...]:
    states = tuple(given.split(","))
    for state in states:
        _STATE.check(state)
    return states


def _limit(given: str) -> int:
    if not (given.isascii() and given.isdigit() and len(given) <= 4 and 1 <= int(given) <= LIMIT_MAX):
        raise ValueError(f"must be a whole number from 1 to {LIMIT_MAX}")
    return int(given)


def _parts(given: str) -> int:
    if not (given.isascii() and given.isdigit() and len(given) <= 3 and PARTS_MIN <= int(given) <= PARTS_MAX):
        raise ValueError(f"must be a whole number from {PARTS_MIN} to {PARTS_MAX}")
    return int(given)


def _offset(given: str) -> int:
    if not (given.isascii() and given.isdigit() and len(given) <= 15):
        raise ValueError("must be a number of bytes")
    return int(given)


_STATE = choice(*_STATES)
OFFSET: Final = Kind(_offset, {"type": "integer", "minimum": 0, "maximum": 10**15 - 1})
_ONE: Final = "|".join(_STATES)
FLAG: Final = Kind(_flag, {"type": "string", "enum": ["0", "1", "true", "false"]})
STATES: Final = Kind(_states, {"type": "string", "pattern": f"^({_ONE})(,({_ONE}))*$", "description": "one or more"})

FILTERS: Final[Mapping[str, Field]] = {
    "state": Field(Kind(lambda given: tuple(list_of(_STATE, 8, items_min=1).check(given)), list_of(_STATE).schema)),
    **{name: Field(named(slash=name in {"name", "key"})) for name in ("queue", "group", "name", "worker", "key")},
    "tag": Field(named()),
    "error": Field(named()),
    "kind": Field(choice("job", "service")),
    "q": Field(text(256, chars_min=1)),
    **{f"{stem}_{side}": Field(time()) for stem in ("created", "finished", "at") for side in ("after", "before")},
}
_MATCH = object_of(FILTERS)


def _match(given: Any) -> TaskFilter:
    if type(given) is dict and type(given.get("state")) is str:
        given = given | {"state": [given["state"]]}
    checked = _MATCH.check(given)
    if not checked:
        raise ValueError("must have at least one filter")
    return TaskFilter(**checked)


MATCH: Final = Kind(_match, {**_MATCH.schema, "minProperties": 1})

FILTER_PARAMS: Final[Mapping[str, Param]] = {
    name: Param(STATES if name == "state" else field.kind, field.key) for name, field in FILTERS.items()
}
LIMIT: Final = Param(Kind(_limit, {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX}))
CURSOR: Final = Param(matching(r"[A-Za-z0-9_=.~-]{1,1024}", "a cursor from `next`", 1024))
LIST_PARAMS: Final[Mapping[str, Param]] = {
    **FILTER_PARAMS,
    "sort": Param(choice(*_SORTS), about="with - for descending"),
    "limit": LIMIT,
    "cursor": CURSOR,
    "group_by": Param(choice(*get_args(GroupBy))),
    "parts": Param(
        Kind(_parts, {"type": "integer", "minimum": PARTS_MIN, "maximum": PARTS_MAX}),
        about="with group_by and finished_after: also how many ended in each so-many-th of the time since",
    ),
    "eta": Param(FLAG),
}
DEADLINE: Final = Param(duration(1, DEADLINE_MS_MAX), "deadline_ms", "how long the answer is waited for")
CONSISTENT: Final = Param(FLAG, about="read behind a barrier")
WAIT: Final = Param(duration(0, WAIT_MS_MAX), "wait_ms")


def task_query(given: Mapping[str, Any]) -> TaskQuery:
    sort = given.get("sort", "created_at")
    return TaskQuery(
        wanted=wanted(given),
        sort=sort.removeprefix("-"),
        descending=sort.startswith("-"),
        limit=given.get("limit", LIMIT_DEFAULT),
        cursor=given.get("cursor"),
        eta=given.get("eta", False),
    )


def wanted(given: Mapping[str, Any]) -> TaskFilter:
    return TaskFilter(**{name: given[name] for name in FILTERS if name in given})


def parse(query: str, params: Mapping[str, Param]) -> dict[str, Any]:
    """The parameters of one request; Rejected names all that is wrong with them."""
    found: dict[str, Any] = {}
    faults: list[Fault] = []
    for name, value in _pairs(query):
        param = params.get(name)
        if param is None:
            faults.append(unknown(name, params, "parameter"))
        elif (param.key or name) in found:
            faults.append(Fault(f".{name}", "must be given once"))
        else:
            try:
                found[param.key or name] = param.kind.check(value)
            except ValueError as error:
                faults += faults_of(error, f".{name}")
    if faults:
        raise rejected(faults)
    return found


def _pairs(query: str) -> list[tuple[str, str]]:
    return [
        (decoded(name.replace("+", " ")), decoded(value.replace("+", " ")))
        for name, _, value in (part.partition("=") for part in query.split("&") if part)
    ]


def decoded(part: str) -> str:
    """A percent-encoded piece of an address."""
    if "%" not in part:
        return part
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise Rejected("bad_request", "the address holds bytes that are not UTF-8") from None
