from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

from tests.web.seen import Seen, expect
from tests.web.test_races import Held

SLEEP: Any = {"command": ["sleep", "60"]}
FAIL: Any = {"shell": "echo no luck >&2; exit 3"}
ONCE: Any = {"attempts": 1}
NEVER: Any = ["no-such-tag"]
"""Tags that keep a task waiting."""
AT_END = "(e) => e.scrollHeight - e.scrollTop - e.clientHeight < 2"


async def opened(seen: Seen, task: str) -> None:
    await seen.at(f"#/tasks/{task}")
    await expect(seen.page.locator(".headline")).to_be_visible()


async def test_the_first_task_is_added_by_a_click_and_seen_to_end(seen: Seen) -> None:
    await expect(seen.page.get_by_text("Nothing has been added yet")).to_be_visible()
    await seen.press("add one from here")
    await expect(seen.row("hello")).to_contain_text("succeeded")
    await expect(seen.page.get_by_text("Nothing has been added yet")).to_have_count(0)


async def test_a_list_follows_what_happens(seen: Seen) -> None:
    await seen.at("#/tasks?q=queue%3Alive")
    await expect(seen.page.get_by_text("No task matches.")).to_be_visible()
    await seen.add(name="comes", queue="live", work=SLEEP)
    await expect(seen.row("comes")).to_contain_text("running")
    await seen.ask("/v1/tasks/delete", {"match": {"queue": "live"}})
    await expect(seen.row("comes")).to_contain_text("deleted")


async def test_a_search_is_typed_with_the_help_of_suggestions(seen: Seen) -> None:
    await seen.add(name="wanted", queue="emails", tags=NEVER, work=SLEEP)
    await seen.add(name="other", queue="images", tags=NEVER, work=SLEEP)
    page = await seen.at("#/tasks")
    field = page.get_by_role("combobox", name="Search tasks")
    await field.press_sequentially("que")
    await expect(page.get_by_role("option", name="queue:")).to_be_visible()
    await field.press("ArrowDown")
    await field.press("Enter")
    await expect(page.get_by_role("option", name="emails")).to_contain_text("1 task")
    await page.get_by_role("option", name="emails").click()
    await expect(seen.row("wanted")).to_be_visible()
    await expect(seen.row("other")).to_have_count(0)
    await expect(page).to_have_url(re.compile("queue%3Aemails"))
    await field.fill("state:pending wanted")
    await field.press("Enter")
    await expect(seen.row("wanted")).to_be_visible()
    await field.fill("no such thing")
    await field.press("Enter")
    await expect(page.get_by_text("No task matches.")).to_be_visible()
    await page.get_by_role("link", name="All tasks").click()
    await expect(seen.row("other")).to_be_visible()


async def test_a_field_that_there_is_not_is_named_where_nothing_is_found(seen: Seen) -> None:
    page = await seen.at("#/tasks?q=stat%3Afailed")
    await expect(page.get_by_text("is no field, and was looked for as text")).to_contain_text("stat:")
    await seen.at("#/tasks?q=queue%3Anobodys")
    await expect(page.get_by_text("No task matches.")).to_be_visible()
    await expect(page.get_by_text("is no field")).to_have_count(0)


async def test_a_search_entered_before_the_next_frame_is_the_one_that_was_typed(seen: Seen) -> None:
    await seen.add(name="quick", queue="emails", tags=NEVER, work=SLEEP)
    page = await seen.at("#/tasks")
    await expect(seen.row("quick")).to_be_visible()
    await page.get_by_role("combobox", name="Search tasks").evaluate("""field => {
        field.value = "queue:nowhere";
        field.dispatchEvent(new InputEvent("input", {bubbles: true}));
        field.form.requestSubmit();
    }""")
    await expect(page.get_by_text("No task matches.")).to_be_visible()
    await expect(page).to_have_url(re.compile("queue%3Anowhere"))


