"""A bed for each test; after it no process, no descriptor and no input is left."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.runner.bed import Bed, children, opened
from tests.runner.calls import Calls


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    before = children(), opened()
    bed = Bed(tmp_path)
    yield bed
    await bed.runner.close(0)
    assert (children(), opened() - before[1]) == (before[0], set())
    assert os.listdir(bed.inputs) == []


@pytest.fixture
async def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Calls]:
    """After it no process, no descriptor and no input is left. Calls wait for a slot as long as a busy machine needs."""
    monkeypatch.setattr("quvatlh.runner.pools.pool.STALE_S", 30.0)
    before = children(), opened()
    calls = Calls(tmp_path)
    yield calls
    await calls.carriers.close(0)
    assert (children(), opened() - before[1]) == (before[0], set())
    assert os.listdir(tmp_path / "inputs") == []
