"""One task of a key, whoever adds it wherever: a hundred producers on three nodes, and the master killed among them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quvatlh.client import Client, Options
from tests.cluster import asks
from tests.cluster.cluster import Cluster
from tests.cluster.daemons import TOKEN, daemons

Times = Callable[[int], int]

PRODUCERS = 100
WAITING: dict[str, Any] = {"work": {"command": ["true"]}, "tags": ["nobody-has-this"]}
RUNNING: dict[str, Any] = {"work": {"command": ["true"]}}


async def all_add(nodes: Cluster, task: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Every producer's answer. Each begins at a node of its own, and repeats elsewhere what was not answered."""

    async def one(producer: int) -> dict[str, Any]:
        own = producer % len(nodes.nodes)
        order = [*nodes.nodes[own:], *nodes.nodes[:own]]
        body = {"event": "ADD", "tasks": [{**task, "payload": {"producer": producer}}]}
        answer: dict[str, Any] = await asks.anywhere(order, "/v1/events", body, key=f"{name}-{producer}")
        return answer

    return list(await asyncio.gather(*[one(producer) for producer in range(PRODUCERS)]))


def winner(answers: list[dict[str, Any]]) -> str:
    """All are told the same task, one of them that it is new, the others by what it stands for theirs."""
    ids = Counter(answer["ids"][0] for answer in answers)
    why = Counter(answer["existing"].get("0", "new") for answer in answers)
    assert len(ids) == 1, ids
    assert why == {"new": 1, "unique": PRODUCERS - 1}, why
    return str(next(iter(ids)))


async def test_of_a_hundred_producers_one_wins_each_key_and_the_others_are_told_who(
    tmp_path: Path, times: Times
) -> None:
    async with daemons(tmp_path) as nodes:
        rounds = times(100)
        holders: dict[str, str] = {}
        for number in range(rounds):
            key = f"k{number}"
            task = {**WAITING, "unique": {"key": key}}
            adding = asyncio.create_task(all_add(nodes, task, key))
            if number % 5 == 4:
                await asyncio.sleep(0.01 * (number % 3))
                master = await nodes.master()
                await master.kill()
                holders[key] = winner(await adding)
                await master.start()
            else:
                holders[key] = winner(await adding)
        assert len(set(holders.values())) == rounds
        for node in nodes.nodes:
            await nodes.caught_up(node)
        there = await asks.tasks(nodes, "state=pending")
        assert {task["id"] for task in there} == set(holders.values())
        killed = rounds // 5
        print(f"\n{PRODUCERS} producers, {rounds} keys, {killed} masters killed among them: one winner of each")
        await asks.anywhere(nodes.nodes, "/v1/tasks/delete", {"ids": list(holders.values())})
        key, before = next(iter(holders.items()))
        again = winner(await all_add(nodes, {**WAITING, "unique": {"key": key}}, "again"))
        assert again != before, "a holder that was deleted does not block"


async def test_a_queue_asks_for_uniqueness_and_a_duration_outlives_the_task(tmp_path: Path) -> None:
    async with daemons(tmp_path) as nodes:
        await nodes.master()
        async with Client(
            Options((f"http://{nodes.nodes[0].place.client}",), TOKEN, None, 10.0, patient=True)
        ) as client:
            await client.put_queue("set", {"unique": {"while": "1h", "key": "k"}})
        first = winner(await all_add(nodes, {**RUNNING, "queue": "set"}, "first"))
        task = await asks.anywhere(nodes.nodes, f"/v1/tasks/{first}?wait=20s")
        assert task["state"] == "succeeded"
        later = await all_add(nodes, {**RUNNING, "queue": "set"}, "later")
        assert {answer["ids"][0] for answer in later} == {first}
        assert {answer["existing"]["0"] for answer in later} == {"unique"}