async def turned(seen: Seen, kind: str, verb: str, name: str) -> None:
    """Page by page until this one is listed: where the node is slow, a page ends early."""
    first = seen.page.get_by_role("link", name=re.compile("^sorted-")).first
    while True:
        before = await first.inner_text()
        await seen.page.get_by_role(kind, name=verb).click()  # type: ignore[arg-type]
        await expect(first).not_to_have_text(before)
        if await seen.row(name).count():
            return


async def test_pages_go_on_and_back_and_are_sorted(seen: Seen) -> None:
    for number in range(60):
        await seen.add(name=f"sorted-{number:02}", queue="pages", priority=number, tags=NEVER, work=SLEEP)
    page = await seen.at("#/tasks?q=queue%3Apages&sort=priority")
    await expect(seen.row("sorted-00")).to_be_visible()
    await turned(seen, "link", "Next page", "sorted-59")
    await turned(seen, "button", "Back", "sorted-00")
    await seen.press("Priority")
    await expect(seen.row("sorted-59")).to_be_visible()
    await expect(page).to_have_url(re.compile("sort=-priority"))
    await turned(seen, "link", "Next page", "sorted-00")
    second = page.url
    await page.goto("about:blank")
    await page.goto(second)
    await seen.press("Back")  # from a link of its own there is no other page to go back to
    await expect(seen.row("sorted-59")).to_be_visible()
    await seen.ask("/v1/tasks/delete", {"match": {"queue": "pages"}})


async def test_what_is_selected_is_moved_as_what_it_is_wherever_it_is_listed_by_then(seen: Seen) -> None:
    """Between workers, as what runs is: only what has failed is moved into another queue."""
    runs = [await seen.add(id=f"rides-{n}", queue="rides", priority=9, work=SLEEP) for n in range(2)]
    failed = await seen.add(id="rides-failed", queue="rides", priority=9, retry=ONCE, work=FAIL)
    waiting = [{"queue": "rides", "tags": NEVER, "work": SLEEP} for _ in range(60)]
    await seen.ask("/v1/events", {"event": "ADD", "tasks": waiting})
    await seen.state(failed, "failed")
    for task in runs:
        await seen.state(task, "running")
    page = await seen.at("#/tasks?q=queue%3Arides&sort=-priority")
    for task in runs:
        await page.get_by_role("checkbox", name=f"select {task}").check()
    await page.get_by_role("link", name="Next page").click()
    await expect(seen.row("rides-0")).to_have_count(0)
    await seen.press("Move…")
    await expect(seen.dialog.get_by_label("To")).to_be_visible()
    await expect(seen.dialog.get_by_label("Queue")).to_have_count(0)
    await seen.press("Cancel", seen.dialog)
    await seen.at("#/tasks?q=queue%3Arides+state%3Arunning")
    for task in runs:
        await page.get_by_role("checkbox", name=f"select {task}").check()
    await seen.ask("/v1/tasks/kill", {"ids": runs})
    await expect(page.get_by_text("No task matches.")).to_be_visible()
    await seen.press("Move…")
    await expect(seen.dialog.get_by_label("Queue")).to_be_visible()
    await seen.press("Cancel", seen.dialog)
    await seen.ask("/v1/tasks/delete", {"match": {"queue": "rides"}})


async def test_selected_tasks_are_deleted_and_the_others_are_not(seen: Seen) -> None:
    ids = [await seen.add(name=f"pick-{n}", queue="some", tags=NEVER, work=SLEEP) for n in range(4)]
    page = await seen.at("#/tasks?q=queue%3Asome")
    for task in ids[:2]:
        await page.get_by_role("checkbox", name=f"select {task}").check()
    await expect(page.get_by_text("2 selected")).to_be_visible()
    await seen.press("Delete")
    await expect(seen.dialog).to_contain_text("Delete 2 tasks?")
    await seen.agree("Delete")
    await seen.notes("2 of 2 deleted")
    states = [(await seen.ask(f"/v1/tasks/{task}"))["state"] for task in ids]
    assert states == ["deleted", "deleted", "pending", "pending"]


