"""What a person does between two frames, and answers that come late: the last word is the person's, and the newest answer's."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Self

import pytest

from tests.web.browser import PATIENCE_MS
from tests.web.seen import Seen, expect

SLEEP: Any = {"command": ["sleep", "60"]}
NEVER: Any = ["no-such-tag"]
SEARCH = "Search tasks"


class Held:
    """Requests that fit are answered only once they are let go."""

    def __init__(self, seen: Seen, fits: str) -> None:
        self._free = asyncio.Event()
        self._came = asyncio.Event()
        self._fits = re.compile(fits)
        self._page = seen.page

    async def __aenter__(self) -> Self:
        await self._page.route(self._fits, self._hold)
        return self

    async def _hold(self, route: Any) -> None:
        self._came.set()
        await self._free.wait()
        await route.continue_()

    async def came(self) -> None:
        await asyncio.wait_for(self._came.wait(), PATIENCE_MS / 1000)

    def let_go(self) -> None:
        self._free.set()

    async def __aexit__(self, *_: object) -> None:
        self.let_go()
        await self._page.unroute_all(behavior="wait")


async def two(seen: Seen) -> None:
    await seen.add(id="is-one", name="is-one", queue="one", tags=NEVER, work=SLEEP)
    await seen.add(id="is-two", name="is-two", queue="two", tags=NEVER, work=SLEEP)


async def test_a_link_that_is_clicked_while_a_search_is_typed_is_followed(seen: Seen) -> None:
    await two(seen)
    page = await seen.at("#/tasks?q=queue%3Aone")
    await expect(seen.row("is-one")).to_be_visible()
    field = page.get_by_role("combobox", name=SEARCH)
    await page.get_by_role("link", name="pending").evaluate("""link => {
        const field = document.querySelector("input[type=search]");
        field.value = "queue:nowhere";
        field.dispatchEvent(new InputEvent("input", {bubbles: true}));
        link.click();
    }""")
    await expect(field).to_have_value("queue:one state:pending")
    await page.wait_for_timeout(700)  # longer than what is typed is waited for
    await expect(field).to_have_value("queue:one state:pending")
    await expect(seen.row("is-one")).to_be_visible()


async def test_a_search_that_is_not_entered_is_searched_for_and_stays_in_the_field(seen: Seen) -> None:
    await two(seen)
    page = await seen.at("#/tasks")
    field = page.get_by_role("combobox", name=SEARCH)
    await field.press_sequentially("queue:two")
    await expect(page).to_have_url(re.compile("queue%3Atwo"))
    await expect(seen.row("is-one")).to_have_count(0)
    await field.press_sequentially(" state:pend")
    await expect(field).to_have_value("queue:two state:pend")
    await expect(page).to_have_url(re.compile("pend"))
    await page.go_back()
    await expect(field).to_have_value("")
    await expect(seen.row("is-one")).to_be_visible()


async def test_each_search_that_is_entered_is_one_step_back(seen: Seen) -> None:
    await two(seen)
    page = await seen.at("#/tasks")
    field = page.get_by_role("combobox", name=SEARCH)
    for text in ("queue:one", "queue:two"):
        await field.fill(text)
        await field.press("Enter")
        await expect(page).to_have_url(re.compile(text.replace(":", "%3A")))
    await page.go_back()
    await expect(field).to_have_value("queue:one")
    await page.go_back()
    await expect(field).to_have_value("")


async def test_the_same_search_said_otherwise_shows_the_same(seen: Seen) -> None:
    await two(seen)
    for text in ("queue%3Aone", "queue%3Aone%20", "queue%3A%22one%22"):
        await seen.at(f"#/tasks?q={text}")
        await expect(seen.row("is-one")).to_be_visible()
        await expect(seen.page.locator("main")).not_to_contain_text("reading…")


async def test_an_answer_to_an_older_search_does_not_overwrite_a_newer_one(seen: Seen) -> None:
    await two(seen)
    await seen.at("#/tasks")
    async with Held(seen, r"/v1/tasks\?.*queue=one.*sort=") as older:
        await seen.at("#/tasks?q=queue%3Aone")
        await older.came()
        await seen.at("#/tasks?q=queue%3Atwo")
        await expect(seen.row("is-two")).to_be_visible()
        older.let_go()
        await expect(seen.row("is-one")).to_have_count(0)
        await expect(seen.row("is-two")).to_be_visible()


async def test_nothing_is_selected_of_a_list_that_is_not_there_yet(seen: Seen) -> None:
    await two(seen)
    page = await seen.at("#/tasks")
    every = page.get_by_role("checkbox", name="select all on this page")
    await expect(every).to_be_enabled()
    async with Held(seen, r"/v1/tasks\?.*queue=one.*sort=") as slow:
        await seen.at("#/tasks?q=queue%3Aone")
        await slow.came()
        await expect(every).to_be_disabled()
        slow.let_go()
        await every.check()
    await expect(page.get_by_text("1 selected")).to_be_visible()


async def test_suggestions_that_come_late_are_not_shown_for_what_is_typed_by_then(seen: Seen) -> None:
    await two(seen)
    page = await seen.at("#/tasks")
    field = page.get_by_role("combobox", name=SEARCH)
    async with Held(seen, r"group_by=queue") as late:
        await field.fill("queue:")
        await late.came()
        await field.fill("sta")
        await expect(page.get_by_role("option", name="state:")).to_be_visible()
        async with page.expect_response(re.compile("group_by=queue")):
            late.let_go()
        await seen.drawn()
        await expect(page.locator("#hints li")).to_have_count(1)


async def test_a_view_that_is_opened_on_a_page_held_still_is_read_once(seen: Seen) -> None:
    await two(seen)
    page = await seen.at("#/queues")
    await expect(seen.row("one")).to_be_visible()
    await seen.press("Pause")
    await page.get_by_role("navigation").get_by_role("link", name="Tasks").click()
    await expect(seen.row("is-one")).to_be_visible()
    await seen.add(name="unseen", queue="three", tags=NEVER, work=SLEEP)
    await page.wait_for_timeout(700)  # some turns of the stream
    await expect(seen.row("unseen")).to_have_count(0)
    await seen.press("Go on")
    await expect(seen.row("unseen")).to_be_visible()


async def test_a_dialog_that_waits_is_left_and_what_was_begun_is_told_when_it_is_over(seen: Seen) -> None:
    await two(seen)
    await seen.at("#/tasks/is-one")
    async with Held(seen, r"/v1/tasks/delete") as slow:
        await seen.press("Delete")
        await seen.dialog.get_by_role("button", name="Delete", exact=True).click()
        await slow.came()
        await seen.press("Leave it to go on", seen.dialog)
        await expect(seen.dialog).to_have_count(0)
        slow.let_go()
        await seen.notes("Delete this task: done")
    await seen.state("is-one", "deleted")


async def test_a_change_sends_only_what_was_changed(seen: Seen) -> None:
    await seen.at("#/workers?name=alpha")
    await seen.press("Change…")
    async with seen.page.expect_request(lambda request: request.method == "PATCH") as sent:
        await seen.dialog.get_by_label("Slots").fill("6")
        await seen.agree("Change")
    assert (await sent.value).post_data_json == {"slots": 6}


async def test_another_view_begins_anew(seen: Seen) -> None:
    """Nothing that was opened in one is in the next, and who is at the content of one is led to that of the next and hears it,
    though both are made of the same things."""
    await two(seen)
    page = await seen.at("#/tasks/is-one")
    await page.get_by_text("as the interface tells it").click()
    await expect(page.locator("details")).to_have_attribute("open", "")
    await page.locator("main").focus()
    await page.evaluate("document.addEventListener('focusin', (event) => { window.led = event.target.id; })")
    await seen.at("#/tasks/is-two")
    assert await page.evaluate("window.led") == "main"
    await expect(page.get_by_role("heading", level=1)).to_have_text("is-two")
    await expect(page.locator("details[open]")).to_have_count(0)


async def test_a_dialog_does_not_outlive_its_view(seen: Seen) -> None:
    await two(seen)
    page = await seen.at("#/queues")
    await seen.press("New queue")
    await page.go_back()
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    await expect(seen.dialog).to_have_count(0)


@pytest.mark.parametrize(
    ("place", "button", "reads"),
    [("#/queues", "New queue", r"/v1/workers$"), ("#/tasks/runs", "Move…", r"/v1/workers$"),
     ("#/cluster", "Make a link", r"/v1/session/link$")],
)  # fmt: skip
async def test_a_dialog_does_not_come_after_its_view(seen: Seen, place: str, button: str, reads: str) -> None:
    """What it takes to ask is read first."""
    await seen.add(id="runs", work=SLEEP)
    await seen.state("runs", "running")
    page = await seen.at(place)
    async with Held(seen, reads) as slow:
        await seen.press(button)
        await slow.came()
        await seen.at("#/schedules")
        await expect(page.get_by_role("heading", name="Schedules")).to_be_visible()
        async with page.expect_event("requestfinished", lambda request: bool(re.search(reads, request.url))):
            slow.let_go()
    await seen.drawn()
    await expect(seen.dialog).to_have_count(0)


async def test_another_hand_in_the_page_does_not_stop_it(seen: Seen) -> None:
    """A translator or an extension takes out what we have drawn: it is drawn anew."""
    page = await seen.at("#/tasks?q=queue%3Ahands")
    await expect(page.get_by_text("No task matches.")).to_be_visible()
    await page.evaluate("document.querySelector('main').replaceChildren()")
    await seen.add(name="comes", queue="hands", tags=NEVER, work=SLEEP)
    await expect(seen.row("comes")).to_be_visible()
