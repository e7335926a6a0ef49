from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from tests.fakes.loop import HastyLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Nothing here is outside of the process, so nothing is worth waiting for."""
    return {"hasty": HastyLoop}
