"""Verbs over what people set up: queues and classes, schedules, policies, tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from quvatlh.core import limits
from quvatlh.core.commands.base import Blob, Changes, Command, Part, TaskIds
from quvatlh.core.commands.tasks import NewTask
from quvatlh.core.model import (
    Count,
    HtbClass,
    Keep,
    LeaseMs,
    Name,
    Names,
    Positive,
    QueueSettings,
    Rate,
    Retry,
    ScheduleSpec,
    Serial,
    Signed,
    SpanMs,
    TaskState,
    TimeMs,
    TokenScope,
    Unique,
    UniqueWhile,
    Weight,
)


class KeepChanges(Changes, frozen=True):
    age_ms: SpanMs | UnsetType = UNSET
    count: Serial | UnsetType = UNSET


class RetryChanges(Changes, frozen=True):
    attempts: Annotated[int, Meta(ge=1, le=limits.ATTEMPTS_MAX)] | UnsetType = UNSET
    backoff: Literal["exponential", "linear", "constant", "list"] | UnsetType = UNSET
    delays_ms: Annotated[tuple[SpanMs, ...], Meta(max_length=limits.LIST_ITEMS_MAX)] | UnsetType = UNSET
    first_ms: SpanMs | UnsetType = UNSET
    factor_milli: Annotated[int, Meta(ge=1000, le=1_000_000)] | UnsetType = UNSET
    max_ms: SpanMs | UnsetType | None = UNSET
    jitter_permille: Annotated[int, Meta(ge=0, le=1000)] | UnsetType = UNSET
    permanent_exit_codes: Annotated[tuple[Signed, ...], Meta(max_length=256)] | UnsetType = UNSET
    permanent_exceptions: Names | UnsetType = UNSET
    permanent_statuses: Annotated[tuple[Count, ...], Meta(max_length=256)] | UnsetType = UNSET


class UniqueChanges(Changes, frozen=True, rename={"while_": "while"}):
    key: Name | UnsetType | None = UNSET
    while_: UniqueWhile | UnsetType = UNSET
    for_ms: Annotated[int, Meta(ge=1, le=limits.TIME_MS_MAX)] | UnsetType | None = UNSET


class QueueChanges(Changes, frozen=True, rename={"class_": "class"}):
    discipline: Name | UnsetType = UNSET
    weight: Weight | UnsetType = UNSET
    limit: Count | UnsetType | None = UNSET
    limit_per_key: Count | UnsetType | None = UNSET
    limit_per_worker: Count | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    burst: Positive | UnsetType | None = UNSET
    paused: bool | UnsetType = UNSET
    unique: Unique | UnsetType | None = UNSET
    retry: Retry | UnsetType | None = UNSET
    lease_ms: LeaseMs | UnsetType | None = UNSET
    keep: Keep | UnsetType = UNSET
    keep_failed: Keep | UnsetType = UNSET
    workers: Names | UnsetType = UNSET
    class_: Name | UnsetType | None = UNSET
    key_weights: Annotated[dict[Name, Weight], Meta(max_length=limits.LIST_ITEMS_MAX)] | UnsetType = UNSET
    keep_part: KeepChanges | UnsetType = UNSET
    """Of `keep`, what is named. Entries of before bring it whole."""
    keep_failed_part: KeepChanges | UnsetType = UNSET
    retry_part: RetryChanges | UnsetType | None = UNSET
    """None takes the whole away."""
    unique_part: UniqueChanges | UnsetType | None = UNSET

    def on(self, before: QueueSettings) -> QueueSettings:
        """What is not named stays."""
        named = _named(self)
        for field, plain in _PLAIN.items():
            part = named.pop(f"{field}_part", UNSET)
            if part is None:
                named[field] = None
            elif part is not UNSET:
                named[field] = replace(named.get(field, getattr(before, field)) or plain, **_named(part))
        return replace(before, **named)


_PLAIN: Final[Mapping[str, Any]] = {
    "keep": QueueSettings().keep,
    "keep_failed": QueueSettings().keep_failed,
    "retry": Retry(),
    "unique": Unique(),
}
"""What has parts, without any of them."""


def _named(changes: Changes) -> dict[str, Any]:
    fields = {field: getattr(changes, field) for field in changes.__struct_fields__}
    return {field: value for field, value in fields.items() if value is not UNSET}


class PutQueue(Command, frozen=True, tag="put_queue"):
    name: Name
    settings: QueueSettings


class PatchQueue(Command, frozen=True, tag="patch_queue"):
    """Makes the queue if there is none. Pause and resume are this, too."""

    name: Name
    changes: QueueChanges
    judged: bool = False
    """What comes of it is judged as a whole, too. Entries of before were carried out unjudged."""


class DeleteQueue(Command, frozen=True, tag="delete_queue"):
    """Only without tasks."""

    name: Name


class PurgeQueue(Command, frozen=True, tag="purge_queue"):
    """Waiting tasks become deleted; finished ones leave the list. Bounded: repeated while there is more.

    With `ids`: of these, and no others are looked at, so that what was found by a reader costs apply no search."""

    name: Name
    states: tuple[TaskState, ...] = ("scheduled", "pending", "retrying")
    limit: Annotated[int, Meta(ge=1, le=limits.BATCH_MAX)] = limits.BATCH_MAX
    ids: TaskIds | None = None
    counted: bool = False
    """With `ids`: answered with how many there were, too. Entries of before say only what was done."""


class PutClass(Command, frozen=True, tag="put_class"):
    name: Name
    settings: HtbClass


class ClassChanges(Changes, frozen=True):
    parent: Name | UnsetType | None = UNSET
    rate_milli: Serial | UnsetType = UNSET
    ceil_milli: Serial | UnsetType | None = UNSET
    burst: Count | UnsetType = UNSET
    priority: Signed | UnsetType = UNSET
    of: Literal["slots", "starts"] | UnsetType = UNSET


class PatchClass(Command, frozen=True, tag="patch_class"):
    """Makes the class if there is none."""

    name: Name
    changes: ClassChanges
    judged: bool = False
    """As with queues."""


class DeleteClass(Command, frozen=True, tag="delete_class"):
    """Only without children and queues."""

    name: Name


class Rank(Part, frozen=True):
    task: Serial
    rank: Annotated[int, Meta(ge=-limits.INTEGER_MAX, le=limits.INTEGER_MAX)]


class SetRanks(Command, frozen=True, tag="set_ranks"):
    """Places under a discipline that the master computes: smaller goes first, equals by arrival."""

    queue: Name
    ranks: Annotated[tuple[Rank, ...], Meta(max_length=limits.ADD_TASKS_MAX)]
    discipline: Name | None = None
    """Whose places they are: void once the queue has another."""


class PutSchedule(Command, frozen=True, tag="put_schedule"):
    name: Name
    spec: ScheduleSpec
    next_ms: TimeMs | None
    """The first slot, by the master's calendar. Not taken where the rule goes on as it was: what is due then stays due."""
    payload: Blob | None = None
    payload_json: bool = True