async def test_all_that_match_are_changed_with_progress(seen: Seen) -> None:
    tasks = [{"name": f"many-{n}", "queue": "many", "tags": NEVER, "work": SLEEP} for n in range(1200)]
    await seen.ask("/v1/events", {"event": "ADD", "tasks": tasks})
    page = await seen.at("#/tasks?q=queue%3Amany")
    await page.get_by_role("checkbox", name="select all on this page").check()
    await expect(page.get_by_text("50 selected")).to_be_visible()
    await seen.press("Select all 1,200 that match")
    await seen.press("Change…")
    await seen.dialog.get_by_label("Queue").fill("moved")
    await seen.dialog.get_by_label("Priority").fill("7")
    await seen.agree("Change")
    await seen.notes("1,200 of 1,200 changed")
    page_of = await seen.ask("/v1/tasks?queue=moved&limit=1")
    assert (page_of["total"], page_of["items"][0]["priority"]) == (1200, 7)
    await seen.at("#/tasks?q=queue%3Amoved")
    await page.get_by_role("checkbox", name="select all on this page").check()
    await seen.press("Select all 1,200 that match")
    await seen.press("Delete")
    await seen.agree("Delete")
    await seen.until("/v1/tasks?queue=moved&state=pending", lambda told: told["total"] == 0)


async def test_a_running_task_is_watched_and_killed(seen: Seen) -> None:
    task = await seen.add(
        id="talks", retry=ONCE, payload={"year": 2026}, work={"shell": "echo first; sleep 1; echo second; sleep 60"}
    )
    await opened(seen, task)
    page = seen.page
    await expect(page.locator(".log")).to_contain_text("first")
    await expect(page.locator(".log")).to_contain_text("second")
    await expect(page.get_by_label("Payload")).to_contain_text("2026")
    await expect(page.locator(".timeline")).to_contain_text("try 1 began on alpha")
    await seen.press("Kill")
    await seen.agree("Kill")
    await seen.state(task, "failed")
    await expect(page.locator(".headline")).to_contain_text("failed")
    await expect(page.get_by_label("Error", exact=True)).to_contain_text("killed")


async def test_a_log_with_a_gap_says_so_and_goes_on_to_its_end(seen: Seen) -> None:
    task = await seen.add(id="floods", retry=ONCE, work={"shell": "seq 1 2500000; echo the end"})
    await seen.state(task, "succeeded")
    await opened(seen, task)
    await expect(seen.page.locator(".log")).to_contain_text("the end")
    await expect(seen.page.get_by_text("bytes in the middle are not kept")).to_be_visible()
    end = await seen.page.get_by_role("link", name="Save the end").get_attribute("href")
    assert end is not None
    assert "offset=" in end


async def test_a_failed_task_tells_its_error_and_is_retried(seen: Seen) -> None:
    task = await seen.add(id="fails", retry=ONCE, work=FAIL)
    await seen.state(task, "failed")
    await opened(seen, task)
    page = seen.page
    await expect(page.get_by_label("Error", exact=True)).to_contain_text("exit status 3")
    await page.get_by_role("tab", name="stderr").click()
    await expect(page.locator(".log")).to_contain_text("no luck")
    await seen.press("Retry")
    await seen.agree("Retry")
    await seen.until(f"/v1/tasks/{task}/actions", lambda told: told["total"] == 2)
    await expect(page.locator(".timeline")).to_contain_text("try 2 failed")


async def test_a_waiting_task_says_why_and_is_changed_so_that_it_runs(seen: Seen) -> None:
    task = await seen.add(id="waits", tags=["zone=us-*"], work={"command": ["true"]})
    await opened(seen, task)
    why = seen.page.get_by_label("Why it is not running")
    await expect(why).to_contain_text("zone=us-*")
    await expect(why).to_contain_text(
        "give a worker a tag that matches zone=us-*: quvatlh worker set alpha --tags TAGS"
    )
    await expect(seen.row("alpha").first).to_contain_text("lacks a tag it asks for")
    await seen.press("Change…")
    await seen.dialog.get_by_label("Tags").fill("zone=eu-*")
    await seen.agree("Change")
    await seen.state(task, "succeeded")
    await expect(why).to_have_count(0)


