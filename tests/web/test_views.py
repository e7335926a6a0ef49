from __future__ import annotations

import re
from typing import Any

from tests.web.seen import Seen, expect

SLEEP: Any = {"command": ["sleep", "60"]}
ONCE: Any = {"attempts": 1}


async def failing(seen: Seen, count: int, queue: str, shell: str) -> list[str]:
    ids = [await seen.add(name=f"{queue}-{n}", queue=queue, retry=ONCE, work={"shell": shell}) for n in range(count)]
    for task in ids:
        await seen.state(task, "failed")
    return ids


async def test_the_overview_says_how_it_is(seen: Seen) -> None:
    await expect(seen.page.get_by_label("Health")).to_contain_text("All is well")
    await failing(seen, 1, "bad", "exit 4")
    await expect(seen.page.get_by_label("Recent failures", exact=True).first).to_contain_text("bad-0")
    await expect(seen.page.get_by_label("Tasks a second")).to_be_visible()
    await expect(seen.page.get_by_label("Master and replicas").first).to_contain_text("master")


async def test_clocks_that_are_behind_log_time_and_an_even_number_of_voters_are_told(seen: Seen) -> None:
    """Nothing becomes due until they have caught up."""
    told = await seen.ask("/v1/cluster")
    late = {**told, "clock": {**told["clock"], "behind": "90s"}, "warning": "2 voters, an even number"}
    await seen.page.route(re.compile("/v1/cluster$"), lambda route: route.fulfill(json=late))
    health = seen.page.get_by_label("Health")
    await seen.page.reload()
    await expect(health).to_contain_text("It works, but look at this")
    await expect(health).to_contain_text("the clocks are 1 m 30 s behind it: nothing becomes due")
    await seen.at("#/cluster")
    await expect(seen.page.get_by_label("The log", exact=True)).to_contain_text("1 m 30 s behind")
    await expect(seen.page.get_by_label("Nodes", exact=True).first).to_contain_text("2 voters, an even number")
    await seen.page.unroute_all(behavior="wait")
    await expect(seen.page.get_by_label("The log", exact=True)).to_contain_text("goes on with the clocks")


async def test_the_deepest_of_very_many_queues_are_judged_and_it_is_said_that_others_were_not(seen: Seen) -> None:
    await seen.tell("PATCH", "/v1/queues/zz-last", {"paused": True})
    names = [f"many-{n:03}" for n in range(205)] + ["zz-last"] * 3
    await seen.tell(
        "POST",
        "/v1/events",
        {"event": "ADD", "tasks": [{"queue": each, "tags": ["never"], "work": SLEEP} for each in names]},
    )
    health = seen.page.get_by_label("Health")
    await expect(health).to_contain_text("queue zz-last is paused, 3 tasks waiting.")
    await expect(health).to_contain_text(re.compile(r"Judged are the \d+ queues in which most waits, of 2\d\d\."))
    depths = seen.page.get_by_role("group", name="Queues by depth")
    await expect(depths.get_by_role("row").nth(1)).to_contain_text("zz-last")
    await expect(depths.get_by_role("row").nth(1).locator(".bar")).to_have_text("3")
    await expect(depths.get_by_role("row").nth(2)).to_contain_text("many-000")
    await seen.tell("POST", "/v1/events", {"event": "DELETE", "match": {"tag": "never"}})
    await expect(health).not_to_contain_text("Judged are")


async def test_a_task_that_no_worker_may_have_is_a_notice_and_leads_there(seen: Seen) -> None:
    """However long it waits: the cluster is well, and says what it lacks."""
    health = seen.page.get_by_label("Health")
    for number in range(3):
        await seen.add(id=f"homeless-{number}", queue="images", tags=["gpu"], work=SLEEP)
    told = await seen.until("/v1/queues/images", lambda told: told["unplaceable"] is not None)
    assert (told["unplaceable"]["count"], told["oldest_placeable_at"]) == (3, None)
    await seen.page.clock.install()
    await seen.page.reload()
    await expect(health).to_contain_text(
        "3 tasks wait for a worker that there is not: no worker that is up has the tag gpu"
    )
    await seen.page.clock.fast_forward("05:00")
    await seen.drawn()
    await expect(health).to_have_class(re.compile("tone-ok"))
    await expect(health).to_contain_text("All is well, but note this")
    await health.get_by_role("link", name="3 tasks").click()
    await expect(seen.row("homeless-2")).to_be_visible()
    search = seen.page.get_by_role("combobox", name="Search tasks")
    await expect(search).to_have_value("queue:images state:pending tag:gpu")
    await seen.tell("POST", "/v1/queues/images/purge", {})


