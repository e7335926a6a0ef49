"""Three nodes, one page: the master is killed, then the page's own node; the page goes on."""

from __future__ import annotations

import asyncio
import json
import os
import re
import urllib.request
from pathlib import Path
from typing import Any

from tests.cluster.cluster import Cluster
from tests.cluster.daemons import TOKEN, Daemon, daemons
from tests.web import browser
from tests.web.browser import Tab
from tests.web.seen import expect


def asked(node: Daemon, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    with urllib.request.urlopen(
        urllib.request.Request(f"http://{node.place.client}{path}", data, headers), timeout=60
    ) as answer:
        return json.load(answer)


async def entered(tab: Tab, node: Daemon) -> None:
    link = (await asyncio.to_thread(asked, node, "/v1/session/link", {}))["url"]
    await tab.page.goto(f"http://{node.place.client}{link}")
    await expect(tab.page.get_by_role("navigation")).to_be_visible()


def master_of(cluster: Cluster) -> tuple[Daemon, list[Daemon]]:
    nodes = [node for node in cluster.nodes if isinstance(node, Daemon)]
    name = asked(nodes[0], "/v1/cluster")["master"]
    return next(node for node in nodes if node.name == name), [node for node in nodes if node.name != name]


async def test_the_master_is_killed_while_the_page_is_open(tmp_path: Path) -> None:
    async with daemons(tmp_path) as cluster, browser.started() as running, browser.tab(running) as tab:
        master, others = await asyncio.to_thread(master_of, cluster)
        await entered(tab, others[0])
        page = tab.page
        nodes = page.get_by_label("Master and replicas", exact=True).first
        await expect(nodes.get_by_role("row").filter(has_text=master.name)).to_contain_text("master")
        await master.kill()
        await expect(nodes.get_by_role("row").filter(has_text=master.name)).to_contain_text("lost")
        await expect(nodes.get_by_role("row").filter(has_text="master")).to_have_count(1)
        await expect(page.get_by_label("Health")).to_contain_text("out of touch")
        task = {"name": "after-the-fall", "work": {"command": ["true"]}}
        await asyncio.to_thread(asked, others[1], "/v1/events", {"event": "ADD", "tasks": [task]})
        await expect(page.get_by_role("row").filter(has_text="after-the-fall").first).to_contain_text("succeeded")
        await expect(page.get_by_text(re.compile(r"^live, \d+ s$"))).to_be_visible()
        assert tab.wrong == []


async def test_the_pages_own_node_is_killed_and_comes_back(tmp_path: Path) -> None:
    async with daemons(tmp_path) as cluster, browser.started() as running, browser.tab(running) as tab:
        _, others = await asyncio.to_thread(master_of, cluster)
        own = others[0]
        await entered(tab, own)
        page = tab.page
        await page.goto(f"http://{own.place.client}/#/tasks")
        await expect(page.get_by_text("There are no tasks.")).to_be_visible()
        await own.kill()
        gone = page.get_by_role("region", name="Node gone")
        await expect(gone).to_contain_text("does not answer")
        task = {"name": "meanwhile", "work": {"command": ["true"]}}
        await asyncio.to_thread(asked, others[1], "/v1/events", {"event": "ADD", "tasks": [task]})
        await own.start()
        await expect(page.get_by_role("row").filter(has_text="meanwhile")).to_contain_text("succeeded")
        await expect(gone).to_have_count(0)
        assert tab.wrong == []


async def test_a_running_task_is_moved_by_a_click_to_another_node(tmp_path: Path) -> None:
    async with daemons(tmp_path) as cluster, browser.started() as running, browser.tab(running) as tab:
        master, others = await asyncio.to_thread(master_of, cluster)
        await entered(tab, master)
        page, target = tab.page, others[1].name
        loose = {"id": "loose", "work": {"command": ["sleep", "60"]}}
        await asyncio.to_thread(asked, master, "/v1/events", {"event": "ADD", "tasks": [loose]})
        await page.goto(f"http://{master.place.client}/#/tasks/loose")
        await expect(page.locator(".headline")).to_contain_text("running")
        await page.get_by_role("button", name="Move…").click()
        await page.get_by_role("dialog").get_by_label("To").select_option(target)
        await page.get_by_role("dialog").get_by_role("button", name="Move", exact=True).click()
        await expect(page.locator(".timeline")).to_contain_text(f"began on {target}")
        assert tab.wrong == []


async def test_a_group_is_evened_out_after_its_plan_was_shown(tmp_path: Path) -> None:
    async with daemons(tmp_path, QUVATLH_WORKER_SLOTS="2") as cluster, browser.started() as running:
        master, others = await asyncio.to_thread(master_of, cluster)
        for node in others:
            await asyncio.to_thread(asked, master, f"/v1/workers/{node.name}/drain", {})
        tasks = [{"id": f"heavy-{n}", "group": "heavy", "work": {"command": ["sleep", "60"]}} for n in range(2)]
        await asyncio.to_thread(asked, master, "/v1/events", {"event": "ADD", "tasks": tasks})
        async with browser.tab(running) as tab:
            await entered(tab, master)
            page = tab.page
            await page.goto(f"http://{master.place.client}/#/services?group=heavy")
            spread = page.get_by_label("Live actions by worker", exact=True).first
            await expect(spread.get_by_role("row").filter(has_text=master.name)).to_contain_text("2")
            for node in others:
                await asyncio.to_thread(asked, master, f"/v1/workers/{node.name}/undrain", {})
            await page.get_by_role("button", name="Balance heavy").click()
            await expect(page.get_by_role("dialog").get_by_role("row").filter(has_text="heavy-")).to_have_count(1)
            await page.get_by_role("button", name="Make 1 move").click()
            await expect(spread.get_by_role("row").filter(has_text=master.name)).to_contain_text("1")
            await expect(spread.get_by_role("row")).to_have_count(3)  # the head, and two workers
            assert tab.wrong == []


async def test_a_log_goes_on_where_it_was_when_the_pages_node_comes_back(tmp_path: Path) -> None:
    async with daemons(tmp_path) as cluster, browser.started() as running, browser.tab(running) as tab:
        _, others = await asyncio.to_thread(master_of, cluster)
        own, other = others
        await entered(tab, own)
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        shell = f"echo before; read go < {fifo}; echo $go; sleep 60"
        task = {"id": "writes", "tags": [f"worker={other.name}"], "work": {"shell": shell}}
        await asyncio.to_thread(asked, other, "/v1/events", {"event": "ADD", "tasks": [task]})
        await tab.page.goto(f"http://{own.place.client}/#/tasks/writes")
        log = tab.page.locator(".log")
        await expect(log).to_have_text("before\n")
        await own.kill()
        gone = tab.page.get_by_role("region", name="Node gone")
        await expect(gone).to_contain_text("does not answer")
        await asyncio.to_thread(fifo.write_text, "after\n")
        await own.start()
        await expect(log).to_have_text("before\nafter\n")
        await expect(gone).to_have_count(0)
        assert tab.wrong == []


async def test_a_node_that_is_lost_is_removed_by_a_click(tmp_path: Path) -> None:
    async with daemons(tmp_path) as cluster, browser.started() as running, browser.tab(running) as tab:
        master, others = await asyncio.to_thread(master_of, cluster)
        gone = others[0]
        await entered(tab, master)
        page = tab.page
        await gone.kill()
        await page.goto(f"http://{master.place.client}/#/cluster")
        await expect(page.get_by_role("row").filter(has_text=gone.name).first).to_contain_text("lost")
        behind = page.get_by_role("row").filter(has_text=others[1].name).first.get_by_role("cell").nth(2)
        await expect(behind).to_have_text("0")
        await asyncio.to_thread(
            asked, master, "/v1/events", {"event": "ADD", "tasks": [{"work": {"command": ["true"]}}]}
        )
        behind = page.get_by_role("row").filter(has_text=gone.name).first.get_by_role("cell").nth(2)
        await expect(behind).to_have_text(re.compile(r"^[1-9]\d*$"))
        await page.get_by_role("button", name=f"Remove {gone.name}").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Remove", exact=True).click()
        await expect(dialog).to_have_count(0)
        await expect(page.get_by_role("row").filter(has_text=gone.name)).to_have_count(0)
        names = [node["name"] for node in (await asyncio.to_thread(asked, master, "/v1/cluster"))["nodes"]]
        assert gone.name not in names
        assert tab.wrong == []