async def test_all_that_can_be_changed_of_a_task_can_be_set_and_taken_away(seen: Seen) -> None:
    task = await seen.add(id="remade", tags=NEVER, work=SLEEP)
    await opened(seen, task)
    given = {
        "Queue": "made",
        "Priority": "-3",
        "Tags": "gpu zone=us-*",
        "Not before": "2040-01-31T08:00:00Z",
        "Expires": "2041-01-31T08:00:00Z",
        "Limit": "7",
        "Kept when it is over": "12h",
    }
    await seen.press("Change…")
    for label, value in given.items():
        await seen.dialog.get_by_label(label, exact=True).fill(value)
    await seen.agree("Change")
    told = await seen.ask(f"/v1/tasks/{task}")
    assert (told["queue"], told["priority"], told["tags"]) == ("made", -3, ["gpu", "zone=us-*"])
    assert (told["state"], told["at"]) == ("scheduled", "2040-01-31T08:00:00.000Z")
    assert (told["expires"], told["limit"], told["keep"]) == ("2041-01-31T08:00:00.000Z", 7, "12h")
    await seen.press("Change…")
    await seen.dialog.get_by_label("Tags", exact=True).fill("not this")
    for label in ("For any worker", "At once, whatever", "Never expires", "However many", "Kept as long as others"):
        await seen.dialog.get_by_label(label).check()
    await expect(seen.dialog.get_by_label("Tags", exact=True)).to_have_count(0)
    await seen.agree("Change")
    told = await seen.state(task, "running")
    assert (told["tags"], told["expires"], told["limit"], told["keep"]) == ([], None, None, None)
    assert (told["queue"], told["priority"]) == ("made", -3)
    await seen.ask("/v1/tasks/delete", {"ids": [task]})


async def test_a_wrong_change_is_told_beside_its_field_and_the_form_stays(seen: Seen) -> None:
    task = await seen.add(id="wrong", tags=NEVER, work=SLEEP)
    await opened(seen, task)
    await seen.press("Change…")
    await seen.dialog.get_by_label("Limit").fill("0")
    await seen.press("Change", seen.dialog)
    await expect(seen.dialog.get_by_role("alert")).to_contain_text("limit must be")
    await seen.press("Cancel", seen.dialog)
    await expect(seen.dialog).to_have_count(0)
    assert (await seen.ask(f"/v1/tasks/{task}"))["limit"] is None


async def test_a_waiting_task_is_deleted(seen: Seen) -> None:
    task = await seen.add(id="goes", tags=NEVER, work=SLEEP)
    await opened(seen, task)
    await seen.press("Delete")
    await seen.agree("Delete")
    await seen.state(task, "deleted")
    await expect(seen.page.locator(".headline")).to_contain_text("deleted")


async def test_a_task_that_is_not_there_is_said_to_be_not_there(seen: Seen) -> None:
    await seen.at("#/tasks/nobody")
    await expect(seen.page.get_by_role("alert")).to_contain_text("there is no task nobody")


