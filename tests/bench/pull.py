"""What pull workers get over HTTP: python -m tests.bench.pull [claims wait] [--tasks N] [--rounds N] [--nodes 1 3] [--json FILE]

    claims  tasks that wait are claimed and finished by 8 clients: one at a time, and greedily a hundred at a time
    wait    one at a time from its ADD until a claim that waited for it is answered

Nodes are `quvatlh run` as it is, without workers of their own; every entry is synced. The clients are this process, asked
through all nodes. `node_us` is the processor time of the busiest node for each task, which other processes disturb least;
`node` is the part of a core that this is of the time that it took. The median of the rounds is told, with their range.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench import report
from tests.cluster.cluster import Cluster
from tests.cluster.daemons import Daemon, daemons
from tests.cluster.line import Line

PARTS = ("claims", "wait")
CLIENTS = 8
ADD_MAX = 2000
WAITS = 300
ASK_S = 30.0
PAUSE_S = 0.005


async def ask(line: Line, path: str, body: Any) -> Any:
    answer = await line.ask({"path": path, "body": body}, ASK_S)
    assert answer["status"] < 300, answer
    return answer["body"]


async def add(line: Line, count: int) -> None:
    for first in range(0, count, ADD_MAX):
        many = [{"queue": "q", "work": {"pull": True}, "payload": n} for n in range(first, min(count, first + ADD_MAX))]
        await ask(line, "/v1/events", {"event": "ADD", "tasks": many})


async def work(line: Line, name: str, most: int) -> int:
    """Until nothing is left; how many it did."""
    done = 0
    claim = {"worker": name, "queues": ["q"], "max": most, "wait": 0, "order": "greedy" if most > 1 else "fair"}
    while actions := (await ask(line, "/v1/work/claim", claim))["actions"]:
        await ask(line, "/v1/work/finish", [{"action": each["action"], "token": each["token"]} for each in actions])
        done += len(actions)
    return done


async def claims(nodes: Cluster, count: int, most: int) -> dict[str, float]:
    lines = [nodes.nodes[n % len(nodes.nodes)].line() for n in range(CLIENTS)]
    try:
        await add(lines[0], count)
        before = {node.name: node.cpu_s() for node in nodes.nodes if isinstance(node, Daemon)}
        began = time.perf_counter()
        done = sum(await asyncio.gather(*(work(line, f"w{n}", most) for n, line in enumerate(lines))))
        took_s = time.perf_counter() - began
        assert done == count, done
        used_s = max(node.cpu_s() - before[node.name] for node in nodes.nodes if isinstance(node, Daemon))
        return {"tasks_s": count / took_s, "node_us": used_s / count * 1e6, "node": used_s / took_s}
    finally:
        for line in lines:
            line.close()


async def wait(nodes: Cluster, count: int) -> dict[str, float]:
    producer, worker = nodes.nodes[0].line(), nodes.nodes[-1].line()
    took_ms: list[float] = []
    claim = {"worker": "idle", "queues": ["q"], "wait": "10s"}
    try:
        for _ in range(count):
            waiting = asyncio.create_task(ask(worker, "/v1/work/claim", claim))
            await asyncio.sleep(PAUSE_S)
            began = time.perf_counter()
            await add(producer, 1)
            (action,) = (await waiting)["actions"]
            took_ms.append((time.perf_counter() - began) * 1000)
            await ask(worker, "/v1/work/finish", {"action": action["action"], "token": action["token"]})
    finally:
        producer.close()
        worker.close()
    took_ms.sort()
    return {"p50_ms": took_ms[len(took_ms) // 2], "p99_ms": took_ms[int(len(took_ms) * 0.99)]}


def told(rounds: list[dict[str, float]]) -> dict[str, Any]:
    """The medians, and the range of the first figure."""
    found: dict[str, Any] = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    first = [next(iter(each.values())) for each in rounds]
    return found | ({"range": f"{report.shown(min(first))} to {report.shown(max(first))}"} if len(rounds) > 1 else {})


async def run(rows: report.Rows, parts: Sequence[str], sizes: Sequence[int], tasks: int, rounds: int) -> None:
    for size in sizes:
        where = f"{size} node{'s' if size > 1 else ''}"
        with tempfile.TemporaryDirectory() as directory:
            async with daemons(Path(directory), size, QUVATLH_WORKER_SLOTS="0") as nodes:
                for most in (1, 100) if "claims" in parts else ():
                    count = tasks if most > 1 else tasks // 10
                    rows.add(
                        f"{where}, claims of {most}", **told([await claims(nodes, count, most) for _ in range(rounds)])
                    )
                if "wait" in parts:
                    rows.add(f"{where}, a claim waits", **told([await wait(nodes, WAITS)]))


def main() -> None:
    parser = report.parser("tests.bench.pull", __doc__, PARTS)
    parser.add_argument("--tasks", type=int, default=20_000, help="in a round; a tenth of it one at a time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 3])
    given = parser.parse_args()
    rows = report.Rows()
    asyncio.run(run(rows, report.chosen(given.parts, PARTS), given.nodes, given.tasks, given.rounds))
    rows.write(given.json)


if __name__ == "__main__":
    main()
