"""What must hold of the tables between any two entries, each as a query that finds what breaks it.

For tests, the simulation and a person in doubt: every check reads whole tables.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from quvatlh.core.ahead import Front, Line
from quvatlh.core.limits import INTEGER_MAX, LEDGER_ROWS_MAX, NO_LIMIT
from quvatlh.core.lines import misplaced
from quvatlh.core.market import flow_tasks
from quvatlh.core.memory import Memory
from quvatlh.core.rows import CANDIDATE_COLUMNS, TASK_SELECT, Lined, task_row
from quvatlh.core.unit import Unit, settle

_COUNTED: Final = """
    SELECT 'state' scope, queue a, state b, count(*) n FROM task GROUP BY 2, 3
    UNION ALL SELECT 'ready', queue, shape, count(*) FROM task WHERE ready = 1 GROUP BY 2, 3
    UNION ALL SELECT 'kept', queue, kept, count(*) FROM task WHERE kept IS NOT NULL GROUP BY 2, 3
    UNION ALL SELECT 'priority', '', priority, count(*) FROM task GROUP BY 3
    UNION ALL SELECT 'shape', '', shape, count(*) FROM task GROUP BY 3
    UNION ALL SELECT 'live', queue, '', count(*) FROM live GROUP BY 2
    UNION ALL SELECT 'named', 'n' || grp || char(31) || coalesce(name, id) || char(31), queue, count(*) FROM task
        WHERE ready > 0 AND flow >= 'n' GROUP BY 2, 3
    UNION ALL SELECT 'live_worker', queue, worker, count(*) FROM live GROUP BY 2, 3
    UNION ALL SELECT 'live_key', queue, key, count(*) FROM live WHERE key IS NOT NULL GROUP BY 2, 3"""
_NAMED: Final = f"""
    SELECT grp, name, coalesce(lim, {NO_LIMIT}) lim, count(*) n FROM live WHERE name IS NOT NULL GROUP BY 1, 2, 3"""  # noqa: S608 - text of our own

CHECKS: Final[dict[str, str]] = {
    "a counter is not what it counts": f"""
        SELECT * FROM (SELECT scope, a, b, n FROM tally EXCEPT SELECT * FROM ({_COUNTED}))
        UNION ALL SELECT * FROM (SELECT * FROM ({_COUNTED}) EXCEPT SELECT scope, a, b, n FROM tally)""",  # noqa: S608 - text of our own
    "a name's live actions are counted wrongly": f"""
        SELECT * FROM (SELECT * FROM name_live EXCEPT SELECT * FROM ({_NAMED}))
        UNION ALL SELECT * FROM (SELECT * FROM ({_NAMED}) EXCEPT SELECT * FROM name_live)""",  # noqa: S608 - text of our own
    "a task does not know its live actions": """
        SELECT t.id, t.live, t.running FROM task t LEFT JOIN live l ON l.task = t.seq GROUP BY t.seq
        HAVING t.live <> count(l.token) OR t.running <> count(l.started_at)""",
    "a live action belongs to no task": "SELECT token FROM live WHERE task NOT IN (SELECT seq FROM task)",
    "a live action says otherwise than its task": """
        SELECT l.token FROM live l JOIN task t ON t.seq = l.task
        WHERE (l.id, l.service, l.grp) <> (t.id, t.service, t.grp) OR l.key IS NOT t.key
            OR (l.name IS NOT NULL) <> (t.name IS NOT NULL OR t.lim IS NOT NULL)""",
    "a job has two live actions": "SELECT task FROM live WHERE service = 0 GROUP BY task HAVING count(*) > 1",
    "a job is active without an owner, or owned without being active": """
        SELECT t.id, t.state, l.state, l.stop FROM task t LEFT JOIN live l ON l.task = t.seq WHERE t.service = 0 AND (
            (t.state IN ('claimed', 'running') AND (l.token IS NULL OR coalesce(l.stop, '') IN ('kill', 'delete')))
            OR (t.state IN ('scheduled', 'pending', 'retrying') AND l.token IS NOT NULL)
            OR (t.kept IS NOT NULL AND l.token IS NOT NULL AND l.state <> 'stopping')
            OR (l.stop IS NULL AND t.kept IS NULL AND l.state <> t.state))""",
    "a service's state is not its instances'": """
        SELECT id, state, running FROM task WHERE service = 1 AND (
            (state = 'running') <> (kept IS NULL AND running > 0) OR state IN ('claimed', 'retrying', 'succeeded'))""",
    "a plain action is not plain": """
        SELECT l.token FROM live l JOIN task t ON t.seq = l.task WHERE plain AND (
            t.service OR l.stop IS NOT NULL OR t.unique_key IS NOT NULL OR t.keep_ms IS NOT NULL
            OR l.progress IS NOT NULL OR t.queue <> l.queue)""",
    "a place in the ready order belongs to no place in a line, or the other way": """
        SELECT id, ready, flow FROM task WHERE ready = 2 AND flow IS NULL OR ready NOT IN (0, 1, 2)""",
    "a token was never given out": f"""
        SELECT token FROM (SELECT token FROM live UNION ALL SELECT token FROM action UNION ALL SELECT token FROM task)
        WHERE token > coalesce((SELECT n FROM serial WHERE name = 'token'), 0) OR token > {INTEGER_MAX}""",  # noqa: S608 - text of our own
    "an ended action is live": "SELECT token FROM action WHERE token IN (SELECT token FROM live)",
    "an ended action belongs to no task": "SELECT token FROM action WHERE task NOT IN (SELECT seq FROM task)",
    "an action has no session": """
        SELECT token FROM live l LEFT JOIN session s ON s.id = l.session
        WHERE s.id IS NULL OR s.worker <> l.worker OR l.token <= s.floor""",
    "a worker has no session of its own": """
        SELECT w.name FROM worker w LEFT JOIN session s ON s.id = w.session
        WHERE w.session IS NOT NULL AND (s.id IS NULL OR s.worker <> w.name OR s.ended)""",
    "a unique key is held by none that may": """
        SELECT u.grp, u.key FROM unique_key u LEFT JOIN task t ON t.seq = u.task WHERE u.until IS NULL AND (
            t.seq IS NULL OR t.unique_key IS NOT u.key OR t.grp <> u.grp
            OR (t.unique_while = 'queued' AND t.state NOT IN ('scheduled', 'pending', 'retrying'))
            OR (t.unique_while = 'active' AND t.state NOT IN ('claimed', 'running'))
            OR (t.unique_while = 'unfinished' AND t.kept IS NOT NULL))""",
    "a shape is missing, or nobody's": """
        SELECT shape FROM (SELECT shape FROM task EXCEPT SELECT id FROM shape)
        UNION ALL SELECT * FROM (SELECT id FROM shape EXCEPT SELECT shape FROM task)""",
    "a task's queue is missing": "SELECT queue FROM task EXCEPT SELECT name FROM queue",
    "a task without a spec": """
        SELECT t.id FROM task t LEFT JOIN body b ON b.task = t.seq WHERE t.spec IS NULL AND b.spec IS NULL""",
    "a body belongs to no task": "SELECT task FROM body WHERE task NOT IN (SELECT seq FROM task)",
    "a keep of its own is not known": """
        SELECT * FROM (SELECT gone_at, task FROM own_keep
            EXCEPT SELECT finished_at + keep_ms, seq FROM task WHERE kept = 2)
        UNION ALL SELECT * FROM (SELECT finished_at + keep_ms, seq FROM task WHERE kept = 2
            EXCEPT SELECT gone_at, task FROM own_keep)""",
    "a slot is in the ledger twice": """
        SELECT schedule, slot FROM ledger WHERE manual = 0 GROUP BY 1, 2 HAVING count(*) > 1""",
    "a ledger is too long": f"SELECT schedule FROM ledger GROUP BY 1 HAVING count(*) > {LEDGER_ROWS_MAX}",  # noqa: S608 - text of our own
    "a token is known and revoked": "SELECT name FROM token WHERE hash IN (SELECT hash FROM revoked)",
}

LIMITS: Final[dict[str, str]] = {
    "more live actions of a name than its smallest limit": """
        SELECT grp, coalesce(name, id) named, count(*) FROM live GROUP BY 1, 2 HAVING count(*) > min(coalesce(lim, 1e15))
        """,
    "more live actions than the queue's limit": """
        SELECT queue.name, count(*) FROM live JOIN queue ON queue.name = live.queue GROUP BY 1
        HAVING count(*) > coalesce(queue.settings ->> 'limit', 1e15)""",
    "more live actions of a key than the queue's limit for each": """
        SELECT queue.name, live.key FROM live JOIN queue ON queue.name = live.queue WHERE live.key IS NOT NULL
        GROUP BY 1, 2 HAVING count(*) > coalesce(queue.settings ->> 'limit_per_key', 1e15)""",
    "more live actions on a worker than the queue's limit for each": """
        SELECT queue.name, worker FROM live JOIN queue ON queue.name = live.queue
        GROUP BY 1, 2 HAVING count(*) > coalesce(queue.settings ->> 'limit_per_worker', 1e15)""",
}
"""Hold unless a limit was lowered below what ran, or a live task was moved: that stops nothing."""

_SHOWN: Final = 5


def check_invariants(db: sqlite3.Connection, *, limits_hold: bool = True) -> list[str]:
    """What is wrong, in words, with the first rows that show it; empty when all is well."""
    checks = CHECKS | LIMITS if limits_hold else CHECKS
    found: list[str] = []
    for words, query in checks.items():
        rows = db.execute(query).fetchmany(_SHOWN)
        if rows:
            found.append(f"{words}: {rows}")
    return [*found, *_misplaced(db), *_unsettled(db), *_damaged(db)]


def check_memory(memory: Memory) -> list[str]:
    """What is known between entries, and stands otherwise in the tables: a node that starts now would make something else of
    the next entry."""
    db = memory.db
    stands: dict[str, dict[Any, Any]] = {
        "a counter": dict(_rows(db, "SELECT scope, a, b, n FROM tally")),
        "a name": dict(_rows(db, "SELECT grp, name, lim, n FROM name_live")),
        "a tag": dict(_rows(db, "SELECT scope, flow, finish FROM turn")),
        "virtual time": dict(_rows(db, "SELECT scope, tag FROM virtual")),
        "a serial number": dict(_rows(db, "SELECT name, n FROM serial")),
        "a shape": dict(_rows(db, "SELECT id, body FROM shape")),
    }
    known: dict[str, dict[Any, Any]] = {
        "a counter": {counter: n for counter, n in memory.tally.items() if n},
        "a name": {(*name, lim): n for name, limits in memory.names.items() for lim, n in limits.items() if n},
        "a tag": {
            (scope, flow): tag
            for scope, tags in memory.turns.items()
            for flow, tag in tags.items()
            if tag > tags.virtual  # others mean nothing, and may have been swept
        },
        "virtual time": {(scope,): tags.virtual for scope, tags in memory.turns.items() if tags.virtual},
        "a serial number": {(name,): n for name, n in memory.serials.items() if n},
        "a shape": {(number,): msgspec.json.encode(shape).decode() for number, shape in memory.shapes.items()},
    }
    found = [
        f"{what} is {its[key]} in memory, and {stands[what].get(key)} in the tables: {key}"
        for what, its in known.items()
        for key in its
        if stands[what].get(key) != its[key]
    ]
    zero = {counter for counter, n in memory.tally.items() if not n} & stands["a counter"].keys()
    found += [f"a counter is thought to be zero: {counter}" for counter in zero]
    scopes = {counter[0] for counter in stands["a counter"]}
    found += [
        f"any counter of {scope} is thought to be there: {is_any}"
        for scope, is_any in memory.tally.scopes.items()
        if is_any != (scope in scopes)
    ]
    fresh = Memory(db)
    found += [
        f"queue {name} is {state} in memory" for name, state in memory.queues.items() if fresh.queues.get(name) != state
    ]
    found += [
        f"what is known of {line} is not how it begins"
        for line, front in memory.ahead.items()
        if not _is_front(memory, line, front)
    ]
    lines = Unit(fresh, 0, 0).lines
    found += [
        f"the first of {line} is {first} in memory"
        for line, first in memory.firsts.items()
        if lines.first(line) != first
    ]
    return found[:_SHOWN]


def _is_front(memory: Memory, line: Line, front: Front) -> bool:
    """All that is known of its tasks is what would be read, in its order."""
    flow, queue, shape = line
    sql = f"{CANDIDATE_COLUMNS} FROM task WHERE ready > 0 AND queue = ? AND flow = ? AND shape = ? ORDER BY turn, seq"
    stands = memory.db.execute(sql, (queue, flow, shape)).fetchall()
    known = list(front.tasks)
    tasks = flow_tasks(memory.db, line, limit=len(known), after=(-INTEGER_MAX - 1, 0), without=())
    rows = [(*row, task.once, task.plain, task.turn) for row, task in zip(stands, tasks, strict=False)]
    same = [Lined(*row) for row in rows] == known and all(memory.ahead.row(task.seq) is task for task in known)
    return same and (len(known) == len(stands) or not front.is_whole)


def _rows(db: sqlite3.Connection, query: str) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Key and value: its last column."""
    return ((row[:-1], row[-1]) for row in db.execute(query))


def _misplaced(db: sqlite3.Connection) -> list[str]:
    """In every line the first is to be seen if its key and name have room, and nobody else is."""
    return [f"a line is not in order: {each}" for each in misplaced(Unit(Memory(db), 0, 0))[:_SHOWN]]


def _unsettled(db: sqlite3.Connection) -> list[str]:
    """What follows from a task's state (readiness, due time, expiry, what it is kept as) is what stands in its row."""
    found: list[str] = []
    for columns in db.execute(TASK_SELECT):
        task, settled = task_row(columns), task_row(columns)
        settle(settled)
        if task != settled:
            found.append(f"a task is not settled: {task}")
        if task.finished != (task.finished_at is not None):
            found.append(f"a task has ended without a time, or has a time without an end: {task}")
    return found[:_SHOWN]


def _damaged(db: sqlite3.Connection) -> list[str]:
    rows = db.execute("PRAGMA integrity_check").fetchall()
    return [] if rows == [("ok",)] else [f"SQLite finds damage: {rows[:_SHOWN]}"]
