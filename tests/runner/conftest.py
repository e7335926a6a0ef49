"""A bed for each test; after it no process, no descriptor and no input is left."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.runner.bed import Bed, children, descriptors


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    before = children(), len(descriptors())
    bed = Bed(tmp_path)
    yield bed
    await bed.runner.close(0)
    assert (children(), len(descriptors())) == before
    assert os.listdir(bed.inputs) == []
