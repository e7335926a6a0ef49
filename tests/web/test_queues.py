from __future__ import annotations

from typing import Any

from tests.web.seen import Seen, expect

SLEEP: Any = {"command": ["sleep", "60"]}
NEVER: Any = ["no-such-tag"]


async def test_a_queue_is_made_changed_paused_and_deleted(seen: Seen) -> None:
    page = await seen.at("#/queues")
    await seen.press("New queue")
    await seen.dialog.get_by_label("Name").fill("fresh")
    await seen.dialog.get_by_label("Limit", exact=True).fill("3")
    await seen.agree("Make")
    assert (await seen.ask("/v1/queues/fresh"))["limit"] == 3
    await seen.press("Pause fresh")
    await seen.until("/v1/queues/fresh", lambda told: told["paused"])
    await seen.press("Resume fresh")
    await seen.until("/v1/queues/fresh", lambda told: not told["paused"])
    await page.get_by_role("link", name="fresh").click()
    await seen.press("Change…")
    await seen.dialog.get_by_label("Rate").fill("100/m")
    await seen.dialog.get_by_label("Limit", exact=True).fill("")
    await seen.dialog.get_by_label("Discipline").select_option("fifo")
    await seen.agree("Change")
    told = await seen.ask("/v1/queues/fresh")
    assert (told["rate"], told["limit"], told["discipline"]) == ("100/m", None, "fifo")
    await seen.press("Delete")
    await seen.agree("Delete")
    await expect(page.get_by_role("heading", name="Queues", level=1)).to_be_visible()
    await seen.until("/v1/queues", lambda told: "fresh" not in {one["name"] for one in told["items"]})


async def test_a_wrong_rate_is_told_and_the_form_stays(seen: Seen) -> None:
    await seen.at("#/queues")
    await seen.press("New queue")
    await seen.dialog.get_by_label("Name").fill("odd")
    await seen.dialog.get_by_label("Rate").fill("often")
    await seen.press("Make", seen.dialog)
    await expect(seen.dialog.get_by_role("alert")).to_contain_text("a rate such as 100/m")
    await seen.press("Cancel", seen.dialog)


async def test_what_waits_is_purged_and_what_failed_is_deleted(seen: Seen) -> None:
    for number in range(3):
        await seen.add(name=f"waits-{number}", queue="full", tags=NEVER, work=SLEEP)
    failed = await seen.add(name="failed", queue="full", retry={"attempts": 1}, work={"shell": "exit 1"})
    await seen.state(failed, "failed")
    page = await seen.at("#/queues/full")
    await seen.press("Purge…")
    await seen.agree("Purge")
    await seen.notes("3 tasks purged")
    await seen.until("/v1/tasks?queue=full&state=deleted", lambda told: told["total"] == 3)
    await seen.at("#/failed?by=queue")
    await seen.press("Delete all of full")
    await seen.agree("Delete")
    await seen.until("/v1/tasks?queue=full&state=failed", lambda told: told["total"] == 0)
    await expect(page.get_by_role("button", name="Delete all of full")).to_have_count(0)


async def test_a_worker_is_detached_and_attached_by_buttons_and_by_dragging(seen: Seen) -> None:
    await seen.ask("/v1/workers", None)
    queues = "only other"
    await seen.add(name="one", queue="only", tags=NEVER, work=SLEEP)
    await seen.at("#/workers?name=alpha")
    await seen.press("Change…")
    await seen.dialog.get_by_label("Queues").fill(queues)
    await seen.agree("Change")
    page = await seen.at("#/queues/only")
    takes, rests = page.get_by_label("Work for it"), page.get_by_label("Do not")
    await seen.press("Detach alpha")
    await expect(rests).to_contain_text("alpha")
    assert (await seen.ask("/v1/workers/alpha"))["queues"] == ["other"]
    await page.locator(".members li").drag_to(takes)
    await expect(takes).to_contain_text("alpha")
    assert (await seen.ask("/v1/workers/alpha"))["queues"] == ["other", "only"]


async def test_classes_are_made_changed_and_deleted(seen: Seen) -> None:
    await seen.at("#/queues")
    await seen.press("New class")
    await seen.dialog.get_by_label("Name").fill("paying")
    await seen.dialog.get_by_label("Rate").fill("3")
    await seen.dialog.get_by_label("Ceiling").fill("4")
    await seen.agree("Make")
    await expect(seen.row("paying")).to_contain_text("3")
    await seen.press("Change class paying")
    await seen.dialog.get_by_label("Rate").fill("2.5")
    await seen.agree("Change")
    assert (await seen.ask("/v1/classes/paying"))["rate"] == 2.5
    await seen.press("Delete class paying")
    await seen.agree("Delete")
    await expect(seen.row("paying")).to_have_count(0)


async def test_shares_of_keys_are_shown(seen: Seen) -> None:
    for key in ("one", "one", "two"):
        await seen.add(queue="shared", key=key, tags=NEVER, work=SLEEP)
    page = await seen.at("#/queues/shared")
    await expect(page.get_by_label("Shares by key")).to_contain_text("0 running, 2 waiting")
