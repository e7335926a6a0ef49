"""Reads of single things, on whatever connection the caller has. Nothing here writes, and nothing scans the tasks."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from quvatlh.core import limits, tally
from quvatlh.core.books import QueueState, Shape
from quvatlh.core.model import HtbClass, QueueSettings, ScheduleSpec, TokenScope, WorkerFacts
from quvatlh.core.rows import LIVE_SELECT, TASK_SELECT, LiveRow, TaskRow, decode_spec, json_list, live_row, task_row
from quvatlh.core.scopes import Scope, of_column
from quvatlh.core.scopes import condition as in_scope
from quvatlh.core.views import (
    ActionView,
    AnnouncementView,
    ClassView,
    ClockJump,
    LedgerRow,
    PolicyView,
    QueueView,
    ScheduleView,
    SessionView,
    TaskView,
    TokenView,
    WorkerView,
)

_SHAPE: Final = msgspec.json.Decoder(Shape)
_SETTINGS: Final = msgspec.json.Decoder(QueueSettings)
_FACTS: Final = msgspec.json.Decoder(WorkerFacts)
_SCHEDULE: Final = msgspec.json.Decoder(ScheduleSpec)
_OLDEST_PROBES_MAX: Final = 1000
_LINES_PROBED_MAX: Final = 100


def applied_index(db: sqlite3.Connection) -> int:
    """Up to where a reader sees; read it inside the same transaction."""
    return int(db.execute("SELECT applied_index FROM meta").fetchone()[0])


# --- tasks ---


def task_views(db: sqlite3.Connection, seqs: Sequence[int]) -> list[TaskView]:
    """In the order asked; one that is gone is left out."""
    rows = db.execute(f"{TASK_SELECT} WHERE seq IN (SELECT value FROM json_each(?))", (json_list(seqs),))  # noqa: S608 - text of our own
    found = {row[0]: task_row(row) for row in rows}
    shapes: dict[int, Shape] = {}
    settings: dict[str, QueueSettings] = {}
    return [_view(db, found[seq], shapes, settings) for seq in seqs if seq in found]


def with_live_actions(db: sqlite3.Connection, views: Sequence[TaskView]) -> list[TaskView]:
    """For lists: of each task the first ten. A job's is the one that it names; those of services are looked for in all that
    is live, once a page."""
    live = [view.row for view in views if view.row.live]
    tokens = [row.token for row in live if not row.service]
    services = dict.fromkeys((row.seq for row in live if row.service), 0)
    if services:
        sql = (
            "SELECT task, token FROM live WHERE service = 1 AND task IN (SELECT value FROM json_each(?)) ORDER BY token"
        )
        for seq, token in db.execute(sql, (json_list(list(services)),)):
            services[seq] += 1
            if services[seq] <= limits.ACTIONS_SHOWN_MAX:
                tokens.append(token)
    found: dict[int, list[ActionView]] = {}
    sql = f"{LIVE_SELECT} WHERE token IN (SELECT value FROM json_each(?)) ORDER BY token"  # noqa: S608 - text of our own
    for action in map(live_row, db.execute(sql, (json_list(tokens),)) if tokens else ()):
        found.setdefault(action.task, []).append(live_view(action))
    return [replace(view, actions=tuple(found.get(view.row.seq, ()))) for view in views]


def get_task(db: sqlite3.Connection, task_id: str) -> TaskView | None:
    """A task with its live actions and the last ten that ended."""
    row = db.execute(f"{TASK_SELECT} WHERE id = ?", (task_id,)).fetchone()
    if row is None:
        return None
    view = _view(db, task_row(row), {}, {})
    actions = tuple(list_actions(db, view.row, limits.ACTIONS_SHOWN_MAX))
    return replace(view, actions=actions)


def is_gone(db: sqlite3.Connection, task_id: str, now_ms: int) -> bool:
    """Whether there was such a task within the last day, by an id that its producer chose."""
    row = db.execute("SELECT at, ordinal FROM tombstone WHERE id = ?", (task_id,)).fetchone()
    if row is None:
        return False
    last = db.execute("SELECT n FROM serial WHERE name = 'tombstone'").fetchone()[0]
    return bool(row[0] > now_ms - limits.KNOWN_MS and row[1] > last - limits.KNOWN_MAX)


def get_payload(db: sqlite3.Connection, seq: int) -> tuple[bytes, bool] | None:
    """The payload and whether it is JSON."""
    row = db.execute("SELECT payload, payload_json FROM body WHERE task = ?", (seq,)).fetchone()
    return None if row is None or row[0] is None else (row[0], bool(row[1]))


def list_actions(db: sqlite3.Connection, task: TaskRow, ended_max: int = limits.ACTIONS_KEPT_MAX) -> list[ActionView]:
    """The live ones and the last that ended, by token. A plain success has no row of its own: it is told from its task's."""
    sql = (
        "SELECT token, worker, attempt, state, awarded_at, started_at, finished_at, exit_code, signal, error, "
        "error_text, result, output_tail, progress FROM action WHERE task = ? ORDER BY token DESC LIMIT ?"
    )
    ended = [_ended(task, row) for row in db.execute(sql, (task.seq, ended_max))]
    if task.state == "succeeded" and all(action.token != task.token for action in ended):
        last = ActionView(
            action_id(task.token), task.id, task.worker or "", task.token, task.attempts, "succeeded",
            started_at=task.started_at, finished_at=task.finished_at,
        )  # fmt: skip
        ended = [last, *ended][:ended_max]
    live = db.execute(f"{LIVE_SELECT} WHERE task = ? ORDER BY token", (task.seq,)) if task.live else ()
    return [*reversed(ended), *(live_view(live_row(row)) for row in live)]


