"""What failed: in groups by each field, and a whole group retried, moved, deleted by clicking."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.web.seen import Seen, expect

ONCE: Any = {"attempts": 1}
PROGRESS = """() => {
    window.progress = 0;
    new MutationObserver(() => { window.progress = Math.max(window.progress, document.querySelector("progress")?.max ?? 0); })
        .observe(document.body, {subtree: true, childList: true, attributes: true});
}"""


async def failing(seen: Seen, count: int, queue: str, shell: str = "exit 4", **more: Any) -> list[str]:
    ids = [
        await seen.add(name=f"{queue}-{n}", queue=queue, retry=ONCE, work={"shell": shell}, **more)
        for n in range(count)
    ]
    for task in ids:
        await seen.state(task, "failed")
    return ids


async def states(seen: Seen, ids: list[str]) -> list[str]:
    return [(await seen.ask(f"/v1/tasks/{each}"))["state"] for each in ids]


async def clear(seen: Seen) -> None:
    await seen.ask("/v1/tasks/delete", {"match": {"state": "failed"}})


async def test_they_are_grouped_by_every_field_with_counts_and_bars(seen: Seen) -> None:
    await clear(seen)
    await failing(seen, 2, "crash", "kill -9 $$", group="shop")
    await failing(seen, 3, "exits", group="lab")
    page = await seen.at("#/failed")
    expected = {
        "error": {"signal": 2, "exit": 3},
        "queue": {"crash": 2, "exits": 3},
        "name": {"crash-0": 1, "exits-2": 1},
        "group": {"shop": 2, "lab": 3},
        "worker": {"alpha": 5},
    }
    for by, groups in expected.items():
        await page.get_by_role("tab", name=by, exact=True).click()
        for value, count in groups.items():
            row = seen.row(value).first
            await expect(row.locator(".bar")).to_contain_text(str(count))
            said = re.compile(rf"^{count} in the last 24 hours, \d in this one$")
            await expect(row.get_by_role("img")).to_have_attribute("aria-label", said)
            assert await row.locator("rect.some").count() in {1, 2}  # an hour may end meanwhile
        told = await seen.ask(f"/v1/tasks?state=failed&group_by={by}")
        found = {group["value"]: group["count"] for group in told["groups"]}
        assert groups.items() <= found.items()


@pytest.mark.parametrize("where", ["the list", "the opened group"])
async def test_all_of_a_group_are_deleted_and_listed_as_deleted(seen: Seen, where: str) -> None:
    ids = await failing(seen, 3, "gone")
    (other,) = await failing(seen, 1, "stays")
    page = await seen.at("#/failed?by=queue")
    if where == "the opened group":
        await page.get_by_role("link", name="gone").click()
        await expect(page.get_by_role("link", name="gone-2")).to_be_visible()
        await seen.press("Delete all of gone", page.get_by_label("Tasks of gone"))
    else:
        await seen.press("Delete all of gone")
    await expect(seen.dialog).to_contain_text("Delete all 3 tasks of queue gone?")
    await seen.press("Cancel", seen.dialog)
    assert await states(seen, ids) == ["failed"] * 3
    await seen.press("Delete all of gone")
    await seen.agree("Delete")
    await seen.notes("3 of 3 deleted")
    assert await states(seen, [*ids, other]) == ["deleted"] * 3 + ["failed"]
    assert (await seen.ask(f"/v1/tasks/{ids[0]}"))["error"]["code"] == "exit"
    await expect(page.get_by_role("button", name="Delete all of gone")).to_have_count(0)
    await clear(seen)


async def test_all_of_a_group_are_moved_and_run_there_when_they_are_retried(seen: Seen) -> None:
    ids = await failing(seen, 2, "here")
    page = await seen.at("#/failed?by=queue")
    await seen.press("Move all of here")
    await seen.press("Move", seen.dialog)
    await expect(seen.dialog.get_by_role("alert")).to_contain_text("Which queue?")
    await seen.dialog.get_by_label("Queue").fill("there")
    await seen.agree("Move")
    await seen.notes("2 of 2 moved")
    await seen.until("/v1/tasks?queue=there&state=failed", lambda told: told["total"] == 2)
    await expect(page.get_by_role("button", name="Move all of there")).to_be_visible()
    await seen.press("Move all of there")
    await seen.dialog.get_by_label("Queue").fill("again")
    await seen.dialog.get_by_label("Retry them there now").check()
    await seen.agree("Move")
    await seen.notes("2 of 2 moved")
    await seen.until(f"/v1/tasks/{ids[0]}/actions", lambda told: told["total"] == 2)
    told = await seen.state(ids[0], "failed")
    assert (told["queue"], told["attempts"]) == ("again", 2)
    await clear(seen)


async def test_one_of_an_opened_group_is_retried_or_deleted(seen: Seen) -> None:
    first, second = await failing(seen, 2, "single")
    page = await seen.at("#/failed?by=queue&open=single")
    await seen.press(f"Delete {first}")
    await seen.agree("Delete")
    await expect(page.get_by_role("button", name=f"Delete {first}")).to_have_count(0)
    await seen.press(f"Retry {second}")
    await seen.agree("Retry")
    await seen.until(f"/v1/tasks/{second}/actions", lambda told: told["total"] == 2)
    assert await states(seen, [first]) == ["deleted"]
    await clear(seen)


async def test_more_than_a_thousand_are_deleted_with_progress_and_all_that_match_in_the_list_of_tasks(
    seen: Seen,
) -> None:
    tasks = [{"queue": "flood", "tags": ["none"], "expires": "1s", "work": {"command": ["true"]}} for _ in range(2400)]
    await seen.ask("/v1/events", {"event": "ADD", "tasks": tasks})
    await seen.until("/v1/tasks?queue=flood&state=failed", lambda told: told["total"] == 2400)
    page = await seen.at("#/failed?by=worker")
    await expect(seen.row("none").first).to_contain_text("no worker: group them otherwise")
    await page.get_by_role("tab", name="error").click()
    await seen.press("Move all of expired")
    await seen.dialog.get_by_label("Queue").fill("flood-2")
    await page.evaluate(PROGRESS)
    await seen.agree("Move")
    await seen.notes("2,400 of 2,400 moved")
    assert await page.evaluate("window.progress") > 0
    page = await seen.at("#/tasks?q=queue%3Aflood-2+state%3Afailed")
    await page.get_by_role("checkbox", name="select all on this page").check()
    await seen.press("Select all 2,400 that match")
    await seen.press("Move…")
    await seen.dialog.get_by_label("Queue").fill("flood-3")
    await seen.agree("Move")
    await seen.notes("2,400 of 2,400 moved")
    await seen.at("#/tasks?q=queue%3Aflood-3")
    await page.get_by_role("checkbox", name="select all on this page").check()
    await expect(page.get_by_text("50 selected")).to_be_visible()
    await seen.press("Move…")
    await seen.dialog.get_by_label("Queue").fill("flood-4")
    await seen.agree("Move")
    await seen.notes("50 of 50 moved")
    await seen.at("#/tasks?q=queue%3Aflood-3+state%3Afailed")
    await page.get_by_role("checkbox", name="select all on this page").check()
    await seen.press("Select all 2,350 that match")
    await seen.press("Delete")
    await expect(seen.dialog).to_contain_text("Delete 2,350 tasks?")
    await seen.agree("Delete")
    await seen.notes("2,350 of 2,350 deleted")
    await seen.until("/v1/tasks?queue=flood-3&state=deleted", lambda told: told["total"] == 2350)
    assert (await seen.ask("/v1/tasks?queue=flood-4&state=failed"))["total"] == 50


async def test_a_failed_task_is_changed_and_deleted_on_its_page_and_one_that_succeeded_is_not(seen: Seen) -> None:
    (task,) = await failing(seen, 1, "page")
    page = await seen.at(f"#/tasks/{task}")
    await seen.press("Change…")
    await seen.dialog.get_by_label("Queue").fill("elsewhere")
    await seen.agree("Change")
    await seen.notes("1 of 1 changed")
    assert (await seen.ask(f"/v1/tasks/{task}"))["queue"] == "elsewhere"
    await seen.press("Delete")
    await seen.agree("Delete")
    await expect(page.locator(".headline")).to_contain_text("deleted")
    done = await seen.add(name="done", queue="fine", work={"command": ["true"]})
    await seen.state(done, "succeeded")
    await seen.at("#/tasks?q=queue%3Afine")
    await page.get_by_role("checkbox", name=f"select {done}").check()
    await seen.press("Delete")
    await seen.agree("Delete")
    await seen.notes("0 of 1 deleted, 1 had succeeded or were deleted before")
    assert await states(seen, [done]) == ["succeeded"]
