"""A node with something of everything in it, so that every view has something to show."""

from __future__ import annotations

import time
from typing import Any

from tests.daemon.program import Program

QUEUES = ("emails", "images", "reports")


def fill(node: Program) -> None:
    """Some tasks of each state, in three queues; a service; failures of several kinds; something long to look at."""
    add = node.add
    for number in range(60):
        queue = QUEUES[number % 3]
        add(name=f"{queue}-{number}", queue=queue, group="shop", key=f"tenant-{number % 4}", work={"command": ["true"]})
    quick = {"attempts": 1}
    for number in range(9):
        shell = ("echo cannot reach the mail server >&2; exit 1", "exit 75", "kill -9 $$")[number % 3]
        add(name=f"bad-{number}", queue=QUEUES[number % 3], group="shop", retry=quick, work={"shell": shell})
    add(name="slow-page", queue="reports", group="shop", timeout="100ms", retry=quick, work={"command": ["sleep", "9"]})
    add(id="waits-for-a-gpu", name="train", queue="images", group="lab", tags=["gpu"], work={"command": ["train"]})
    add(id="later", name="nightly report", queue="reports", group="shop", at="2h", work={"command": ["report"]})
    script = "for i in $(seq 200); do echo line $i of the report; sleep 0.2; done"
    add(id="long", name="long report", queue="reports", group="shop", payload={"year": 2026}, work={"shell": script})
    add(
        id="web",
        name="web",
        kind="service",
        limit=2,
        slots=0,
        group="shop",
        work={"shell": "while :; do sleep 1; done"},
    )
    add(id="tries", name="flaky", queue="emails", retry={"first": "1h"}, work={"shell": "echo no luck; exit 3"})
    for _ in range(8):
        add(
            name="thumbnail",
            queue="images",
            tags=["gpu"],
            key="tenant-1",
            work={"command": ["convert", "a.png", "b.jpg"]},
        )


def settle(node: Program, within_s: float = 30.0) -> None:
    """Until the quick ones are over."""
    ends = time.monotonic() + within_s
    while counts(node).get("pending", 0) > 9 or counts(node).get("failed", 0) < 10:
        assert time.monotonic() < ends, counts(node)
        time.sleep(0.1)


def counts(node: Program) -> dict[str, Any]:
    return {group["value"]: group["count"] for group in node.ask("/v1/tasks?group_by=state")["groups"]}
