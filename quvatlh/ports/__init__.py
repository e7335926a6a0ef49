"""What the services need of the world, as types and nothing else.

A port names what is promised; who keeps the promise stands in the packages above (`raft`, `runner`, `policy`, `system`).
Every port has a fake under `tests/fakes`, and one suite that runs on the fake and on the real adapter. Nothing here does
input or output, and nothing here imports more than the standard library and the core's plain values.
"""

from __future__ import annotations

from quvatlh.ports.judging import (
    ActionCounts,
    Announcement,
    ClusterState,
    CodeKind,
    Judge,
    PolicyState,
    Question,
    SourceFault,
    Verdict,
    Word,
    WorkerState,
)
from quvatlh.ports.log import (
    STATE_FILE,
    Applied,
    Entry,
    Log,
    LogError,
    LogListener,
    Machine,
    MachineFactory,
    Member,
    Membership,
    Peers,
    Refused,
    RequestHandler,
    Role,
    Unavailable,
    Unknown,
)
from quvatlh.ports.running import (
    ActionFinished,
    ActionSpec,
    ActionStarted,
    Executor,
    ExecutorListener,
    HeldAction,
    Life,
    OutputChunk,
    RunError,
    RunFault,
    Runner,
    RunnerListener,
    StreamName,
)
from quvatlh.ports.world import (
    Clock,
    Entropy,
)

__all__ = [
    "STATE_FILE",
    "ActionCounts",
    "ActionFinished",
    "ActionSpec",
    "ActionStarted",
    "Announcement",
    "Applied",
    "Clock",
    "ClusterState",
    "CodeKind",
    "Entropy",
    "Entry",
    "Executor",
    "ExecutorListener",
    "HeldAction",
    "Judge",
    "Life",
    "Log",
    "LogError",
    "LogListener",
    "Machine",
    "MachineFactory",
    "Member",
    "Membership",
    "OutputChunk",
    "Peers",
    "PolicyState",
    "Question",
    "Refused",
    "RequestHandler",
    "Role",
    "RunError",
    "RunFault",
    "Runner",
    "RunnerListener",
    "SourceFault",
    "StreamName",
    "Unavailable",
    "Unknown",
    "Verdict",
    "Word",
    "WorkerState",
]
