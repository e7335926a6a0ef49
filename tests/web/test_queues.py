from __future__ import annotations

import re
from typing import Any

import pytest

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


async def test_every_setting_of_a_queue_is_made_shown_and_taken_away(seen: Seen) -> None:
    page = await seen.at("#/queues")
    given = {
        "Name": "whole",
        "Weight": "3",
        "Limit": "9",
        "Limit of each key": "4",
        "Limit of each worker": "5",
        "Rate": "100/m",
        "Burst": "7",
        "Lease": "30s",
        "Workers": "al* beta",
        "Unique": "unfinished a key",
        "Retry": '{"attempts": 5, "backoff": ["1s", "1m"], "permanent_exit_codes": [75]}',
        "Weights of keys": "acme corp = 3\na=b = 2",
        "Kept when over": "12h 500",
        "Kept when failed": "7d",
    }
    await seen.press("New queue")
    for label, value in given.items():
        await seen.dialog.get_by_label(label, exact=True).fill(value)
    await seen.dialog.get_by_label("Discipline").select_option("sfq")
    await seen.agree("Make")
    told = await seen.ask("/v1/queues/whole")
    assert (told["discipline"], told["weight"], told["limit"]) == ("sfq", 3, 9)
    assert (told["limit_per_key"], told["limit_per_worker"], told["rate"], told["burst"]) == (4, 5, "100/m", 7)
    assert (told["lease"], told["workers"]) == ("30s", ["al*", "beta"])
    assert told["unique"] == {"while": "unfinished", "key": "a key"}
    retry = told["retry"]
    assert (retry["attempts"], retry["backoff"], retry["permanent_exit_codes"]) == (5, ["1s", "1m"], [75])
    assert told["key_weights"] == {"acme corp": 3, "a=b": 2}
    assert (told["keep"], told["keep_failed"]["age"]) == ({"age": "12h", "count": 500}, "7d")
    await page.get_by_role("link", name="whole").click()
    card = page.get_by_label("How it is set", exact=True)
    for words in ("sfq", "100/m", "unfinished a key", '"attempts":5', "acme corp = 3", "12h, at most 500"):
        await expect(card).to_contain_text(words)
    await seen.press("Change…")
    await seen.dialog.get_by_label("Retry").fill("often")
    await seen.press("Change", seen.dialog)
    await expect(seen.dialog.get_by_role("alert")).to_contain_text("Retry is no JSON")
    await seen.dialog.get_by_label("Unique", exact=True).fill("active")
    await seen.dialog.get_by_label("Retry").fill('{"attempts": 6}')
    await seen.agree("Change")
    told = await seen.ask("/v1/queues/whole")
    assert told["unique"] == {"while": "active", "key": None}
    assert (told["retry"]["attempts"], told["retry"]["backoff"]) == (6, "exponential")
    assert told["retry"]["permanent_exit_codes"] == []
    await seen.press("Change…")
    for label in list(given)[2:]:
        await seen.dialog.get_by_label(label, exact=True).fill("")
    await seen.agree("Change")
    left = await seen.ask("/v1/queues/whole")
    await seen.tell("PUT", "/v1/queues/plain", {"discipline": "sfq", "weight": 3})
    plain = await seen.ask("/v1/queues/plain")
    assert {**left, "name": "", "rates": {}} == {**plain, "name": "", "rates": {}}


async def test_a_plugin_that_a_node_has_can_be_chosen(seen: Seen) -> None:
    workers = await seen.ask("/v1/workers")
    workers["items"][0]["facts"]["disciplines"] = {"lottery": "1.0"}
    await seen.page.route(re.compile("/v1/workers$"), lambda route: route.fulfill(json=workers))
    await seen.at("#/queues")
    await seen.press("New queue")
    await seen.dialog.get_by_label("Name").fill("drawn")
    await seen.dialog.get_by_label("Discipline").select_option("lottery")
    await seen.press("Make", seen.dialog)
    await expect(seen.dialog.get_by_role("alert")).to_contain_text("unknown discipline")
    await seen.press("Cancel", seen.dialog)
    await seen.page.unroute_all(behavior="wait")


