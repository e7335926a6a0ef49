"""What the table costs, by verb and by kind of list: python -m tests.core.bench [--tasks N] [--waiting N] [--batch N]

Bytes in, outcomes and events out, transactions and commits included, nothing synced: processor time of one thread. First
SQLite's own part of it, statement by statement, with the index entries that a short task gets or loses by each. Its budget
is four in its life, each of which is a walk down a tree and a page to be written: two when it comes (its id must be found,
and its place in the ready order), one when it is awarded (out of that order), one when it has finished (its place among
what will be forgotten). Everything else that may be asked of tasks is counted in `tally`, or kept in partial indexes that
hold only the tasks which need them.
"""

from __future__ import annotations

import functools
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Final

from quvatlh.core import commands as c
from quvatlh.core import market, queries, schema
from quvatlh.core.filters import TaskFilter
from quvatlh.core.model import TaskSpec, Work
from quvatlh.core.pages import list_tasks
from quvatlh.core.rows import json_list
from quvatlh.core.tables_digest import rolling_digest
from quvatlh.core.unit import insert_rows
from quvatlh.ports import Entry
from tests.bench.report import Rows, parser
from tests.core.budget import entries
from tests.core.table import CODEC, START_MS, Table

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
    began = time.thread_time()
    table.machine.begin()
    table.machine.apply(entry)
    table.machine.commit()
    return time.thread_time() - began


FORGET = "DELETE FROM task WHERE seq = ?"
SPEC_TEXT = '{"work":{"python":"jobs:noop"}}'


def _new(n: int) -> tuple[object, ...]:
    return n, task_id(n), 0, 0, "default", "", "default", 0, "", 1, 1, START_MS, 0, SPEC_TEXT


def _many(seqs: Iterable[int]) -> str:
    return json_list(list(seqs))


HOT: Final[dict[str, Callable[[sqlite3.Connection, range], object]]] = {
    "add: task": lambda db, seqs: insert_rows(
        db, schema.INSERT_PLAIN_TASK, schema.INSERT_PLAIN_TASKS, [_new(n) for n in seqs]
    ),
    "award: live": lambda db, seqs: db.execute(
        schema.INSERT_PLAIN_LIVES, (0, "w1", "s-w1", 2000, START_MS, _many(seqs))
    ),
    "award: task": lambda db, seqs: db.execute(schema.AWARD_TASKS, ("w1", 0, _many(seqs))),
    "finish: task": lambda db, seqs: db.execute(
        schema.FINISH_TASKS, (START_MS + seqs[0] // 1000, json_list(dict.fromkeys(seqs, START_MS)))
    ),
    "finish: live": lambda db, seqs: db.execute(schema.RELEASE_MANY, (_many(seqs),)),
    "forget: task": lambda db, seqs: db.executemany(FORGET, [(n,) for n in seqs]),
}


def statements(rows: Rows, directory: str, tasks: int) -> None:
    """What SQLite takes for the rows of a short task, in batches of 1,000, with hardly anything of ours around it."""
    with Table(directory) as table:
        total, before = 0.0, entries(table.db, task_id(1))
        for what, write in HOT.items():
            spent = 0.0
            for first in range(1, tasks + 1, 1000):
                seqs = range(first, min(first + 1000, tasks + 1))
                began = time.thread_time()
                table.machine.begin()
                write(table.db, seqs)
                table.machine.commit()
                spent += time.thread_time() - began
            after = entries(table.db, task_id(1))
            written = [name for name, n in after.items() if n != before[name]]
            before = after
            if not what.startswith("forget"):
                total += spent
            rows.add(f"SQLite alone, {what}", us=1e6 * spent / tasks, index_entries=" ".join(written) or "none")
        rows.add("SQLite alone, add + award + finish", us=1e6 * total / tasks)


def life(rows: Rows, table: Table, tasks: int, batch: int) -> None:
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
    each = {f"{verb}_us": 1e6 * s / tasks for verb, s in spent.items()}
    rows.add(f"batches of {batch:,}", **each, together_us=sum(list(each.values())[:3]))


def lists(rows: Rows, table: Table, middle_id: int) -> None:
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
        rows.add(f"page, {words}", **spread(functools.partial(page, table, wanted, sort)))
    middle = task_id(middle_id)
    rows.add("one task", **spread(lambda: queries.get_task(db, middle)))
    rows.add("explain, half way", **spread(lambda: market.explain_facts(db, middle, table.now)))
    rows.add("all queues", **spread(lambda: queries.queues(db, table.now)))
    rows.add("the next 100 ready", **spread(lambda: market.ready_tasks(db, "default", 1, limit=100)))
    rows.add("rolling digest", **spread(lambda: rolling_digest(db, 3)))


def page(table: Table, wanted: TaskFilter, sort: str) -> None:
    until = time.perf_counter() + PAGE_S / 2
    list_tasks(table.db, wanted, sort=sort, out_of_time=lambda: time.perf_counter() > until)


def spread(call: Callable[[], object], times: int = 30) -> dict[str, float]:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        taken.append(1000 * (time.perf_counter() - began))
    return {"p50_ms": statistics.median(taken), "max_ms": max(taken)}


def waiting(rows: Rows, table: Table, count: int) -> None:
    began = time.perf_counter()
    for first in range(0, count, 1000):
        timed(table, adds(10**9 + first, 1000))
        if first % 100_000 == 0:
            table.machine.checkpoint()
    table.machine.checkpoint()
    rate = count / (time.perf_counter() - began)
    rows.add(f"{count:,} waiting", added_per_s=rate, state_bytes_each=os.path.getsize(table.path) / count)
    lists(rows, table, 10**9 + count // 2)


def main() -> None:
    made = parser("tests.core.bench", __doc__)
    made.add_argument("--tasks", type=int, default=50_000)
    made.add_argument("--batch", type=int, nargs="*", default=[1000, 100, 10, 1])
    made.add_argument("--waiting", type=int, default=0)
    told = made.parse_args()
    rows = Rows()
    with tempfile.TemporaryDirectory() as directory:
        statements(rows, directory, told.tasks)
    with tempfile.TemporaryDirectory() as directory, Table(directory) as table:
        table.worker()
        for batch in told.batch:
            life(rows, table, told.tasks if batch > 1 else told.tasks // 10, batch)
        if told.waiting:
            waiting(rows, table, told.waiting)
            life(rows, table, told.tasks, told.batch[0])
    rows.write(told.json)


if __name__ == "__main__":
    main()
