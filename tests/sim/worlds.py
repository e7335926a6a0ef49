"""The worlds that a seed may be played in, by name."""

from __future__ import annotations

from typing import Any, Final

from tests.sim.registers.run import RegisterRun
from tests.sim.run import Run
from tests.sim.table.run import TableRun

WORLDS: Final[dict[str, type[Run[Any]]]] = {"log": RegisterRun, "table": TableRun}
