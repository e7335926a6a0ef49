"""The tables against a plain model, step by step, from a seed; and the same log again against itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core.model import Retry, Unique
from quvatlh.core.tables_digest import tables_digest
from tests.core.plain import Plain, Task
from tests.core.table import Table

STEPS = 250
WORKERS = ("w1", "w2")
HOW = {"succeeded": 0, "failed": 1, "stopped": 2}
FLAT: dict[str, Any] = {"backoff": "constant", "first_ms": 5000, "jitter_permille": 0}


class Pair:
    """The table and the model, told the same."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.table = Table(directory)
        self.plain = Plain()
        self.chance = random.Random(seed)
        self.plain.now = self.table.now
        for worker in WORKERS:
            self.table.worker(worker)
        self.table.do(c.PatchQueue("narrow", c.QueueChanges(limit=2)))
        self.plain.queue_limits["narrow"] = 2
        self.ids: list[str] = []

    def step(self) -> None:
        verbs = [self.add, self.award, self.award, self.award, self.start, self.finish, self.finish, self.give_back,
                 self.lose, self.person, self.pass_time]  # fmt: skip
        self.chance.choice(verbs)()
        self.plain.give_keys()

    def add(self) -> None:
        chance = self.chance
        id_ = f"t{chance.randrange(60)}"
        spec: dict[str, Any] = {"queue": chance.choice(["default", "narrow"])}
        if chance.random() < 0.3:
            spec["name"] = chance.choice(["a", "b", "t1", "t2"])
        if chance.random() < 0.3:
            spec["limit"] = chance.randint(1, 2)
        if chance.random() < 0.15:
            spec["kind"] = "service"
        if chance.random() < 0.2:
            spec["delivery"] = "at-most-once"
        at = self.table.now + 3000 if chance.random() < 0.2 else None
        expires = self.table.now + 4000 if chance.random() < 0.2 else None
        key = chance.choice("xyz") if chance.random() < 0.3 else None
        spec["retry"] = Retry(attempts=chance.randint(1, 3), **FLAT)
        task = Task(
            id_, "pending", spec.get("kind") == "service", "delivery" in spec, spec.get("name", ""),
            spec.get("limit", 1 if "kind" in spec else None), spec["queue"], at, expires, spec["retry"].attempts, key,
        )  # fmt: skip
        unique = None if key is None else Unique(key)
        told = self.table.add(id_, at_ms=at, expires_ms=expires, unique=unique, **spec)
        assert told == self.plain.add(task)
        self.ids = sorted(self.plain.tasks)

    def award(self) -> None:
        if self.ids:
            id_, worker = self.chance.choice(self.ids), self.chance.choice(WORKERS)
            expected = self.plain.award(id_, worker)
            assert self.table.award(id_, worker) == expected, self.table.refused

    def start(self) -> None:
        for token, worker in self.some_action():
            self.plain.start(token)
            assert not self.table.start(token, f"s-{worker}").refused

    def finish(self) -> None:
        for token, worker in self.some_action():
            how = self.chance.choice(["succeeded", "succeeded", "failed", "stopped"])
            permanent, begun = self.chance.random() < 0.2, self.chance.random() < 0.8
            told = {"exit_code": 1, "permanent": permanent} if how == "failed" else {}
            self.plain.finish(token, how, permanent=permanent, wait_ms=5000, begun=begun)
            assert not self.table.finish(token, HOW[how], f"s-{worker}", begun=begun, **told).refused

    def give_back(self) -> None:
        for token, worker in self.some_action():
            taken = self.plain.give_back(token)
            refused = self.table.do(c.GiveBack(f"s-{worker}", (token,))).refused
            assert refused == ({} if taken else {0: "conflict"})

    def lose(self) -> None:
        for token, _ in self.some_action():
            died = self.chance.random() < 0.7
            self.plain.lose(token, died=died)
            assert not self.table.do(c.Lost((c.Loss(token, died),))).refused

    def person(self) -> None:
        if not self.ids:
            return
        id_ = self.chance.choice(self.ids)
        verb = self.chance.choice(["kill", "delete", "retry", "relocate", "move"])
        queue, failed = self.chance.choice(["default", "narrow"]), self.chance.random() < 0.7
        done: dict[str, Callable[[], bool]] = {
            "kill": lambda: self.plain.kill(id_),
            "delete": lambda: self.plain.delete(id_, failed=failed),
            "retry": lambda: self.plain.retry(id_),
            "relocate": lambda: self.plain.relocate(id_),
            "move": lambda: self.plain.move(id_, queue, failed=failed),
        }
        expected = done[verb]()
        commands: dict[str, c.AnyCommand] = {
            "kill": c.Kill((id_,)),
            "delete": c.Delete((id_,), failed=failed),
            "retry": c.RetryTasks((id_,), sooner=True),
            "relocate": c.Relocate((c.Move(id_),)),
            "move": c.Update((id_,), c.TaskChanges(queue=queue), failed=failed),
        }
        told = self.table.do(commands[verb])
        assert (told.matched, told.done) == (1, int(expected))

    def pass_time(self) -> None:
        self.table.later(self.chance.choice([1, 1000, 5000, 70_000]))
        self.plain.now = self.table.now
        if self.chance.random() < 0.5:
            self.plain.expire()
            self.table.do(c.Expire())
        self.plain.promote()
        self.table.do(c.Promote())

    def some_action(self) -> list[tuple[int, str]]:
        live = self.plain.live()
        if not live:
            return []
        token = self.chance.choice(sorted(live))
        return [(token, live[token][1])]

    def compare(self) -> None:
        columns = "id, queue, state, attempts, ended, deaths, resting, error"
        rows = self.table.db.execute(f"SELECT {columns} FROM task ORDER BY id")
        expected = [
            (t.id, t.queue, t.state, t.attempts, t.failures, t.deaths, t.resting, t.error)
            for _, t in sorted(self.plain.tasks.items())
        ]
        assert rows.fetchall() == expected
        live = self.table.db.execute("SELECT token, id, worker, started_at IS NOT NULL, stop FROM live").fetchall()
        assert {row[0]: (row[1], row[2], bool(row[3]), row[4] or "") for row in live} == self.plain.live()
        keys = self.table.db.execute("SELECT key, id FROM unique_key").fetchall()
        assert dict(keys) == self.plain.keys


@pytest.mark.parametrize("seed", range(25))
def test_the_tables_say_what_the_plain_model_says(seed: int, tmp_path: Path) -> None:
    pair = Pair(tmp_path, seed)
    for step in range(STEPS):
        pair.step()
        pair.compare()
        if step % 10 == 0:
            pair.table.check()
    pair.table.check()
    digest = tables_digest(pair.table.db)
    pair.table.machine.close()
    (tmp_path / "again").mkdir()
    with Table(tmp_path / "again") as again:
        for entry in pair.table.entries:
            again.replay(entry)
        assert tables_digest(again.db) == digest
