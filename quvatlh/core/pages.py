"""Lists of tasks: any order, any filter, page by page, each page within a budget of time.

A list is a merge of streams, each of them in order by an index or by arrival. A stream is read in windows; at the end of
each it says how far it came even if nothing there was wanted, so a page may end anywhere and its cursor is the place.
When the tasks in the states asked for are few, they are gathered from the small indexes instead, and sorted. Text is looked
for last, in what all other filters have left, one task after the other in the order of the list: there a page may end
after each.
"""

from __future__ import annotations

import base64
import heapq
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from quvatlh.core import limits
from quvatlh.core.filters import TaskFilter, condition, has_text, known_counts, queues
from quvatlh.core.model import FINISHED
from quvatlh.core.queries import task_views, with_live_actions
from quvatlh.core.rows import json_list
from quvatlh.core.scopes import Condition
from quvatlh.core.views import Page, TaskView

SORTS: Final = ("created_at", "at", "finished_at", "priority")
GATHER_MAX: Final = 10_000
"""Rows of small indexes that are read and sorted for one page: some milliseconds."""
_WINDOW_MIN: Final = 64
_WINDOW_MAX: Final = 2048
"""Rows looked at in one query; small at first, since a merge opens many streams. The largest takes a millisecond."""
_SHOWN_TOGETHER: Final = 8
"""Tasks read whole between two looks at the clock: a megabyte at most."""
_FINISHED, _FAILED, _OWN_KEEP = range(3)
_END: Final = (2**62, 2**62)

Place = tuple[int, int]
"""Sort key and seq: a total order."""
OutOfTime = Callable[[], bool]


class BadCursor(ValueError):
    """A cursor that no page of this order gave."""


class Step(NamedTuple):
    place: Place
    wanted: bool
    """False: nothing here, only how far the stream was read."""


class _Stream(NamedTuple):
    """One ordered part of the table. `key` is an SQL expression, `where` what makes the index usable."""

    key: str
    where: str
    values: tuple[object, ...] = ()
    arrival: bool = False
    """Whether the order of the key is the order of arrival, so that the table itself is the index."""


def list_tasks(
    db: sqlite3.Connection,
    wanted: TaskFilter,
    *,
    sort: str = "-created_at",
    limit: int = 100,
    cursor: str | None = None,
    out_of_time: OutOfTime = lambda: False,
    overdue: OutOfTime = lambda: False,
) -> Page:
    """The next page. `sort` is one of SORTS, with `-` for descending. `out_of_time` ends the search, `overdue` also the
    reading of what was found, of which some is told in any case."""
    wanted, places, place = _read(db, wanted, sort, limit, cursor, out_of_time)
    total = _total(db, wanted, out_of_time) if cursor is None else None
    views: list[TaskView] = []
    for first in range(0, len(places), _SHOWN_TOGETHER):
        if first and overdue():
            place = places[first - 1]
            break
        views += task_views(db, [seq for _, seq in places[first : first + _SHOWN_TOGETHER]])
    return Page(tuple(with_live_actions(db, views)), None if place is None else cursor_of(place, sort), total)


def list_ids(
    db: sqlite3.Connection, wanted: TaskFilter, *, limit: int, cursor: str | None, out_of_time: OutOfTime
) -> tuple[list[str], str | None]:
    """The newest first; as list_tasks, for who needs no more of them."""
    sort = "-created_at"
    _, places, place = _read(db, wanted, sort, limit, cursor, out_of_time)
    seqs = [seq for _, seq in places]
    sql = "SELECT id FROM task WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY seq DESC"
    ids = [row[0] for row in db.execute(sql, (json_list(seqs),))]
    return ids, None if place is None else cursor_of(place, sort)


def _read(
    db: sqlite3.Connection, wanted: TaskFilter, sort: str, limit: int, cursor: str | None, out_of_time: OutOfTime
) -> tuple[TaskFilter, list[Place], Place | None]:
    """What is listed, in order, and where it goes on; None at the end."""
    descending, field = sort.startswith("-"), sort.removeprefix("-")
    after = None if cursor is None else place_of(cursor, sort)
    if field == "finished_at":
        wanted = finished(wanted)
    found: list[Place] = []
    place: Place | None = None
    for step in steps(db, wanted, field, after, descending=descending):
        if len(found) == limit:
            return wanted, found, place
        place = step.place
        if step.wanted:
            found.append(place)
        elif out_of_time():
            return wanted, found, place
    return wanted, found, None