class PauseSchedule(Command, frozen=True, tag="pause_schedule"):
    name: Name
    paused: bool
    next_ms: TimeMs | None = None
    version: Serial | None = None
    """Of the rule that `next_ms` was reckoned by."""


class DeleteSchedule(Command, frozen=True, tag="delete_schedule"):
    name: Name


class Fire(Command, frozen=True, tag="fire"):
    """A slot and its task in one entry. Slots of a schedule only grow, so none is twice; `manual` ones stand aside. The
    payload is the schedule's own, and need not travel."""

    name: Name
    version: Serial
    slot_ms: TimeMs
    task: NewTask
    next_ms: TimeMs | None = None
    manual: bool = False


class SkipSlots(Command, frozen=True, tag="skip_slots"):
    """Slots that did not run, and why."""

    name: Name
    version: Serial
    slots_ms: Annotated[tuple[TimeMs, ...], Meta(min_length=1, max_length=limits.CATCH_UP_MAX)]
    why: Name
    next_ms: TimeMs | None = None


class PutPolicy(Command, frozen=True, tag="put_policy"):
    name: Name
    source: Annotated[str, Meta(min_length=1, max_length=limits.TEXT_CHARS_MAX)]


class DeletePolicy(Command, frozen=True, tag="delete_policy"):
    name: Name


class PutToken(Command, frozen=True, tag="put_token"):
    """A hash that was revoked once stays revoked. The name of a token that has expired is free: the old one is revoked."""

    name: Name
    hash: Annotated[bytes, Meta(min_length=16, max_length=64)]
    scope: TokenScope


class RevokeToken(Command, frozen=True, tag="revoke_token"):
    name: Name
    spare_last: bool = False
    """Refused where no other token of role admin would be left that does not expire: whoever asks at once elsewhere."""