async def test_failed_tasks_are_retried_by_the_group(seen: Seen) -> None:
    ids = await failing(seen, 3, "crash", "kill -9 $$")
    page = await seen.at("#/failed")
    await expect(seen.row("signal")).to_contain_text("3")
    await page.get_by_role("tab", name="queue").click()
    await page.get_by_role("link", name="crash").click()
    await expect(page.get_by_role("link", name="crash-2")).to_be_visible()
    await seen.press("Retry all of crash")
    await expect(seen.dialog).to_contain_text("all 3 tasks of queue crash")
    await seen.agree("Retry")
    await seen.until(f"/v1/tasks/{ids[0]}/actions", lambda told: told["total"] == 2)
    for task in ids:
        await seen.state(task, "failed")


async def test_a_worker_is_drained_undrained_and_changed(seen: Seen) -> None:
    task = await seen.add(name="occupies", slots=3, work=SLEEP)
    await seen.state(task, "running")
    load = seen.page.get_by_role("group", name="Workers by load").get_by_role("row").filter(has_text="alpha")
    await expect(load.locator(".bar")).to_have_text("3 of 4")
    assert await load.locator(".fill").evaluate("(e) => e.style.width") == "75%"
    page = await seen.at("#/workers")
    await page.get_by_role("link", name="alpha").click()
    await expect(page.get_by_label("Runs now", exact=True)).to_contain_text("occupies")
    await seen.press("Drain alpha")
    await seen.agree("Drain")
    await seen.until("/v1/workers/alpha", lambda told: told["state"] == "draining")
    await seen.press("Undrain alpha")
    await seen.until("/v1/workers/alpha", lambda told: told["state"] == "up")
    await seen.press("Change…")
    await seen.dialog.get_by_label("Slots").fill("7")
    await seen.dialog.get_by_label("Tags").fill("fast zone=eu-2")
    await seen.agree("Change")
    worker = await seen.until("/v1/workers/alpha", lambda told: told["slots"] == 7)
    assert {"fast", "zone=eu-2", "worker=alpha"} <= set(worker["tags"])
    await expect(seen.row("alpha").first).to_contain_text("of 7")
    await seen.ask("/v1/tasks/delete", {"ids": [task]})


async def test_a_service_is_seen_with_its_instances_and_deleted(seen: Seen) -> None:
    service = {"kind": "service", "limit": 2, "slots": 0, "group": "shop", "work": SLEEP}
    task = await seen.add(id="web", name="web", **service)
    await seen.until(f"/v1/tasks/{task}", lambda told: told["live"] == 2)
    page = await seen.at("#/services")
    await page.get_by_role("link", name="shop", exact=True).click()
    await expect(page.get_by_label("Services", exact=True).first).to_contain_text("2 of 2")
    await expect(page.get_by_label("Live actions by worker").first).to_contain_text("alpha2")
    await seen.at("#/workers?name=alpha")
    await expect(page.get_by_label("Runs now", exact=True).get_by_role("link", name="web")).to_have_count(2)
    await seen.at("#/services?group=shop")
    await seen.press("Balance shop")
    await seen.notes("even already")
    await seen.press("Change web")
    await seen.dialog.get_by_label("Limit").fill("1")
    await seen.agree("Change")
    await seen.until(f"/v1/tasks/{task}", lambda told: told["live"] == 1)
    await seen.press("Delete web")
    await seen.agree("Delete")
    await seen.state(task, "deleted")