def action_id(token: int) -> str:
    """Actions are named by their token: there is no second number to keep unique."""
    return f"a{token}"


def live_view(action: LiveRow) -> ActionView:
    return ActionView(
        action_id(action.token),
        action.id,
        action.worker,
        action.token,
        action.attempt,
        action.state,
        action.awarded_at,
        action.started_at,
        progress=_json(action.progress),
        announcement=_json(action.announcement),
        lease_ms=action.lease_ms,
        stop=action.stop,
    )


def shortest_leases(db: sqlite3.Connection) -> dict[str, int]:
    """In ms, by session: of what it owns. However much that is, it is one row."""
    return dict(db.execute("SELECT session, min(lease_ms) FROM live GROUP BY session").fetchall())


def owned_by(db: sqlite3.Connection, sessions: Collection[str]) -> list[LiveRow]:
    """What these sessions own now, by token."""
    sql = f"{LIVE_SELECT} WHERE session IN (SELECT value FROM json_each(?)) ORDER BY token"  # noqa: S608 - text of our own
    return [live_row(row) for row in db.execute(sql, (json_list(sorted(sessions)),))] if sessions else []


def announcements(
    db: sqlite3.Connection, group: str | None = None, scope: Scope | None = None
) -> list[AnnouncementView]:
    where, values = ("1", ()) if scope is None else in_scope(scope)
    sql = f"{LIVE_SELECT} WHERE announcement IS NOT NULL AND grp = coalesce(?, grp) AND {where} ORDER BY token"
    return [
        AnnouncementView(
            live.id, action_id(live.token), live.grp, _name(db, live), live.worker,
            live.started_at or live.awarded_at, _json(live.announcement) or {},
        )
        for live in map(live_row, db.execute(sql, (group, *values)))
    ]  # fmt: skip


def _name(db: sqlite3.Connection, live: LiveRow) -> str:
    if live.name is not None:
        return live.name
    return str(db.execute("SELECT coalesce(name, id) FROM task WHERE seq = ?", (live.task,)).fetchone()[0])


def _view(
    db: sqlite3.Connection, row: TaskRow, shapes: dict[int, Shape], settings: dict[str, QueueSettings]
) -> TaskView:
    text = row.spec or db.execute("SELECT spec FROM body WHERE task = ?", (row.seq,)).fetchone()[0]
    if row.shape not in shapes:
        shapes[row.shape] = get_shape(db, row.shape)
    if row.queue not in settings:
        known = db.execute("SELECT settings FROM queue WHERE name = ?", (row.queue,)).fetchone()
        settings[row.queue] = QueueSettings() if known is None else _SETTINGS.decode(known[0])
    return TaskView(row, decode_spec(text), shapes[row.shape], settings[row.queue])


