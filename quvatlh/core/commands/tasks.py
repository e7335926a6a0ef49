"""Verbs over tasks: added, and changed by a person."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from quvatlh.core import limits
from quvatlh.core.commands.base import Blob, Changes, Command, Part, TaskIds
from quvatlh.core.commands.owners import Award
from quvatlh.core.model import Id, Name, Names, Positive, Serial, Signed, SpanMs, TaskSpec, TimeMs
from quvatlh.core.results import Shift


class NewTask(Part, frozen=True):
    """A task with everything decided."""

    id: Id
    spec: TaskSpec
    chosen: bool = False
    """Whether a producer chose the id: then it is known for 24 h after the task is gone."""
    at_ms: TimeMs | None = None
    expires_ms: TimeMs | None = None
    payload: Blob | None = None
    payload_json: bool = True


class Add(Command, frozen=True, tag="add"):
    """All or nothing, in order: a later one finds an earlier one's id or unique key.

    `awards` go with it, of tasks that are new; `task` is the position. They are judged as all awards are, and what cannot be
    given away waits as if nobody had tried.
    """

    tasks: Annotated[tuple[NewTask, ...], Meta(max_length=limits.ADD_TASKS_MAX)]
    awards: Annotated[tuple[Award, ...], Meta(max_length=limits.ADD_TASKS_MAX)] = ()


class Delete(Command, frozen=True, tag="delete"):
    """Strict: an unknown id refuses the whole. Otherwise it is passed over (ids found by a filter a moment ago)."""

    ids: TaskIds
    strict: bool = True
    failed: bool = False
    """What has failed becomes deleted, too. Entries of before leave it as it is, and say done."""


class Kill(Command, frozen=True, tag="kill"):
    ids: TaskIds
    strict: bool = True


class RetryTasks(Command, frozen=True, tag="retry"):
    ids: TaskIds
    strict: bool = True
    queue: Name | None = None
    """Where they run; None: each in its own queue."""
    placed: bool = False
    """They get the place that the discipline of today gives. Entries of before left them the one they had."""
    exclusive: bool = False
    """Not while another has their unique key: strict, that refuses the whole. Entries of before let them run without it."""
    sooner: bool = False
    """Those that wait for their next attempt wait no longer; what they have tried counts. Entries of before let them wait."""


class Move(Part, frozen=True):
    """Away from where it is, or `to` a worker. A service moves the instance `from_worker`, or all."""

    id: Id
    to: Name | None = None
    from_worker: Name | None = None
    loose: bool = False
    """`to` is where it should go next, and binds it no longer: not after its next award, and not while that worker is
    gone. Without `to`: it is let go of there, and nothing is stopped."""
    token: Serial = 0
    """Only this action of it; 0: all that `from_worker` names."""


class Relocate(Command, frozen=True, tag="relocate"):
    moves: Annotated[tuple[Move, ...], Meta(max_length=limits.BATCH_MAX)]
    strict: bool = True
    plan: Annotated[tuple[Shift, ...], Meta(max_length=limits.ADD_TASKS_MAX)] | None = None
    """BALANCE's, of which `moves` are the first: the answer, so that it is remembered with the request."""


class BeginBulk(Command, frozen=True, tag="begin_bulk"):
    """Changes nothing: that its request gets this answer, and no other, is all there is to it."""

    bulk: Name


class TaskChanges(Changes, frozen=True):
    queue: Name | UnsetType = UNSET
    priority: Signed | UnsetType = UNSET
    tags: Names | UnsetType = UNSET
    at_ms: TimeMs | UnsetType = UNSET
    expires_ms: TimeMs | UnsetType | None = UNSET
    limit: Positive | UnsetType | None = UNSET
    keep_ms: SpanMs | UnsetType | None = UNSET


class Update(Command, frozen=True, tag="update"):
    ids: TaskIds
    changes: TaskChanges
    strict: bool = True
    failed: bool = False
    """What has failed is changed, too: where it is listed, and how it would run again. Entries of before leave it alone."""
    timely: bool = False
    """Not what could then only expire before its time: strict, that refuses the whole. Entries of before let it fail."""
