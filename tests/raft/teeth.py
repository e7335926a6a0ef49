"""Tests that must bite: each holds as the code is, and fails when a named remedy is taken away.

    @fails_under("no-sync-before-answers")
    async def test_...

runs the test once on the code as it is and, in the long suite, once for each fault, a name of tests.sim.planted or of
tests.raft.mutants; there the test must fail. So a remedy that is lost is noticed, and so is a test that would not have
noticed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tests.raft.mutants import MUTANTS
from tests.sim import planted

FAULTS = {**planted.FAULTS, **MUTANTS}


def fails_under(
    *faults: str, raises: tuple[type[BaseException], ...] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`raises` is how the test may fail beside its assertions; anything else would be a fault that does not fit."""
    failing: tuple[type[BaseException], ...] = (AssertionError, pytest.fail.Exception, *raises)
    unknown = set(faults) - set(FAULTS)
    assert not unknown, f"no such fault: {unknown}"

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        async def run_async(*args: Any, fault: str | None, **kwargs: Any) -> None:
            if fault is None:
                await test(*args, **kwargs)
                return
            with FAULTS[fault](), pytest.raises(failing):
                await test(*args, **kwargs)

        @functools.wraps(test)
        def run(*args: Any, fault: str | None, **kwargs: Any) -> None:
            if fault is None:
                test(*args, **kwargs)
                return
            with FAULTS[fault](), pytest.raises(failing):
                test(*args, **kwargs)

        wrapped: Any = run_async if inspect.iscoroutinefunction(test) else run
        asked = inspect.signature(test)
        extra = inspect.Parameter("fault", inspect.Parameter.KEYWORD_ONLY)
        wrapped.__signature__ = asked.replace(parameters=[*asked.parameters.values(), extra])
        broken = [pytest.param(fault, id=f"fails under {fault}", marks=pytest.mark.long) for fault in faults]
        marked: Callable[..., Any] = pytest.mark.parametrize("fault", [pytest.param(None, id="holds"), *broken])(
            wrapped
        )
        return marked

    return decorate