# --- order ---


def finished(wanted: TaskFilter) -> TaskFilter:
    """Who asks for an order by end asks for what has ended."""
    states = tuple(state for state in wanted.state or FINISHED if state in FINISHED)
    return msgspec.structs.replace(wanted, state=states, id=wanted.id if states else ("-",))


def steps(
    db: sqlite3.Connection, wanted: TaskFilter, field: str, after: Place | None, *, descending: bool
) -> Iterator[Step]:
    if field not in SORTS:
        raise ValueError(f"no order by {field}")
    if wanted.q is not None:
        others = msgspec.structs.replace(wanted, q=None)
        return _with_text(db, wanted.q, steps(db, others, field, after, descending=descending))
    gathered = _gathered(db, wanted)
    if gathered is not None:
        return _sorted(db, wanted, gathered, field, after, descending=descending)
    matching = condition(wanted)
    if field == "priority":
        return _by_priority(db, matching, after, descending=descending)
    streams = _streams(db, wanted, field)
    parts = [_windows(db, stream, matching, after, descending=descending) for stream in streams]
    return heapq.merge(*parts, key=lambda step: step.place, reverse=descending)


def _streams(db: sqlite3.Connection, wanted: TaskFilter, field: str) -> list[_Stream]:
    if field == "created_at":
        return [_Stream("seq", _created_range(db, wanted), arrival=True)]
    if field == "at":
        return [_Stream("created_at", "at IS NULL", arrival=True), _Stream("at", "at IS NOT NULL")]
    of_queue, values = queues(wanted, "a")
    ranges = db.execute(f"SELECT a, b FROM tally WHERE scope = 'kept' AND {of_queue}", values).fetchall()  # noqa: S608 - text of our own
    kept_for = _kept_for(wanted)
    ended = "queue = ? AND kept = ?" + _ended_range(wanted)
    return [_Stream("finished_at", ended, each) for each in ranges if each[1] in kept_for]


def _ended_range(wanted: TaskFilter) -> str:
    """So that the index begins and ends there, instead of what is beside being looked at."""
    bounds = {">": wanted.finished_after, "<": wanted.finished_before}
    return "".join(f" AND finished_at {sign} {time_ms}" for sign, time_ms in bounds.items() if time_ms is not None)


def _kept_for(wanted: TaskFilter) -> set[int]:
    """What tasks in these states are kept for (schema: kept)."""
    states = set(wanted.state or FINISHED)
    return {_OWN_KEEP} | ({_FAILED} if "failed" in states else set()) | (set() if states == {"failed"} else {_FINISHED})


def _created_range(db: sqlite3.Connection, wanted: TaskFilter) -> str:
    """Log time never goes back, so times of creation are a range of arrivals, found by halving."""
    parts = ["1"]
    if wanted.created_after is not None:
        parts.append(f"seq >= {_first_created(db, wanted.created_after + 1)}")
    if wanted.created_before is not None:
        parts.append(f"seq < {_first_created(db, wanted.created_before)}")
    return " AND ".join(parts)


def _first_created(db: sqlite3.Connection, time_ms: int) -> int:
    """The smallest seq of a task created at or after a time."""
    low, high = 0, (db.execute("SELECT max(seq) FROM task").fetchone()[0] or 0) + 1
    while low < high:
        middle = (low + high) // 2
        sql = "SELECT created_at FROM task WHERE seq >= ? ORDER BY seq LIMIT 1"
        row = db.execute(sql, (middle,)).fetchone()
        if row is None or row[0] >= time_ms:
            high = middle
        else:
            low = middle + 1
    return low


