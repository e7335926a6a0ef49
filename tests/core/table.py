"""A task table for tests: commands in, outcomes out, through the codec and the machine as in a node."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from quvatlh.codec import Values
from quvatlh.core import commands as c
from quvatlh.core.invariants import check_invariants, check_memory
from quvatlh.core.machine import Machine
from quvatlh.core.memory import Memory
from quvatlh.core.model import TaskSpec, Work, WorkerFacts
from quvatlh.core.results import Answer, Awarded, Outcome
from quvatlh.core.rules import TableRules
from quvatlh.ports import Entry

START_MS = 1_700_000_000_000
CODEC = Values()
WORK = Work(command=("true",))
R = TypeVar("R", bound=Answer)


class Table:
    """One node's table. Time passes only by `later`."""

    def __init__(self, directory: Path | str) -> None:
        self.path = f"{directory}/state"
        self.rules = TableRules(CODEC)
        self.machine = Machine(self.path, self.rules)
        self.now = START_MS
        self.entries: list[Entry] = []
        self._names = itertools.count(1)
        self.told: list[str] = []
        """Kinds of the events of the last entry."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.machine.close()

    @property
    def db(self) -> Any:
        return self.machine.db

    @property
    def memory(self) -> Memory:
        return self.rules.memory(self.db)

    def reopen(self) -> None:
        """It knows nothing of its tables then: also for who has written into them himself."""
        self.machine.close()
        self.machine = Machine(self.path, self.rules)

    def later(self, ms: int) -> None:
        self.now += ms

    def entry(self, *items: c.Item) -> list[Outcome]:
        """All items in one entry."""
        entry = Entry(self.machine.applied_index + 1, 1, self.now, tuple(CODEC.encode_item(item) for item in items))
        self.entries.append(entry)
        outcomes = self.replay(entry)
        self.told = [event.kind for outcome in outcomes for event in outcome.events]
        return outcomes

    def replay(self, entry: Entry) -> list[Outcome]:
        self.machine.begin()
        outcomes = [each for each in self.machine.apply(entry) if isinstance(each, Outcome)]
        self.machine.commit()
        return outcomes

    def do(self, command: c.AnyCommand, request: c.Request | None = None) -> Any:
        """The result of one command in an entry of its own."""
        return self.entry(c.Item(command, request))[0].result

    def check(self, *, limits_hold: bool = True) -> None:
        found = [*check_invariants(self.db, limits_hold=limits_hold), *check_memory(self.memory)]
        assert not found, "\n".join(found)

    # --- shorthand ---

    def worker(self, name: str = "w1", session: str | None = None) -> None:
        session = session or f"s-{name}"
        facts = WorkerFacts(f"n-{name}")
        self.do(c.OpenSession(name, session, b"x" * 32, f"d-{name}", facts, silent=True))

    def add(self, task_id: str = "", **spec: Any) -> str:
        """One task; its id. Times and payload by `at_ms`, `expires_ms`, `payload`."""
        beside = {name: spec.pop(name) for name in ("at_ms", "expires_ms", "payload", "chosen") if name in spec}
        task = c.NewTask(task_id or f"t{next(self._names)}", TaskSpec(spec.pop("work", WORK), **spec), **beside)
        return str(self.do(c.Add((task,))).ids[0])

    def award(self, task_id: str, worker: str = "w1", session: str | None = None) -> int:
        """The token, 0 when refused."""
        awarded = self.do(c.Awards((c.Award(self.seq(task_id), worker, session or f"s-{worker}"),)))
        assert isinstance(awarded, Awarded)
        self.refused = awarded.refused.get(0)
        return awarded.tokens[0]

    refused: str | None = None

    def start(self, token: int, session: str = "s-w1", **told: Any) -> Any:
        return self.do(c.Start(session, (c.Started(token, self.now, **told),)))

    def finish(self, token: int, how: int = 0, session: str = "s-w1", *, begun: bool = True, **detail: Any) -> Any:
        row = self.db.execute("SELECT task FROM live WHERE token = ?", (token,)).fetchone()
        told = c.EndDetail(**detail) if detail else None
        end = c.End(token, row[0] if row else 1, how, self.now if begun else 0, told)
        return self.do(c.Finish(session, (end,)))

    def running(self, task_id: str = "", **spec: Any) -> int:
        """The token of a new task that runs on w1."""
        token = self.award(self.add(task_id, **spec))
        self.start(token)
        return token

    def seq(self, task_id: str) -> int:
        row = self.db.execute("SELECT seq FROM task WHERE id = ?", (task_id,)).fetchone()
        return int(row[0]) if row else 0

    def value(self, task_id: str, column: str) -> Any:
        return self.db.execute(f"SELECT {column} FROM task WHERE id = ?", (task_id,)).fetchone()[0]

    def state(self, task_id: str) -> Any:
        return self.value(task_id, "state")
