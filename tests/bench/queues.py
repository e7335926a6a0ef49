"""Queues: python -m tests.bench.queues [throughput queues shares noisy held native calls] [--json FILE] [--rounds N]

throughput  what the master's thread does for a task (ADD, the market's choice, award, finish; nothing is run or synced),
            in a plain queue and in one with every limit and sfq by key, in turns; `ratio` is with to without
shares      three flows of weights 1, 2, 3 that always wait, eight slots: the error of their shares
noisy       one tenant with 100,000 tasks, nine with 100 each, eight slots of 10 ms a task: how long the nine wait, in
            virtual time, under fifo and under sfq
held        10,000 tasks in front that a limit holds up: what a round of the market costs beside an empty queue
native      `true` as a task on one node, all that there is, of one key and of 100, in turns: the same tasks in a plain
            queue and in one with every limit and sfq;
            `node_us` is the processor time of the node itself for each, its executor's not counted
calls       the same with a Python function that does nothing
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from quvatlh.core import commands as c
from quvatlh.core.commands import QueueChanges
from quvatlh.core.limits import ADD_TASKS_MAX
from quvatlh.core.model import Rate, TaskSpec, Work, WorkerFacts
from quvatlh.core.rows import Queued
from quvatlh.core.views import WorkerView
from quvatlh.service.bids import Bid
from quvatlh.service.field import Field, Proposed
from quvatlh.service.holds import Lot
from quvatlh.service.offers import Book
from quvatlh.service.presence import Presence
from quvatlh.service.shapes import Shapes
from quvatlh.service.state import State
from tests.bench import report
from tests.bench.load import loaded
from tests.bench.market import TRUE, opened
from tests.cluster.daemons import TOKEN, Daemon
from tests.core.table import Table
from tests.support.wire import Wire, head

PARTS = ("throughput", "queues", "shares", "noisy", "held", "native", "calls")
WORK = Work(command=("true",))
WORKER, SESSION = "w1", "s-w1"
SLOTS, BATCH = 8, 100
COUNT, HELD, NATIVE, CALLS = 10_000, 10_000, 1500, 10_000
CALL: dict[str, Any] = {"work": {"python": "linecache:clearcache"}}
QUEUES = 1000
NOISY, QUIET, TENANTS, RUN_MS = 100_000, 100, 9, 10
LIMITED: dict[str, Any] = {
    "discipline": "sfq", "limit": 10**6, "limit_per_key": 10**5, "limit_per_worker": 10**6,
    "rate": Rate(10**6, 1000), "burst": 10**6, "key_weights": {"k1": 3},
}  # fmt: skip


class _NoPolicies:
    """No task of these asks for one."""

    def lanes(self) -> list[tuple[str, int]]:
        return []


class _Present:
    def __init__(self, view: WorkerView) -> None:
        self._view = view

    def takers(self) -> list[WorkerView]:
        return [self._view]


class Master:
    """A table and the market's choice, without loop, log and runner."""

    def __init__(self, directory: str) -> None:
        self.table = Table(directory)
        self.table.worker(WORKER, SESSION)
        self._view = WorkerView(WORKER, SESSION, "up", WorkerFacts("n1", slots=10**6), 0, 0)
        state = cast("State", self.table)
        self._shapes = Shapes(cast("State", _Opened(self.table)))
        self.field = Field(state, cast("Presence", _Present(self._view)), cast("Book", _NoPolicies()), self._shapes)

    def put(self, queue: str, **changes: Any) -> None:
        self.table.do(c.PatchQueue(queue, QueueChanges(**changes)))
        self.field.forget(queue)

    def add(self, specs: Sequence[TaskSpec], first: int = 0) -> None:
        for start in range(0, len(specs), ADD_TASKS_MAX):
            part = specs[start : start + ADD_TASKS_MAX]
            self.table.do(c.Add(tuple(c.NewTask(f"t{first + start + n}", spec) for n, spec in enumerate(part))))

    def choose(
        self,
        slots: int,
        under_way: Sequence[Proposed] = (),
        lots: Sequence[Lot] = (),
        order: Sequence[int] = (),
    ) -> list[Queued]:
        """As the auction does it in a round, one by one, while this is under way."""
        bid = Bid(self._view, SESSION, slots, 0)
        root = self.field.root(
            [bid], under_way, frozenset(order), self.table.now, lambda _: None, lots=lots, order=order
        )
        chosen: list[Queued] = []
        while bid.free and (lane := root.next()) is not None:
            found = lane.next()
            if found is None:
                root.drop(lane)
                continue
            task, _ = found
            bid.take(1)
            lane.turned(task, [WORKER])
            root.took(lane, task, 1)
            chosen.append(task)
        return chosen

    def award(self, chosen: Sequence[Queued]) -> list[int]:
        told = self.table.do(c.Awards(tuple(c.Award(each.seq, WORKER, SESSION) for each in chosen)))
        assert not told.refused, told
        return list(told.tokens)

    def finish(self, chosen: Sequence[Queued], tokens: Sequence[int]) -> None:
        ends = tuple(c.End(token, row.seq, 0, self.table.now) for row, token in zip(chosen, tokens, strict=True))
        self.table.do(c.Finish(SESSION, ends))

    def served(self, slots: int) -> Iterator[list[Queued]]:
        """Round after round, each task in its slot until the next one."""
        while chosen := self.choose(slots):
            tokens = self.award(chosen)
            yield chosen
            self.finish(chosen, tokens)

    def close(self) -> None:
        self.table.machine.close()