def _windows(
    db: sqlite3.Connection, stream: _Stream, matching: Condition, after: Place | None, *, descending: bool
) -> Iterator[Step]:
    """The stream from a place on. What is in the window and not wanted costs only being looked at."""
    key, direction, compare = stream.key, "DESC" if descending else "ASC", "<" if descending else ">"
    place = after or (_END if descending else (-1, -1))
    if stream.arrival:
        order = f"seq {direction}"
        place = (place[0], _arrival(db, key, place, descending=descending))
    else:
        order = f"{key} {direction}, seq {direction}"
    sql = f"SELECT {key}, seq, ({matching[0]}) FROM task WHERE {stream.where} AND "  # noqa: S608 - text of our own
    # Equals of the last place first: asked together, SQLite would walk over all that were seen.
    equals = f"{sql} {key} = ? AND seq {compare} ? ORDER BY seq {direction} LIMIT ?"
    others = f"{sql} {'seq' if stream.arrival else key} {compare} ? ORDER BY {order} LIMIT ?"
    size, values = _WINDOW_MIN, (*matching[1], *stream.values)
    while True:
        rows = [] if stream.arrival else db.execute(equals, (*values, *place, size)).fetchall()
        beyond = place[1] if stream.arrival else place[0]
        rows += db.execute(others, (*values, beyond, size - len(rows))).fetchall()
        for at, seq, wanted in rows:
            place = (at, seq)
            if wanted:
                yield Step(place, wanted=True)
        if len(rows) < size:
            return
        yield Step(place, wanted=False)
        size = min(2 * size, _WINDOW_MAX)


def _arrival(db: sqlite3.Connection, key: str, place: Place, *, descending: bool) -> int:
    """The arrival that a place stands for: what is beyond the one is beyond the other."""
    if key == "seq" or place in {_END, (-1, -1)}:
        return place[1]
    first, end = _first_created(db, place[0]), _first_created(db, place[0] + 1)
    if descending:
        return min(max(place[1], first), end)
    return min(max(place[1], first - 1), end - 1)


def _by_priority(
    db: sqlite3.Connection, matching: Condition, after: Place | None, *, descending: bool
) -> Iterator[Step]:
    """One priority after the other, each by arrival; which there are, the counters know."""
    rows = db.execute("SELECT b FROM tally WHERE scope = 'priority'").fetchall()
    for priority in sorted((row[0] for row in rows), reverse=descending):
        if after is not None and (priority > after[0] if descending else priority < after[0]):
            continue
        stream = _Stream("seq", "1", arrival=True)
        sql, values = matching
        inside = (f"priority = ? AND ({sql})", (priority, *values))
        start = None
        if after is not None and priority == after[0]:
            start = (after[1], after[1])
        for step in _windows(db, stream, inside, start, descending=descending):
            yield Step((priority, step.place[1]), step.wanted)


# --- text ---


def _with_text(db: sqlite3.Connection, q: str, others: Iterator[Step]) -> Iterator[Step]:
    """Those that have it. Between two of them it is told how far they were looked at."""
    waiting: list[Place] = []
    for step in others:
        if step.wanted:
            waiting.append(step.place)
        if not step.wanted or len(waiting) == _WINDOW_MIN:
            yield from _tested(db, q, waiting)
            yield Step(step.place, wanted=False)
            waiting.clear()
    yield from _tested(db, q, waiting)


def _tested(db: sqlite3.Connection, q: str, places: Sequence[Place]) -> Iterator[Step]:
    """A row is read when it is asked for, and not before."""
    if not places:
        return
    text, values = has_text(q)
    each = "(SELECT value AS wanted FROM json_each(?)) CROSS JOIN task ON seq = wanted"
    rows = db.execute(f"SELECT {text} FROM {each}", (*values, json_list([seq for _, seq in places])))  # noqa: S608 - text of our own
    for number, (place, (has,)) in enumerate(zip(places, rows, strict=True)):
        if number:
            yield Step(places[number - 1], wanted=False)
        if has:
            yield Step(place, wanted=True)


# --- few ---

_KEYS: Final = {
    "created_at": "seq",
    "at": "coalesce(at, created_at)",
    "finished_at": "finished_at",
    "priority": "priority",
}