def _ended(task: TaskRow, row: tuple[Any, ...]) -> ActionView:
    token, worker, attempt, state, awarded_at, started_at, finished_at, *said, progress = row
    exit_code, signal, error, error_text, result, output_tail = said
    return ActionView(
        action_id(token),
        task.id,
        worker,
        token,
        attempt,
        state,
        awarded_at,
        started_at,
        finished_at,
        exit_code=exit_code,
        signal=signal,
        error=error,
        error_text=error_text,
        result=result,
        output_tail=output_tail,
        progress=_json(progress),
    )


def _json(text: str | None) -> dict[str, Any] | None:
    return None if text is None else msgspec.json.decode(text)


def find_shape(db: sqlite3.Connection, number: int) -> Shape | None:
    row = db.execute("SELECT body FROM shape WHERE id = ?", (number,)).fetchone()
    return None if row is None else _SHAPE.decode(row[0])


def get_shape(db: sqlite3.Connection, number: int) -> Shape:
    return _SHAPE.decode(db.execute("SELECT body FROM shape WHERE id = ?", (number,)).fetchone()[0])


# --- queues and workers ---


def queues(db: sqlite3.Connection, now_ms: int, name: str | None = None) -> list[QueueView]:
    """All queues, or one, with what is in them."""
    one, values = ("", ()) if name is None else (" AND a = ?", (name,))
    counts: dict[str, dict[str, int]] = {}
    sql = f"SELECT scope, a, b, n FROM tally WHERE scope IN ('state', 'live'){one}"  # noqa: S608 - text of our own
    for scope, queue, state, n in db.execute(sql, values):
        counts.setdefault(queue, {})[state if scope == "state" else "live"] = n
    where = "" if name is None else " WHERE name = ?"
    rows = db.execute(f"SELECT * FROM queue{where} ORDER BY name", values).fetchall()  # noqa: S608 - text of our own
    return [_queue(db, row, counts.get(row[0], {}), now_ms) for row in rows]


def queue_names(db: sqlite3.Connection, after: str, limit: int, patterns: Sequence[str] = ("*",)) -> list[str]:
    """Some of a list, in order."""
    where, values = of_column("name", patterns)
    sql = f"SELECT name FROM queue WHERE name > ? AND {where} ORDER BY name LIMIT ?"  # noqa: S608 - text of our own
    return [row[0] for row in db.execute(sql, (after, *values, limit))]


def fuller_queues(
    db: sqlite3.Connection,
    states: Sequence[str],
    after: tuple[int | None, str] | None,
    limit: int,
    patterns: Sequence[str] = ("*",),
) -> list[tuple[int, str]]:
    """Some of a list, those with most tasks of these states first: how many, and the name."""
    where, values = of_column("name", patterns)
    counted = (
        "SELECT a, sum(n) AS n FROM tally WHERE scope = 'state' AND b IN (SELECT value FROM json_each(?1)) GROUP BY a"
    )
    sql = (
        f"SELECT coalesce(n, 0) AS n, name FROM queue LEFT JOIN ({counted}) ON a = name WHERE "  # noqa: S608 - text of our own
        f"(?2 IS NULL OR coalesce(n, 0) < ?2 OR (coalesce(n, 0) = ?2 AND name > ?3)) AND {where} ORDER BY 1 DESC, 2 LIMIT ?"
    )
    n, name = after or (None, "")
    return db.execute(sql, (json_list(states), n, name, *values, limit)).fetchall()


def count_queues(db: sqlite3.Connection, patterns: Sequence[str] = ("*",)) -> int:
    where, values = of_column("name", patterns)
    return int(db.execute(f"SELECT count(*) FROM queue WHERE {where}", values).fetchone()[0])  # noqa: S608 - text of our own


