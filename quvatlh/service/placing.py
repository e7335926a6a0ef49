"""Who may have a task: the part of placement that needs no question. The auction, a worker's bidder and explain agree by
asking here.

Tags are glob patterns; each must match at least one tag of the worker, one with `!` none. What a policy says, and how many
slots are free, stands elsewhere.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final, Literal, NamedTuple

from quvatlh.core.books import Shape
from quvatlh.core.model import Names
from quvatlh.core.views import QueueView, WorkerView

matches: Callable[[str, str], bool] = fnmatch.fnmatchcase

Strategy = Literal["spread", "pack", "hash"]
ANY: Final[Names] = ("*",)


class Unfit(NamedTuple):
    """Why not, in explain's word, and in detail."""

    verdict: Literal["queue", "adapter", "tags"]
    detail: str


def may(worker: WorkerView, shape: Shape, queue: QueueView, up: Container[str] = ()) -> bool:
    """Whether it may have tasks of this shape and queue; `up` are the workers that take awards at all."""
    return unfit(worker, shape, queue.name, queue.settings.workers, up) is None


def unfit(worker: WorkerView, shape: Shape, queue: str, attached: Names = ANY, up: Container[str] = ()) -> Unfit | None:
    """The first thing that speaks against it. `attached` are the queue's patterns of workers."""
    facts = worker.facts
    if facts.queues != ANY and not any(matches(queue, pattern) for pattern in facts.queues):
        return Unfit("queue", f"takes tasks of {_listed(facts.queues)}, not of {queue}")
    if attached != ANY and not any(matches(worker.name, pattern) for pattern in attached):
        return Unfit("queue", f"queue {queue} is for workers {_listed(attached)}")
    if shape.adapter not in facts.adapters:
        return Unfit("adapter", f"has {_listed(facts.adapters)}, not {shape.adapter}")
    return _unplaced(worker.name, shape, up) or _untagged(worker, shape.tags)


def _unplaced(name: str, shape: Shape, up: Container[str]) -> Unfit | None:
    """What relocations say; a pin is a tag that nobody else has."""
    if shape.pin is not None and shape.pin != name:
        return Unfit("tags", f"pinned to worker {shape.pin}")
    if shape.toward is not None and shape.toward != name and shape.toward in up:
        return Unfit("tags", f"on its way to worker {shape.toward}")
    if shape.avoid == name:
        return Unfit("tags", "was moved away from here")
    return None


def is_large_enough(worker: WorkerView, needs: int) -> bool:
    """Whether it has so many slots at all, free or not. A pull worker has the room that it asks to be filled."""
    return worker.facts.role == "pull" or 0 < worker.facts.slots >= needs


def tags_of(worker: WorkerView) -> tuple[str, ...]:
    """Those that every worker has, too."""
    return (*worker.facts.tags, f"worker={worker.name}", f"node={worker.facts.node}")


def _untagged(worker: WorkerView, patterns: Sequence[str]) -> Unfit | None:
    if not patterns:
        return None
    tags = tags_of(worker)
    for pattern in patterns:
        if pattern.startswith("!"):
            hit = next((tag for tag in tags if matches(tag, pattern[1:])), None)
            if hit is not None:
                return Unfit("tags", f"its tag {hit} is excluded by {pattern}")
        elif not any(matches(tag, pattern) for tag in tags):
            return Unfit("tags", f"no tag matches {pattern}")
    return None


def weight(worker: str, key: str) -> int:
    """Rendezvous hash: for each key its own order of all workers, the same on every node; the greatest comes first."""
    return int.from_bytes(hashlib.blake2b(f"{worker}\0{key}".encode(), digest_size=8).digest(), "big")


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words) or "nothing"
