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
_MOVE = """(place) => new Promise((done) => {
    const wanted = new URL(place, location.href).href;
    if (wanted === location.href) return done();
    addEventListener("hashchange", (event) => { if (event.newURL === wanted) setTimeout(done); });
    location.href = wanted;
})"""
_OVERRAN = re.compile("did not answer within|ran over|overran|a moment ago")
_HEARD = """(text) => {
    const at = window.said.findIndex((each) => each.includes(text));
    return at >= 0 && window.said.splice(at, 1).length > 0;
}"""
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
        """Drawn: a browser tells of the new address before the page is told of it."""
        await self.page.evaluate(_MOVE, place)
        return self.page

    async def ask(self, path: str, body: object = None, name: str = "") -> Any:
        told = await asyncio.to_thread(self.node.ask, path, body)
        return told[name] if name else told

    async def tell(self, method: str, path: str, body: object) -> Any:
        """A policy is tried before it is kept, and has half a second for that: on a machine with much else to do it is told
        again."""
        ends = time.monotonic() + PATIENCE_MS / 1000
        while True:
            try:
                return await asyncio.to_thread(scene.change, self.node, method, path, body)
            except AssertionError as problem:
                if not _OVERRAN.search(str(problem)) or time.monotonic() > ends:
                    raise
            await asyncio.sleep(1)

    async def add(self, **task: Any) -> str:
        return str((await self.tell("POST", "/v1/events", {"event": "ADD", "tasks": [task]}))["ids"][0])

    async def until(self, path: str, holds: Callable[[Any], bool]) -> Any:
        """What the interface tells, once it holds."""
        ends = time.monotonic() + PATIENCE_MS / 1000
        while not holds(told := await self.ask(path)):
            assert time.monotonic() < ends, told
            await asyncio.sleep(0.05)
        return told

    async def holds(self, what: str, of: Locator | None = None, given: Any = None) -> None:
        """A function, asked again and again; the driver's own way to wait needs eval, which the page forbids."""
        ends = time.monotonic() + PATIENCE_MS / 1000
        while not await (self.page.evaluate(what, given) if of is None else of.evaluate(what, given)):
            assert time.monotonic() < ends, (what, given)
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
        """Said since the page was loaded, and not heard before."""
        await self.holds(_HEARD, given=text)

    async def drawn(self) -> None:
        """Whatever is to be drawn at the next frame."""
        await self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
