"""What BALANCE has to even: a group's live actions, which of them may move, and where to."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from quvatlh.core.evening import Piece, Place
from quvatlh.core.queries import queues, task_views, workers
from quvatlh.core.rows import LIVE_SELECT, LiveRow, live_row
from quvatlh.core.views import QueueView, TaskView, WorkerView
from quvatlh.service import asks, policytask
from quvatlh.service.jury import Jury
from quvatlh.service.placing import may

ACTIONS_MAX: Final = 10_000
"""Of a group with more live actions the oldest are evened."""


class Load:
    """Of a group; made by `gather`, on another thread, and then the loop's."""

    def __init__(self, taking: Sequence[WorkerView], live: Sequence[LiveRow], taken: Mapping[str, int]) -> None:
        self._workers = {view.name: view for view in taking}
        self._live = {row.token: row for row in live}
        self._taken = taken
        self._able: dict[int, set[str]] = {}
        """Token of what may move -> where to."""
        self._fixed: Counter[str] = Counter()
        self._questions: dict[int, asks.JudgeQuestion] = {}
        """Token of what asks for a policy."""

    # --- gathering ---

    def fix(self, worker: str) -> None:
        """An action that counts there, and stays."""
        self._fixed[worker] += 1

    def free(self, row: LiveRow, able: Collection[str], question: asks.JudgeQuestion | None) -> None:
        self._able[row.token] = set(able)
        if question is not None:
            self._questions[row.token] = question

    # --- what only the loop knows ---

    def without(self, tokens: Collection[int]) -> None:
        """They are on their way already, and were counted where they go."""
        for token in self._able.keys() & set(tokens):
            del self._able[token]

    def fix_younger(self, than_ms: int) -> None:
        """Jobs that began later stay."""
        for token in list(self._able):
            row = self._live[token]
            if not row.service and (row.started_at or row.awarded_at) > than_ms:
                del self._able[token]
                self.fix(row.worker)

    async def ask(self, jury: Jury) -> None:
        """Who does not bid now, or does not answer, gets none."""
        asked: dict[str, list[int]] = {}
        for token in self._questions.keys() & self._able.keys():
            for name in self._able[token] - {self._live[token].worker}:
                asked.setdefault(name, []).append(token)
        for name, tokens in asked.items():
            answer = await jury.ask(self._workers[name], [self._questions[token] for token in tokens])
            for n, token in enumerate(tokens):
                if isinstance(answer, str) or answer[n].word != "bid":
                    self._able[token].discard(name)

    # --- the plan's terms ---

    def of(self, piece: str) -> tuple[str, int, int]:
        """Id and seq of the task, and token."""
        row = self._live[int(piece)]
        return row.id, row.task, row.token

    def pieces(self) -> list[Piece]:
        return [Piece(str(token), self._live[token].worker, frozenset(able)) for token, able in self._able.items()]

    def places(self) -> dict[str, Place]:
        """A worker's room: its slots without those that others take, in pieces of the widest kind."""
        widest = max((self._live[token].slots for token in self._able), default=0)
        own: Counter[str] = Counter()
        for token in self._able:
            own[self._live[token].worker] += self._live[token].slots
        return {
            name: Place(
                view.facts.slots,
                self._fixed[name],
                None if not widest else max(0, view.facts.slots - self._taken.get(name, 0) + own[name]) // widest,
            )
            for name, view in self._workers.items()
        }


def gather(db: sqlite3.Connection, group: str, takers: Collection[str]) -> Load | None:
    """None for a group without tasks; `takers` are the workers that take awards, as the master knows."""
    sql = f"{LIVE_SELECT} WHERE grp = ? ORDER BY token LIMIT ?"
    live = [live_row(row) for row in db.execute(sql, (group, ACTIONS_MAX))]
    if not live and db.execute("SELECT 1 FROM task WHERE grp = ? LIMIT 1", (group,)).fetchone() is None:
        return None
    taking = [view for view in workers(db) if view.name in takers]
    taken = dict(db.execute("SELECT worker, sum(slots) FROM live GROUP BY worker").fetchall())
    load = Load(taking, live, taken)
    views = {view.row.seq: view for view in task_views(db, sorted({row.task for row in live}))}
    attached = _Attached(db)
    for row in live:
        view = views.get(row.task)
        if row.state == "stopping" or view is None or view.row.finished:
            if view is not None and row.stop == "relocate" and view.shape.toward is not None:
                load.fix(view.shape.toward)
        elif not _is_free(row, view):
            load.fix(row.worker)
        else:
            load.free(row, attached.able(view, taking), _question(db, view))
    return load


def _is_free(row: LiveRow, view: TaskView) -> bool:
    begun_once = bool(view.row.once) and row.started_at is not None
    return view.spec.balancable and view.shape.pin is None and not begun_once


def _question(db: sqlite3.Connection, view: TaskView) -> asks.JudgeQuestion | None:
    if view.shape.policy is None:
        return None
    source = policytask.source_of(db, view.shape.policy)
    return None if source is None else asks.JudgeQuestion(source, view.row.grp, policytask.of_view(db, view))


class _Attached:
    """Which workers may run what, slots and policies aside."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._queues: dict[str, QueueView] = {}
        self._busy: dict[tuple[str, str], int] = {
            (queue, worker): n
            for queue, worker, n in db.execute("SELECT a, b, n FROM tally WHERE scope = 'live_worker'")
        }
        self._known: dict[tuple[str, int], frozenset[str]] = {}

    def able(self, view: TaskView, taking: Sequence[WorkerView]) -> frozenset[str]:
        key = view.row.queue, view.row.shape
        if key not in self._known:
            queue = self._queue(view.row.queue)
            shape = msgspec.structs.replace(view.shape, toward=None)
            self._known[key] = frozenset(
                worker.name
                for worker in taking
                if worker.facts.slots >= view.row.slots and may(worker, shape, queue) and self._has_room(queue, worker)
            )
        return self._known[key]

    def _has_room(self, queue: QueueView, worker: WorkerView) -> bool:
        most = queue.settings.limit_per_worker
        return most is None or self._busy.get((queue.name, worker.name), 0) < most

    def _queue(self, name: str) -> QueueView:
        if name not in self._queues:
            self._queues[name] = queues(self._db, 0, name)[0]
        return self._queues[name]
