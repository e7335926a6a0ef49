"""Questions to whichever node answers, again and again: for what must be done in spite of the faults of a test."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.cluster.cluster import Cluster, now
from tests.cluster.line import NoAnswer, NotSent
from tests.cluster.node import Node

ASK_S = 6.0
REST_S = 0.05
AGAIN = frozenset({429, 503, 504})


async def anywhere(nodes: Sequence[Node], path: str, body: Any = None, *, key: str = "", within_s: float = 60.0) -> Any:
    """The body of the first 2xx. What changes something is safe to repeat by its ids or its key."""
    request = {"path": path} | ({} if body is None else {"body": body}) | ({"key": key} if key else {})
    ends, last = now() + within_s, "nobody runs"
    while now() < ends:
        for node in nodes:
            if not node.running or node.frozen:
                continue
            line = node.line()
            try:
                answer = await line.ask(request, ASK_S)
            except (NotSent, NoAnswer) as error:
                last = f"{node.name}: {error}"
                continue
            finally:
                line.close()
            if answer["status"] < 300:
                return answer["body"]
            last = f"{node.name}: {answer}"
            assert answer["status"] in AGAIN, f"{path}: {last}"
        await asyncio.sleep(REST_S)
    raise AssertionError(f"{path}: no answer within {within_s:g} s, last {last}")


async def add(cluster: Cluster, tasks: Sequence[dict[str, Any]]) -> list[str]:
    """Each with an id of its own choice, so that a repetition adds nothing."""
    assert all("id" in task for task in tasks)
    found = await anywhere(cluster.nodes, "/v1/events", {"event": "ADD", "tasks": list(tasks)})
    return list(found["ids"])


async def tasks(cluster: Cluster, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = await anywhere(cluster.nodes, f"/v1/tasks?consistent=true&limit=1000&{query}{cursor}")
        found += page["items"]
        if page["next"] is None:
            return found
        cursor = f"&cursor={page['next']}"
