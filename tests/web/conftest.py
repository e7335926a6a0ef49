"""One node and one browser for a file of tests: both take a second to start. Each test has a tab and tasks of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.daemon.program import Program
from tests.web import browser
from tests.web.browser import Tab

if TYPE_CHECKING:
    from tests.web.seen import Seen


@pytest.fixture(autouse=True)
def _has_a_browser() -> None:
    lacking = browser.missing()
    if lacking:
        pytest.skip(lacking)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    flags = ("--name", "alpha", "--slots", "4", "--tags", "zone=eu-1")
    program = Program(tmp_path_factory.mktemp("node"), *flags)
    try:
        yield program.listening().ready()
    finally:
        program.kill()


@pytest.fixture
async def tab() -> AsyncIterator[Tab]:
    async with browser.started() as running, browser.tab(running) as made:
        yield made
        assert made.wrong == []
        assert made.dialogs == []


@pytest.fixture
async def seen(node: Program, tab: Tab) -> Seen:
    """Logged in, and at the overview."""
    from tests.web.seen import Seen

    return await Seen(node, tab).entered()
