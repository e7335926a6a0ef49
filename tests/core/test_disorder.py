"""Everything at once, from a seed: no model says what must come out, but the tables stay sound and the log replays."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core.commands import TaskChanges
from quvatlh.core.model import (
    Code,
    HtbClass,
    Keep,
    Overlap,
    QueueSettings,
    Rate,
    Retry,
    ScheduleSpec,
    TaskSpec,
    Unique,
    WorkerFacts,
)
from quvatlh.core.tables_digest import tables_digest
from tests.core.table import WORK, Table

STEPS = 300
QUEUES = ("default", "q1", "q2")


class Chaos:
    def __init__(self, table: Table, seed: int) -> None:
        self.table = table
        self.chance = random.Random(seed)
        self.sessions = 0
        table.worker("w1")
        table.worker("w2")
        table.do(c.PutPolicy("p", "function() return 1 end"))
        table.do(c.PutClass("slots", HtbClass(None, 3000)))
        table.do(c.PutClass("leaf", HtbClass("slots", 1000, 2000)))
        table.do(c.PutClass("starts", HtbClass(None, 2000, of="starts")))

    def command(self) -> c.AnyCommand:
        verbs: list[Callable[[], c.AnyCommand]] = [
            self.add, self.add, self.award, self.award, self.award, self.finish, self.finish, self.finish, self.start,
                 self.unclaim, self.lost, self.person, self.person, self.update, self.update, self.queue, self.chore, self.worker,
                 self.schedule]  # fmt: skip
        return self.chance.choice(verbs)()

    def some(self, column: str, table: str, n: int = 1) -> list[Any]:
        rows = [row[0] for row in self.table.db.execute(f"SELECT {column} FROM {table} ORDER BY 1")]
        return self.chance.sample(rows, min(n, len(rows)))

    def maybe(self, value: Any, odds: float = 0.3) -> Any:
        return value if self.chance.random() < odds else None

    def unique(self) -> Unique:
        key, way = self.chance.choice("xyz"), self.chance.choice(["queued", "active", "unfinished", "for"])
        return Unique(key, for_ms=5000) if way == "for" else Unique(key, way)  # type: ignore[arg-type]

    def spec(self) -> TaskSpec:
        chance = self.chance
        return TaskSpec(
            WORK,
            name=self.maybe(chance.choice(["a", "b", "t1"])),
            kind=chance.choice(["job", "job", "job", "service"]),
            limit=self.maybe(chance.randint(1, 3)),
            queue=chance.choice(QUEUES),
            queue_limit=self.maybe(chance.randint(0, 4), 0.05),
            tags=self.maybe(("gpu",)) or (),
            policy=self.maybe(Code(name="p"), 0.2),
            key=self.maybe(chance.choice("kl"), 0.6),
            cost=chance.choice([1, 1, 3]),
            priority=chance.randint(-1, 1),
            retry=self.maybe(Retry(attempts=2)),
            delivery=chance.choice(["at-least-once", "at-least-once", "at-most-once"]),
            unique=self.maybe(self.unique()),
            keep_ms=self.maybe(chance.choice([0, 3000, 10**9]), 0.3),
        )

    def new(self) -> c.NewTask:
        now, chance = self.table.now, self.chance
        payload = self.maybe(b"x" * chance.choice([1, 2000]))
        at, expires = self.maybe(now + 4000, 0.2), self.maybe(now + chance.choice([500, 6000]), 0.2)
        return c.NewTask(f"t{chance.randrange(80)}", self.spec(), chance.random() < 0.5, at, expires, payload)

    def add(self) -> c.Add:
        tasks = tuple(self.new() for _ in range(self.chance.randint(1, 4)))
        return c.Add(tasks, self.given_away() if self.chance.random() < 0.3 else ())

    def given_away(self) -> tuple[c.Award, ...]:
        session = dict(self.table.db.execute("SELECT name, session FROM worker"))
        at = [self.chance.randrange(6) for _ in range(self.chance.randint(1, 4))]
        return tuple(
            c.Award(n, worker, session[worker] or "-") for n in at for worker in [self.chance.choice(("w1", "w2"))]
        )

    def award(self) -> c.Awards:
        session = dict(self.table.db.execute("SELECT name, session FROM worker"))
        ready = self.some("seq", "task WHERE ready > 0", 4)
        workers = [self.chance.choice(("w1", "w2")) for _ in ready]
        return c.Awards(
            tuple(c.Award(seq, worker, session[worker] or "-") for seq, worker in zip(ready, workers, strict=True))
        )

    def reported(self) -> tuple[str, list[tuple[int, int]]]:
        sessions = self.some("DISTINCT session", "live")
        if not sessions:
            return "-", []
        sql = "SELECT token, task FROM live WHERE session = ? ORDER BY token LIMIT ?"
        return sessions[0], self.table.db.execute(sql, (sessions[0], self.chance.randint(1, 4))).fetchall()

    def finish(self) -> c.Finish:
        session, actions = self.reported()
        return c.Finish(session, tuple(self.end(token, task) for token, task in actions))

    def end(self, token: int, task: int) -> c.End:
        how = self.chance.choice([0, 0, 0, 1, 2])
        detail = self.maybe(c.EndDetail(exit_code=how, output_tail=b"tail", chance=self.chance.randrange(2**32)), 0.6)
        return c.End(token, task, how, self.maybe(self.table.now, 0.7) or 0, detail)

    def start(self) -> c.Start | c.Progress:
        session, actions = self.reported()
        if self.chance.random() < 0.3:
            return c.Progress(session, tuple(c.ProgressReport(token, 50, "half") for token, _ in actions))
        told = self.maybe({"url": "http://here"})
        return c.Start(session, tuple(c.Started(token, self.table.now, told) for token, _ in actions))

    def unclaim(self) -> c.GiveBack:
        session, actions = self.reported()
        return c.GiveBack(session, tuple(token for token, _ in actions))

    def lost(self) -> c.Lost:
        return c.Lost(tuple(c.Loss(token, self.chance.random() < 0.5) for token in self.some("token", "live", 2)))

    def person(self) -> c.AnyCommand:
        ids = tuple(self.some("id", "task", 3))
        to, source = self.maybe("w2"), self.maybe("w1")
        chance = self.chance
        loose, token = chance.random() < 0.4, next(iter(self.some("token", "live", 1)), 0)
        only = token if chance.random() < 0.2 else 0
        moves = tuple(c.Move(id_, to, source, loose=loose, token=only) for id_ in ids)
        deleted = c.Delete(ids, failed=chance.random() < 0.7)
        verbs: list[c.AnyCommand] = [deleted, c.Kill(ids), c.RetryTasks(ids), c.Relocate(moves)]
        return chance.choice(verbs)

    def update(self) -> c.Update:
        now, chance = self.table.now, self.chance
        every: dict[str, Any] = {
            "queue": chance.choice(QUEUES),
            "priority": chance.randint(-2, 2),
            "tags": self.maybe(("ssd", "!spot*")) or (),
            "at_ms": now + chance.choice([-1, 3000]),
            "expires_ms": self.maybe(now + 3000),
            "limit": self.maybe(chance.randint(1, 3), 0.7),
            "keep_ms": self.maybe(chance.choice([0, 4000]), 0.7),
        }
        named = chance.sample(sorted(every), chance.randint(1, 3))
        changes = TaskChanges(**{name: every[name] for name in named})
        return c.Update(tuple(self.some("id", "task", 3)), changes, failed=chance.random() < 0.7)

    def queue(self) -> c.AnyCommand:
        chance, name = self.chance, self.chance.choice(QUEUES)
        if chance.random() < 0.2:
            states = ("scheduled", "pending", "retrying", "succeeded", "failed", "deleted", "running")
            some = tuple(self.some("id", "task", 3)) if chance.random() < 0.5 else None
            return c.PurgeQueue(name, tuple(chance.sample(states, 3)), 2, some)  # type: ignore[arg-type]
        settings = QueueSettings(
            discipline=chance.choice(["priority", "fifo", "sfq"]),
            weight=chance.randint(1, 3),
            class_=self.maybe(chance.choice(["slots", "leaf", "starts"])),
            key_weights=self.maybe({"k": 3}) or {},
            limit=self.maybe(chance.randint(0, 4)),
            limit_per_key=self.maybe(1),
            limit_per_worker=self.maybe(2),
            rate=self.maybe(Rate(2, 1000)),
            paused=chance.random() < 0.1,
            keep=Keep(chance.choice([1000, 10**8]), chance.choice([2, 1000])),
            keep_failed=Keep(chance.choice([1000, 10**8]), chance.choice([2, 1000])),
        )
        return c.PutQueue(name, settings)

    def chore(self) -> c.AnyCommand:
        queue = self.chance.choice(QUEUES)
        ranks = tuple(c.Rank(seq, self.chance.randint(0, 10**6)) for seq in self.some("seq", "task", 3))
        chores: list[c.AnyCommand] = [
            c.SetRanks(queue, ranks),
            c.Promote(),
            c.Expire(),
            c.Forget(queue, 3),
            c.Sweep(2),
            c.Rerank(queue, 3),
            c.CheckDigest(),
            c.Promote(1),
            c.ForgetWorkers(),
        ]
        return self.chance.choice(chores)

    def worker(self) -> c.AnyCommand:
        name, kind = self.chance.choice(("w1", "w2")), self.chance.randrange(4)
        session = self.table.db.execute("SELECT session FROM worker WHERE name = ?", (name,)).fetchone()[0] or "-"
        if kind == 0:
            up = self.chance.random() < 0.7
            return c.Presence(name, session, up, heard=up and self.chance.random() < 0.5)
        if kind == 1:
            wish = self.chance.random() < 0.2
            leaves = self.chance.random() < 0.3
            return c.PatchWorker(name, c.WorkerChanges(leaving=wish) if leaves else c.WorkerChanges(draining=wish))
        if kind == 2:
            return c.EndSession(session)
        self.sessions += 1
        facts = WorkerFacts("n")
        return c.OpenSession(name, f"{name}-{self.sessions}", b"s" * 32, f"d-{name}", facts, silent=True,
                             ended=self.chance.random() < 0.5)  # fmt: skip

    def schedule(self) -> c.AnyCommand:
        row = self.table.db.execute("SELECT version FROM schedule WHERE name = 'cron'").fetchone()
        if row is None or self.chance.random() < 0.2:
            overlaps: list[Overlap] = ["allow", "skip", "queue", "replace"]
            overlap = self.chance.choice(overlaps)
            spec = ScheduleSpec(self.spec(), every_ms=1000, overlap=overlap)
            return c.PutSchedule("cron", spec, self.table.now)
        slot = self.table.now - self.chance.choice([0, 0, 1])
        return c.Fire("cron", row[0], slot, self.new(), manual=self.chance.random() < 0.2)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_comes_together_the_tables_stay_sound(seed: int, tmp_path: Path) -> None:
    """The log makes the same tables again, whatever is known of them or has to be read."""
    with Table(tmp_path) as table:
        chaos = Chaos(table, seed)
        for step in range(STEPS):
            table.later(chaos.chance.choice([0, 1, 100, 1500]))
            table.entry(*(c.Item(chaos.command()) for _ in range(chaos.chance.randint(1, 3))))
            if step % 5 == 0:
                table.check(limits_hold=False)
        table.check(limits_hold=False)
        digest = tables_digest(table.db)
        for share in (0.0, 0.3, 1.0):
            (tmp_path / str(share)).mkdir()
            with Table(tmp_path / str(share)) as again:
                for entry in table.entries:
                    if chaos.chance.random() < share:
                        again.reopen()
                    again.replay(entry)
                assert tables_digest(again.db) == digest