def fullest_queues(db: sqlite3.Connection, now_ms: int, at_most: int) -> tuple[list[QueueView], dict[str, int]]:
    """Those with most unfinished tasks, by name, and the tasks of all others by state."""
    sql = (
        "SELECT name FROM queue LEFT JOIN (SELECT a, sum(n) AS n FROM tally WHERE scope = 'state' "
        "AND b NOT IN ('succeeded', 'failed', 'deleted') GROUP BY a) ON a = name ORDER BY coalesce(n, 0) DESC, name LIMIT ?"
    )
    names = sorted(row[0] for row in db.execute(sql, (at_most,)))
    views = [view for name in names for view in queues(db, now_ms, name)]
    rest = dict(db.execute("SELECT b, sum(n) FROM tally WHERE scope = 'state' GROUP BY b").fetchall())
    for view in views:
        for state, n in view.counts.items():
            rest[state] -= n
    return views, {state: n for state, n in rest.items() if n}


def _queue(db: sqlite3.Connection, row: tuple[Any, ...], counted: dict[str, int], now_ms: int) -> QueueView:
    state = QueueState(row[0], _SETTINGS.decode(row[1]), *row[2:])
    counts = {name: n for name, n in counted.items() if name != "live"}
    oldest = oldest_pending(db, row[0]) if counts.get("pending") else None
    return QueueView(
        row[0], state.settings, counts, counted.get("live", 0), oldest, state.free_at(now_ms), row[4] is not None
    )


def oldest_pending(db: sqlite3.Connection, queue: str, without: Container[int] = ()) -> int | None:
    """The first of each shape and rank, hopping from one to the next; beyond a thousand of them, of those. Some shapes may be
    left out."""
    oldest: int | None = None
    place: tuple[int, int] | None = None
    ready = "SELECT shape, rank, seq FROM task WHERE ready = 1 AND queue = ?"
    next_rank = f"{ready} AND shape = ? AND rank > ? ORDER BY rank, seq LIMIT 1"
    next_shape = f"{ready} AND shape > ? ORDER BY shape, rank, seq LIMIT 1"
    for _ in range(_OLDEST_PROBES_MAX):
        row = None if place is None else db.execute(next_rank, (queue, *place)).fetchone()
        row = row or db.execute(next_shape, (queue, -1 if place is None else place[0])).fetchone()
        if row is None:
            break
        if row[0] in without:
            place = (row[0], limits.INTEGER_MAX)
            continue
        place = (row[0], row[1])
        oldest = row[2] if oldest is None else min(oldest, row[2])
    for shape, seq in _held_up(db, queue):
        if shape in without:
            continue
        oldest = seq if oldest is None else min(oldest, seq)
    if oldest is None:
        return None
    return int(db.execute("SELECT created_at FROM task WHERE seq = ?", (oldest,)).fetchone()[0])


def _held_up(db: sqlite3.Connection, queue: str) -> Iterator[tuple[int, int]]:
    """Shape and number: the first of each line, whether it is in the ready order or not; of the first hundred lines."""
    flow, shape = "", -1
    sql = (
        "SELECT flow, shape, seq FROM task WHERE ready > 0 AND queue = ? AND flow >= ? AND (flow, shape) > (?, ?) "
        "ORDER BY flow, shape, turn, seq LIMIT 1"
    )
    for _ in range(_LINES_PROBED_MAX):
        row = db.execute(sql, (queue, flow, flow, shape)).fetchone()
        if row is None:
            return
        flow, shape, seq = row
        yield shape, seq


def classes(db: sqlite3.Connection) -> list[ClassView]:
    rows = db.execute("SELECT name, settings FROM class ORDER BY name")
    return [ClassView(name, msgspec.json.decode(text, type=HtbClass)) for name, text in rows]


def busy(db: sqlite3.Connection, queue: str) -> dict[str, int]:
    """Live actions of a queue, by worker."""
    return dict(db.execute("SELECT b, n FROM tally WHERE scope = ? AND a = ?", (tally.LIVE_WORKER, queue)).fetchall())


def workers(db: sqlite3.Connection, name: str | None = None) -> list[WorkerView]:
    live = {
        row[0]: row[1:]
        for row in db.execute("SELECT worker, count(*), sum(slots) FROM live GROUP BY worker ORDER BY worker")
    }
    sql = "SELECT name, session, state, draining, facts FROM worker WHERE name = coalesce(?, name) ORDER BY name"
    return [
        WorkerView(
            worker, session, "draining" if draining and state == "up" else state, _FACTS.decode(facts),
            *live.get(worker, (0, 0)),
        )
        for worker, session, state, draining, facts in db.execute(sql, (name,))
    ]  # fmt: skip


