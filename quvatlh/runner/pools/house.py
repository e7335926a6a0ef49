"""What a pool needs of the runner that it is part of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from quvatlh.ports import ActionProgress, RunError
from quvatlh.runner.pools.call import CallRun
from quvatlh.runner.pools.gate import Gate

if TYPE_CHECKING:
    from quvatlh.runner.pools.pool import Pool


class House(Protocol):
    gate: Gate
    bell: int
    base: Mapping[str, str]
    """Variables of every environment."""

    def soon(self, pool: Pool) -> None:
        """Have it hand out its calls in this turn of the loop."""
        ...

    def ring(self) -> None:
        """Have all Python children looked at in the next turn of the loop."""
        ...

    def eldest(self, pool: Pool) -> bool:
        """No other pool has a call that waits longer for a slot."""
        ...

    def finished(
        self, run: CallRun, error: RunError | None, result: bytes | None = None, code: int | None = None
    ) -> None: ...

    def started(self, run: CallRun) -> None: ...

    def progressed(self, event: ActionProgress) -> None: ...

    def spare(self, pid: int) -> None: ...

    def unspare(self, pid: int) -> None: ...

    def end_marked(self, mark: str) -> bool: ...
