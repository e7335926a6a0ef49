from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    """With a worker; what a test leaves behind must be sound."""
    with Table(tmp_path) as made:
        made.worker()
        yield made
        made.check()
