"""A node with something of everything in it, so that every view has something to show."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
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
    report = {"work": {"command": ["report"]}}
    change(node, "PUT", "/v1/schedules/nightly", {"cron": "0 3 * * 1-5", "zone": "Europe/Berlin", "task": report})
    change(node, "PUT", "/v1/schedules/often", {"every": "2s", "task": {"name": "tick", "work": {"command": ["true"]}}})
    change(node, "PUT", "/v1/classes/paying", {"rate": 3})
    change(node, "PUT", "/v1/classes/gold", {"parent": "paying", "rate": 2, "ceil": 4})
    change(node, "PUT", "/v1/classes/free", {"rate": 1})
    for queue, each in (("emails", "gold"), ("images", "paying"), ("reports", "free")):
        change(node, "PATCH", f"/v1/queues/{queue}", {"class": each})


def change(node: Program, method: str, path: str, body: object) -> Any:
    headers = {
        "Authorization": f"Bearer {(node.data / 'token').read_text().strip()}",
        "Content-Type": "application/json",
    }
    request = urllib.request.Request(node.url + path, json.dumps(body).encode(), headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as problem:
        raise AssertionError(f"{method} {path}: {problem.code} {problem.read().decode()}") from problem


def settle(node: Program, within_s: float = 90.0) -> None:
    """Until the quick ones are over."""
    ends = time.monotonic() + within_s
    while counts(node).get("pending", 0) > 9 or counts(node).get("failed", 0) < 10:
        assert time.monotonic() < ends, counts(node)
        time.sleep(0.1)


def counts(node: Program) -> dict[str, Any]:
    return {group["value"]: group["count"] for group in node.ask("/v1/tasks?group_by=state")["groups"]}
