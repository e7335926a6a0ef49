"""One entry's work on the tables: what its commands read, change and tell, with the books that outlive it (memory.py).

`store` is the one way to change a task (but for the hot statements in verbs/award.py and verbs/finish.py, which do the same
sums for whole batches): it derives what follows from the state and moves every counter. Nothing here decides.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol

from quvatlh.core import schema, tally, uniqueness
from quvatlh.core.books import QueueState, Shape
from quvatlh.core.classes import Classes
from quvatlh.core.events import Event
from quvatlh.core.lines import BEHIND, FLOWS, VISIBLE, Lines, flow_of
from quvatlh.core.memory import Memory
from quvatlh.core.model import QueueSettings, TaskSpec
from quvatlh.core.rows import (
    CANDIDATE_SELECT,
    ENDING_SELECT,
    LIVE_SELECT,
    STORE_TASK,
    STORED_COLUMNS,
    TASK_SELECT,
    Candidate,
    Ending,
    LiveRow,
    TaskRow,
    decode_spec,
    json_list,
    live_row,
    task_row,
)
from quvatlh.core.scopes import Scope


class Gone(NamedTuple):
    """What is needed of a task to forget it."""

    seq: int
    id: str
    chosen: int
    gone_at: int | None
    """Of a keep of its own."""
    state: str
    queue: str
    kept: int
    priority: int
    shape: int


class Counted(Protocol):
    """What a live action counts for."""

    @property
    def queue(self) -> str: ...
    @property
    def worker(self) -> str: ...
    @property
    def key(self) -> str | None: ...
    @property
    def grp(self) -> str: ...
    @property
    def name(self) -> str | None: ...
    @property
    def lim(self) -> int | None: ...


GONE_SELECT = """
SELECT seq, id, chosen, CASE kept WHEN 2 THEN finished_at + keep_ms END, state, queue, kept, priority, shape FROM task"""


class Unit:
    """Made for one entry; `flush` writes what was collected."""

    def __init__(self, memory: Memory, index: int, now: int) -> None:
        db = memory.db
        self.db = db
        self.memory = memory
        self.index = index
        self.now = now
        self.scope: Scope | None = None
        """Of who asked for the item that is carried out."""
        self.tally = memory.tally
        self.names = memory.names
        self.queues = memory.queues
        self.shapes = memory.shapes
        self.lines = Lines(self)
        self.turns = memory.turns
        self.classes = Classes(self)
        self.events: list[Event] = []
        self._told = 0
        self._serials = memory.serials
        self._serials_before = dict(self._serials)
        self.new_tasks: list[tuple[Any, ...]] = []
        self.new_plain_tasks: list[tuple[Any, ...]] = []
        self.new_lined_tasks: list[tuple[Any, ...]] = []
        """As INSERT_TASK, INSERT_PLAIN_TASK and INSERT_LINED_TASK want them."""
        self.new_bodies: list[tuple[int, str | None, bytes | None, int]] = []
        self.new_ids: set[str] = set()
        self.fresh: dict[int, tuple[Candidate, tuple[Any, ...]]] | None = None
        """Of an ADD that gives something away: those of its tasks that go the short way, as they would be read, and as
        INSERT_PLAIN_TASK wants them; else None."""

    # --- numbers and news ---

    def last(self, name: str) -> int:
        return self._serials.get(name, 0)

    def take(self, name: str, n: int = 1) -> int:
        """The first of `n` numbers that were never given out before."""
        first = self._serials.get(name, 0) + 1
        self._serials[name] = first + n - 1
        return first

    def tell(self, kind: str, name: str, state: str = "", **known: Any) -> None:
        if kind in {"queue.changed", "class.changed"}:
            self.classes.forget()
        self.events.append(Event(self._told, kind, name, state, **known))
        self._told += 1

    def tell_task(self, kind: str, task: TaskRow, token: int = 0, worker: str = "", **more: Any) -> None:
        event = Event(
            self._told, kind, task.id, task.state, task.seq, task.queue, task.shape, worker, token, more or None
        )
        self.events.append(event)
        self._told += 1

    def numbers(self, n: int) -> int:
        """The first of `n` event numbers, for verbs that make their events themselves."""
        first, self._told = self._told, self._told + n
        return first

    def take_events(self) -> tuple[Event, ...]:
        events = tuple(self.events)
        self.events.clear()
        return events

    # --- reading ---

    def tasks(self, seqs: Sequence[int]) -> dict[int, TaskRow]:
        self.flush_tasks()
        sql = f"{TASK_SELECT} WHERE seq IN (SELECT value FROM json_each(?))"  # noqa: S608 - text of our own
        return {row[0]: task_row(row) for row in self.db.execute(sql, (json_list(seqs),))}

    def candidates(self, seqs: Sequence[int]) -> list[Candidate]:
        """What an award looks at first; `seqs` may come twice, their rows do not."""
        if self.fresh and self.fresh.keys() >= set(seqs):
            return [self.fresh[seq][0] for seq in dict.fromkeys(seqs)]
        self.flush_tasks()
        found, missing = self.memory.ahead.rows(seqs)
        if missing:
            found += [Candidate(*row) for row in self.db.execute(CANDIDATE_SELECT, (json_list(missing),))]
        return found

    def tasks_by_id(self, ids: Sequence[str]) -> dict[str, TaskRow]:
        self.flush_tasks()
        sql = f"{TASK_SELECT} WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608 - text of our own
        return {row[1]: task_row(row) for row in self.db.execute(sql, (json_list(ids),))}

    def tasks_in_scope(self, ids: Sequence[str]) -> dict[str, TaskRow]:
        """As who asked may see them."""
        found, scope = self.tasks_by_id(ids), self.scope
        if scope is None:
            return found
        return {name: task for name, task in found.items() if scope.has(task.queue, task.grp)}

    def select_tasks(self, where: str, *values: object) -> list[TaskRow]:
        """`where` is text of our own."""
        self.flush_tasks()
        return [task_row(row) for row in self.db.execute(f"{TASK_SELECT} {where}", values)]

    def live(self, tokens: Sequence[int]) -> dict[int, LiveRow]:
        sql = f"{LIVE_SELECT} WHERE token IN (SELECT value FROM json_each(?))"  # noqa: S608 - text of our own
        return {row[0]: live_row(row) for row in self.db.execute(sql, (json_list(tokens),))}

    def plain_endings(self, tokens: Sequence[int]) -> dict[int, Ending]:
        """Those of them of which a success goes the short way."""
        return {row[0]: Ending(*row) for row in self.db.execute(ENDING_SELECT, (json_list(tokens),))}

    def select_live(self, where: str, *values: object) -> list[LiveRow]:
        return [live_row(row) for row in self.db.execute(f"{LIVE_SELECT} {where} ORDER BY token", values)]

    def spec(self, task: TaskRow) -> TaskSpec:
        if task.spec is not None:
            return decode_spec(task.spec)
        return decode_spec(self.db.execute("SELECT spec FROM body WHERE task = ?", (task.seq,)).fetchone()[0])

    def queue(self, name: str) -> QueueState:
        """The queue, made on first use."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues.make(name, QueueSettings(), self.now)
            self.tell("queue.changed", name)
        return queue

    def shape_id(self, shape: Shape) -> int:
        number, new = self.shapes.id_of(shape, self.last("shape") + 1)
        if new:
            self.take("shape")
        return number

    # --- changing ---

    def store(self, task: TaskRow, was: TaskRow) -> None:
        """Write a task that was changed, after what follows from its state is set right. `was` is as it was read."""
        settle(task)
        self._line_up(task, was)
        self._count(was, -1)
        self._count(task, 1)
        if task.unique_key is not None and task.unique_while != uniqueness.FOR and task.state != was.state:
            self._keep_unique(task, task.unique_key)
        if (gone_at(was), gone_at(task)) != (None, None):
            self._keep_own(task, gone_at(was), gone_at(task))
        values = [getattr(task, name) for name in STORED_COLUMNS]
        self.db.execute(STORE_TASK, (*values, task.seq))

    def line_up(self, task: TaskRow) -> None:
        """In which line it waits, and where in it."""
        settings = self.queue(task.queue).settings
        if task.service or self.shapes.get(task.shape).policy is not None:
            task.flow = None
        else:
            task.flow = flow_of(settings, task.key, task.grp, task.name or task.id, task.lim)
        task.turn = 0 if task.flow is None else self.queue(task.queue).rank(task.priority)

    def _line_up(self, task: TaskRow, was: TaskRow) -> None:
        """One that comes to a line stands behind until `refill` has looked who is first."""
        if task.ready:
            self.line_up(task)
        before, after = self.lines.of(was), self.lines.of(task)
        for line, row in ((before, was), (after, task)):
            if line is not None and row.ready:
                self.lines.touch(line)
        if after is not None and task.ready:
            task.ready = was.ready if was.ready and before == after else BEHIND
        elif before is not None and task.ready:
            task.ready, task.rank = VISIBLE, self.queue(task.queue).rank(task.priority)

    def _keep_own(self, task: TaskRow, before: int | None, after: int | None) -> None:
        """A finished task with a keep of its own is found by the time it goes."""
        self.db.execute("DELETE FROM own_keep WHERE gone_at = ? AND task = ?", (before, task.seq))
        if after is not None:
            self.db.execute("INSERT INTO own_keep VALUES (?, ?)", (after, task.seq))

    def _count(self, task: TaskRow, n: int) -> None:
        add = self.tally.add
        add(tally.STATE, task.queue, task.state, n)
        add(tally.PRIORITY, "", task.priority, n)
        add(tally.SHAPE, "", task.shape, n)
        self.shapes.suspects.add(task.shape)
        if task.ready == VISIBLE:
            add(tally.READY, task.queue, task.shape, n)
        self.lines.count(task, n)
        if task.kept is not None:
            add(tally.KEPT, task.queue, task.kept, n)

    def unique_holder(self, group: str, key: str) -> tuple[int, str] | None:
        """Seq and id of the task that holds a key now."""
        sql = "SELECT task, id, until FROM unique_key WHERE grp = ? AND key = ?"
        row = self.db.execute(sql, (group, key)).fetchone()
        if row is None or (row[2] is not None and row[2] <= self.now):
            return None
        return row[0], row[1]

    def hold_unique(self, task: tuple[int, str], group: str, key: str, until: int | None) -> None:
        self.db.execute("INSERT OR REPLACE INTO unique_key VALUES (?, ?, ?, ?, ?)", (group, key, *task, until))

    def free_unique(self, task: TaskRow) -> None:
        if task.unique_key is not None:
            sql = "DELETE FROM unique_key WHERE grp = ? AND key = ? AND task = ?"
            self.db.execute(sql, (task.grp, task.unique_key, task.seq))

    def _keep_unique(self, task: TaskRow, key: str) -> None:
        """Held only in the states it was asked for. One that comes back to them goes without while another has it, and
        takes it at the next change of its state that finds it free."""
        if task.state in uniqueness.HOLDS[task.unique_while or ""]:
            if self.unique_holder(task.grp, key) is None:
                self.hold_unique((task.seq, task.id), task.grp, key, None)
        else:
            self.free_unique(task)

    def release(self, action: LiveRow) -> None:
        """An action has ended: it counts nowhere any more."""
        self.db.execute(schema.RELEASE, (action.token,))
        self.count_action(action, -1)
        self.classes.ended(action.queue, action.slots)

    def count_action(self, action: Counted, n: int) -> None:
        """One alone; of many together see sums.py."""
        self.count_worker(action.queue, action.worker, n)
        if action.key is not None:
            self.lines.count_keys(action.queue, {action.key: 1}, n)
        if action.name is not None:
            self.count_name(action.grp, action.name, action.lim, n)

    def count_worker(self, queue: str, worker: str, n: int) -> None:
        self.tally.add(tally.LIVE, queue, "", n)
        self.tally.add(tally.LIVE_WORKER, queue, worker, n)

    def count_name(self, group: str, name: str, lim: int | None, n: int) -> None:
        self.names.add(group, name, lim, n)
        self.lines.name_changes(group, name)

    def forget(self, gone: Sequence[Gone]) -> None:
        """Finished tasks without live actions leave the table; chosen ids stay known."""
        for (state, queue, kept, priority, shape), n in Counter(task[4:] for task in gone).items():
            self.tally.add(tally.STATE, queue, state, -n)
            self.tally.add(tally.KEPT, queue, kept, -n)
            self.tally.add(tally.PRIORITY, "", priority, -n)
            self.tally.add(tally.SHAPE, "", shape, -n)
            self.shapes.suspects.add(shape)
        chosen = [task.id for task in gone if task.chosen]
        first = self.take("tombstone", len(chosen)) if chosen else 0
        self.db.executemany(
            "INSERT OR REPLACE INTO tombstone VALUES (?, ?, ?)",
            [(id_, self.now, first + n) for n, id_ in enumerate(chosen)],
        )
        seqs = json_list([task.seq for task in gone])
        for table, column in (("action", "task"), ("body", "task"), ("task", "seq")):
            self.db.execute(f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))", (seqs,))  # noqa: S608 - text of our own
        own = [(task.gone_at, task.seq) for task in gone if task.gone_at is not None]
        self.db.executemany("DELETE FROM own_keep WHERE gone_at = ? AND task = ?", own)

    # --- writing ---

    def flush_tasks(self) -> None:
        """Tasks of one or many ADDs, together; before anything that reads tasks."""
        if self.new_ids:
            self.put_fresh()
            insert_rows(self.db, schema.INSERT_PLAIN_TASK, schema.INSERT_PLAIN_TASKS, self.new_plain_tasks)
            insert_rows(self.db, schema.INSERT_LINED_TASK, schema.INSERT_LINED_TASKS, self.new_lined_tasks)
            insert_rows(self.db, schema.INSERT_TASK, schema.INSERT_TASKS, self.new_tasks)
            self.new_plain_tasks.clear()
            self.new_lined_tasks.clear()
            self.new_tasks.clear()
            self.new_ids.clear()
        if self.new_bodies:
            self.db.executemany("INSERT INTO body VALUES (?, ?, ?, ?)", self.new_bodies)
            self.new_bodies.clear()

    def put_fresh(self) -> None:
        """What was not given away is written like all else."""
        if self.fresh is not None:
            self.new_plain_tasks += [row for _, row in self.fresh.values()]
            self.fresh = None

    def insert_claimed(self, seq: int, worker: str, session: str, token: int, lease_ms: int) -> bool:
        """A fresh one, as an action at once; False: it is none, or has been written."""
        found = None if self.fresh is None else self.fresh.pop(seq, None)
        if found is None:
            return False
        task, row = found
        self.db.execute(schema.CLAIMED_TASK, (*row, worker, token))
        live = (task.id, task.queue, task.grp, task.name or "", task.key or "", task.slots, lease_ms, self.now)
        self.db.execute(schema.CLAIMED_LIVE, (token, seq, worker, session, *live))
        return True

    def flush(self) -> None:
        self.flush_tasks()
        for scope in self.turns.flush():
            self._start_over(scope)
        self.lines.refill()
        self.classes.flush()
        self.tally.flush()
        self.names.flush()
        self.shapes.drop_unused()
        self.queues.flush()
        changed = [(name, n) for name, n in self._serials.items() if self._serials_before.get(name) != n]
        if changed:
            self.db.executemany("INSERT OR REPLACE INTO serial VALUES (?, ?)", changed)
            self._serials_before.update(changed)

    def _start_over(self, scope: str) -> None:
        """Tags have grown as far as they may: those that stand in the ready order are flows' of a queue."""
        tag = self.turns.start_over(scope)
        self.memory.forget_lines()
        if scope.startswith(FLOWS):
            sql = "UPDATE task SET rank = max(0, rank - ?) WHERE ready = 1 AND queue = ? AND flow IS NOT NULL"
            self.db.execute(sql, (tag, scope.removeprefix(FLOWS)))