async def test_a_task_that_waits_says_what_workers_bid_for_it(seen: Seen) -> None:
    await seen.tell("PUT", "/v1/queues/held", {"limit": 1})
    first = await seen.add(queue="held", work=SLEEP)
    await seen.state(first, "running")
    task = await seen.add(queue="held", policy="function() return 2.5 end", work=SLEEP)
    await seen.until(f"/v1/tasks/{task}/explain", lambda told: told["workers"][0]["score"] == 2.5)
    page = await seen.at(f"#/tasks/{task}")
    await expect(page.get_by_label("What each worker says").first).to_contain_text("bids 2.5")
    await seen.ask("/v1/tasks/delete", {"ids": [first]})
    await seen.state(task, "running")
    await expect(page.get_by_role("group", name="What the policy said")).to_contain_text("bid for it, with 2.5")
    await expect(page.get_by_label("What each worker says")).to_have_count(0)
    await seen.ask("/v1/tasks/delete", {"ids": [task]})


async def test_whose_instances_a_worker_has_is_told_apart_from_its_jobs(seen: Seen) -> None:
    service = {"kind": "service", "slots": 0, "group": "shop", "work": SLEEP}
    for name, limit in (("front", 2), ("back", 1)):
        await seen.add(id=name, name=name, limit=limit, **service)
    job = await seen.add(group="shop", slots=0, work=SLEEP)
    await seen.until("/v1/actions?group=shop", lambda told: told["total"] == 4)
    page = await seen.at("#/services?group=shop")
    await expect(page.get_by_label("Live actions by worker").first).to_contain_text("alpha4front 2, back 1, 1 job")
    await seen.ask("/v1/tasks/delete", {"ids": ["front", "back", job]})


async def test_balance_makes_the_moves_that_were_shown_or_shows_the_plan_that_there_is_now(seen: Seen) -> None:
    """What the node plans is this test's: one node has nothing to even."""
    plans = [[{"task": f"t{n}", "from": "alpha", "to": "beta"} for n in range(count)] for count in (1, 2, 2, 2)]
    asked: list[Any] = []

    async def answer(route: Any) -> None:
        event = route.request.post_data_json
        asked.append(event)
        index = None if event.get("dry_run") else 7
        await route.fulfill(json={"moves": plans.pop(0), "index": index})

    page = await seen.at("#/services?group=shop")
    service = await seen.add(id="web", name="web", kind="service", slots=0, group="shop", work=SLEEP)
    await page.route("**/v1/events", answer)
    await seen.press("Balance shop")
    await seen.press("Make 1 move", seen.dialog)
    await expect(seen.dialog).to_contain_text("The cluster has changed meanwhile")
    assert [event.get("dry_run") for event in asked] == [True, True]
    await seen.agree("Make 2 moves")
    await seen.notes("2 moves under way")
    assert asked[-1] == {"event": "BALANCE", "group": "shop", "max": 2}
    await page.unroute("**/v1/events")
    await seen.ask("/v1/tasks/delete", {"ids": [service]})


async def test_the_services_are_found_without_counting_what_waits(seen: Seen) -> None:
    await seen.add(group="crowd", tags=["never"], work=SLEEP)
    await seen.add(id="kept-up", name="kept-up", kind="service", slots=0, tags=["never"], group="shown", work=SLEEP)
    runs = await seen.add(group="busy", work=SLEEP)
    await seen.state(runs, "running")
    await seen.at("#/schedules")  # the overview, where a tab begins, asks about tasks whenever one of them changes
    asked: list[str] = []
    seen.page.on("request", lambda request: asked.append(request.url))
    page = await seen.at("#/services")
    await expect(seen.row("shown")).to_be_visible()
    await expect(seen.row("busy")).to_be_visible()
    await expect(seen.row("crowd")).to_have_count(0)
    await page.get_by_role("link", name="shown", exact=True).click()
    await expect(page.get_by_label("Services", exact=True).first).to_contain_text("kept-up")
    listed = [url for url in asked if "/v1/tasks?" in url]
    assert listed
    assert [url for url in listed if "kind=service" not in url and "state=running" not in url] == []
    await page.get_by_role("link", name="all tasks of shown").click()
    await expect(page).to_have_url(re.compile("group%3Ashown"))
    await seen.ask("/v1/tasks/delete", {"ids": ["kept-up", runs]})


