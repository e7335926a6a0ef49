"""Every verb of the log as a record. What chance, a clock or a person decides is decided before, and stands in it.

Each may come twice: a request by its id, an award by the task's state, a report by its token, a slot by its time. A batch
of awards or reports is answered one by one; everything else is all or nothing. Fields are added at the end, with a
default; a verb is never renamed (checklist in DESIGN.md).
"""

from __future__ import annotations

from msgspec import Struct

from quvatlh.core.commands.base import Changes, Command, Part, Request
from quvatlh.core.commands.chores import (
    CheckDigest,
    ClockJumped,
    Elected,
    Expire,
    Forget,
    ForgetWorkers,
    Nothing,
    Promote,
    Rerank,
    Sweep,
)
from quvatlh.core.commands.owners import (
    Announce,
    Award,
    Awards,
    End,
    EndDetail,
    EndSession,
    Finish,
    GiveBack,
    Loss,
    Lost,
    OpenSession,
    PatchWorker,
    Presence,
    Progress,
    ProgressReport,
    Start,
    Started,
    WorkerChanges,
)
from quvatlh.core.commands.settings import (
    ClassChanges,
    DeleteClass,
    DeletePolicy,
    DeleteQueue,
    DeleteSchedule,
    Fire,
    PatchClass,
    PatchQueue,
    PauseSchedule,
    PurgeQueue,
    PutClass,
    PutPolicy,
    PutQueue,
    PutSchedule,
    PutToken,
    QueueChanges,
    Rank,
    RevokeToken,
    SetRanks,
    SkipSlots,
)
from quvatlh.core.commands.tasks import (
    Add,
    BeginBulk,
    Delete,
    Kill,
    Move,
    NewTask,
    Relocate,
    RetryTasks,
    TaskChanges,
    Update,
)
from quvatlh.core.scopes import Scope

__all__ = [
    "Add",
    "Announce",
    "AnyCommand",
    "Award",
    "Awards",
    "BeginBulk",
    "Changes",
    "CheckDigest",
    "ClassChanges",
    "ClockJumped",
    "Command",
    "Delete",
    "DeleteClass",
    "DeletePolicy",
    "DeleteQueue",
    "DeleteSchedule",
    "Elected",
    "End",
    "EndDetail",
    "EndSession",
    "Expire",
    "Finish",
    "Fire",
    "Forget",
    "ForgetWorkers",
    "GiveBack",
    "Item",
    "Kill",
    "Loss",
    "Lost",
    "Move",
    "NewTask",
    "Nothing",
    "OpenSession",
    "Part",
    "PatchClass",
    "PatchQueue",
    "PatchWorker",
    "PauseSchedule",
    "Presence",
    "Progress",
    "ProgressReport",
    "Promote",
    "PurgeQueue",
    "PutClass",
    "PutPolicy",
    "PutQueue",
    "PutSchedule",
    "PutToken",
    "QueueChanges",
    "Rank",
    "Relocate",
    "Request",
    "Rerank",
    "RetryTasks",
    "RevokeToken",
    "SetRanks",
    "SkipSlots",
    "Start",
    "Started",
    "Sweep",
    "TaskChanges",
    "Update",
    "WorkerChanges",
]

AnyCommand = (
    Add | Delete | Kill | RetryTasks | Relocate | Update
    | Awards | Start | Progress | Announce | Finish | GiveBack | Lost
    | OpenSession | EndSession | PatchWorker | Presence
    | PutQueue | PatchQueue | DeleteQueue | PurgeQueue | PutClass | PatchClass | DeleteClass | SetRanks
    | PutSchedule | PauseSchedule | DeleteSchedule | Fire | SkipSlots | PutPolicy | DeletePolicy | PutToken | RevokeToken
    | Promote | Expire | Forget | Sweep | Rerank | CheckDigest | Elected | Nothing
    | ForgetWorkers | ClockJumped | BeginBulk
)  # fmt: skip


class Item(Struct, frozen=True, array_like=True):
    """What one proposal carries."""

    command: AnyCommand
    request: Request | None = None
    scope: Scope | None = None
    """Of who asked: tasks and schedules outside of it are as if they were not there. None: everything."""
