"""A state and a task as a node would give them, and judges to ask."""

from __future__ import annotations

from typing import Any

from quvatlh.policy.lua import Meter, Policies
from quvatlh.ports import PolicyState

GOOD = "function(state, task) return state.worker.free end"


def state() -> PolicyState:
    return {
        "worker": {
            "name": "w1",
            "tags": ["zone=eu-1", "gpu", "worker=w1", "node=w1"],
            "slots": 4,
            "free": 2,
            "cpu_load": 0.25,
            "memory_free_bytes": 6 * 2**30,
            "memory_total_bytes": 8 * 2**30,
            "disk_free_bytes": 100 * 2**30,
            "actions": {"total": 3, "group": {"shop": 3}, "queue": {"default": 3}, "name": {"web": 2, "db": 1}},
            "adapters": ["command"],
            "facts": {"os": "linux", "arch": "x86_64", "cpus": 4},
        },
        "cluster": {"workers": 3, "group": {}, "queues": {"default": 17}},
        "now": 1_700_000_000_000,
    }


def task(**fields: Any) -> dict[str, Any]:
    return {
        "id": "0190a-1",
        "name": "web",
        "group": "shop",
        "kind": "service",
        "queue": "default",
        "limit": 3,
        "tags": ["zone=eu-*"],
        "priority": 0,
        "key": None,
        "slots": 1,
        "retry": {"attempts": 25, "backoff": "exponential"},
        "work": {"command": ["true"]},
        **fields,
    }


def policies() -> Policies:
    """In this process, without a bound on time: for sources that are known to end."""
    return Policies(Meter(lambda: None, lambda: None))
