"""What a narrowed token sees and changes, wherever the pool reads or writes tasks: its scope becomes part of the question.

Where what was asked says already that it is out of scope (a queue, a group that somebody names), the no is `forbidden` and
says so: it tells nothing of what there is. Where only the tables could tell, it is as if nothing were there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from quvatlh.core.events import Event
from quvatlh.core.filters import TaskFilter
from quvatlh.core.model import TaskSpec
from quvatlh.core.rejections import FieldError
from quvatlh.core.scopes import Scope
from quvatlh.core.verbs.telling import QUEUE as NOTICES
from quvatlh.service.pool import Call, Principal, Rejected

MAY_SET_QUEUES: Final = frozenset({"admin", "operator"})
_SHOWN_MAX: Final = 5

Places = Mapping[Any, tuple[str, str]]
"""Queue and group, by seq of a task or name of a schedule; what is gone is left out."""


def narrowed(call: Call, wanted: TaskFilter) -> TaskFilter:
    scope = call.principal.scope
    return wanted if scope is None else msgspec.structs.replace(wanted, scope=scope)


def is_bounded(principal: Principal) -> bool:
    """Whether a task could be one that it may not add."""
    return principal.role not in MAY_SET_QUEUES or principal.scope is not None


def check_new(principal: Principal, spec: TaskSpec, place: str) -> Iterator[FieldError]:
    """Of a task that is to be added, or kept by a schedule: what speaks against it."""
    scope = principal.scope
    if scope is not None:
        if not scope.has_queue(spec.queue):
            yield FieldError(f"{place}.queue", f"{spec.queue} is none of this token's queues, {listed(scope.queues)}")
        if not scope.has_group(spec.group):
            yield FieldError(f"{place}.group", f"{spec.group} is none of this token's groups, {listed(scope.groups)}")
        if spec.notify is not None and spec.notify.command is not None and not scope.has_queue(NOTICES):
            text = f"runs in queue {NOTICES}, which is none of this token's queues, {listed(scope.queues)}"
            yield FieldError(f"{place}.notify.command", text)
    if spec.queue_limit is not None:
        if principal.role not in MAY_SET_QUEUES:
            text = f"sets a queue, which needs role operator; this token has {principal.role}"
            yield FieldError(f"{place}.queue_limit", text)
        elif scope is not None and not scope.has_all_groups:
            text = f"sets a queue, which needs a token for all groups; this one is for {listed(scope.groups)}"
            yield FieldError(f"{place}.queue_limit", text)


def check_move(principal: Principal, path: str, queue: str | None) -> None:
    """Into another queue, which stands at `path`."""
    scope = principal.scope
    if scope is not None and queue is not None and not scope.has_queue(queue):
        text = f"{queue} is none of this token's queues, {listed(scope.queues)}"
        raise refused(principal, [FieldError(path, text)])


def refused(principal: Principal, faults: Sequence[FieldError]) -> Rejected:
    """`forbidden`, with all that is out of scope."""
    return Rejected("forbidden", f"token {principal.name} may not: {faults[0].path} {faults[0].message}", faults)


def sees(scope: Scope, event: Event, places: Places) -> bool:
    """Whether an event is of something in scope. What cannot be known is not seen."""
    topic = event.kind.partition(".")[0]
    if event.seq:
        return scope.has_queue(event.queue) and (scope.has_all_groups or scope.has(*places.get(event.seq, ("", ""))))
    if topic == "queue":
        return scope.has_queue(event.id)
    if topic == "schedule":
        return event.id in places and scope.has(*places[event.id])
    return topic not in {"task", "action", "announced", "token"}


def listed(patterns: Sequence[str]) -> str:
    """For people."""
    more = len(patterns) - _SHOWN_MAX
    return (", ".join(patterns[:_SHOWN_MAX]) or "none at all") + (f" and {more} more" if more > 0 else "")