async def test_instances_of_however_many_services_are_counted_on_their_worker(seen: Seen) -> None:
    """Of a list, and of reading services one by one, only so many would be seen."""
    service = {"kind": "service", "limit": 2, "slots": 0, "group": "many", "work": SLEEP}
    tasks = [{"id": f"many-{number}", "name": f"many-{number}", **service} for number in range(27)]
    await seen.ask("/v1/events", {"event": "ADD", "tasks": tasks})
    await seen.until("/v1/actions?group=many", lambda told: told["total"] == 54)
    asked: list[str] = []
    page = await seen.at("#/services?group=many")
    seen.page.on("request", lambda request: asked.append(request.url))
    await expect(page.get_by_label("Live actions by worker").first).to_contain_text("alpha54")
    page = await seen.at("#/workers?name=alpha")
    runs = page.get_by_label("Runs now", exact=True)
    await expect(runs).to_contain_text("Shown: 50 of 54 instances.")
    await expect(runs.get_by_role("link", name="many-")).to_have_count(50)
    assert [url for url in asked if "/v1/tasks/" in url] == []
    await seen.ask("/v1/tasks/delete", {"ids": [task["id"] for task in tasks]})
    await seen.until("/v1/actions?group=many", lambda told: told["total"] == 0)


async def test_very_many_that_wait_are_counted_by_key_when_a_person_asks(seen: Seen) -> None:
    for part in range(11):
        tasks = [{"queue": "deep", "key": f"k{part % 2}", "tags": ["never"], "work": SLEEP} for _ in range(1000)]
        await seen.ask("/v1/events", {"event": "ADD", "tasks": tasks})
    page = await seen.at("#/queues/deep")
    shares = page.get_by_label("Shares by key")
    await expect(shares).to_contain_text("No task of it that runs has a key.")
    await seen.press("Count what waits")
    await expect(shares).to_contain_text("6,000 waiting")
    await expect(shares).to_contain_text("counted")
    await seen.ask("/v1/queues/deep/purge", {})


async def test_the_cluster_tells_its_tokens_and_makes_a_link(seen: Seen) -> None:
    page = await seen.at("#/cluster")
    term = (await seen.ask("/v1/cluster"))["term"]
    await expect(page.get_by_label("The log", exact=True)).to_contain_text(f"Term{term}Last entry here")
    cells = page.get_by_role("group", name="Nodes").get_by_role("row").nth(1).get_by_role("cell")
    await expect(cells.nth(1)).to_have_text("master")
    await expect(cells.nth(2)).to_have_text("\u2013")  # who leads is behind nobody
    await expect(cells.nth(3)).to_have_text(str(term))
    await expect(page.get_by_label("Tokens").first).to_contain_text("admin-alpha")
    await seen.press("Make a link")
    link = await seen.dialog.locator("code").inner_text()
    await seen.agree("Done")
    await seen.tab.context.clear_cookies()
    await page.goto(link)
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    await seen.at("#/cluster")
    async with page.expect_download() as saved:
        await page.get_by_role("link", name="Save a backup").click()
    assert (await saved.value).suggested_filename.endswith(".backup")


async def test_everything_is_reached_by_the_keyboard(seen: Seen) -> None:
    await seen.add(id="keys", tags=["never"], work=SLEEP)
    page = await seen.at("#/tasks?q=keys")
    await expect(seen.row("keys")).to_be_visible()
    await page.keyboard.press("/")
    await expect(page.get_by_role("combobox", name="Search tasks")).to_be_focused()
    box = page.get_by_role("checkbox", name="select keys")
    await box.focus()
    await page.keyboard.press("Space")
    await page.get_by_role("button", name="Delete", exact=True).focus()
    await page.keyboard.press("Enter")
    await expect(seen.dialog).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(seen.dialog).to_have_count(0)
    assert (await seen.ask("/v1/tasks/keys"))["state"] == "pending"


