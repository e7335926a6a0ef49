"""Awards: the market's decisions become ownership, after everything that limits is checked once more.

What is checked here is exact, whatever the proposer believed: state, session, expiry, pause, limits of the queue, its keys
and workers, its rate, names, unique keys. What only placement knows (tags, adapters, policies, slots) is the market's.
"""

from __future__ import annotations

from collections import defaultdict
from copy import copy
from typing import Any, NamedTuple

import msgspec

from quvatlh.core import limits, schema, tally
from quvatlh.core.ahead import Line
from quvatlh.core.books import QueueState
from quvatlh.core.commands import Award, Awards
from quvatlh.core.disciplines import FAIR
from quvatlh.core.events import Event
from quvatlh.core.lines import VISIBLE, flows
from quvatlh.core.results import Awarded
from quvatlh.core.rows import Candidate, TaskRow, json_list
from quvatlh.core.sums import Sums
from quvatlh.core.transitions import TASK
from quvatlh.core.turns import QUEUES, Tags, lent_by, of_class
from quvatlh.core.unit import Unit

Task = Candidate | TaskRow


def award(unit: Unit, command: Awards) -> Awarded:
    batch = _Batch(unit, len(command.awards))
    tasks = _read(unit, [each.task for each in command.awards])
    keys: defaultdict[str, set[str | None]] = defaultdict(set)
    for task in tasks.values():
        keys[task.queue].add(task.key)
    unit.lines.know(keys)
    tokens: list[int] = []
    refused: dict[int, str] = {}
    for position, each in enumerate(command.awards):
        awarded = tasks.get(each.task)
        if awarded is None:
            refused[position] = "not_found"
            tokens.append(0)
            continue
        alike = batch.alike(awarded, each.worker)
        why = batch.refusal(alike, awarded, each)
        if why is None:
            tokens.append(batch.take(alike, awarded, each))
        else:
            refused[position] = why
            tokens.append(0)
    batch.write()
    return Awarded(tuple(tokens), refused)


def _read(unit: Unit, seqs: list[int]) -> dict[int, Task]:
    """Those that go the short way as candidates, the others whole."""
    found: dict[int, Task] = {}
    long: list[int] = []
    for task in unit.candidates(seqs):
        if _is_plain(unit, task):
            found[task.seq] = task
        else:
            long.append(task.seq)
    if long:
        found.update(unit.tasks(long))
    return found


def _is_plain(unit: Unit, task: Candidate) -> bool:
    """A job of which no index, key or pin changes but the ready order."""
    if not task.is_short or task.may_want_telling:
        return False
    shape = unit.shapes.get(task.shape)
    return shape.avoid is None and shape.toward is None


class _Known:
    """Of a queue, as long as a batch lasts."""

    __slots__ = ("is_free", "is_lent", "lease_ms", "live", "rooms", "starts", "state", "tags", "weights")

    def __init__(self, state: QueueState, tags: Tags | None) -> None:
        settings = state.settings
        holds_up = (
            settings.limit, settings.limit_per_worker, settings.limit_per_key, settings.rate, settings.class_,
        )  # fmt: skip
        self.state = state
        self.is_free = not settings.paused and all(each is None for each in holds_up)
        """It holds nothing up: neither pause, limit, rate nor class."""
        self.is_lent = settings.class_ is not None
        """What may start in it hangs on its class, too."""
        self.lease_ms = settings.lease_ms or limits.LEASE_MS_DEFAULT
        self.tags = tags
        """Of its flows, where it is fair by key."""
        self.weights = settings.key_weights
        self.live: dict[tuple[str, str], int] = {}
        """By scope of the tally and worker or key: those of its counters that were asked for, as they are now."""
        self.rooms: dict[str, bool] = {}
        """By worker: whether the whole batch could go there, as far as keys have no say."""
        self.starts: int | None = None
        """So many more its rate lets start in this entry; None: not asked yet."""


class _Counted(NamedTuple):
    """What an award is counted by, beside its task's state."""

    queue: str
    worker: str
    key: str | None
    grp: str
    name: str | None
    lim: int | None


class _Alike:
    """Awards that are held up by the same and count for the same, as long as a batch lasts."""

    __slots__ = ("claimed", "has_room", "key", "line", "queue", "session", "shape", "takes", "visible", "worker")

    def __init__(self, queue: _Known, task: Task, worker: tuple[str, str | None, bool]) -> None:
        """`worker`: its name, its session, and whether it takes work."""
        self.queue = queue
        self.shape = task.shape
        self.line: Line | None = None if task.flow is None else (task.flow, task.queue, task.shape)
        self.key = task.key
        self.worker, self.session, self.takes = worker
        self.has_room: bool | None = None
        """The whole batch could go there, and no limit of live actions need be asked again; None: not asked yet."""
        self.claimed = 0
        """So many go the short way, and are not counted yet."""
        self.visible = 0
        """Of them, those that stood in the ready order."""


