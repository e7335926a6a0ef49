"""What must hold of the task table, told from the entries of the log as they are applied, by whichever node first.

Results and events of an index are the same on every node, those of a task follow each other, a token that ended is worth
nothing; at every eighth index, and wherever else it can be had cheaply, the tables themselves are equal and in order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from quvatlh.codec import Values
from quvatlh.core import commands as c
from quvatlh.core.events import PUBLIC, Event
from quvatlh.core.invariants import LIMITS, check_invariants, check_memory
from quvatlh.core.results import Added, Answer, Outcome
from quvatlh.core.tables_digest import tables_digest
from quvatlh.ports import Entry
from quvatlh.service.pool import Position
from tests.sim.box import AnyBox
from tests.sim.judge import Judge, Violation
from tests.sim.table.box import TableBox
from tests.sim.table.facts import FINISHED, TaskFacts
from tests.sim.table.hands import Ground, Script
from tests.sim.table.slots import Slots

LOOK_EVERY: Final = 8
"""Tables are compared at multiples of it: a comparison costs as much as some entries."""
CODEC: Final = Values()
OF_QUEUE: Final = "more live actions than the queue's limit"
_LIVES_ON: Final = frozenset({"task.claimed", "task.started", "task.progress", "action.stopping", "announced"})
_OF_ACTIONS: Final = frozenset({"task.progress", "announced"})
"""Their state is the action's."""
_BY_A_PERSON: Final[dict[tuple[str, str], type[c.Command]]] = {
    ("failed", "pending"): c.RetryTasks,
    ("failed", "deleted"): c.Delete,
}
"""What becomes of a task that is over, and by what alone."""

assert OF_QUEUE in LIMITS