def _gathered(db: sqlite3.Connection, wanted: TaskFilter) -> str | None:
    """A query of the seqs of all tasks that can be wanted, if they are few: by id, as services, or by state, from small
    indexes."""
    if wanted.id:
        return f"SELECT seq FROM task WHERE id IN (SELECT value FROM json_each({_quoted(json_list(wanted.id))}))"  # noqa: S608 - text of our own
    if wanted.kind == "service":
        of_group = "" if wanted.group is None else f" AND grp = {_quoted(wanted.group)}"
        services = f"SELECT seq FROM task WHERE service = 1{of_group}"  # noqa: S608 - text of our own
        (n,) = db.execute(f"SELECT count(*) FROM ({services} LIMIT {GATHER_MAX + 1})").fetchone()  # noqa: S608 - text of our own
        if n <= GATHER_MAX:
            return services
    if not wanted.state:
        return None
    of_queue, a = (f" AND {_inline(queues(wanted, column))}" for column in ("queue", "a"))
    states = set(wanted.state)
    sources: list[tuple[str, str]] = []
    if states & {"claimed", "running", "pending"}:
        sources.append(("SELECT task FROM live", "scope = 'live'"))
        sources.append(("SELECT seq FROM task WHERE service = 1", "0"))
    if "pending" in states:
        sources.append((f"SELECT seq FROM task WHERE ready = 1{of_queue}", f"scope = 'state' AND b = 'pending'{a}"))  # noqa: S608 - text of our own
        sources.append((f"SELECT seq FROM task WHERE ready > 0 AND flow IS NOT NULL{of_queue}", "0"))  # noqa: S608 - text of our own
    if states & {"scheduled", "retrying"}:
        due = "scope = 'state' AND b IN ('scheduled', 'retrying')"
        sources.append(("SELECT seq FROM task WHERE due_at IS NOT NULL", due))
    if states & set(FINISHED):
        sources.append((f"SELECT seq FROM task WHERE kept IS NOT NULL{of_queue}", f"scope = 'kept'{a}"))  # noqa: S608 - text of our own
    size = sum(_tallied(db, counted) for _, counted in sources)
    return " UNION ".join(source for source, _ in sources) if size <= GATHER_MAX else None


def _tallied(db: sqlite3.Connection, where: str) -> int:
    return int(db.execute(f"SELECT coalesce(sum(n), 0) FROM tally WHERE {where}").fetchone()[0])  # noqa: S608 - text of our own


def _inline(matching: Condition) -> str:
    """With its values in it, which are text."""
    first, *rest = matching[0].split("?")
    return first + "".join(f"{_quoted(str(value))}{part}" for value, part in zip(matching[1], rest, strict=True))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''").replace("\0", "") + "'"


def _sorted(
    db: sqlite3.Connection, wanted: TaskFilter, gathered: str, field: str, after: Place | None, *, descending: bool
) -> Iterator[Step]:
    sql, values = condition(wanted)
    key = _KEYS[field]
    query = f"SELECT {key}, seq FROM task WHERE seq IN ({gathered}) AND {key} IS NOT NULL AND ({sql})"  # noqa: S608 - text of our own
    places: list[Place] = sorted(db.execute(query, values).fetchall(), reverse=descending)
    for place in places:
        if after is None or (place < after if descending else place > after):
            yield Step(place, wanted=True)


# --- how many ---


def _total(db: sqlite3.Connection, wanted: TaskFilter, out_of_time: OutOfTime) -> int | None:
    """Exact where the counters know it, else counted so far."""
    if wanted.is_counted:
        return sum(known_counts(db, wanted, "state").values())
    if out_of_time():
        return None
    counted = 0
    for step in steps(db, wanted, "created_at", None, descending=True):
        counted += step.wanted
        if counted > limits.TOTAL_COUNT_MAX or (not step.wanted and out_of_time()):
            return None
    return counted


# --- cursors ---


def cursor_of(place: Place, sort: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((sort, *place))).decode().rstrip("=")


def place_of(cursor: str, sort: str) -> Place:
    try:
        data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        of, key, seq = msgspec.json.decode(data, type=tuple[str, int, int])
    except (ValueError, msgspec.MsgspecError) as error:
        raise BadCursor("this is no cursor") from error
    if of != sort or not (-(2**62) <= key < 2**62 and 0 <= seq < 2**62):
        raise BadCursor("the cursor belongs to another order")
    return key, seq
