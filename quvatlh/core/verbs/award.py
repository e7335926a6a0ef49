"""Awards: the market's decisions become ownership, after everything that limits is checked once more.

What is checked here is exact, whatever the proposer believed: state, session, expiry, pause, limits of the queue, its keys
and workers, its rate, names, unique keys. What only placement knows (tags, adapters, policies, slots) is the market's.
"""

from __future__ import annotations

from collections import defaultdict
from copy import copy
from typing import Any

import msgspec

from quvatlh.core import limits, schema, tally
from quvatlh.core.books import QueueState
from quvatlh.core.commands import Award, Awards
from quvatlh.core.disciplines import FAIR
from quvatlh.core.events import Event
from quvatlh.core.lines import VISIBLE, flows
from quvatlh.core.results import Awarded
from quvatlh.core.rows import TaskRow
from quvatlh.core.transitions import TASK
from quvatlh.core.turns import QUEUES, lent_by, of_class
from quvatlh.core.unit import Unit


def award(unit: Unit, command: Awards) -> Awarded:
    batch = _Batch(unit)
    tasks = unit.tasks([each.task for each in command.awards])
    keys: defaultdict[str, set[str | None]] = defaultdict(set)
    for task in tasks.values():
        keys[task.queue].add(task.key)
    unit.lines.know(keys)
    tokens: list[int] = []
    refused: dict[int, str] = {}
    for position, each in enumerate(command.awards):
        awarded = tasks.get(each.task)
        why = batch.refusal(awarded, each)
        if why is not None or awarded is None:
            refused[position] = why or "not_found"
            tokens.append(0)
        else:
            tokens.append(batch.take(awarded, each))
    batch.write()
    return Awarded(tuple(tokens), refused)