class _Opened:
    """A State that is always open."""

    is_open = True

    def __init__(self, table: Table) -> None:
        self._table = table

    @property
    def db(self) -> Any:
        return self._table.db

    @property
    def memory(self) -> Any:
        return self._table.memory


def fresh() -> Master:
    return Master(tempfile.mkdtemp(prefix="quvatlh-bench-", dir=_scratch()))


def _scratch() -> str:
    return _directory[0]


_directory: list[str] = []


def throughput(rows: report.Rows, rounds: int) -> None:
    masters = {"plain": fresh(), "limited": fresh()}
    masters["limited"].put("default", **LIMITED)
    took: dict[str, list[float]] = {what: [] for what in masters}
    specs = [TaskSpec(WORK, key=f"k{n % 100}") for n in range(COUNT)]
    for turn in range(rounds + 1):
        for what, master in masters.items():
            began = time.thread_time()
            master.add(specs, turn * COUNT)
            for _ in master.served(BATCH):
                pass
            if turn:
                took[what].append(time.thread_time() - began)
    for master in masters.values():
        master.close()
    plain, limited = (statistics.median(took[what]) for what in ("plain", "limited"))
    rows.add("a task in the master's thread, plain queue", us=plain / COUNT * 1e6, per_s=COUNT / plain)
    rows.add(
        "  with every limit and sfq by 100 keys", us=limited / COUNT * 1e6, per_s=COUNT / limited, ratio=plain / limited
    )


def queues(rows: report.Rows) -> None:
    master = fresh()
    master.add([TaskSpec(WORK, queue=f"q{n % QUEUES}", queue_limit=1) for n in range(5 * QUEUES)])
    began, done = time.thread_time(), 0
    for chosen in master.served(SLOTS):
        done += len(chosen)
        if done >= QUEUES:
            break
    took = time.thread_time() - began
    master.close()
    rows.add(
        f"a task of {QUEUES:,} queues of limit 1, {SLOTS} a round",
        us=took / done * 1e6,
        round_us=took / done * SLOTS * 1e6,
    )


def shares(rows: report.Rows) -> None:
    master = fresh()
    weights = {"a": 1, "b": 2, "c": 3}
    master.put("default", discipline="sfq", key_weights=weights)
    master.add([TaskSpec(WORK, key=key) for key in weights for _ in range(6000)])
    starts: Counter[str | None] = Counter()
    for chosen in master.served(SLOTS):
        starts.update(row.key for row in chosen)
        if sum(starts.values()) >= 6000:
            break
    master.close()
    total = sum(starts.values())
    errors = {key: abs(starts[key] / total - weight / 6) for key, weight in weights.items()}
    rows.add("shares of weights 1:2:3", **{key: starts[key] for key in weights}, error_max=max(errors.values()))