async def test_what_can_be_used_has_a_name(seen: Seen) -> None:
    """For who hears the page instead of seeing it: no button, link, field or picture without words."""
    await seen.add(id="named", tags=["never"], work=SLEEP)
    nameless = """() => [...document.querySelectorAll('button, a, input, select, textarea, [role=img]')]
        .filter((e) => !(e.innerText || e.getAttribute('aria-label') || e.labels?.length || e.title || '').toString().trim())
        .map((e) => e.outerHTML)"""
    for place in (
        "#/",
        "#/tasks",
        "#/tasks/named",
        "#/failed",
        "#/queues",
        "#/workers?name=alpha",
        "#/services",
        "#/cluster",
    ):
        page = await seen.at(place)
        await expect(page.locator("main")).not_to_contain_text("reading…")
        assert await page.evaluate(nameless) == [], place
        assert await page.locator("h1").count() == 1


async def test_on_a_phone_nothing_is_wider_than_the_screen(seen: Seen) -> None:
    await seen.page.set_viewport_size({"width": 390, "height": 844})
    for queue in ("billing-invoices-eu-central", "emails"):
        await seen.tell("PATCH", f"/v1/queues/{queue}", {"limit": 10})
    await seen.tell("PATCH", "/v1/queues/emails", {"paused": True})
    await seen.tell("PUT", "/v1/classes/paying", {"rate": 4, "ceil": 4})
    await seen.tell("PUT", "/v1/classes/gold", {"parent": "paying", "rate": 2})
    scope = {"queues": ["emails", "images", "reports"], "groups": ["shop"]}
    await seen.tell("POST", "/v1/tokens", {"name": "grafana", "role": "producer", "expires": "30d", **scope})
    for view, caption in (
        ("queues", "Queues"),
        ("queues", "Classes of queues"),
        ("cluster", "Nodes"),
        ("cluster", "Tokens"),
    ):
        page = await seen.at(f"#/{view}")
        table = page.get_by_role("group", name=caption, exact=True)
        await expect(table.get_by_role("row").nth(1)).to_be_visible()
        assert await table.evaluate("(e) => e.scrollWidth - e.clientWidth") <= 0, caption
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, view


async def test_bars_of_a_list_are_of_one_scale_and_a_workers_machine_is_told_on_its_own_page(seen: Seen) -> None:
    await seen.add(queue="bars", work=SLEEP, at="1h")
    await seen.tell("PATCH", "/v1/queues/deep", {"paused": True})
    await seen.tell("POST", "/v1/events", {"event": "ADD", "tasks": [{"queue": "deep", "work": SLEEP}] * 120})
    page = await seen.at("#/queues")
    await expect(seen.row("deep").first).to_contain_text("120")
    widths = await page.locator("td .track").evaluate_all(
        "(all) => all.map((e) => Math.round(e.getBoundingClientRect().width))"
    )
    assert len(set(widths[:2])) == 1, widths
    await seen.tell("PATCH", "/v1/workers/alpha", {"tags": ["fast", "os=linux"]})
    await seen.at("#/workers")
    await expect(seen.row("alpha").first).to_contain_text("fast")
    assert "os=" not in await seen.row("alpha").first.inner_text()
    await page.get_by_role("link", name="alpha").click()
    await expect(page.get_by_label("alpha", exact=True)).to_contain_text("os=linux")
    await expect(page.get_by_label("alpha", exact=True)).to_contain_text("GiB free")
    load = (await seen.until("/v1/workers/alpha", lambda told: told["load"]))["load"]
    assert 0 <= load["cpu_load"] <= 1
    machine = page.locator("figure", has_text="Machine of alpha")
    await expect(machine).to_contain_text("processors")
    memory = round(100 * (1 - load["memory_free_bytes"] / load["memory_total_bytes"]))
    await expect(machine).to_contain_text(re.compile(rf"memory ({memory - 1}|{memory}|{memory + 1}) %"))
    await seen.tell("POST", "/v1/queues/deep/purge", {})
