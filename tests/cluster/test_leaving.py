"""Masters that leave: asked to stop, or removed for good. Leadership is handed over; nobody waits for an election."""

from __future__ import annotations

from pathlib import Path

import pytest

from quvatlh.client import Client, Options
from tests.cluster.cluster import Cluster
from tests.cluster.daemons import TOKEN, Daemon, daemons
from tests.cluster.line import Answer
from tests.cluster.node import Node, until

WITHIN_S = 10.0


async def id_of(node: Node) -> str:
    (found,) = {each["id"] for each in (await node.status())["nodes"] if each["name"] == node.name}
    return str(found)


async def test_a_master_that_is_asked_to_stop_hands_over(tmp_path: Path) -> None:
    async with daemons(tmp_path) as nodes:
        master = await nodes.master()
        assert await master.stop() == 0
        (told,) = master.heard("handed over")
        assert told["to"] == await id_of(await nodes.master(nodes.others(master)))


async def removed(nodes: Cluster, gone: Node, through: Node) -> list[str]:
    """Names of the nodes that are left, as the answer has it."""
    node_id = await id_of(gone)
    async with Client(Options((f"http://{through.place.client}",), TOKEN, None, WITHIN_S)) as client:
        return sorted(node["name"] for node in (await client.remove_member(node_id))["nodes"])


@pytest.mark.parametrize("door", ["master", "follower"])
async def test_a_master_that_is_removed_hands_over_and_the_others_go_on(door: str, tmp_path: Path) -> None:
    async with daemons(tmp_path) as nodes:
        master = await nodes.master()
        others = nodes.others(master)
        left = await removed(nodes, master, master if door == "master" else others[0])
        assert left == sorted(node.name for node in others)
        assert master.heard("handed over")
        assert await nodes.master(others) in others
        for node in others:
            await node.until(lambda status: sorted(each["name"] for each in status["nodes"]) == left, "it knows")
        await until(lambda: master.heard("removed from the cluster"), lambda: "it is told")
        async with Client(Options((f"http://{others[1].place.client}",), TOKEN, None, WITHIN_S)) as client:
            await client.put_queue("goes-on", {})


async def test_a_node_that_was_removed_works_and_answers_no_more(tmp_path: Path) -> None:
    async with daemons(tmp_path) as nodes:
        master = await nodes.master()
        gone, other = nodes.others(master)
        assert isinstance(gone, Daemon)
        await removed(nodes, gone, other)
        line = gone.line()
        told: Answer = {}

        async def is_told() -> bool:
            told.update(await line.ask({"path": "/readyz"}, WITHIN_S))
            return bool(told["status"] == 503 and "was removed" in told["problem"]["detail"])

        try:
            await until(is_told, lambda: f"{gone.name} says so, not {told}")
        finally:
            line.close()
        async with Client(Options((f"http://{other.place.client}",), TOKEN, None, WITHIN_S)) as client:

            async def is_lost() -> bool:
                return bool((await client.worker(gone.name))["state"] == "lost")

            await until(is_lost, lambda: f"the worker of {gone.name} is lost to the market")
            bound = {"work": {"command": ["true"]}, "tags": [f"worker={gone.name}"]}
            added = await client.add([bound, *([{"work": {"command": ["true"]}}] * 5)])
            for task_id in added.ids[1:]:
                assert (await client.task(task_id, wait_s=WITHIN_S))["state"] == "succeeded"
            assert (await client.task(added.ids[0]))["state"] == "pending"
