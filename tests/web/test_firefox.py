"""A walk through every view in a real Firefox, with what is done in each looked up through the API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.daemon.program import Program
from tests.web import browser
from tests.web.seen import Seen, expect
from tests.web.test_hostile import REFUSED

SLEEP: Any = {"command": ["sleep", "60"]}
ONCE: Any = {"attempts": 1}
NEVER: Any = ["no-such-tag"]


@pytest.fixture(autouse=True)
def _has_firefox() -> None:
    lacking = browser.missing(browser.FIREFOX)
    if lacking:
        pytest.skip(lacking)


@pytest.fixture
async def seen(node: Program) -> AsyncIterator[Seen]:
    async with browser.started(browser.FIREFOX) as running, browser.tab(running) as tab:
        yield await Seen(node, tab).entered()
        assert tab.wrong == []
        assert tab.dialogs == []


async def test_tasks_are_added_found_watched_and_ended(seen: Seen) -> None:
    page = seen.page
    await seen.press("add one from here")
    await expect(seen.row("hello")).to_contain_text("succeeded")
    await seen.add(id="fox", queue="den", retry=ONCE, work={"shell": "echo first; sleep 1; echo second; sleep 60"})
    await seen.add(id="hen", queue="coop", tags=NEVER, work=SLEEP)
    await page.get_by_role("link", name="Tasks", exact=True).click()
    field = page.get_by_role("combobox", name="Search tasks")
    await field.press_sequentially("queue:")
    await expect(page.get_by_role("option", name="den")).to_be_visible()
    await field.press("ArrowDown")
    await expect(page.locator("#hints [aria-selected=true]")).to_have_count(1)
    await page.get_by_role("option", name="coop").click()
    await expect(seen.row("fox")).to_have_count(0)
    await page.get_by_role("checkbox", name="select hen").check()
    await seen.press("Delete")
    await seen.agree("Delete")
    await seen.state("hen", "deleted")
    await seen.at("#/tasks/fox")
    await expect(page.locator(".log")).to_contain_text("second")
    await seen.press("Kill")
    await seen.agree("Kill")
    await seen.state("fox", "failed")
    await seen.at("#/failed?by=queue")
    await page.get_by_role("link", name="den").click()
    await expect(page.get_by_role("link", name="fox")).to_be_visible()
    await seen.press("Retry all of den")
    await seen.agree("Retry")
    await seen.state("fox", "running", "claimed")


async def test_queues_classes_and_workers_are_changed(seen: Seen) -> None:
    page = await seen.at("#/queues")
    await seen.press("New class")
    await seen.dialog.get_by_label("Name").fill("paying")
    await seen.dialog.get_by_label("Rate").fill("3")
    await seen.agree("Make")
    await expect(seen.row("paying")).to_be_visible()
    await seen.press("New queue")
    await seen.dialog.get_by_label("Name").fill("foxes")
    await seen.dialog.get_by_label("Class").fill("paying")
    await seen.agree("Make")
    await seen.press("Pause foxes")
    await seen.until("/v1/queues/foxes", lambda told: told["paused"] and told["class"] == "paying")
    await page.get_by_role("link", name="foxes").first.click()
    await expect(page.get_by_label("Work for it")).to_contain_text("alpha")
    await seen.at("#/workers?name=alpha")
    await seen.press("Drain alpha")
    await seen.agree("Drain")
    await seen.until("/v1/workers/alpha", lambda told: told["state"] == "draining")
    await seen.press("Undrain alpha")
    await seen.until("/v1/workers/alpha", lambda told: told["state"] == "up")
    await seen.press("Change…")
    slots = seen.dialog.get_by_label("Slots")
    await slots.press("ControlOrMeta+a")
    await slots.press_sequentially("7")
    await seen.agree("Change")
    await seen.until("/v1/workers/alpha", lambda told: told["slots"] == 7)


async def test_a_worker_is_moved_by_what_the_browser_tells_of_a_drag(seen: Seen) -> None:
    """The driver of a Firefox without a screen begins a drag and never ends it, on any page: so it is told event by event."""
    await seen.add(queue="dragged", tags=NEVER, work=SLEEP)
    await seen.tell("PATCH", "/v1/workers/alpha", {"queues": ["other", "dragged"]})
    page = await seen.at("#/queues/dragged")
    await expect(page.get_by_label("Work for it")).to_contain_text("alpha")
    await page.evaluate("""() => {
        const dataTransfer = new DataTransfer();
        const tell = (on, kind) => on.dispatchEvent(new DragEvent(kind, {bubbles: true, cancelable: true, dataTransfer}));
        const aim = document.querySelector('[aria-label="Do not"]');
        tell(document.querySelector('.members li'), 'dragstart');
        if (!tell(aim, 'dragover')) tell(aim, 'drop');
    }""")
    await seen.until("/v1/workers/alpha", lambda told: told["queues"] == ["other"])
    await expect(page.get_by_label("Do not")).to_contain_text("alpha")
    await seen.tell("PATCH", "/v1/workers/alpha", {"queues": ["*"]})


async def test_services_schedules_and_the_cluster_are_seen_and_steered(seen: Seen) -> None:
    service = {"kind": "service", "limit": 2, "slots": 0, "group": "shop", "work": SLEEP}
    await seen.add(id="web", name="web", **service)
    page = await seen.at("#/services?group=shop")
    await expect(page.get_by_label("Services", exact=True).first).to_contain_text("2 of 2")
    await seen.press("Balance shop")
    await seen.notes("even already")
    await seen.press("Delete web")
    await seen.agree("Delete")
    await seen.state("web", "deleted")
    await seen.at("#/schedules")
    await seen.press("New schedule")
    await seen.dialog.get_by_label("Name").fill("nightly")
    await seen.dialog.get_by_label("When").fill("30 4 * * 1-5")
    await expect(seen.dialog).to_contain_text("at 04:30, on Monday to Friday")
    await seen.agree("Make")
    await seen.press("Run nightly now")
    await seen.until("/v1/schedules/nightly/ledger", lambda told: len(told["items"]) == 1)
    await page.get_by_role("link", name="nightly").click()
    await expect(page.get_by_role("region", name="Ledger")).to_contain_text("by hand")
    await seen.at("#/cluster")
    await seen.press("Make a link")
    link = await seen.dialog.locator("code").inner_text()
    await seen.agree("Done")
    await seen.press("Log out")
    await expect(page.get_by_label("Token")).to_be_visible()
    await page.goto(link)
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()


async def test_the_page_is_held_still_and_goes_on(seen: Seen) -> None:
    await seen.at("#/tasks?q=queue%3Astill")
    await expect(seen.page.get_by_text("No task matches.")).to_be_visible()
    await seen.press("Pause")
    await seen.add(name="unseen", queue="still", tags=NEVER, work=SLEEP)
    await seen.page.wait_for_timeout(700)  # some turns of the stream
    await expect(seen.row("unseen")).to_have_count(0)
    await seen.press("Go on")
    await expect(seen.row("unseen")).to_be_visible()


async def test_words_of_strangers_are_text_and_the_policy_of_the_page_holds(seen: Seen) -> None:
    text = "<img src=x onerror=window.pwned=1>"
    await seen.add(id="hostile", name=text, key=text, retry=ONCE, work={"shell": f"echo '{text}'; exit 1"})
    await seen.state("hostile", "failed")
    page = await seen.at("#/tasks/hostile")
    await expect(page.get_by_role("heading", level=1)).to_have_text(text)
    await expect(page.locator(".log")).to_contain_text(text)
    tried = """() => {
        const script = document.createElement('script');
        try { script.textContent = 'window.pwned = 1'; } catch { /* refused */ }
        document.body.append(script);
        const stays = document.createElement('p');
        try { stays.innerHTML = '<b>x</b>'; } catch { /* refused */ }
        return [typeof window.pwned, stays.childElementCount, document.querySelectorAll('main img').length];
    }"""
    seen.tab.forgiven.append(REFUSED)
    assert await page.evaluate(tried) == ["undefined", 0, 0]
