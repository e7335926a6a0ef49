"""What would have to change for a task to run, in a sentence, with the command for it where there is one.

Of what time or its turn brings by itself nothing is said. Names of others are told only where explain tells them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from quvatlh.core.books import Shape
from quvatlh.core.views import ExplainFacts, WorkerView
from quvatlh.service.placing import is_large_enough, matches, may, tags_of

_STARTS: Final[Mapping[str, str]] = {
    "warm": "start a worker whose configuration has its environment (worker.environments)",
    "pull": "start a program that claims it (POST /v1/work/claim)",
}


class Wanted(NamedTuple):
    """A task that waits."""

    facts: ExplainFacts
    holder: str | None
    """The first of whoever holds it, where it may be named."""
    nearest: WorkerView | None
    """The worker that speaks for all, where none may have it."""
    verdict: str
    """What that says."""
    workers: Sequence[WorkerView]

    @property
    def queue(self) -> str:
        return _quoted(self.facts.queue.name)

    @property
    def id(self) -> str:
        return _quoted(self.facts.task.row.id)

    @property
    def shape(self) -> Shape:
        return self.facts.task.shape


def change(reason: str, wanted: Wanted) -> str | None:
    told = _TOLD.get(reason)
    return None if told is None else told(wanted)


def _queue_limit(wanted: Wanted) -> str:
    return _raised(wanted, "limit", wanted.facts.queue.settings.limit)


def _key_limit(wanted: Wanted) -> str:
    return _raised(wanted, "limit-per-key", wanted.facts.queue.settings.limit_per_key)


def _raised(wanted: Wanted, option: str, limit: int | None) -> str:
    raised = f"quvatlh queue set {wanted.queue} --{option} {(limit or 0) + 1}"
    return f"wait until one of them ends, or raise the limit: {raised}" if limit else f"raise the limit: {raised}"


def _head(wanted: Wanted) -> str:
    raised = f"raise the limit, so that none holds up the rest: quvatlh queue set {wanted.queue} --limit 2"
    if wanted.holder is None:
        return raised
    return f"see what holds up the head: quvatlh explain {_quoted(wanted.holder)}; or {raised}"


def _class(wanted: Wanted) -> str:
    full = wanted.facts.full
    if full is None:
        return "wait until its class has room"
    needs = "N" if full.most is None else str(wanted.facts.task.row.slots)
    raised = " ".join((f"quvatlh class set {_quoted(full.name)}", *(f"--{each} {needs}" for each in full.settings)))
    if full.most is not None:
        return f"let class {full.name} have {needs} slots: {raised}"
    return f"wait until something of class {full.name} ends, or raise what it may have: {raised}"


def _limit(wanted: Wanted) -> str:
    row = wanted.facts.task.row
    alike = f"--match {_quoted(f'group={row.grp}')} --match {_quoted(f'name={row.name or row.id}')}"
    return f"wait until one of them ends, or raise the limit of all of its name: quvatlh move {alike} --limit N"


def _unique(wanted: Wanted) -> str:
    end = "" if wanted.holder is None else f", or delete it: quvatlh delete {_quoted(wanted.holder)}"
    return f"wait until the holder of its key ends{end}"


def _no_worker(wanted: Wanted) -> str:
    return _back(wanted) or "start a worker that may have it: quvatlh run"


def away(facts: ExplainFacts, workers: Sequence[WorkerView]) -> WorkerView | None:
    """Who might have it, and takes nothing now."""
    shape, queue = facts.task.shape, facts.queue
    able = (each for each in workers if may(each, shape, queue) and is_large_enough(each, shape.slots))
    return next((each for each in able if each.state != "up"), None)


def _back(wanted: Wanted) -> str | None:
    worker = away(wanted.facts, wanted.workers)
    if worker is None:
        return None
    if worker.state == "draining":
        return f"let worker {worker.name} take tasks again: quvatlh worker undrain {_quoted(worker.name)}"
    return f"bring worker {worker.name} back, or start another one: quvatlh run"


def _worker_limit(wanted: Wanted) -> str:
    return _raised(wanted, "limit-per-worker", wanted.facts.queue.settings.limit_per_worker)


def _slots(wanted: Wanted) -> str:
    if wanted.shape.adapter == "pull":
        return _STARTS["pull"]
    before = f"put it before others: quvatlh move {wanted.id} --priority N"
    return f"wait until one of them has room, start another worker: quvatlh run; or {before}"


def _policy(wanted: Wanted) -> str:
    if wanted.shape.pin is not None:
        return f"let another worker have it: quvatlh move {wanted.id} --to WORKER"
    policy = wanted.shape.policy
    if policy is not None and policy.name is not None:
        mended = f"store another version of its policy: quvatlh policy put {_quoted(policy.name)} FILE"
    else:
        mended = f"delete it, and add it with another policy: quvatlh delete {wanted.id}"
    return f"see what workers say to a policy: quvatlh policy test FILE --task {wanted.id}; then {mended}"


def _unplaceable(wanted: Wanted) -> str:
    worker, back = wanted.nearest, _back(wanted)
    if back is not None or worker is None:
        return back or _no_worker(wanted)
    if worker.facts.role == "pull" and wanted.verdict != "adapter":
        return _no_worker(wanted)
    return _UNPLACEABLE[wanted.verdict](wanted, worker)


def _by_queue(wanted: Wanted, worker: WorkerView) -> str:
    queue, patterns = wanted.facts.queue.name, worker.facts.queues
    if not any(matches(queue, each) for each in patterns):
        all_of_them = _quoted(",".join((*patterns, queue)))
        return f"let a worker take from queue {queue}: quvatlh worker set {_quoted(worker.name)} --queues {all_of_them}"
    names = _quoted(",".join((*wanted.facts.queue.settings.workers, worker.name)))
    return f"let the queue be for more workers: quvatlh queue set {wanted.queue} --workers {names}"


def _by_adapter(wanted: Wanted, _worker: WorkerView) -> str:
    return _STARTS.get(wanted.shape.adapter, f"start a worker that can run {wanted.shape.adapter}: quvatlh run")


def _by_tags(wanted: Wanted, worker: WorkerView) -> str:
    shape = wanted.shape
    if shape.pin is not None and shape.pin != worker.name:
        return f"bring worker {shape.pin} back, or move the task: quvatlh move {wanted.id} --to {_quoted(worker.name)}"
    tags = tags_of(worker)
    missing = [each for each in shape.tags if each[0] != "!" and not any(matches(tag, each) for tag in tags)]
    if not missing:
        return f"start another worker: quvatlh run; or ask for other tags: quvatlh move {wanted.id} --tag TAG"
    given = _quoted(",".join((*worker.facts.tags, *missing)))
    if any("*" in each or "?" in each or "[" in each for each in missing):
        given = "TAGS"
    told = f"give a worker a tag that matches {', '.join(missing)}: quvatlh worker set {_quoted(worker.name)} --tags {given}"
    return f"{told}; or ask for other tags: quvatlh move {wanted.id} --tag TAG"


def _by_slots(wanted: Wanted, worker: WorkerView) -> str:
    needs = max(1, wanted.facts.task.row.slots)
    return f"give a worker {needs} slots: quvatlh worker set {_quoted(worker.name)} --slots {needs}"


def _quoted(text: str) -> str:
    return shlex.quote(text)


_UNPLACEABLE: Final[Mapping[str, Callable[[Wanted, WorkerView], str]]] = {
    "queue": _by_queue,
    "adapter": _by_adapter,
    "tags": _by_tags,
    "slots": _by_slots,
}
_TOLD: Final[Mapping[str, Callable[[Wanted], str]]] = {
    "paused": lambda wanted: f"resume the queue: quvatlh queue resume {wanted.queue}",
    "queue_limit": _queue_limit,
    "key_limit": _key_limit,
    "worker_limit": _worker_limit,
    "head": _head,
    "class": _class,
    "limit": _limit,
    "unique": _unique,
    "no_worker": _no_worker,
    "slots": _slots,
    "policy": _policy,
    "unplaceable": _unplaceable,
}