def noisy(rows: report.Rows) -> None:
    for discipline in ("fifo", "sfq"):
        master = fresh()
        master.put("default", discipline=discipline)
        master.add([TaskSpec(WORK, key="loud") for _ in range(NOISY)])
        master.add([TaskSpec(WORK, key=f"quiet{n % TENANTS}") for n in range(QUIET * TENANTS)], NOISY)
        waited: list[int] = []
        began, now_ms = time.thread_time(), 0
        for chosen in master.served(SLOTS):
            waited += [now_ms for row in chosen if row.key != "loud"]
            now_ms += RUN_MS
            if len(waited) == QUIET * TENANTS:
                break
        master.close()
        waited.sort()
        p95_s = waited[int(len(waited) * 0.95)] / 1000
        rows.add(
            f"nine quiet tenants beside {NOISY:,}, {discipline}",
            p50_wait_s=waited[len(waited) // 2] / 1000,
            p95_wait_s=p95_s,
            bench_cpu_s=time.thread_time() - began,
        )


def held(rows: report.Rows, rounds: int) -> None:
    took: dict[str, list[float]] = {}
    cases: list[tuple[str, dict[str, Any] | None, dict[str, Any]]] = [
        ("nothing", None, {}),
        ("of a key at its limit", {"key": "k"}, {"limit_per_key": 1}),
        ("of a name at its limit", {"name": "one", "limit": 1}, {}),
    ]
    for what, spec, limit in cases:
        master = fresh()
        master.put("default", **limit)
        if spec is not None:
            master.add([TaskSpec(WORK, **spec) for _ in range(HELD)])
            master.award(master.choose(1))
        master.add([TaskSpec(WORK)] * 100, HELD)
        for _ in range(rounds * 10):
            began = time.thread_time()
            assert len(master.choose(1)) == 1
            took.setdefault(what, []).append(time.thread_time() - began)
        master.close()
    for what, seconds in took.items():
        rows.add(
            f"a round behind {HELD if what != 'nothing' else 0:,} held up: {what}", us=statistics.median(seconds) * 1e6
        )


async def whole(rows: report.Rows, rounds: int, directory: Path, words: str, task: dict[str, Any], count: int) -> None:
    kept = {"keep": {"age": "1d", "count": 10**7}}  # the load counts them
    settings = {**LIMITED, **kept, "rate": "1000000/s"}
    del settings["key_weights"]
    kinds = {"one key": 1, "100 keys in turns": 100}
    rates: dict[tuple[str, str], list[float]] = defaultdict(list)
    costs: dict[tuple[str, str], list[float]] = defaultdict(list)
    async with opened(directory, 1) as (nodes, door):
        await door.close()
        node = nodes.nodes[0]
        assert isinstance(node, Daemon)
        for keys in kinds.values():
            await _put(node.place.client, f"/v1/queues/plain-{keys}", kept)
            await _put(node.place.client, f"/v1/queues/limited-{keys}", settings)
        for turn in range(rounds + 1):
            for kind, keys in kinds.items():
                for way in ("plain", "limited")[:: 1 if turn % 2 else -1]:  # so that neither is always the second
                    before_s = node.cpu_s()
                    names = [f"k{turn % 10}-{n}" for n in range(keys)]
                    queue = f"{way}-{keys}"
                    found = await loaded(
                        "runs", node.place.client, TOKEN, task=task, count=count, queue=queue, keys=names
                    )
                    if turn:
                        rates[kind, way].append(count / found["seconds"])
                        costs[kind, way].append((node.cpu_s() - before_s) / count * 1e6)
    for kind in kinds:
        plain, limited = rates[kind, "plain"], rates[kind, "limited"]
        ratios = [b / a for a, b in zip(plain, limited, strict=True)]
        rows.add(
            f"{words}, 1 node, {kind}, plain queue", per_s=statistics.median(plain),
            node_us=statistics.median(costs[kind, "plain"]),
        )  # fmt: skip
        rows.add(
            "  the same with every limit and sfq", per_s=statistics.median(limited),
            node_us=statistics.median(costs[kind, "limited"]), ratio=statistics.median(ratios),
        )  # fmt: skip


async def _put(address: str, path: str, body: Any) -> None:
    wire = await Wire.open(address)
    sent = json.dumps(body).encode()
    reply = await wire.ask(head(address, TOKEN, path, length=len(sent)).replace(b"POST", b"PUT", 1) + sent)
    wire.close()
    assert reply.status < 300, reply


def main() -> None:
    parser = report.parser("tests.bench.queues", __doc__, PARTS)
    parser.add_argument("--rounds", type=int, default=5)
    told = parser.parse_args()
    rows = report.Rows()
    with tempfile.TemporaryDirectory(prefix="quvatlh-bench-") as directory:
        _directory.append(directory)
        for part in report.chosen(told.parts, PARTS):
            if part == "throughput":
                throughput(rows, told.rounds)
            elif part == "queues":
                queues(rows)
            elif part == "shares":
                shares(rows)
            elif part == "noisy":
                noisy(rows)
            elif part == "held":
                held(rows, told.rounds)
            elif part == "native":
                asyncio.run(whole(rows, told.rounds, Path(directory) / part, "true as a task", TRUE, NATIVE))
            else:
                asyncio.run(whole(rows, told.rounds, Path(directory) / part, "a call of Python", CALL, CALLS))
    rows.write(told.json)


if __name__ == "__main__":
    main()
