"""Bars on standard error, where a terminal watches; elsewhere nothing at all. They are gone when the work is done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from quvatlh.cli.surroundings import Surroundings

Report = Callable[[int, int | None], None]
"""report(done, total): total None where nobody knows it."""


@contextlib.contextmanager
def progress(what: str, around: Surroundings, *, is_wanted: bool = True, in_bytes: bool = False) -> Iterator[Report]:
    if not (around.bars and is_wanted):
        yield lambda _done, _total: None
        return
    from rich import progress as bars  # noqa: PLC0415 - a tenth of a second that only a terminal pays
    from rich.console import Console  # noqa: PLC0415

    amount = bars.DownloadColumn() if in_bytes else bars.MofNCompleteColumn()
    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), amount, bars.TimeElapsedColumn())
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=None)

        def report(done: int, total: int | None) -> None:
            shown.update(task, completed=done, total=total)

        yield report
