"""The system's Chromium or Firefox, driven by playwright; what it says goes wrong in the page, kept for the test to look at.

`pytest tests/web` is Chromium, and a walk through every view in Firefox; `QUVATLH_TEST_BROWSER=firefox` is all of it in Firefox.
`QUVATLH_TEST_SLOWED=6` is a Chromium on a processor six times slower: what a test does too early fails there first.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.web import between

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page

WIDE = (1360, 860)
PHONE = (390, 844)
PATIENCE_MS = 60_000
"""Nothing waits this long but on a machine that has much else to do."""
CHROMIUM, FIREFOX = "chromium", "firefox"
CHOSEN = os.environ.get("QUVATLH_TEST_BROWSER", CHROMIUM)
SLOWED = float(os.environ.get("QUVATLH_TEST_SLOWED", "1"))
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-precise-memory-info")
_NOTES = """
window.said = [];
new MutationObserver((records) => {
    for (const { target, addedNodes } of records) {
        if (target.id === "notes") window.said.push(...[...addedNodes].map((each) => each.textContent));
    }
}).observe(document, { subtree: true, childList: true });
"""
"""What the page says for four seconds and takes away again is kept, so that nobody has to look just then."""


def missing(which: str = CHOSEN) -> str:
    """What there is not, in words; empty: nothing is missing."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed: pip install -e '.[dev]'"
    if which == FIREFOX and between.program() is None:
        return "there is no Firefox here: apt-get install firefox-esr"
    if which == CHROMIUM and program() is None:
        return "there is no Chromium here: apt-get install chromium"
    return ""


def program() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Tab:
    """One page of a browser, and all that it complained about."""

    page: Page
    context: BrowserContext
    errors: list[str] = field(default_factory=list)
    """Uncaught exceptions and what was written as an error; what the network did is not among it."""
    dialogs: list[str] = field(default_factory=list)
    """alert() and its kin: nothing of ours opens one."""
    forgiven: list[str] = field(default_factory=list)
    """Patterns of errors that a test brings about: they may be told of long after."""

    def watch(self) -> Tab:
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._said)
        self.page.on("dialog", lambda dialog: self.dialogs.append(dialog.message))
        return self

    @property
    def wrong(self) -> list[str]:
        return [each for each in self.errors if not any(re.search(one, each) for one in self.forgiven)]

    def _said(self, said: Any) -> None:
        if said.type == "error" and "Failed to load resource" not in said.text and "net::" not in said.text:
            self.errors.append(said.text)


@contextlib.asynccontextmanager
async def started(which: str = CHOSEN) -> AsyncIterator[Browser]:
    from playwright.async_api import async_playwright

    async with async_playwright() as driver:
        with tempfile.TemporaryDirectory() as directory:
            if which == FIREFOX:
                path = _between(Path(directory))
                browser = await driver.firefox.launch(executable_path=path, channel="moz-firefox")
            else:
                browser = await driver.chromium.launch(executable_path=program(), args=list(_FLAGS))
            try:
                yield browser
            finally:
                await browser.close()


def _between(directory: Path) -> Path:
    """It is started by its path alone."""
    path = directory / "firefox"
    root = Path(__file__).parents[2]
    path.write_text(f'#!/bin/sh\ncd {root} && exec {sys.executable} -m {between.__name__} "$@"\n')
    path.chmod(0o700)
    return path


@contextlib.asynccontextmanager
async def tab(browser: Browser, size: tuple[int, int] = WIDE, scheme: Any = "light") -> AsyncIterator[Tab]:
    context = await browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,
        reduced_motion="reduce",
        has_touch=size == PHONE and browser.browser_type.name == CHROMIUM,
        accept_downloads=True,
    )
    context.set_default_timeout(PATIENCE_MS)
    try:
        await context.add_init_script(_NOTES)
        made = Tab(await context.new_page(), context).watch()
        if SLOWED > 1 and browser.browser_type.name == CHROMIUM:
            devtools = await context.new_cdp_session(made.page)
            await devtools.send("Emulation.setCPUThrottlingRate", {"rate": SLOWED})
        yield made
    finally:
        await context.close()
