"""Deaths of workers that tasks are charged with, and taken back where the worker turns out to have lived.

Silence looks like death: that a worker was only cut off is known when it is heard again. Until then, or until its next
executor, it stands in a fact which of its tasks were charged. A task that is poison by then stays so: it was told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Final

import msgspec

from quvatlh.core import limits
from quvatlh.core.rows import LiveRow
from quvatlh.core.unit import Unit

FACT: Final = "died/"
"""Before a worker's name: the fact that says which tasks were charged with the end of which session."""
_CHARGES: Final = msgspec.json.Decoder(tuple[str, list[int]])


def suspects(actions: Iterable[LiveRow], slots: int) -> set[int]:
    """Tokens of a session's actions that may have begun: those that said so, and of the others, which begin in the order of
    tokens, as many as there were slots for. What waited behind them has killed nobody."""
    found: set[int] = set()
    taken = 0
    for action in sorted(actions, key=lambda each: each.token):
        if action.started_at is not None or taken < slots or action.slots == 0:
            found.add(action.token)
        taken += action.slots
    return found


def charge(unit: Unit, action: LiveRow) -> None:
    session, tasks = _charges(unit, action.worker)
    charged = [*tasks, action.task] if session == action.session else [action.task]
    _write(unit, action.worker, action.session, charged[-limits.BATCH_MAX :])


def forgive(unit: Unit, worker: str, session: str) -> None:
    """This session's worker lived."""
    of, seqs = _charges(unit, worker)
    if of != session:
        return
    for task in unit.tasks(seqs).values():
        if not task.finished and task.deaths:
            was = copy(task)
            task.deaths -= 1
            unit.store(task, was)
    clear(unit, worker)


def clear(unit: Unit, worker: str) -> None:
    """What it is charged with stays."""
    unit.db.execute("DELETE FROM fact WHERE name = ?", (FACT + worker,))


def _charges(unit: Unit, worker: str) -> tuple[str, Sequence[int]]:
    row = unit.db.execute("SELECT value FROM fact WHERE name = ?", (FACT + worker,)).fetchone()
    return ("", ()) if row is None else _CHARGES.decode(row[0])


def _write(unit: Unit, worker: str, session: str, tasks: Sequence[int]) -> None:
    text = msgspec.json.encode((session, tasks)).decode()
    unit.db.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (FACT + worker, text))
