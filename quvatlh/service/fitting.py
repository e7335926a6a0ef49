"""Whether a worker may have tasks of a shape and queue, slots and policies aside."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from quvatlh.core.books import Shape
from quvatlh.core.model import WorkerFacts


def fits(worker: str, facts: WorkerFacts, shape: Shape, queue: str, queue_workers: Sequence[str]) -> bool:
    if shape.adapter not in facts.adapters:
        return False
    if (shape.pin is not None and shape.pin != worker) or shape.avoid == worker:
        return False
    if not matches_any(queue, facts.queues) or not matches_any(worker, queue_workers):
        return False
    return tagged(tags_of(worker, facts), shape.tags)


def tags_of(worker: str, facts: WorkerFacts) -> tuple[str, ...]:
    """As tasks see them."""
    return (*facts.tags, f"worker={worker}", f"node={facts.node}")


def tagged(tags: Sequence[str], patterns: Sequence[str]) -> bool:
    """Each pattern matches at least one tag; one with `!` matches none."""
    return all(
        not any(fnmatch.fnmatchcase(tag, pattern[1:]) for tag in tags)
        if pattern.startswith("!")
        else any(fnmatch.fnmatchcase(tag, pattern) for tag in tags)
        for pattern in patterns
    )


def matches_any(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
