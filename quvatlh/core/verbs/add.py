"""ADD: tasks enter the table, all or none, each as itself or as the older task that stands for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from quvatlh.core import limits, uniqueness
from quvatlh.core.books import QueueState, Shape
from quvatlh.core.commands import Add, Award, Awards, NewTask
from quvatlh.core.events import Event
from quvatlh.core.lines import BEHIND, VISIBLE, flow_of
from quvatlh.core.model import Code, TaskSpec
from quvatlh.core.rejections import FieldError, Rejection
from quvatlh.core.results import Added
from quvatlh.core.rows import Candidate, Lined, json_list, json_text
from quvatlh.core.tally import IN_LINE
from quvatlh.core.unit import Unit
from quvatlh.core.verbs.award import award


def add(unit: Unit, command: Add) -> Added | Rejection:
    seqs: dict[int, int] = {}
    if command.awards:
        unit.fresh = {}
    added = add_tasks(unit, command.tasks, seqs)
    if command.awards and seqs:
        _give_away(unit, command.awards, seqs)
    unit.put_fresh()
    return added


def _give_away(unit: Unit, awards: Sequence[Award], seqs: Mapping[int, int]) -> None:
    """What was added a moment ago; never a task that was there before."""
    found = [replace(each, task=seqs[each.task]) for each in awards if each.task in seqs]
    award(unit, Awards(tuple(found)))


def add_tasks(unit: Unit, tasks: Sequence[NewTask], seqs: dict[int, int] | None = None) -> Added | Rejection:
    """The body of ADD, and of a schedule that fires. `seqs` gets the numbers of those that are new, by position."""
    texts = [json_text(task.spec) for task in tasks]
    faults = _faults(unit, tasks, texts)
    if faults:
        return Rejection("invalid", "a task cannot be taken as it is", tuple(faults))
    known = _known(unit, tasks)
    ids: list[str] = []
    existing: dict[int, str] = {}
    numbers = {} if seqs is None else seqs
    for position, (task, text) in enumerate(zip(tasks, texts, strict=True)):
        if task.id in known or task.id in unit.new_ids:
            existing[position] = "id"
            ids.append(task.id)
            continue
        queue = unit.queue(task.spec.queue)
        unique = task.spec.unique or queue.settings.unique
        holder = None
        if unique is not None:
            key = uniqueness.key_of(unique, task.spec, task.payload)
            holder = unit.unique_holder(task.spec.group, key)
            if holder is None:
                way = uniqueness.while_of(unique)
                numbers[position] = _insert(unit, task, text or "", queue, (key, way, unique.for_ms))
        else:
            numbers[position] = _insert(unit, task, text or "", queue, None)
        if holder is not None:
            existing[position] = "unique"
        ids.append(holder[1] if holder is not None else task.id)
    return Added(tuple(ids), existing)


def _faults(unit: Unit, tasks: Sequence[NewTask], texts: Sequence[str | None]) -> list[FieldError]:
    """What only the tables know to be wrong, and what has no place in them."""
    faults = [
        FieldError(f"tasks[{n}].work", "holds what has no form in JSON") for n, text in enumerate(texts) if text is None
    ]
    for position, task in enumerate(tasks):
        for field, code in (("policy", task.spec.policy), ("announce", task.spec.announce)):
            if code is not None and code.name is not None and not policy_exists(unit, code):
                faults.append(FieldError(f"tasks[{position}].{field}.name", f"there is no policy named {code.name}"))
    return faults


def policy_exists(unit: Unit, code: Code) -> bool:
    return unit.db.execute("SELECT 1 FROM policy WHERE name = ?", (code.name,)).fetchone() is not None


def _known(unit: Unit, tasks: Sequence[NewTask]) -> set[str]:
    """Ids that are tasks, or that a producer chose within the last day (those of this entry stand in new_ids)."""
    if len(tasks) == 1 and not tasks[0].chosen:
        return {tasks[0].id} if unit.db.execute("SELECT 1 FROM task WHERE id = ?", (tasks[0].id,)).fetchone() else set()
    sql = "SELECT id FROM task WHERE id IN (SELECT value FROM json_each(?))"
    known = {row[0] for row in unit.db.execute(sql, (json_list([task.id for task in tasks]),))}
    chosen = [task.id for task in tasks if task.chosen]
    if chosen:
        sql = "SELECT id FROM tombstone WHERE id IN (SELECT value FROM json_each(?)) AND at > ? AND ordinal > ?"
        since = unit.last("tombstone") - limits.KNOWN_MAX
        rows = unit.db.execute(sql, (json_list(chosen), unit.now - limits.KNOWN_MS, since))
        known.update(row[0] for row in rows)
    return known


def _insert(unit: Unit, task: NewTask, text: str, queue: QueueState, unique: tuple[str, str, int | None] | None) -> int:
    """Its number."""
    spec, now = task.spec, unit.now
    seq = unit.take("task")
    later = task.at_ms is not None and task.at_ms > now
    state = "scheduled" if later else "pending"
    shape = _shape_id(unit, spec)
    key, way, for_ms = unique or (None, None, None)
    inline = len(text) <= limits.SPEC_INLINE_BYTES_MAX
    kept_text = text if inline else None
    chosen, once = int(task.chosen), int(spec.delivery == "at-most-once")
    rank = queue.rank(spec.priority)
    flow = _flow(spec, queue, task.id)
    ready = 0 if later else VISIBLE
    turn, plain = 0, False
    short = not later and unique is None and _is_short(task, spec)
    if flow is not None:
        turn = rank
        if not later:
            line, named = (flow, spec.queue, shape), (spec.group, spec.name or task.id, spec.limit)
            ready, rank = unit.lines.join(line, (seq, turn), spec.key, named)
            ahead = unit.memory.ahead
            front = ahead.joined(line, turn, is_short=short)
            if front is not None:
                ahead.keep(front, Lined(
                    seq, task.id, spec.queue, spec.group, spec.name, spec.key, spec.limit, shape, spec.slots, spec.cost, 0,
                    ready, 0, flow, now, None, kept_text, 1, once, int(spec.limit is None), turn,
                ))  # fmt: skip
        if short:
            unit.new_lined_tasks.append(
                (seq, task.id, chosen, once, spec.group, spec.name or "", spec.queue, spec.priority, spec.key or "",
                 spec.limit or 0, shape, spec.slots, now, ready, rank, kept_text, spec.cost, flow, turn)
            )  # fmt: skip
            plain = True
    elif short and spec.limit is None and spec.cost == 1:
        _insert_plain(unit, (seq, shape, rank), task, kept_text)
        plain = True
    if not plain:
        service = int(spec.kind == "service")
        at = task.at_ms if later else None
        unit.new_tasks.append(
            (seq, task.id, chosen, state, service, once, spec.group, spec.name, spec.queue, spec.priority, spec.key,
             (spec.limit or 1) if service else spec.limit, shape, spec.slots, now, at, at, task.expires_ms,
             task.expires_ms, ready, rank, spec.keep_ms, spec.lease_ms, key, way, kept_text, spec.cost, flow, turn)
        )  # fmt: skip
    unit.new_ids.add(task.id)
    if task.payload is not None or not inline:
        unit.new_bodies.append((seq, None if inline else text, task.payload, int(task.payload_json)))
    unit.tally.add_new(spec.queue, IN_LINE if ready == BEHIND else state, spec.priority, shape)
    if key is not None and way is not None and (way == uniqueness.FOR or state in uniqueness.HOLDS[way]):
        unit.hold_unique((seq, task.id), spec.group, key, None if for_ms is None else now + for_ms)
    if spec.queue_limit is not None and queue.settings.limit != spec.queue_limit:
        queue.change(msgspec.structs.replace(queue.settings, limit=spec.queue_limit), now)
        unit.tell("queue.changed", queue.name)
    unit.events.append(Event(unit.numbers(1), "task.added", task.id, state, seq, spec.queue, shape))
    return seq


def _insert_plain(unit: Unit, place: tuple[int, int, int], task: NewTask, text: str | None) -> None:
    """`place`: number, shape and rank. Without line, limit and price."""
    (seq, shape, rank), spec, now = place, task.spec, unit.now
    row = (
        seq, task.id, int(task.chosen), int(spec.delivery == "at-most-once"), spec.group, spec.name or "", spec.queue,
        spec.priority, spec.key or "", shape, spec.slots, now, rank, text,
    )  # fmt: skip
    if unit.fresh is None:
        unit.new_plain_tasks.append(row)
    else:
        candidate = Candidate(
            seq, task.id, spec.queue, spec.group, spec.name or None, spec.key or None, None, shape, spec.slots, 1, 0, VISIBLE,
            0, None, now, None, text, 1,
        )  # fmt: skip
        unit.fresh[seq] = candidate, row


def _flow(spec: TaskSpec, queue: QueueState, task_id: str) -> str | None:
    """The line that it will wait in. Services and tasks with a policy wait alone: who wants them is heard one by one."""
    if spec.kind == "service" or spec.policy is not None:
        return None
    return flow_of(queue.settings, spec.key, spec.group, spec.name or task_id, spec.limit)


def _is_short(task: NewTask, spec: TaskSpec) -> bool:
    """Of a task that may be awarded now: whether INSERT_LINED_TASK says all there is to say; INSERT_PLAIN_TASK, where it has
    neither line nor limit nor price."""
    return spec.kind == "job" and task.expires_ms is None and spec.keep_ms is None and spec.lease_ms is None


def _shape_id(unit: Unit, spec: TaskSpec) -> int:
    """Tasks mostly ask for the same: each shape is looked up once."""
    adapter = spec.work.adapter
    announce = None if spec.announce is None else spec.announce.name
    parts = (adapter, spec.tags, spec.slots, spec.policy, announce)
    number = unit.shapes.of_new.get(parts)
    if number is None:
        number = unit.shapes.of_new[parts] = unit.shape_id(
            Shape(spec.tags, adapter, spec.slots, spec.policy, announce=announce)
        )
    return number