class _Batch:
    """The awards of one command."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._sessions: dict[str, tuple[str | None, bool]] = {}
        self._live: list[tuple[Any, ...]] = []
        self._jobs: list[tuple[int, str, int]] = []

    def refusal(self, task: TaskRow | None, each: Award) -> str | None:
        """Why not, in a word that explain knows; None: it may start."""
        unit = self._unit
        if task is None:
            return "not_found"
        if not task.ready or (task.live and not task.service):
            return "state"
        if task.expiry is not None and task.expiry <= unit.now:
            return "expired"
        session, takes = self._session(each.worker)
        if session != each.session or not takes:
            return "worker" if session == each.session else "session"
        queue = unit.queue(task.queue)
        return _queue_refusal(unit, queue, task, each.worker) or self._holder_refusal(task) or self._lender(queue, task)

    def _lender(self, queue: QueueState, task: TaskRow) -> str | None:
        """Whether the class of the queue, or one above it, lends for a start."""
        name = queue.settings.class_
        if name is None:
            return None
        if not self._unit.classes.is_read:
            self.write()  # the tree counts what stands in the tables
        return None if self._unit.classes.tree.lender(name, task.slots) is not None else "class"

    def _holder_refusal(self, task: TaskRow) -> str | None:
        """What other tasks hold: names and keys."""
        if (task.counted_name is not None or self._unit.names.any()) and not self._name_allows(task):
            return "limit"
        return None if task.unique_while != "active" or self._key_is_free(task) else "unique"

    def _session(self, worker: str) -> tuple[str | None, bool]:
        """The worker's session, and whether it takes work."""
        found = self._sessions.get(worker)
        if found is None:
            sql = "SELECT session, state, draining FROM worker WHERE name = ?"
            row = self._unit.db.execute(sql, (worker,)).fetchone()
            found = (row[0], row[1] == "up" and not row[2]) if row else (None, False)
            self._sessions[worker] = found
        return found

    def _name_allows(self, task: TaskRow) -> bool:
        name = task.counted_name or task.id
        counted = self._unit.names.live(task.grp, name)
        live = sum(counted.values())
        smallest = min((limit for limit, n in counted.items() if n), default=limits.NO_LIMIT)
        smallest = min(smallest, task.lim or limits.NO_LIMIT)
        if smallest == limits.NO_LIMIT:
            return True
        if name != task.id or task.counted_name is not None:
            live += self._uncounted(task.grp, name)
        return live + 1 <= smallest

    def _uncounted(self, group: str, name: str) -> int:
        """Live actions of a task that has this name by its id alone (tally.NameTally)."""
        sql = "SELECT token FROM task WHERE id = ? AND grp = ? AND live > 0"
        row = self._unit.db.execute(sql, (name, group)).fetchone()
        written = 0
        if row is not None:
            sql = "SELECT count(*) FROM live WHERE token = ? AND name IS NULL"
            written = int(self._unit.db.execute(sql, row).fetchone()[0])
        return written + sum(1 for each in self._live if (each[4], each[8], each[9]) == (name, group, None))

    def _key_is_free(self, task: TaskRow) -> bool:
        holder = self._unit.unique_holder(task.grp, task.unique_key or "")
        return holder is None or holder[0] == task.seq

    def take(self, task: TaskRow, each: Award) -> int:
        unit = self._unit
        token = unit.take("token")
        queue = unit.queue(task.queue)
        queue.take()
        name = task.counted_name
        plain = self._claim(task, token, each.worker)
        lease_ms = each.lease_ms or task.lease_ms or queue.settings.lease_ms or limits.LEASE_MS_DEFAULT
        self._live.append(
            (token, task.seq, each.worker, each.session, task.id, task.service, int(plain), task.queue, task.grp, name,
             task.key, task.lim, task.slots, task.attempts, lease_ms, unit.now)
        )  # fmt: skip
        add = unit.tally.add
        add(tally.LIVE, task.queue, "", 1)
        add(tally.LIVE_WORKER, task.queue, each.worker, 1)
        if task.key is not None:
            add(tally.LIVE_KEY, task.queue, task.key, 1)
        if name is not None:
            unit.names.add(task.grp, name, task.lim, 1)
            unit.lines.name_changes(task.grp, name)
        self._charge(queue, task)
        more = {"attempt": task.attempts, "lease_ms": lease_ms}
        if task.attempts == 1:
            more["waited_ms"] = unit.now - (task.created_at if task.at is None else task.at)
        unit.events.append(
            Event(
                unit.numbers(1), "task.claimed", task.id, task.state, task.seq, task.queue, task.shape, each.worker,
                token, more,
            )
        )  # fmt: skip
        return token

    def _charge(self, queue: QueueState, task: TaskRow) -> None:
        """The start counts for its flow, its queue and its class."""
        settings, turns, classes = queue.settings, self._unit.turns, self._unit.classes
        if settings.discipline == FAIR:
            key = task.key or ""
            turns.serve(flows(queue.name), key, task.cost, settings.key_weights.get(key, 1))
        if settings.class_ is None:
            turns.serve(QUEUES, queue.name, task.cost, settings.weight)
            return
        lender = classes.tree.lender(settings.class_, task.slots)
        classes.tree.take(settings.class_, task.slots)
        turns.serve(of_class(settings.class_), queue.name, task.cost, settings.weight)
        if lender is not None:
            turns.serve(lent_by(lender.scope), settings.class_, task.cost, classes.tree.weight(settings.class_))

    def _claim(self, task: TaskRow, token: int, worker: str) -> bool:
        """Whether it is a plain job: of those no index, key or pin changes but the ready order, and they go the short
        way."""
        unit = self._unit
        if _is_plain(unit, task):
            unit.tally.add(tally.STATE, task.queue, "pending", -1)
            unit.tally.add(tally.STATE, task.queue, "claimed", 1)
            visible = task.seq if task.ready == VISIBLE else None
            if visible is not None:
                unit.tally.add(tally.READY, task.queue, task.shape, -1)
            line = unit.lines.of(task)
            if line is not None:
                unit.lines.touch(line, visible)
                unit.lines.count(task, -1)
            self._jobs.append((token, worker, task.seq))
            task.state, task.ready, task.live = "claimed", 0, 1
            task.attempts += 1
            return True
        was = copy(task)
        _unpin(unit, task)
        if not task.service:
            task.state = TASK[task.state, "award"]
        task.attempts += 1
        task.live += 1
        task.token, task.worker = token, worker
        unit.store(task, was)
        return False

    def write(self) -> None:
        self._unit.db.executemany(schema.INSERT_LIVE, self._live)
        self._unit.db.executemany(schema.AWARD_TASK, self._jobs)
        self._live.clear()
        self._jobs.clear()


def _queue_refusal(unit: Unit, queue: QueueState, task: TaskRow, worker: str) -> str | None:
    settings, get = queue.settings, unit.tally.get
    if settings.paused:
        return "paused"
    if settings.limit is not None and get(tally.LIVE, queue.name, "") >= settings.limit:
        return "queue_limit"
    if (
        settings.limit_per_worker is not None
        and get(tally.LIVE_WORKER, queue.name, worker) >= settings.limit_per_worker
    ):
        return "worker_limit"
    if (
        settings.limit_per_key is not None
        and task.key is not None
        and get(tally.LIVE_KEY, queue.name, task.key) >= settings.limit_per_key
    ):
        return "key_limit"
    return None if queue.may_start(unit.now) else "rate"


def _is_plain(unit: Unit, task: TaskRow) -> bool:
    return (
        not task.service
        and task.expiry is None
        and task.unique_key is None
        and task.keep_ms is None
        and not task.may_want_telling
        and unit.shapes.get(task.shape).avoid is None
        and unit.shapes.get(task.shape).toward is None
    )


def _unpin(unit: Unit, task: TaskRow) -> None:
    """What a relocation asked for has happened; only a job's pin stays."""
    shape = unit.shapes.get(task.shape)
    after = msgspec.structs.replace(shape, avoid=None, toward=None, pin=None if task.service else shape.pin)
    if after != shape:
        task.shape = unit.shape_id(after)