def get_session(db: sqlite3.Connection, session: str) -> SessionView | None:
    row = db.execute("SELECT * FROM session WHERE id = ?", (session,)).fetchone()
    if row is None:
        return None
    name, worker, secret_hash, directory, isolated, opened_at, floor, ended = row
    return SessionView(name, worker, secret_hash, directory, bool(isolated), opened_at, floor, bool(ended))


def charged_sessions(db: sqlite3.Connection) -> set[str]:
    """Sessions that tasks are charged with the end of, and that may yet turn out to live."""
    rows = db.execute("SELECT value ->> 0 FROM fact WHERE name > 'died/' AND name < 'died0'")
    return {row[0] for row in rows}


# --- schedules, policies, tokens ---


def schedules(db: sqlite3.Connection, name: str | None = None) -> list[ScheduleView]:
    sql = (
        "SELECT name, spec, version, next_at, last_slot, last_task, payload, payload_json FROM schedule "
        "WHERE name = coalesce(?, name) ORDER BY name"
    )
    return [
        ScheduleView(schedule, _SCHEDULE.decode(spec), version, next_at, slot, task, payload, bool(payload_json))
        for schedule, spec, version, next_at, slot, task, payload, payload_json in db.execute(sql, (name,))
    ]


def has_schedule(db: sqlite3.Connection, name: str) -> bool:
    return db.execute("SELECT 1 FROM schedule WHERE name = ?", (name,)).fetchone() is not None


def ledger(db: sqlite3.Connection, schedule: str, *, before: int | None = None, limit: int = 100) -> list[LedgerRow]:
    """The latest first; `before` is the ordinal of the last row of the page before."""
    sql = (
        "SELECT ordinal, slot, at, outcome, task, why, manual FROM ledger WHERE schedule = ? AND ordinal < ? "
        "ORDER BY ordinal DESC LIMIT ?"
    )
    rows = db.execute(sql, (schedule, limits.INTEGER_MAX if before is None else before, limit))
    return [
        LedgerRow(ordinal, slot, at, outcome, task, why, bool(manual))
        for ordinal, slot, at, outcome, task, why, manual in rows
    ]


def policies(db: sqlite3.Connection, name: str | None = None) -> list[PolicyView]:
    sql = "SELECT name, version, source, at FROM policy WHERE name = coalesce(?, name) ORDER BY name"
    return [PolicyView(*row) for row in db.execute(sql, (name,))]


def names_policy(db: sqlite3.Connection, name: str) -> tuple[str, str] | None:
    """Id and state of a task in the table that does, as policy or announce. A scan that ends with the first."""
    sql = (
        "SELECT id, state FROM task WHERE shape IN "
        "(SELECT id FROM shape WHERE body ->> '$.policy.name' = ?1 OR body ->> '$.announce' = ?1) LIMIT 1"
    )
    found: tuple[str, str] | None = db.execute(sql, (name,)).fetchone()
    return found


def tokens(db: sqlite3.Connection) -> Iterator[TokenView]:
    for name, hash_, scope, at in db.execute("SELECT name, hash, scope, at FROM token ORDER BY name"):
        yield TokenView(name, hash_, msgspec.json.decode(scope, type=TokenScope), at)


def token_by_hash(db: sqlite3.Connection, hash_: bytes) -> TokenView | None:
    row = db.execute("SELECT name, hash, scope, at FROM token WHERE hash = ?", (hash_,)).fetchone()
    return None if row is None else TokenView(row[0], row[1], msgspec.json.decode(row[2], type=TokenScope), row[3])


def was_revoked(db: sqlite3.Connection, hash_: bytes) -> bool:
    return db.execute("SELECT 1 FROM revoked WHERE hash = ?", (hash_,)).fetchone() is not None


def clock_jump(db: sqlite3.Connection) -> ClockJump | None:
    row = db.execute("SELECT value FROM fact WHERE name = 'clock'").fetchone()
    return None if row is None else msgspec.json.decode(row[0], type=ClockJump)


def master(db: sqlite3.Connection) -> str | None:
    """Who said last that it is the master."""
    row = db.execute("SELECT value FROM fact WHERE name = 'master'").fetchone()
    return None if row is None else str(row[0])