@pytest.mark.parametrize("name", ["night jobs", 'a "b" c', "back\\slash \\"])
async def test_a_queue_of_any_name_leads_to_its_own_tasks(seen: Seen, name: str) -> None:
    task = await seen.add(name="mine", queue=name, tags=NEVER, work=SLEEP)
    await seen.add(name="jobs of another", queue="night", tags=NEVER, work=SLEEP)
    page = await seen.at("#/queues")
    await seen.row(name).first.locator("td").nth(1).get_by_role("link").click()
    await expect(seen.row("mine")).to_be_visible()
    await expect(seen.row("jobs of another")).to_have_count(0)
    await page.get_by_role(
        "link", name="pending"
    ).click()  # its state, taken out of the search: the rest is written anew
    await expect(seen.row("mine")).to_be_visible()
    await expect(seen.row("jobs of another")).to_have_count(0)
    await seen.ask("/v1/tasks/delete", {"ids": [task]})


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
    await seen.until("/v1/workers/alpha", lambda told: told["queues"] == ["other", "only"])
    await page.locator(".members li").drag_to(rests)
    await expect(rests).to_contain_text("alpha")
    await seen.until("/v1/workers/alpha", lambda told: told["queues"] == ["other"])
    await seen.press("Attach alpha")
    await expect(takes).to_contain_text("alpha")
    await seen.until("/v1/workers/alpha", lambda told: told["queues"] == ["other", "only"])
    await seen.at("#/workers?name=alpha")
    await seen.press("Change…")
    await seen.dialog.get_by_label("Queues").fill("*")
    await seen.agree("Change")


async def test_classes_are_made_changed_and_deleted(seen: Seen) -> None:
    await seen.at("#/queues")
    await seen.press("New class")
    await seen.dialog.get_by_label("Name").fill("paying")
    await seen.dialog.get_by_label("Rate").fill("3")
    await seen.dialog.get_by_label("Ceiling").fill("4")
    await seen.press("Make", seen.dialog)
    await expect(seen.dialog.get_by_role("alert")).to_contain_text("nobody lends to it")
    await seen.dialog.get_by_label("Ceiling").fill("3")
    await seen.dialog.get_by_label("Burst").fill("6")
    await seen.dialog.get_by_label("Priority").fill("-2")
    await seen.dialog.get_by_label("Counts").select_option("starts")
    await seen.agree("Make")
    await expect(seen.row("paying")).to_contain_text("3")
    told = await seen.ask("/v1/classes/paying")
    assert (told["burst"], told["priority"], told["of"]) == (6, -2, "starts")
    await seen.press("Change class paying")
    await seen.dialog.get_by_label("Rate").fill("2.5")
    await seen.dialog.get_by_label("Ceiling").fill("")
    await seen.dialog.get_by_label("Burst").fill("")
    await seen.dialog.get_by_label("Priority").fill("1")
    await seen.agree("Change")
    told = await seen.ask("/v1/classes/paying")
    assert (told["rate"], told["burst"], told["priority"]) == (2.5, 1, 1)
    await seen.press("Delete class paying")
    await seen.agree("Delete")
    await expect(seen.row("paying")).to_have_count(0)


async def test_shares_of_keys_are_shown(seen: Seen) -> None:
    for key in ("one", "one", "two"):
        await seen.add(queue="shared", key=key, tags=NEVER, work=SLEEP)
    page = await seen.at("#/queues/shared")
    shares = page.get_by_label("Shares by key")
    await expect(shares).to_contain_text("0 running, 2 waiting")
    runs = [await seen.add(queue="shared", key=key, slots=0, work=SLEEP) for key in ("one", "two", "two", "two")]
    for key, share in (("one", "25 %"), ("two", "75 %")):
        row = shares.get_by_role("listitem").filter(has=page.get_by_role("link", name=key))
        await expect(row.locator(".bar")).to_have_text(share)
        assert await row.locator(".fill").evaluate("(e) => e.style.width") == share.replace(" ", "")
    await seen.ask("/v1/tasks/delete", {"ids": runs})