async def test_pause_holds_the_page_still_and_says_how_old_it_is(seen: Seen) -> None:
    await seen.at("#/tasks?q=queue%3Astill")
    await expect(seen.page.get_by_text("No task matches.")).to_be_visible()
    await seen.press("Pause")
    await seen.add(name="unseen", queue="still", tags=NEVER, work=SLEEP)
    await expect(seen.page.get_by_text(re.compile(r"paused · ([2-9]|\d\d)"))).to_be_visible()
    await expect(seen.row("unseen")).to_have_count(0)
    await seen.press("Go on")
    await expect(seen.row("unseen")).to_be_visible()
    age = seen.page.get_by_text(re.compile(r"^live, \d+ s$"))
    await expect(age).to_be_visible()
    assert await age.evaluate("(e) => e.closest('[role=status], [aria-live]') === null")
    async with Held(seen, "/v1/tasks"):  # what changed and is not read yet grows old, and that is what is told
        await seen.add(name="late", queue="still", tags=NEVER, work=SLEEP)
        await expect(seen.page.get_by_text(re.compile(r"^live, ([3-9]|\d\d) s$"))).to_be_visible()
    await expect(seen.row("late")).to_be_visible()
    await expect(seen.page.get_by_text(re.compile(r"^live, [0-2] s$"))).to_be_visible()


async def test_selected_tasks_are_killed_begun_anew_and_moved(seen: Seen) -> None:
    runs = await seen.add(id="bulk-runs", queue="verbs", retry=ONCE, work=SLEEP)
    failed = await seen.add(id="bulk-failed", queue="verbs", retry=ONCE, work=FAIL)
    waits = await seen.add(id="bulk-waits", queue="verbs", tags=NEVER, work=SLEEP)
    await seen.state(runs, "running")
    await seen.state(failed, "failed")
    page = await seen.at("#/tasks?q=queue%3Averbs")
    for task, verb, words in ((failed, "Retry", "begun anew"), (runs, "Kill", "killed")):
        await page.get_by_role("checkbox", name=f"select {task}").check()
        await seen.press(verb)
        await seen.agree(verb)
        await seen.notes(f"1 of 1 {words}")
        await expect(page.get_by_text("1 selected")).to_have_count(0)
    await seen.state(runs, "failed")
    await seen.until(f"/v1/tasks/{failed}/actions", lambda told: told["total"] == 2)
    await page.get_by_role("checkbox", name=f"select {waits}").check()
    await seen.press("Move…")
    await seen.dialog.get_by_label("To").select_option("alpha")
    await seen.agree("Move")
    await seen.notes("1 of 1 moved")
    await expect(page.get_by_text("1 selected")).to_have_count(0)
    await page.get_by_role("checkbox", name=f"select {waits}").check()
    await seen.press("Clear")
    await expect(page.get_by_role("checkbox", name=f"select {waits}")).not_to_be_checked()


async def test_tries_and_streams_are_chosen_and_a_log_is_saved(seen: Seen) -> None:
    shell = "echo out $QUVATLH_ATTEMPT; echo err $QUVATLH_ATTEMPT >&2; exit 3"
    retry = {"attempts": 2, "first": "100ms"}
    task = await seen.add(id="tries", retry=retry, work={"shell": shell})
    await seen.state(task, "failed")
    await opened(seen, task)
    page = seen.page
    await expect(page.locator(".log")).to_have_text("out 2\n")
    await page.get_by_label("Try").select_option("try 1, alpha")
    await expect(page.locator(".log")).to_have_text("out 1\n")
    await page.get_by_role("tab", name="stderr").click()
    await expect(page.locator(".log")).to_have_text("err 1\n")
    async with page.expect_download() as saved:
        await page.get_by_role("link", name="Save").click()
    assert (await (await saved.value).path()).read_text() == "err 1\n"


async def test_who_writes_to_stderr_alone_is_read_there_until_a_person_chooses(seen: Seen) -> None:
    await seen.add(id="aside", retry=ONCE, work={"shell": "echo to stderr >&2; sleep 60"})
    await opened(seen, "aside")
    page = seen.page
    log = page.locator(".log")
    await expect(log).to_have_text("to stderr\n")
    await expect(page.get_by_role("tab", name="stderr")).to_have_attribute("aria-selected", "true")
    await page.get_by_role("tab", name="stdout").click()
    await expect(log).to_have_text("nothing written to stdout")
    await page.wait_for_timeout(1000)
    await expect(page.get_by_role("tab", name="stdout")).to_have_attribute("aria-selected", "true")
    await seen.ask("/v1/tasks/delete", {"ids": ["aside"]})


