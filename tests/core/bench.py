"""What the table costs, by verb and by kind of list: `python -m tests.core.bench [--tasks N] [--waiting N] [--batch N]`.

Bytes in, outcomes and events out, transactions and commits included, nothing synced: one thread, one core.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import tempfile
import time
from collections.abc import Callable

from quvatlh.core import commands as c
from quvatlh.core import market, queries
from quvatlh.core.filters import TaskFilter
from quvatlh.core.model import TaskSpec, Work
from quvatlh.core.pages import list_tasks
from quvatlh.core.tables_digest import rolling_digest
from quvatlh.ports import Entry
from tests.core.table import CODEC, Table

SPEC = TaskSpec(Work(python="jobs:noop"))
PAGE_S = 0.05


def task_id(n: int) -> str:
    """As a UUIDv7 looks: growing."""
    return f"{n >> 16:08x}-{n & 0xFFFF:04x}-7000-8000-0123456789ab"


def adds(first: int, n: int) -> c.Add:
    return c.Add(tuple(c.NewTask(task_id(first + i), SPEC) for i in range(n)))


def timed(table: Table, command: c.AnyCommand) -> float:
    item = CODEC.encode_item(c.Item(command))
    entry = Entry(table.machine.applied_index + 1, 1, table.now, (item,))
    began = time.perf_counter()
    table.machine.begin()
    table.machine.apply(entry)
    table.machine.commit()
    return time.perf_counter() - began


def life(table: Table, tasks: int, batch: int) -> None:
    """Add, award, finish, forget."""
    spent = dict.fromkeys(("add", "award", "finish", "forget"), 0.0)
    serials = dict(table.db.execute("SELECT name, n FROM serial"))
    first, token = serials.get("task", 0) + 1, serials.get("token", 0) + 1
    for done in range(0, tasks, batch):
        seqs = range(first + done, first + done + batch)
        ends = (c.End(token + done + i, seq, 0, table.now) for i, seq in enumerate(seqs))
        spent["add"] += timed(table, adds(seqs[0], batch))
        spent["award"] += timed(table, c.Awards(tuple(c.Award(seq, "w1", "s-w1") for seq in seqs)))
        spent["finish"] += timed(table, c.Finish("s-w1", tuple(ends)))
        table.later(1)
        if (done // batch) % 64 == 63:
            table.machine.checkpoint()
    table.later(2 * 86_400_000)
    for _ in range(0, tasks, batch):
        spent["forget"] += timed(table, c.Forget("default", batch))
    each = {verb: 1e6 * s / tasks for verb, s in spent.items()}
    total = each["add"] + each["award"] + each["finish"]
    words = "  ".join(f"{verb} {us:.2f}" for verb, us in each.items())
    print(f"batches of {batch}: {words}  = {total:.2f} µs a task (add + award + finish)")


def lists(table: Table, middle_id: int) -> None:
    """With so many waiting: pages by kind of filter, and what the master and a digest read."""
    db = table.db
    kinds: dict[str, tuple[TaskFilter, str]] = {
        "newest": (TaskFilter(), "-created_at"),
        "pending": (TaskFilter(state=("pending",)), "created_at"),
        "running": (TaskFilter(state=("running", "claimed")), "-created_at"),
        "failed": (TaskFilter(state=("failed",)), "-finished_at"),
        "by priority": (TaskFilter(), "-priority"),
        "by at": (TaskFilter(), "-at"),
        "text found": (TaskFilter(q="noop"), "-created_at"),
        "text not found": (TaskFilter(q="nowhere"), "-created_at"),
        "name not found": (TaskFilter(name="nobody"), "-created_at"),
    }
    for words, (wanted, sort) in kinds.items():
        print(f"  page, {words:15} {spread(functools.partial(page, table, wanted, sort))}")
    middle = task_id(middle_id)
    print(f"  one task              {spread(lambda: queries.get_task(db, middle))}")
    print(f"  explain, half way     {spread(lambda: market.explain_facts(db, middle, table.now))}")
    print(f"  all queues            {spread(lambda: queries.queues(db, table.now))}")
    print(f"  the next 100 ready    {spread(lambda: market.ready_tasks(db, 'default', 1, limit=100))}")
    print(f"  rolling digest        {spread(lambda: rolling_digest(db, 3))}")


def page(table: Table, wanted: TaskFilter, sort: str) -> None:
    until = time.perf_counter() + PAGE_S / 2
    list_tasks(table.db, wanted, sort=sort, out_of_time=lambda: time.perf_counter() > until)


def spread(call: Callable[[], object], times: int = 30) -> str:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        taken.append(1000 * (time.perf_counter() - began))
    return f"p50 {statistics.median(taken):7.2f} ms  max {max(taken):7.2f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=50_000)
    parser.add_argument("--batch", type=int, nargs="*", default=[1000, 100, 10, 1])
    parser.add_argument("--waiting", type=int, default=0)
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Table(directory) as table:
        table.worker()
        for batch in told.batch:
            life(table, told.tasks if batch > 1 else told.tasks // 10, batch)
        if told.waiting:
            began = time.perf_counter()
            for first in range(0, told.waiting, 1000):
                timed(table, adds(10**9 + first, 1000))
                if first % 100_000 == 0:
                    table.machine.checkpoint()
            table.machine.checkpoint()
            rate = told.waiting / (time.perf_counter() - began)
            size = os.path.getsize(table.path) / told.waiting
            print(f"{told.waiting} waiting: added at {rate:,.0f}/s, {size:.0f} bytes a task in the state file")
            lists(table, 10**9 + told.waiting // 2)
            life(table, told.tasks, told.batch[0])


if __name__ == "__main__":
    main()
