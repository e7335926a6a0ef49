"""What runs when nothing is named: the quick suite. tests/DESIGN.md says what else there is, and how long it takes."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests import examples
from tests.bytecode import directory_of_its_own

pytest.register_assert_rewrite("tests.contract_log", "tests.support")
examples.register()

# A suite that a shell has put in the background would hand down that SIGINT and SIGQUIT are ignored.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

HERE = Path(__file__).parent
APART = frozenset({HERE / "cluster", HERE / "web"})
"""Run only when the command line names them or something in them."""
LEFT_OUT = pytest.StashKey[int]()
"""How many tests are marked as long and were not asked for."""
BYTECODE = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also what is marked as long, and properties in full")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = 0
    if config.getoption("--long"):
        settings.load_profile("long")
    if made := directory_of_its_own():
        config.stash[BYTECODE] = made


def pytest_unconfigure(config: pytest.Config) -> None:
    if BYTECODE in config.stash:
        shutil.rmtree(config.stash[BYTECODE], ignore_errors=True)


def _named(config: pytest.Config) -> list[Path]:
    return [Path(config.invocation_params.dir, arg.split("::")[0]).resolve() for arg in config.args]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path not in APART:
        return None
    return None if any(path.is_relative_to(collection_path) for path in _named(config)) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whoever names a file, or a test in it, gets all that is in it."""
    if config.getoption("--long"):
        return
    named = set(_named(config))
    left_out = [item for item in items if item.get_closest_marker("long") and item.path not in named]
    if left_out:
        config.stash[LEFT_OUT] = len(left_out)
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def pytest_sessionfinish(session: pytest.Session) -> None:
    told: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["left_out"] = session.config.stash[LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """All workers collect the same."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.stash[LEFT_OUT]:
        terminalreporter.write_line(
            f"{config.stash[LEFT_OUT]} tests that take longer were left out: `pytest --long` runs them too. "
            "Clusters and the browser run when named: `pytest tests/cluster tests/web -n 0`."
        )