async def test_a_tree_of_classes_is_made_hung_with_queues_and_shows_what_is_used(seen: Seen) -> None:
    page = await seen.at("#/queues")
    tree = page.get_by_role("group", name="Classes of queues")
    for name, parent, rate, ceil in (("shop", "", "3", ""), ("gold", "shop", "2", "4"), ("basic", "shop", "1", "2")):
        await seen.press("New class")
        await seen.dialog.get_by_label("Name").fill(name)
        await seen.dialog.get_by_label("Parent").fill(parent)
        await seen.dialog.get_by_label("Rate").fill(rate)
        await seen.dialog.get_by_label("Ceiling").fill(ceil)
        await seen.agree("Make")
        await expect(tree.get_by_role("row").filter(has_text=name)).to_be_visible()
    assert (await seen.ask("/v1/classes/gold"))["parent"] == "shop"
    await expect(tree.get_by_role("row").nth(2)).to_contain_text("└")
    await seen.press("New queue")
    await seen.dialog.get_by_label("Name").fill("vip")
    await seen.dialog.get_by_label("Class").fill("gold")
    await seen.agree("Make")
    await expect(tree.get_by_role("row").filter(has_text="gold")).to_contain_text("vip")
    tasks = [await seen.add(queue="vip", work=SLEEP) for _ in range(3)]
    await seen.until("/v1/queues/vip", lambda told: told["counts"]["running"] == 3)
    for name in ("gold", "shop"):
        await expect(tree.get_by_role("row").filter(has_text=name).locator(".bar")).to_have_text("3")
    # A root ends at its rate, whatever the ceiling of its parts: then it is full, and so is what hangs on it.
    for name in ("gold", "shop"):
        fill = tree.get_by_role("row").filter(has_text=name).locator(".fill")
        assert await fill.evaluate("(e) => e.style.width") == "100%", name
    await seen.press("Change class gold")
    await seen.dialog.get_by_label("Rate").fill("1.5")
    await seen.dialog.get_by_label("Ceiling").fill("3.5")
    await seen.agree("Change")
    told = await seen.ask("/v1/classes/gold")
    assert (told["rate"], told["ceil"], told["parent"]) == (1.5, 3.5, "shop")
    await seen.ask("/v1/tasks/delete", {"ids": tasks})
    await seen.press("Delete class gold")
    await seen.press("Delete", seen.dialog)
    await expect(seen.dialog.get_by_role("alert")).to_be_visible()  # a queue hangs on it
    await seen.press("Cancel", seen.dialog)


async def test_what_failed_and_what_is_over_is_purged_by_choice(seen: Seen) -> None:
    failed = await seen.add(queue="over", retry={"attempts": 1}, work={"shell": "exit 1"})
    done = await seen.add(queue="over", work={"command": ["true"]})
    await seen.state(failed, "failed")
    await seen.state(done, "succeeded")
    await seen.at("#/queues/over")
    await seen.press("Purge…")
    await seen.dialog.get_by_label("Which").select_option("what failed")
    await seen.agree("Purge")
    await seen.notes("1 task purged")
    await seen.until("/v1/tasks?queue=over", lambda told: [each["id"] for each in told["items"]] == [done])
    await seen.press("Purge…")
    await seen.dialog.get_by_label("Which").select_option("all that is over")
    await seen.agree("Purge")
    await seen.until("/v1/tasks?queue=over", lambda told: told["total"] == 0)


async def test_a_queue_is_paused_and_resumed_on_its_own_page(seen: Seen) -> None:
    await seen.add(queue="own", tags=NEVER, work=SLEEP)
    await seen.at("#/queues/own")
    await seen.press("Pause", seen.page.locator("main"))
    await seen.until("/v1/queues/own", lambda told: told["paused"])
    await expect(seen.page.locator(".headline")).to_contain_text("paused: nothing starts")
    await seen.press("Resume")
    await seen.until("/v1/queues/own", lambda told: not told["paused"])
    await expect(seen.page.locator(".headline")).to_contain_text("open")


async def test_a_queue_that_takes_any_worker_says_before_that_it_will_name_those_that_there_are(seen: Seen) -> None:
    """And then those of other patterns, and those it names already, stay as they are."""
    await seen.tell("PATCH", "/v1/queues/any", {"workers": ["*"]})
    page = await seen.at("#/queues/any")
    await seen.press("Detach alpha")
    await seen.notes("It is the last one")
    await seen.tell("POST", "/v1/work/claim", {"worker": "beta", "queues": ["*"], "max": 1, "wait": "0s"})
    takes, rests = page.get_by_label("Work for it"), page.get_by_label("Do not")
    await expect(takes).to_contain_text("beta")
    await seen.press("Detach alpha")
    await expect(seen.dialog).to_contain_text("The queue takes workers by *")
    await expect(seen.dialog).to_contain_text("will name those that there are now instead: beta")
    await seen.press("Cancel", seen.dialog)
    assert (await seen.ask("/v1/queues/any"))["workers"] == ["*"]
    await seen.press("Detach alpha")
    await seen.agree("Detach")
    await expect(rests).to_contain_text("alpha")
    await seen.until("/v1/queues/any", lambda told: told["workers"] == ["beta"])
    await seen.press("Attach alpha")
    await expect(takes).to_contain_text("alpha")
    await seen.until("/v1/queues/any", lambda told: told["workers"] == ["beta", "alpha"])
    await seen.press("Detach alpha")  # by its own name: nothing to say
    await expect(rests).to_contain_text("alpha")
    await seen.tell("PATCH", "/v1/queues/any", {"workers": ["al*", "b*", "gamma"]})
    await expect(takes).to_contain_text("alpha")
    await seen.press("Detach alpha")
    await expect(seen.dialog).to_contain_text("The queue takes workers by al*")
    await seen.agree("Detach")
    await seen.until("/v1/queues/any", lambda told: told["workers"] == ["b*", "gamma"])