class TableJudge(Judge):
    ground: Ground

    def __init__(self) -> None:
        super().__init__()
        self.on_awarded: Callable[[str], None] = lambda _worker: None
        """Hook of the nemesis."""
        self.tasks: dict[int, TaskFacts] = {}
        """By seq."""
        self.by_id: dict[str, TaskFacts] = {}
        self.live: dict[int, int] = {}
        """Token -> seq."""
        self.token = 0
        """The last one that was given out."""
        self.added: dict[tuple[int, int], str] = {}
        """Number of a request and place in it -> the task that it made."""
        self.stream: list[tuple[Position, str, str]] = []
        """All public events in order: place, kind, id."""
        self.slots = Slots(lambda task_id: self.by_id[task_id])
        self.log_time_ms = 0
        self.lost = 0
        """Actions whose lease was over by the master's count."""
        self._results: dict[int, bytes] = {}
        self._tables: dict[int, bytes] = {}
        self._claimed: set[tuple[str, str]] = set()
        """What was awarded since limits were last looked at: group and name, queue and key, queue and worker."""
        self._queues: set[str] = set()
        """Where."""
        self._changed = False
        """Limits may have been lowered since."""

    # --- told by the boxes --------------------------------------------------------------------------------------------

    def opened(self, box: AnyBox) -> None:
        super().opened(box)
        assert isinstance(box, TableBox)
        if box.machine is not None and box.machine.applied_index in self._tables:
            self._compare(box, box.machine.applied_index)

    def _first_applied(self, box: AnyBox, entry: Entry, results: Sequence[object]) -> None:
        assert isinstance(box, TableBox)
        assert box.machine is not None
        self._results[entry.index] = _digest(results)
        self.log_time_ms = entry.time_ms
        for item, outcome in zip(entry.items, results, strict=True):
            command = CODEC.decode_item(item)
            assert isinstance(command, c.Item)
            assert isinstance(outcome, Outcome)
            self._item(entry, command, outcome)
        self.slots.entry(entry)
        if entry.index == box.machine.applied_index:
            self._look(box, entry.index)

    def _item(self, entry: Entry, item: c.Item, outcome: Outcome) -> None:
        command = item.command
        self._changed = self._changed or isinstance(command, c.PatchQueue)
        for event in outcome.events:
            if event.kind == "task.added":
                self._add(command, outcome.result, event)
            elif event.seq:
                self._told(entry, command, event)
            else:
                self.slots.told(entry, item, event, _number(command))
            if event.kind in PUBLIC:
                self.stream.append((Position(entry.index, event.n), event.kind, event.id))
        self.slots.agree(item, outcome.events)

    def _applied_again(self, box: AnyBox, entry: Entry, results: Sequence[object]) -> None:
        assert isinstance(box, TableBox)
        assert box.machine is not None
        if self._results[entry.index] != _digest(results):
            raise Violation(f"{box.name} made something else of entry {entry.index} than who applied it first")
        if entry.index == box.machine.applied_index and (entry.index in self._tables or not entry.index % LOOK_EVERY):
            self._compare(box, entry.index)

    # --- events ---------------------------------------------------------------------------------------------------------

    def _told(self, entry: Entry, command: c.AnyCommand, event: Event) -> None:
        task = self.tasks[event.seq]
        if event.kind == "task.claimed":
            self._claim(entry, task, event)
        elif event.token:
            self._reported(command, task, event)
        if isinstance(command, c.Update):
            self._updated(task, command.changes)
        elif isinstance(command, c.RetryTasks):
            task.retries += 1
            if command.queue is not None:
                task.queue = command.queue
            if task.expires_ms is not None and task.expires_ms <= entry.time_ms:
                task.expires_ms = None
        if event.kind not in _OF_ACTIONS:
            self._goes_on(command, task, event)
            if event.state in FINISHED and event.state != task.state:
                task.finished_ms = entry.time_ms
            task.state = event.state

    def _goes_on(self, command: c.AnyCommand, task: TaskFacts, event: Event) -> None:
        """What is over stays so, but for what a person does to what has failed."""
        step = (task.state, event.state)
        if task.finished and event.state != task.state and type(command) is not _BY_A_PERSON.get(step):
            raise Violation(f"{task.id} was {task.state}, and is {event.state} by {command}")

    def _add(self, command: c.AnyCommand, answer: Answer, event: Event) -> None:
        if isinstance(command, c.Fire):
            facts = self.slots.made(command, event)
        else:
            assert isinstance(command, c.Add)
            assert isinstance(answer, Added)
            new = [task for place, task in enumerate(command.tasks) if place not in answer.existing]
            task = next(each for each in new if each.id == event.id)
            op, place = Script.of(task.spec.work).op, int(task.spec.work.env["PLACE"])
            before = self.added.setdefault((op, place), event.id)
            if before != event.id or event.id in self.by_id:
                raise Violation(f"request {op} had its effect twice: it made {before}, and now {event.id}")
            facts = TaskFacts.of(task, op, place, event.state)
        self.tasks[event.seq] = self.by_id[event.id] = facts

    def _claim(self, entry: Entry, task: TaskFacts, event: Event) -> None:
        if event.token <= self.token:
            raise Violation(f"token {event.token} was given out after {self.token}")
        self.token = event.token
        if task.job and task.tokens:
            raise Violation(f"{task.id} has two owners: tokens {sorted(task.tokens)} and {event.token}")
        if task.job and task.expires_ms is not None and task.expires_ms <= entry.time_ms:
            raise Violation(f"{task.id} was awarded at {entry.time_ms}, and had expired at {task.expires_ms}")
        task.attempts += 1
        task.tokens.add(event.token)
        self.live[event.token] = event.seq
        self._queues.add(task.queue)
        self._claimed |= {(task.group, task.name), (task.queue, task.key), (task.queue, event.worker)}
        self.on_awarded(event.worker)

    def _reported(self, command: c.AnyCommand, task: TaskFacts, event: Event) -> None:
        """Only who owns an action has a say in it."""
        if self.live.get(event.token) != event.seq:
            raise Violation(f"{event.kind} of {task.id} came with token {event.token}, which was over")
        if event.kind in _LIVES_ON:
            return
        del self.live[event.token]
        task.tokens.remove(event.token)
        if isinstance(command, c.GiveBack):
            task.attempts -= 1
        if isinstance(command, c.Lost | c.OpenSession):
            self.lost += 1
            self.ground.give_up(task.id, event.token)
        if event.kind == "task.succeeded":
            task.succeeded_by = event.token
        if event.kind == "task.succeeded" and not self.ground.ends.get(event.token):
            raise Violation(f"{task.id} succeeded by token {event.token}, whose action did not")

    def _updated(self, task: TaskFacts, changes: c.TaskChanges) -> None:
        if changes.limit is not msgspec.UNSET:
            task.limit = changes.limit if task.job else changes.limit or 1
            task.relimited = self._changed = True
        if changes.queue is not msgspec.UNSET:
            task.queue = changes.queue
            self._changed = True
        if changes.expires_ms is not msgspec.UNSET:
            task.expires_ms = changes.expires_ms
        if changes.keep_ms is not msgspec.UNSET:
            task.keep_ms = changes.keep_ms

    # --- tables ---------------------------------------------------------------------------------------------------------

    def _look(self, box: TableBox, index: int) -> None:
        """At tables that are those of this index, and seen by nobody before."""
        if self._claimed and not self._changed:
            self._check_limits(box)
        self._claimed.clear()
        self._queues.clear()
        self._changed = False
        if index % LOOK_EVERY == 0:
            self.compare_with_facts(box)
            self._compare(box, index)

    def _check_limits(self, box: TableBox) -> None:
        """What starts keeps the limits. Only what started just now: lowering a limit stops nothing."""
        assert box.machine is not None
        for words, query in LIMITS.items():
            for row in box.machine.db.execute(query):
                if row[0] in self._queues if words == OF_QUEUE else row[:2] in self._claimed:
                    raise Violation(f"{words}: {row}")

    def _compare(self, box: TableBox, index: int) -> None:
        assert box.machine is not None
        digest = tables_digest(box.machine.db)
        known = self._tables.setdefault(index, digest)
        if known != digest:
            raise Violation(f"the tables of {box.name} at {index} are not those of others")

    def compare_with_facts(self, box: TableBox) -> None:
        """The tables are in order, and say of each task what its events have said."""
        assert box.machine is not None
        found = check_invariants(box.machine.db, limits_hold=False) + check_memory(box.memory)
        if found:
            raise Violation("\n".join(found))
        self.slots.compare(box.machine.db)
        seen = set()
        for seq, state, attempts, live in box.machine.db.execute("SELECT seq, state, attempts, live FROM task"):
            task = self.tasks[seq]
            seen.add(seq)
            if (state, attempts, live) != (task.state, task.attempts, len(task.tokens)):
                told = f"{task.state}, attempt {task.attempts}, tokens {sorted(task.tokens)}"
                raise Violation(f"{task.id} is {state}, attempt {attempts}, with {live} live; its events said {told}")
        for seq, task in self.tasks.items():
            if seq not in seen and not task.may_be_forgotten(self.log_time_ms):
                raise Violation(f"{task.id} is not in the table any more, and was {task.state}")


def _number(command: c.AnyCommand) -> int | None:
    """Of the request that puts a schedule; it stands in the work of its tasks."""
    return Script.of(command.spec.task.work).op if isinstance(command, c.PutSchedule) else None


def _digest(results: Sequence[object]) -> bytes:
    return hashlib.blake2b(msgspec.msgpack.encode(results), digest_size=16).digest()
