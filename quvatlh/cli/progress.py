"""Bars on standard error, where a terminal watches; elsewhere nothing at all. They are gone when the work is done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from quvatlh.cli.printing import plain
from quvatlh.cli.surroundings import Surroundings

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

Report = Callable[[int, int | None], None]
"""report(done, total): total None where nobody knows it."""
Tell = Callable[[float | None, str], None]
"""tell(percent, text), as a task says it of itself: percent None where it said none."""
_WHOLE = 100


@contextlib.contextmanager
def progress(what: str, around: Surroundings, *, is_wanted: bool = True, in_bytes: bool = False) -> Iterator[Report]:
    if not (around.bars and is_wanted):
        yield lambda _done, _total: None
        return
    from rich import progress as bars  # noqa: PLC0415 - a tenth of a second that only a terminal pays

    amount = bars.DownloadColumn() if in_bytes else bars.MofNCompleteColumn()
    with _drawn(amount) as shown:
        task = shown.add_task(what, total=None)

        def report(done: int, total: int | None) -> None:
            shown.update(task, completed=done, total=total)

        yield report


@contextlib.contextmanager
def told_by_itself(what: str, around: Surroundings, *, is_wanted: bool = True) -> Iterator[Tell]:
    """0 to 100 %, and what it is at."""
    if not (around.bars and is_wanted):
        yield lambda _percent, _text: None
        return
    from rich import progress as bars  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415

    room = Column(no_wrap=True, overflow="ellipsis")
    with _drawn(bars.TextColumn("{task.fields[words]}", markup=False, table_column=room)) as shown:
        task = shown.add_task(what, total=None, words="")

        def tell(percent: float | None, text: str) -> None:
            words = plain(text) if percent is None else f"{percent:g} % {plain(text)}".strip()
            shown.update(task, completed=percent or 0, total=None if percent is None else _WHOLE, words=words)

        yield tell


def _drawn(amount: ProgressColumn) -> Progress:
    from rich import progress as bars  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415

    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), amount, bars.TimeElapsedColumn())
    return bars.Progress(*columns, console=Console(stderr=True), transient=True)
