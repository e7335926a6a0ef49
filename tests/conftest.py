"""What runs when nothing is named: everything but the suites that take minutes."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.contract_log", "tests.support")

# No timing is asserted in a test: a machine with other work on it is no fault of a property.
settings.register_profile("quvatlh", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quvatlh")

# A suite that a shell has put in the background would hand down that SIGINT and SIGQUIT are ignored.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

HERE = Path(__file__).parent
LONG = frozenset({HERE / "cluster", HERE / "web"})
"""Run only when the command line names them or something in them."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path not in LONG:
        return None
    named = [Path(config.invocation_params.dir, arg.split("::")[0]).resolve() for arg in config.args]
    return None if any(path.is_relative_to(collection_path) for path in named) else True
