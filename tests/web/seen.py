"""A person before the dashboard of one node: what he clicks, and what the interface says came of it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed: pip install -e '.[dev]'")

from playwright.async_api import Locator, Page, expect

from tests.daemon.program import Program
from tests.web import scene
from tests.web.browser import PATIENCE_MS, Tab

expect.set_options(timeout=PATIENCE_MS)
__all__ = ["Seen", "expect"]


class Seen:
    def __init__(self, node: Program, tab: Tab) -> None:
        self.node = node
        self.tab = tab
        self.page: Page = tab.page

    async def entered(self) -> Seen:
        await self.page.goto(self.node.url + await self.ask("/v1/session/link", {}, "url"))
        await expect(self.page.get_by_role("navigation")).to_be_visible()
        return self

    async def at(self, place: str) -> Page:
        await self.page.goto(f"{self.node.url}/{place}")
        return self.page

    async def ask(self, path: str, body: object = None, name: str = "") -> Any:
        told = await asyncio.to_thread(self.node.ask, path, body)
        return told[name] if name else told

    async def tell(self, method: str, path: str, body: object) -> Any:
        return await asyncio.to_thread(scene.change, self.node, method, path, body)

    async def add(self, **task: Any) -> str:
        return await asyncio.to_thread(lambda: self.node.add(**task))

    async def until(self, path: str, holds: Callable[[Any], bool]) -> Any:
        """What the interface tells, once it holds."""
        ends = time.monotonic() + PATIENCE_MS / 1000
        while not holds(told := await self.ask(path)):
            assert time.monotonic() < ends, told
            await asyncio.sleep(0.05)
        return told

    async def holds(self, element: Locator, what: str) -> None:
        """A function of it, asked again and again; the driver's own way to wait needs eval, which the page forbids."""
        ends = time.monotonic() + PATIENCE_MS / 1000
        while not await element.evaluate(what):
            assert time.monotonic() < ends, what
            await asyncio.sleep(0.05)

    async def state(self, task: str, *states: str) -> Any:
        return await self.until(f"/v1/tasks/{task}", lambda told: told["state"] in states)

    # --- clicks ---

    async def press(self, words: str, within: Page | Locator | None = None) -> None:
        await (within or self.page).get_by_role("button", name=words, exact=True).first.click()

    @property
    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog")

    async def agree(self, words: str) -> None:
        """To what the dialog asks."""
        await self.dialog.get_by_role("button", name=words, exact=True).click()
        await expect(self.dialog).to_have_count(0)

    def row(self, text: str) -> Locator:
        return self.page.get_by_role("row").filter(has_text=re.compile(re.escape(text)))

    async def notes(self, text: str) -> None:
        await expect(self.page.locator("#notes")).to_contain_text(text)