_Together = tuple[int, str, str, int]
"""Awards that are written by one statement: how far it is from the task's number to the token, which is the same over long
stretches, as tasks come in order; worker, session, lease in ms."""


class _Batch:
    """The awards of one command."""

    def __init__(self, unit: Unit, size: int) -> None:
        self._unit = unit
        self._size = size
        self._sessions: dict[str, tuple[str, str | None, bool]] = {}
        self._queues: dict[str, _Known] = {}
        self._kinds: dict[tuple[str, int, str | None, str | None, str], _Alike] = {}
        """By queue, shape, flow and key of the task, and worker."""
        self._uncounted: list[_Alike] = []
        """Those of which some are claimed."""
        self._unlimited: set[tuple[str, str]] = set()
        """Names of which no live action has a limit."""
        self._token = unit.last("token")
        self._long: list[tuple[Any, ...]] = []
        self._short: defaultdict[_Together, list[int]] = defaultdict(list)
        self._unnamed: set[tuple[str, str]] = set()
        """Of those that are not written: group and id of the ones that are not counted by name."""
        self._sums = Sums(unit, 1)
        self._turn: tuple[_Known | None, int] = (None, 0)
        """Queue and cost of the last awards, whose turns have not been counted."""
        self._turns = 0

    def alike(self, task: Task, worker: str) -> _Alike:
        its = (task.queue, task.shape, task.flow, task.key, worker)
        found = self._kinds.get(its)
        if found is None:
            known = self._sessions.get(worker) or self._session(worker)
            found = self._kinds[its] = _Alike(self._queues.get(task.queue) or self._queue(task.queue), task, known)
        return found

    def refusal(self, alike: _Alike, task: Task, each: Award) -> str | None:
        """Why not, in a word that explain knows; None: it may start."""
        if not task.ready or (task.live and not task.service):
            return "state"
        if task.expiry is not None and task.expiry <= self._unit.now:
            return "expired"
        if alike.session != each.session or not alike.takes:
            return "worker" if alike.session == each.session else "session"
        queue = alike.queue
        why = None if queue.is_free or (queue.starts and alike.has_room) else self._queue_refusal(alike)
        return why or self._holder_refusal(task) or (self._lender(queue.state, task) if queue.is_lent else None)

    def _queue(self, name: str) -> _Known:
        state = self._unit.queue(name)
        tags = self._unit.turns.of(flows(name)) if state.settings.discipline == FAIR else None
        known = self._queues[name] = _Known(state, tags)
        return known

    def _queue_refusal(self, alike: _Alike) -> str | None:
        """Asked where `has_room` does not say that all is well."""
        queue = alike.queue
        if queue.state.settings.paused:
            return "paused"
        if alike.has_room is None:
            alike.has_room = self._has_room(alike)
        why = None if alike.has_room else self._full(alike)
        if why is None and queue.starts is None:
            queue.starts = queue.state.starts(self._unit.now)
        return why or (None if queue.starts else "rate")

    def _has_room(self, alike: _Alike) -> bool:
        """For as many as the batch has, and so for those of it that are not counted yet."""
        queue, worker = alike.queue, alike.worker
        settings, name, get = queue.state.settings, queue.state.name, self._unit.tally.get
        found = queue.rooms.get(worker)
        if found is None:
            rules = ((settings.limit, tally.LIVE, ""), (settings.limit_per_worker, tally.LIVE_WORKER, worker))
            found = all(most is None or get(scope, name, b) + self._size <= most for most, scope, b in rules)
            queue.rooms[worker] = found
        most = settings.limit_per_key
        if not found or most is None or alike.key is None:
            return found
        return get(tally.LIVE_KEY, name, alike.key) + self._size <= most

    def _full(self, alike: _Alike) -> str | None:
        """Which of the limits of live actions is reached."""
        queue, live = alike.queue, self._live
        settings = queue.state.settings
        if settings.limit is not None and live(queue, tally.LIVE, "") >= settings.limit:
            return "queue_limit"
        most = settings.limit_per_worker
        if most is not None and live(queue, tally.LIVE_WORKER, alike.worker) >= most:
            return "worker_limit"
        most = settings.limit_per_key
        if most is not None and alike.key is not None and live(queue, tally.LIVE_KEY, alike.key) >= most:
            return "key_limit"
        return None

    def _live(self, queue: _Known, scope: str, b: str) -> int:
        found = queue.live.get((scope, b))
        if found is None:
            self._count()
            found = queue.live[scope, b] = self._unit.tally.get(scope, queue.state.name, b)
        return found

    def _lender(self, queue: QueueState, task: Task) -> str | None:
        """Whether the class of the queue, or one above it, lends for a start."""
        name = queue.settings.class_
        assert name is not None
        if not self._unit.classes.is_read:
            self.write()  # the tree counts what stands in the tables
        return None if self._unit.classes.tree.lender(name, task.slots) is not None else "class"

    def _holder_refusal(self, task: Task) -> str | None:
        """What other tasks hold: names and keys."""
        if (task.counted_name is not None or self._unit.names.any()) and not self._name_allows(task):
            return "limit"
        return None if task.unique_while != "active" or self._key_is_free(task) else "unique"

    def _session(self, worker: str) -> tuple[str, str | None, bool]:
        """The worker, its session, and whether it takes work."""
        sql = "SELECT session, state, draining FROM worker WHERE name = ?"
        row = self._unit.db.execute(sql, (worker,)).fetchone()
        found = (worker, row[0], row[1] == "up" and not row[2]) if row else (worker, None, False)
        self._sessions[worker] = found
        return found

    def _name_allows(self, task: Task) -> bool:
        name = task.counted_name or task.id
        if task.lim is None and (task.grp, name) in self._unlimited:
            return True
        self._count()
        counted = self._unit.names.live(task.grp, name)
        live = sum(counted.values())
        smallest = min((limit for limit, n in counted.items() if n), default=limits.NO_LIMIT)
        smallest = min(smallest, task.lim or limits.NO_LIMIT)
        if smallest == limits.NO_LIMIT:
            self._unlimited.add((task.grp, name))
            return True
        if name != task.id or task.counted_name is not None:
            live += self._by_id_alone(task.grp, name)
        return live + 1 <= smallest

    def _by_id_alone(self, group: str, name: str) -> int:
        """Live actions of a task that has this name by its id alone (tally.NameTally)."""
        sql = "SELECT token FROM task WHERE id = ? AND grp = ? AND live > 0"
        row = self._unit.db.execute(sql, (name, group)).fetchone()
        written = 0
        if row is not None:
            sql = "SELECT count(*) FROM live WHERE token = ? AND name IS NULL"
            written = int(self._unit.db.execute(sql, row).fetchone()[0])
        return written + ((group, name) in self._unnamed)

    def _key_is_free(self, task: Task) -> bool:
        holder = self._unit.unique_holder(task.grp, task.unique_key or "")
        return holder is None or holder[0] == task.seq

    def take(self, alike: _Alike, task: Task, each: Award) -> int:
        unit, queue = self._unit, alike.queue
        self._token = token = self._token + 1
        lease_ms = each.lease_ms or task.lease_ms or queue.lease_ms
        if isinstance(task, Candidate):
            state, since = "claimed", task.since
            self._claim(alike, task)
            self._short[token - task.seq, each.worker, each.session, lease_ms].append(task.seq)
        else:
            since = task.created_at if task.at is None else task.at
            self._claim_long(task, token, each, lease_ms)
            state = task.state
        if queue.live:
            for counter in ((tally.LIVE, ""), (tally.LIVE_WORKER, each.worker), (tally.LIVE_KEY, task.key or "")):
                if counter in queue.live:
                    queue.live[counter] += 1
        self._charge(queue, task)
        more = {"attempt": task.attempts, "lease_ms": lease_ms}
        if task.attempts == 1:
            more["waited_ms"] = unit.now - since
        unit.events.append(
            Event(
                unit.numbers(1), "task.claimed", task.id, state, task.seq, task.queue, task.shape, each.worker, token,
                more,
            )
        )  # fmt: skip
        return token

    def _claim(self, alike: _Alike, task: Candidate) -> None:
        """The short way: written together."""
        line, visible = alike.line, task.ready == VISIBLE
        if line is not None:
            self._unit.memory.ahead.leave(line, task.seq)
            if visible or alike.claimed == alike.visible:  # who else leaves from behind changes nothing more
                self._unit.lines.leave(line, task.seq, visible=visible)
        if not alike.claimed:
            self._uncounted.append(alike)
        alike.claimed += 1
        alike.visible += visible
        name = task.counted_name
        if name is None:
            self._unnamed.add((task.grp, task.id))
        else:
            self._sums.names[task.grp, name, task.lim] += 1
        if task.lim is not None:
            self._unlimited.discard((task.grp, task.name or task.id))
            self._unit.lines.count(task, -1)
            self._count()  # namesakes by their id alone are looked for only while something is counted by name
        task.ready, task.live = 0, 1
        task.attempts += 1

    def _claim_long(self, task: TaskRow, token: int, each: Award, lease_ms: int) -> None:
        unit = self._unit
        was = copy(task)
        _unpin(unit, task)
        if not task.service:
            task.state = TASK[task.state, "award"]
        task.attempts += 1
        task.live += 1
        task.token, task.worker = token, each.worker
        unit.store(task, was)
        name = task.counted_name
        self._long.append(
            (token, task.seq, each.worker, each.session, task.id, task.service, task.queue, task.grp, name or "",
             task.key or "", task.lim or 0, task.slots, task.attempts, lease_ms, unit.now)
        )  # fmt: skip
        if name is None:
            self._unnamed.add((task.grp, task.id))
        elif task.lim is not None:
            self._unlimited.discard((task.grp, name))
        unit.count_action(_Counted(task.queue, each.worker, task.key, task.grp, name, task.lim), 1)

    def _count(self) -> None:
        """The short ones."""
        add, sums = self._unit.tally.add, self._sums
        for each in self._uncounted:
            n, queue = each.claimed, each.queue.state.name
            add(tally.STATE, queue, "pending", -n)
            add(tally.STATE, queue, "claimed", n)
            if each.visible:
                add(tally.READY, queue, each.shape, -each.visible)
            sums.workers[queue, each.worker] += n
            if each.key is not None:
                sums.keys[queue][each.key] += n
            each.claimed = each.visible = 0
        self._uncounted.clear()
        sums.write()

    def _charge(self, known: _Known, task: Task) -> None:
        """The start counts for its flow, its queue, its class and its rate."""
        if known.starts:
            known.starts -= 1
        if known.tags is not None:
            key = task.key or ""
            known.tags.serve(key, task.cost, known.weights.get(key, 1))
        queue = known.state
        settings = queue.settings
        if settings.rate is not None:
            queue.take()
        if settings.class_ is None:
            last, cost = self._turn
            if known is not last or task.cost != cost:
                self._serve()
                self._turn = (known, task.cost)
            self._turns += 1
            return
        turns, classes = self._unit.turns, self._unit.classes
        lender = classes.tree.lender(settings.class_, task.slots)
        classes.tree.take(settings.class_, task.slots)
        turns.serve(of_class(settings.class_), queue.name, task.cost, settings.weight)
        if lender is not None:
            turns.serve(lent_by(lender.scope), settings.class_, task.cost, classes.tree.weight(settings.class_))

    def _serve(self) -> None:
        """Turns of a queue that follow each other, counted at once."""
        queue, cost = self._turn
        if queue is not None and self._turns:
            its = queue.state
            self._unit.turns.serve_in_row(QUEUES, its.name, cost, its.settings.weight, self._turns)
            self._turns = 0

    def write(self) -> None:
        unit = self._unit
        self._count()
        self._serve()
        given = self._token - unit.last("token")
        if given:
            unit.take("token", given)
        if self._long:
            unit.db.executemany(schema.INSERT_LIVE, self._long)
        lives: list[tuple[Any, ...]] = []
        jobs: list[tuple[str, int, int]] = []
        for (offset, worker, session, lease_ms), seqs in self._short.items():
            if unit.fresh:
                seqs = [seq for seq in seqs if not unit.insert_claimed(seq, worker, session, offset + seq, lease_ms)]  # noqa: PLW2901
            if len(seqs) >= schema.TOGETHER_MIN:
                numbers = json_list(seqs)
                unit.db.execute(schema.INSERT_PLAIN_LIVES, (offset, worker, session, lease_ms, unit.now, numbers))
                unit.db.execute(schema.AWARD_TASKS, (worker, offset, numbers))
            else:
                lives += [(offset + seq, worker, session, lease_ms, unit.now, seq) for seq in seqs]
                jobs += [(worker, offset + seq, seq) for seq in seqs]
        if lives:
            unit.db.executemany(schema.INSERT_PLAIN_LIVE, lives)
            unit.db.executemany(schema.AWARD_TASK, jobs)
        self._long.clear()
        self._short.clear()
        self._unnamed.clear()


def _unpin(unit: Unit, task: TaskRow) -> None:
    """What a relocation asked for has happened; only a job's pin stays."""
    shape = unit.shapes.get(task.shape)
    after = msgspec.structs.replace(shape, avoid=None, toward=None, pin=None if task.service else shape.pin)
    if after != shape:
        task.shape = unit.shape_id(after)
