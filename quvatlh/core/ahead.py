"""What came into lines lately, in its order: the market looks at it, and an award has its row, without asking the tables.

Of a line its first tasks are known, all in a row, or nothing is. That begins when a task comes to an empty line, goes on while
others come behind it, and is over as soon as anything else happens to the line than that its first one is awarded. Like all of
memory.py it is what stands in the tables.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from quvatlh.core.rows import Candidate, Lined

TASKS_MAX: Final = 10_000
"""Of all lines: some 8 MB. What comes beyond it is read when it is wanted."""

Line = tuple[str, str, int]
"""Flow, queue, shape."""


class Front:
    """The first tasks of a line."""

    __slots__ = ("is_whole", "tasks")

    def __init__(self) -> None:
        self.tasks: deque[Lined] = deque()
        self.is_whole = True
        """Nobody is behind them."""


class Ahead:
    """Of all lines."""

    def __init__(self) -> None:
        self._fronts: dict[Line, Front] = {}
        self._rows: dict[int, Lined] = {}
        """Of all that stand in fronts, by number."""

    @property
    def known(self) -> int:
        return len(self._fronts)

    def forget(self) -> None:
        self._fronts.clear()
        self._rows.clear()

    def items(self) -> Iterable[tuple[Line, Front]]:
        return self._fronts.items()

    def of(self, line: Line) -> Front | None:
        return self._fronts.get(line)

    def row(self, seq: int) -> Lined | None:
        return self._rows.get(seq)

    def rows(self, seqs: Sequence[int]) -> tuple[list[Candidate], list[int]]:
        """Those that are known, and the numbers of the others."""
        known = self._rows
        if not known:
            return [], list(seqs)
        found: list[Candidate] = [known[seq] for seq in seqs if seq in known]
        return found, ([seq for seq in seqs if seq not in known] if len(found) < len(seqs) else [])

    def begin(self, line: Line) -> None:
        """It is empty."""
        self._fronts[line] = Front()

    def joined(self, line: Line, turn: int, *, is_short: bool) -> Front | None:
        """A task comes to the line. Where to `keep` it, if it is known, too. Not `is_short`: more is to be known of it than an
        award asks of most."""
        front = self._fronts.get(line)
        if front is None:
            return None
        if front.tasks and turn < front.tasks[-1].turn:
            self.drop(line)
            return None
        if is_short and front.is_whole and len(self._rows) < TASKS_MAX:
            return front
        front.is_whole = False
        self._drop_empty(line, front)
        return None

    def keep(self, front: Front, task: Lined) -> None:
        front.tasks.append(task)
        self._rows[task.seq] = task

    def leave(self, line: Line, seq: int) -> None:
        """It is awarded."""
        front = self._fronts.get(line)
        if front is None:
            return
        tasks = front.tasks
        if tasks and tasks[0].seq == seq:
            tasks.popleft()
            del self._rows[seq]
            self._drop_empty(line, front)
        else:
            self.drop(line)

    def drop(self, line: Line) -> None:
        front = self._fronts.pop(line, None)
        if front is not None:
            for task in front.tasks:
                del self._rows[task.seq]

    def _drop_empty(self, line: Line, front: Front) -> None:
        """Of which nothing is known."""
        if not front.tasks and not front.is_whole:
            del self._fronts[line]
