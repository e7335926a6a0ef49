from __future__ import annotations

from pathlib import Path

from tests.cluster.ports import Reserved
from tests.daemon.program import Program
from tests.web.browser import Tab
from tests.web.seen import Seen, expect


async def test_the_link_that_run_prints_leads_in_once(node: Program, tab: Tab) -> None:
    page = tab.page
    await page.goto(node.link)
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    cookie = next(each for each in await tab.context.cookies() if each["name"].startswith("quvatlh-"))
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    await tab.context.clear_cookies()
    await page.goto(node.link)
    await expect(page.get_by_text("That link was used already")).to_be_visible()


async def test_without_a_session_the_page_says_how_to_get_one_and_takes_a_token(node: Program, tab: Tab) -> None:
    page = tab.page
    await page.goto(f"{node.url}/#/tasks")
    await expect(page.get_by_text("quvatlh open")).to_be_visible()
    await page.get_by_label("Token").fill("not-a-token-of-this-node")
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_text("is not known here")).to_be_visible()
    await page.get_by_label("Token").fill((node.data / "token").read_text().strip())
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()


async def test_who_logs_out_is_out(seen: Seen) -> None:
    async with seen.page.expect_event("load"):
        await seen.press("Log out")
    await expect(seen.page.get_by_label("Token")).to_be_visible()
    await seen.page.go_back()
    await expect(seen.page.get_by_label("Token")).to_be_visible()


async def test_a_session_outlives_the_node(tab: Tab, tmp_path: Path) -> None:
    """The same page, the same cookie, the node started anew on the same port."""
    port = Reserved()
    node = Program(tmp_path, QUVATLH_HTTP_LISTEN=port.address)
    try:
        seen = await Seen(node.listening().ready(), tab).entered()
        node.stop()
        await expect(seen.page.get_by_text("does not answer")).to_be_visible()
        node = seen.node = Program(tmp_path, QUVATLH_HTTP_LISTEN=port.address)
        node.listening().ready()
        await expect(seen.page.get_by_text("does not answer")).to_have_count(0)
        await seen.add(id="after", work={"command": ["true"]})
        await seen.at("#/tasks")
        await expect(seen.row("after")).to_be_visible()
    finally:
        node.kill()
        port.release()