async def test_a_long_log_is_followed_at_its_end_until_one_scrolls_up(seen: Seen, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    shell = f"for i in $(seq 6000); do echo line $i; done; read go < {fifo}; echo more; sleep 60"
    await seen.add(id="much", retry=ONCE, work={"shell": shell})
    await opened(seen, "much")
    log = seen.page.locator(".log")
    await expect(log).to_contain_text("line 6000")
    await expect(seen.page.get_by_text("before them are in the file")).to_be_visible()
    await seen.holds(AT_END, log)
    await log.evaluate("(e) => { e.scrollTop = 0; }")
    await seen.holds("(e) => e.scrollTop === 0", log)
    await asyncio.to_thread(fifo.write_text, "go\n")
    await expect(log).to_contain_text("more")
    assert not await log.evaluate(AT_END)
    await log.evaluate("(e) => { e.scrollTop = e.scrollHeight; }")
    await seen.holds(AT_END, log)
    await seen.ask("/v1/tasks/delete", {"ids": ["much"]})


async def test_a_task_tells_its_policy_result_and_how_far_it_is(seen: Seen) -> None:
    await seen.tell(
        "PUT", "/v1/policies/big-ones", {"source": "function(state, task) return (state.free_slots or 0) > 99 end"}
    )
    await seen.add(id="asks", policy={"name": "big-ones"}, work=SLEEP)
    await opened(seen, "asks")
    await expect(seen.page.get_by_label("Policy")).to_contain_text("> 99 end")
    await expect(seen.page.get_by_label("Why it is not running")).to_contain_text("no worker's policy wants it")
    await expect(seen.row("alpha").last).to_have_text("alphaits policy does not bid here")
    await seen.add(id="tells", work={"python": "json:loads", "args": ['{"answer": 42}']})
    await seen.state("tells", "succeeded")
    await opened(seen, "tells")
    await expect(seen.page.get_by_label("Result")).to_contain_text("42")
    await seen.add(id="raises", retry=ONCE, work={"python": "json:loads", "args": ["{"]})
    await seen.state("raises", "failed")
    await opened(seen, "raises")
    await expect(seen.page.get_by_label("Error", exact=True)).to_contain_text("Traceback")
    await expect(seen.page.get_by_label("Error", exact=True)).to_contain_text("JSONDecodeError")


async def test_a_task_that_is_tried_again_says_when(seen: Seen) -> None:
    await seen.add(id="again", retry={"attempts": 3, "first": "12m"}, work={"shell": "exit 3"})
    await seen.state("again", "retrying")
    await opened(seen, "again")
    await expect(seen.page.locator(".headline")).to_contain_text(re.compile(r"next try in 1\d m"))
    why = seen.page.get_by_label("Why it is not running")
    await expect(why).to_contain_text("its try 1 failed, and the next one begins in")
    await expect(why.locator("dd")).to_have_text(re.compile("^in [^(]*$"))
    await seen.ask("/v1/tasks/delete", {"ids": ["again"]})


async def test_the_place_of_a_waiting_task_and_its_time_are_told(seen: Seen) -> None:
    await seen.tell("PATCH", "/v1/queues/lined", {"limit": 1})
    first = await seen.add(queue="lined", work=SLEEP)
    await seen.state(first, "running")
    for number in range(3):
        await seen.add(id=f"line-{number}", queue="lined", work=SLEEP)
    await opened(seen, "line-2")
    why = seen.page.get_by_label("Why it is not running")
    await expect(why).to_contain_text("limit")
    await expect(why).to_contain_text("Before it2")
    await why.get_by_role("link", name=first).click()
    await expect(seen.page.locator(".headline")).to_contain_text("running")
    await seen.add(id="timed", at="2h", work=SLEEP)
    await opened(seen, "timed")
    await expect(seen.page.locator(".headline")).to_contain_text("due in")
    await seen.ask("/v1/tasks/delete", {"match": {"queue": "lined"}})
