"""For who does not see the page, or uses no mouse: axe-core finds nothing in any view, and what has the focus keeps it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.daemon.program import Program
from tests.web import browser, scene
from tests.web.seen import Seen, expect

pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed: pip install -e '.[dev]'")

from axe_playwright_python.async_playwright import Axe

PLACES = {
    "overview": "#/",
    "tasks": "#/tasks",
    "tasks, none": "#/tasks?q=nothing-such",
    "task that runs": "#/tasks/long",
    "task that waits": "#/tasks/waits-for-a-gpu",
    "task, none": "#/tasks/nobody",
    "failed": "#/failed?by=error&open=exit",
    "queues": "#/queues",
    "queue": "#/queues/images",
    "workers": "#/workers?name=alpha",
    "services": "#/services?group=shop",
    "schedules": "#/schedules?name=nightly",
    "cluster": "#/cluster",
}
SIZES = {"wide": browser.WIDE, "phone": browser.PHONE}
SLEEP: Any = {"command": ["sleep", "60"]}
NEVER: Any = ["no-such-tag"]


async def violations(page: Any) -> list[str]:
    told = (await Axe().run(page)).response["violations"]
    return [
        f"{each['impact']} {each['id']}: {node['target']} {node['html'][:200]} {node.get('failureSummary', '')}"
        for each in told
        for node in each["nodes"]
    ]


@pytest.fixture(scope="module")
def filled(node: Program) -> Program:
    scene.fill(node)
    scene.settle(node)
    return node


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_in_any_view(filled: Program, size: str, scheme: str) -> None:
    found: dict[str, list[str]] = {}
    async with browser.started() as running, browser.tab(running, SIZES[size], scheme) as tab:
        await tab.page.goto(f"{filled.url}/#/")
        await expect(tab.page.get_by_label("Token")).to_be_visible()
        found["log in"] = await violations(tab.page)
        seen = await Seen(filled, tab).entered()
        for name, place in PLACES.items():
            page = await seen.at(place)
            await expect(page.locator("main")).not_to_contain_text("reading…")
            found[name] = await violations(page)
        await seen.at("#/queues")
        await seen.press("New queue")
        found["dialog"] = await violations(seen.page)
        await seen.press("Cancel", seen.dialog)
        await seen.at("#/tasks")
        await seen.page.get_by_role("checkbox", name="select all on this page").check()
        await seen.page.get_by_role("combobox", name="Search tasks").fill("state:")
        await expect(seen.page.get_by_role("option").first).to_be_visible()
        found["suggestions"] = await violations(seen.page)
    wrong = [f"{name}: {each}" for name, told in found.items() for each in told]
    assert not wrong, "\n".join(wrong)


# --- the keyboard ---

FOCUSED = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.id ?? ''"


async def test_the_first_key_leads_past_the_navigation(seen: Seen) -> None:
    page = await seen.at("#/queues")
    await expect(page.get_by_role("button", name="New queue")).to_be_visible()
    await page.evaluate("document.activeElement.blur()")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("button", name="New queue")).to_be_focused()


async def test_what_has_the_focus_keeps_it_while_rows_come_and_go(seen: Seen) -> None:
    for number in range(3):
        await seen.add(id=f"stays-{number}", queue="focus", tags=NEVER, work=SLEEP)
    page = await seen.at("#/tasks?q=queue%3Afocus")
    await page.get_by_role("checkbox", name="select stays-0").focus()
    await page.evaluate("document.addEventListener('focusout', () => { window.left = true; })")
    await seen.add(id="comes", queue="focus", tags=NEVER, work=SLEEP)
    await expect(page.get_by_role("checkbox", name="select comes")).to_be_visible()
    await seen.ask("/v1/queues/focus/purge", {})
    await expect(seen.row("deleted")).to_have_count(4)
    assert await page.evaluate(FOCUSED) == "select stays-0"
    assert await page.evaluate("window.left") is None


async def test_who_has_lost_what_he_was_at_is_at_the_content(seen: Seen) -> None:
    await seen.add(id="goes", queue="gone", tags=NEVER, work=SLEEP)
    page = await seen.at("#/tasks?q=queue%3Agone")
    link = page.get_by_role("row").get_by_role("link", name="goes")
    await link.focus()
    await page.keyboard.press("Enter")
    await expect(page.locator(".headline")).to_be_visible()
    assert await page.evaluate(FOCUSED) == "main"


async def test_a_dialog_holds_the_focus_and_gives_it_back(seen: Seen) -> None:
    page = await seen.at("#/queues")
    await page.get_by_role("button", name="New queue").focus()
    await page.keyboard.press("Enter")
    await expect(seen.dialog.get_by_label("Name")).to_be_focused()
    await expect(page.get_by_role("dialog", name="New queue")).to_be_visible()
    inside = "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
    for _ in range(20):
        await page.keyboard.press("Tab")
        assert await page.evaluate(inside)
    await page.keyboard.press("Escape")
    await expect(seen.dialog).to_have_count(0)
    await expect(page.get_by_role("button", name="New queue")).to_be_focused()


async def test_what_was_wrong_has_the_focus(seen: Seen) -> None:
    await seen.at("#/queues")
    await seen.press("New queue")
    await seen.dialog.get_by_label("Name").fill("keys")
    await seen.dialog.get_by_label("Rate").fill("often")
    await seen.page.keyboard.press("Enter")
    await expect(seen.dialog.get_by_label("Rate")).to_be_focused()
    await expect(seen.dialog.get_by_label("Rate")).to_have_attribute("aria-invalid", "true")


async def unreached(seen: Seen) -> tuple[list[str], bool]:
    """Of what may have the focus that which Tab never gives it; and whether the page put anything else there meanwhile."""
    page = seen.page
    count = await page.evaluate("""() => {
        window.wanted = new Set([...document.querySelectorAll('a, button, input, select, summary')].filter(
            (e) => e.checkVisibility() && e.tabIndex >= 0 && !e.disabled));
        document.activeElement.blur();
        window.changes = new MutationObserver(() => {});
        window.changes.observe(document.body, {childList: true, subtree: true});
        return window.wanted.size;
    }""")
    changed = False
    for _ in range(count + 8):
        await page.keyboard.press("Tab")
        changed |= await page.evaluate(
            "window.wanted.delete(document.activeElement), window.changes.takeRecords().length > 0"
        )
    left: list[str] = await page.evaluate("[...window.wanted].map((e) => e.outerHTML)")
    return left, changed


async def test_all_that_can_be_done_is_reached_by_tab(seen: Seen) -> None:
    """Whatever is a button, link or field comes up while Tab is pressed, and is seen to have the focus."""
    await seen.add(id="reached", tags=NEVER, work=SLEEP)
    for place in ("#/tasks", "#/tasks/reached", "#/queues/default", "#/workers?name=alpha"):
        page = await seen.at(place)
        await expect(page.locator("main")).not_to_contain_text("reading…")
        await seen.press("Pause")
        left, changed = await unreached(seen)
        if (
            left and changed
        ):  # what was on its way when the page was held still came, and may have taken the focus along
            left, _ = await unreached(seen)
        assert left == [], place
        await seen.press("Go on")


async def test_keys_of_one_letter_are_told_and_can_be_turned_off_for_good(seen: Seen) -> None:
    page = await seen.at("#/queues")
    held = page.get_by_role("button", name="Go on")
    await page.keyboard.press("?")
    await expect(seen.dialog).to_contain_text("holds the page still")
    assert await violations(page) == []
    await seen.dialog.get_by_role("checkbox").uncheck()
    await expect(seen.dialog).not_to_contain_text("holds the page still")
    await seen.agree("Done")
    await page.reload()
    await expect(page.get_by_role("button", name="New queue")).to_be_visible()
    for key in ("p", "?", "/"):
        await page.keyboard.press(key)
    await seen.drawn()
    await expect(held).to_have_count(0)
    await expect(seen.dialog).to_have_count(0)
    await expect(page).to_have_url(re.compile("#/queues$"))
    await seen.press("Keys")
    await seen.dialog.get_by_role("checkbox").check()
    await seen.agree("Done")
    await page.evaluate("document.activeElement.blur()")
    await page.keyboard.press("p")
    await expect(held).to_be_visible()


async def test_keys_are_off_for_the_page_where_the_browser_keeps_nothing(seen: Seen) -> None:
    """A full or a private storage is read, and not written."""
    page = await seen.at("#/queues")
    await page.evaluate("() => { Storage.prototype.setItem = () => { throw new DOMException(); }; }")
    await seen.press("Keys")
    await seen.dialog.get_by_role("checkbox").uncheck()
    await seen.agree("Done")
    await page.evaluate("document.activeElement.blur()")
    await page.keyboard.press("p")
    await seen.drawn()
    await expect(page.get_by_role("button", name="Go on")).to_have_count(0)
