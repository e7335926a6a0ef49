from __future__ import annotations

import json
from typing import Any

from tests.web.seen import Seen, expect

QUICK: Any = {"work": {"command": ["true"]}}


async def made(seen: Seen, name: str, rule: str = "0 3 * * 1-5") -> None:
    await seen.at("#/schedules")
    await seen.press("New schedule")
    await seen.dialog.get_by_label("Name").fill(name)
    await seen.dialog.get_by_label("When").fill(rule)
    await seen.dialog.get_by_label("Task, as JSON").fill(json.dumps(QUICK))
    await seen.agree("Make")
    await expect(seen.row(name)).to_be_visible()


async def test_a_schedule_is_made_with_its_rule_read_in_words(seen: Seen) -> None:
    page = await seen.at("#/schedules")
    await expect(page.get_by_text("There are no schedules.")).to_be_visible()
    await seen.press("New schedule")
    await seen.dialog.get_by_label("When").fill("30 4 * * 1-5")
    await expect(seen.dialog).to_contain_text("at 04:30, on Monday to Friday")
    await seen.press("Cancel", seen.dialog)
    await made(seen, "nightly")
    assert (await seen.ask("/v1/schedules/nightly"))["cron"] == "0 3 * * 1-5"


async def test_a_rule_is_read_as_the_node_keeps_it_and_what_cannot_be_is_said(seen: Seen) -> None:
    """Where a field of days begins with a star, both must be; else either."""
    expected = {
        "0 0 */2 * 1": "at 00:00, every 2 days of the month and only on Monday",
        "0 0 1 * */2": "at 00:00, on day 1 of the month and only every 2 days of the week",
        "0 0 1,15 * 1": "at 00:00, on day 1, 15 of the month or on Monday",
        "05 8,20 * * *": "every day at 08:05, 20:05",
        "10-20 9-17 * jan MON-fri": "at minute 10 to 20, in hour 9 to 17, on Monday to Friday, in January",
        "*/5 * * * *": "every 5 minutes",
        "@weekly": "at 00:00, on Sunday",
        "99 99 * * *": "there is no minute 99, only 0 to 59",
        "0 3,24 * * *": "there is no hour 24, only 0 to 23",
        "0 0 0 * *": "there is no day 0, only 1 to 31",
        "0 0 * 1-13 *": "there is no month 13, only 1 to 12",
        "0 0 * * 8": "there is no weekday 8, only 0 to 7",
        "0 0 * * 5-1": "5-1 goes backwards",
        "*/0 * * * *": "a step is 1 or more",
        "0 0 L * *": "",
        "1-2-3 * * * *": "",
        "0 3 * *": "",
    }
    read = """async (lines) => {
        const { read } = await import(new URL('lib/cron.js', document.querySelector('script').src));
        return Object.fromEntries(lines.map((line) => [line, read(line)]));
    }"""
    assert await seen.page.evaluate(read, list(expected)) == expected


async def test_a_schedule_is_run_now_and_its_ledger_shows_it(seen: Seen) -> None:
    await made(seen, "by-hand")
    await seen.press("Run by-hand now")
    await seen.notes("added")
    page = seen.page
    await page.get_by_role("link", name="by-hand").click()
    await expect(page.get_by_role("region", name="Ledger")).to_contain_text("by hand")
    await seen.until("/v1/tasks?state=succeeded", lambda told: told["total"] >= 1)


async def test_a_schedule_is_paused_changed_and_deleted(seen: Seen) -> None:
    await made(seen, "weekly", "0 9 * * 1")
    await seen.press("Pause weekly")
    await seen.until("/v1/schedules/weekly", lambda told: told["paused"])
    await expect(seen.row("weekly")).to_contain_text("paused")
    await seen.press("Resume weekly")
    await seen.until("/v1/schedules/weekly", lambda told: not told["paused"])
    await seen.page.get_by_role("link", name="weekly").click()
    await seen.press("Change…")
    await seen.dialog.get_by_label("When").fill("@every 90m")
    await seen.agree("Change")
    assert (await seen.ask("/v1/schedules/weekly"))["every"] == "90m"
    await seen.press("Delete")
    await seen.agree("Delete")
    await seen.until("/v1/schedules", lambda told: "weekly" not in {one["name"] for one in told["items"]})


async def test_a_rule_that_cannot_be_is_told_and_the_form_stays(seen: Seen) -> None:
    await seen.at("#/schedules")
    await seen.press("New schedule")
    await seen.dialog.get_by_label("Name").fill("never")
    await seen.dialog.get_by_label("When").fill("61 * * * *")
    await seen.press("Make", seen.dialog)
    await expect(seen.dialog.get_by_role("alert")).to_be_visible()
    await seen.press("Cancel", seen.dialog)


async def test_a_change_of_the_rule_leaves_the_task_as_it_was(seen: Seen) -> None:
    task = {"name": "named", "payload_base64": "AAEC", "queue": "night", "expires": "10m", **QUICK}
    await seen.tell("PUT", "/v1/schedules/kept", {"cron": "0 3 * * *", "jitter": "5s", "task": task})
    await seen.at("#/schedules?name=kept")
    before = (await seen.ask("/v1/schedules/kept"))["task"]
    await seen.press("Change…")
    await seen.dialog.get_by_label("When").fill("15 6 * * 0")
    await expect(seen.dialog).to_contain_text("at 06:15, on Sunday")
    await seen.dialog.get_by_label("While the last one has not finished").select_option("queue")
    await seen.dialog.get_by_label("Slots that were missed").select_option("all")
    await seen.dialog.get_by_label("Time zone").fill("Europe/Berlin")
    await seen.agree("Change")
    told = await seen.ask("/v1/schedules/kept")
    assert told["task"] == before
    assert (told["cron"], told["zone"], told["overlap"], told["catchup"], told["jitter"]) == (
        "15 6 * * 0",
        "Europe/Berlin",
        "queue",
        "all",
        "5s",
    )
    await expect(seen.page.get_by_label("kept", exact=True)).to_contain_text("06:15")


async def test_the_ledger_is_a_strip_of_slots_that_lead_to_their_tasks(seen: Seen) -> None:
    await seen.tell("PUT", "/v1/schedules/ticks", {"every": "1s", "task": QUICK})
    page = await seen.at("#/schedules?name=ticks")
    marks = page.locator(".strip a")
    await expect(marks.nth(1)).to_be_visible()
    await seen.press("Pause ticks")
    told = await seen.until("/v1/schedules/ticks", lambda told: told["paused"])
    ledger = (await seen.ask("/v1/schedules/ticks/ledger"))["items"]
    await expect(marks).to_have_count(len([slot for slot in ledger if slot["task"]]))
    await marks.last.click()
    await expect(page).to_have_url(f"{seen.node.url}/#/tasks/{told['last_task']}")
