"""Whom a task has killed: a daemon that was only frozen takes its death back, executors that ended with it do not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.cluster import asks
from tests.cluster.cluster import Cluster
from tests.cluster.daemons import daemons
from tests.cluster.node import Node, until
from tests.support.executors import end_executor

DEATHS_MAX = 3
SILENCE_S = 3.0
"""Longer than the lease, and than a worker is taken for living."""
WITHIN_S = 30.0


async def runs(nodes: Cluster, task_id: str, attempt: int) -> dict[str, Any]:
    """The task, once this attempt of it runs, or it is over."""
    found: dict[str, Any] = {}

    async def look() -> bool:
        found.update(await asks.anywhere(nodes.nodes, f"/v1/tasks/{task_id}"))
        return bool(found["finished_at"]) or (found["state"], found["attempts"]) == ("running", attempt)

    await until(look, lambda: f"{found.get('state')}, attempt {found.get('attempts')}", WITHIN_S)
    return found


async def bystander(nodes: Cluster) -> Node:
    """A node that is not master, by whose end nothing else happens."""
    return nodes.others(await nodes.master())[0]


async def added_to(nodes: Cluster, node: Node, task_id: str) -> None:
    work = {"command": ["sleep", "600"]}
    await asks.add(nodes, [{"id": task_id, "work": work, "tags": [f"node={node.name}"]}])


async def test_a_daemon_that_is_frozen_again_and_again_makes_no_task_poison(tmp_path: Path) -> None:
    async with daemons(tmp_path) as nodes:
        node = await bystander(nodes)
        await added_to(nodes, node, "t")
        for attempt in range(1, DEATHS_MAX + 2):
            assert (await runs(nodes, "t", attempt))["state"] == "running"
            node.freeze()
            await asyncio.sleep(SILENCE_S)
            node.thaw()
        assert (await runs(nodes, "t", DEATHS_MAX + 2))["state"] == "running"
        end_executor(node.place.data)


async def test_executors_that_end_with_a_task_make_it_poison(tmp_path: Path) -> None:
    async with daemons(tmp_path) as nodes:
        node = await bystander(nodes)
        await added_to(nodes, node, "t")
        for attempt in range(1, DEATHS_MAX + 1):
            assert (await runs(nodes, "t", attempt))["state"] == "running"
            end_executor(node.place.data)
        task = await runs(nodes, "t", DEATHS_MAX + 1)
        assert (task["state"], task["error"]["code"], task["attempts"]) == ("failed", "poison", DEATHS_MAX)