def insert_rows(db: sqlite3.Connection, one: str, several: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """As many as go together; the rest alone."""
    together = schema.ROWS_TOGETHER
    whole = len(rows) // together * together
    lots = (rows[n : n + together] for n in range(0, whole, together))
    if whole:
        db.executemany(several, ([*chain.from_iterable(lot)] for lot in lots))
    if whole < len(rows):
        db.executemany(one, rows[whole:])


def settle(task: TaskRow) -> None:
    """What follows from the state of a task, whatever brought it there."""
    if task.finished:
        task.due_at, task.ready, task.expiry, task.resting = None, 0, None, 0
        task.kept = 2 if task.keep_ms is not None else int(task.state == "failed")
        return
    task.kept = task.finished_at = None
    if task.service:
        waits = task.state == "scheduled"
        task.ready = int(not waits and task.live + task.resting < (task.lim or 1))
        task.due_at = task.due_at if waits or task.resting else None
        task.expiry = task.expires_at if task.live == 0 and task.attempts == 0 else None
    else:
        task.ready = (task.ready or VISIBLE) if task.state == "pending" else 0
        task.due_at = task.due_at if task.state in {"scheduled", "retrying"} else None
        task.expiry = task.expires_at if task.waiting else None


def gone_at(task: TaskRow) -> int | None:
    """When a task with a keep of its own leaves the list."""
    if task.kept != 2 or task.finished_at is None or task.keep_ms is None:
        return None
    return task.finished_at + task.keep_ms
