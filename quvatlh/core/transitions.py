"""The transition table. It is the specification: what is not in it is refused, and the diagram is drawn from it.

A verb here is finer than a command: a finish may succeed, fail or back off, and which one is decided before the table is
asked. Verbs that change no state (progress, update, a service's award) do not stand here.
"""

from __future__ import annotations

from collections.abc import Mapping

from quvatlh.core.model import ActionState, TaskState

TASK: Mapping[tuple[TaskState, str], TaskState] = {
    ("scheduled", "promote"): "pending",
    ("scheduled", "expire"): "failed",
    ("scheduled", "delete"): "deleted",
    ("pending", "postpone"): "scheduled",
    ("pending", "award"): "claimed",
    ("pending", "start"): "running",  # a service's first instance
    ("pending", "expire"): "failed",
    ("pending", "delete"): "deleted",
    ("claimed", "start"): "running",
    ("claimed", "succeed"): "succeeded",
    ("claimed", "fail"): "failed",
    ("claimed", "back_off"): "retrying",
    ("claimed", "requeue"): "pending",  # lost, given back, relocated
    ("claimed", "kill"): "failed",
    ("claimed", "delete"): "deleted",
    ("running", "succeed"): "succeeded",
    ("running", "fail"): "failed",
    ("running", "back_off"): "retrying",
    ("running", "requeue"): "pending",  # lost or relocated; a service's last instance ended
    ("running", "kill"): "failed",
    ("running", "delete"): "deleted",
    ("retrying", "promote"): "pending",
    ("retrying", "retry"): "pending",
    ("retrying", "expire"): "failed",
    ("retrying", "delete"): "deleted",
    ("failed", "retry"): "pending",
    ("failed", "delete"): "deleted",
}

ACTION: Mapping[tuple[ActionState, str], ActionState] = {
    ("claimed", "start"): "running",
    ("claimed", "stop"): "stopping",
    ("claimed", "succeed"): "succeeded",
    ("claimed", "fail"): "failed",
    ("claimed", "stopped"): "stopped",
    ("claimed", "lose"): "lost",
    ("running", "stop"): "stopping",
    ("running", "succeed"): "succeeded",
    ("running", "fail"): "failed",
    ("running", "stopped"): "stopped",
    ("running", "lose"): "lost",
    ("stopping", "succeed"): "succeeded",
    ("stopping", "fail"): "failed",
    ("stopping", "stopped"): "stopped",
    ("stopping", "lose"): "lost",
}
"""An action that is given back leaves no trace, so that is no transition."""

TASK_VERBS = tuple(dict.fromkeys(verb for _, verb in TASK))
ACTION_VERBS = tuple(dict.fromkeys(verb for _, verb in ACTION))


def diagram(table: Mapping[tuple[TaskState, str], TaskState] | Mapping[tuple[ActionState, str], ActionState]) -> str:
    """The table as mermaid, one arrow for each pair of states."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, verb), after in table.items():
        arrows.setdefault((state, after), []).append(verb)
    lines = [f"    {state} --> {after}: {', '.join(verbs)}" for (state, after), verbs in arrows.items()]
    return "\n".join(["stateDiagram-v2", *lines])
