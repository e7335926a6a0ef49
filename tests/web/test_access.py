"""What a token may decides what is shown: nothing is offered that would be refused, and nothing asked for either."""

from __future__ import annotations

import asyncio
import re
import urllib.error
from typing import Any

import pytest

from tests.daemon.program import Program
from tests.web.browser import Tab
from tests.web.seen import Seen, expect

VIEWS = (
    "#/",
    "#/tasks",
    "#/tasks/mail-1",
    "#/failed",
    "#/failed?by=queue",
    "#/queues",
    "#/queues/mail",
    "#/workers?name=alpha",
    "#/services?group=shop",
    "#/schedules?name=nightly",
    "#/cluster",
)
HARMLESS = {"Pause", "Log out", "Make a link", "stdout", "stderr", "error", "queue", "name", "group", "worker"}
"""Buttons that change nothing in the cluster."""
OFFERED = """() => [...document.querySelectorAll('#main button, #main input[type=checkbox], [draggable=true], .top button')]
    .filter((e) => !e.closest('thead') || e.type === 'checkbox')
    .map((e) => e.getAttribute('aria-label') || e.innerText.trim() || e.type)"""


@pytest.fixture(scope="module")
def filled(node: Program) -> Program:
    """In queue mail of group shop, and elsewhere, something of each kind."""
    for queue, group in (("mail", "shop"), ("images", "shop"), ("mail", "lab")):
        which = queue if group == "shop" else group
        node.add(id=f"{which}-1", queue=queue, group=group, tags=["never"], work={"command": ["true"]})
        node.add(id=f"{which}-2", queue=queue, group=group, retry={"attempts": 1}, work={"shell": "exit 3"})
    for name, queue in (("nightly", "mail"), ("others", "images")):
        task = {"queue": queue, "group": "shop", "work": {"command": ["true"]}}
        node.ask(f"/v1/schedules/{name}", {"cron": "@daily", "task": task}, method="PUT")
    return node


class As(Seen):
    """A person with a token of his own."""

    refused: list[str]

    async def logged_in(self, name: str, role: str, **scope: list[str]) -> As:
        made = await self.ask("/v1/tokens", {"name": name, "role": role, **scope})
        self.refused = []
        self.page.on("response", lambda got: self.refused.append(got.url) if got.status == 403 else None)
        await self.page.goto(f"{self.node.url}/#/login")
        await self.page.get_by_label("Token").fill(made["secret"])
        await self.press("Log in")
        await expect(self.page.get_by_role("navigation")).to_be_visible()
        return self

    async def offered(self, place: str) -> set[str]:
        """What may be pressed there, once it is drawn."""
        await self.at(place)
        await self.page.reload()
        await expect(self.page.locator("#main > *").first).to_be_visible()
        await expect(self.page.locator("#main .loading")).to_have_count(0)
        found = set(await self.page.evaluate(OFFERED)) - HARMLESS
        return {words for words in found if not words.startswith("copy ")}


@pytest.fixture
async def someone(filled: Program, tab: Tab) -> As:
    return As(filled, tab)


async def test_a_viewer_is_offered_nothing_that_changes_anything(someone: As) -> None:
    seen = await someone.logged_in("vera", "viewer")
    await expect(seen.page.get_by_role("navigation")).to_contain_text("viewer")
    for place in VIEWS:
        assert await seen.offered(place) == set(), place
    await seen.at("#/tasks")
    await expect(seen.row("images-1")).to_be_visible()
    await seen.at("#/cluster")
    await expect(seen.page.get_by_role("heading", name="Tokens")).to_have_count(0)
    await expect(seen.page.get_by_role("link", name="Save a backup")).to_have_count(0)
    assert seen.refused == []


async def test_a_narrowed_operator_sees_and_changes_his_own(someone: As) -> None:
    seen = await someone.logged_in("otto", "operator", queues=["ma*"], groups=["shop"])
    page = seen.page
    await expect(page.get_by_role("navigation")).to_contain_text("queues ma*; groups shop")
    for place in VIEWS:
        await seen.offered(place)
        await expect(page.locator("#main .problem")).to_have_count(0)
    assert seen.refused == []
    await seen.at("#/tasks")
    await expect(seen.row("mail-1")).to_be_visible()
    for other in ("images-1", "lab-1"):
        await expect(seen.row(other)).to_have_count(0)
    await seen.at("#/tasks/images-1")
    await expect(page.get_by_text("there is no task images-1")).to_be_visible()
    await seen.at("#/schedules")
    await expect(seen.row("nightly")).to_be_visible()
    await expect(seen.row("others")).to_have_count(0)
    assert await seen.offered("#/queues/mail") == set()
    assert await seen.offered("#/workers?name=alpha") == set()
    await seen.at("#/tasks/mail-1")
    await seen.press("Change…")
    await seen.dialog.get_by_label("Queue").fill("images")
    await seen.dialog.get_by_role("button", name="Change", exact=True).click()
    await expect(seen.dialog.get_by_role("alert")).to_contain_text("images is none of this token's queues, ma*")
    await seen.dialog.get_by_label("Queue").fill("mails")
    await seen.agree("Change")
    assert (await seen.ask("/v1/tasks/mail-1"))["queue"] == "mails"


async def test_a_producer_may_delete_and_not_retry(someone: As) -> None:
    seen = await someone.logged_in("pia", "producer")
    assert await seen.offered("#/tasks/lab-1") == {"Delete"}
    await seen.press("Delete")
    await seen.agree("Delete")
    await seen.state("lab-1", "deleted")
    offered = await seen.offered("#/failed?open=exit")
    assert "Delete all of exit" in offered
    assert all(words.startswith("Delete ") for words in offered), offered


async def test_an_admin_makes_a_token_whose_secret_is_shown_once_and_revokes_it(seen: Seen) -> None:
    page = await seen.at("#/cluster")
    await seen.press("New token")
    await seen.dialog.get_by_label("Name").fill("webshop")
    await seen.dialog.get_by_label("Role").select_option("producer")
    await seen.dialog.get_by_role("textbox", name="Queues").fill("emails images-*")
    await seen.dialog.get_by_role("textbox", name="Expires after").fill("30d")
    await seen.dialog.get_by_role("button", name="Make", exact=True).click()
    await expect(seen.dialog).to_contain_text("shown this once")
    secret = await seen.dialog.locator("code").inner_text()
    await seen.agree("Done")
    await expect(seen.row("webshop")).to_contain_text("producer")
    await expect(seen.row("webshop")).to_contain_text("images-*")
    await expect(seen.row("webshop")).to_contain_text(re.compile(r"in \d+ d"))
    assert secret not in await page.content()
    told = await seen.ask("/v1/tokens/webshop")
    assert (told["role"], told["queues"], told["groups"]) == ("producer", ["emails", "images-*"], ["*"])
    assert secret not in str(told)
    session = await with_token(seen, secret, "/v1/session")
    assert (session["name"], session["until"]) == ("webshop", told["expires_at"])
    await seen.press("New token")
    await seen.dialog.get_by_label("Name").fill("webshop")
    await seen.dialog.get_by_role("button", name="Make", exact=True).click()
    await expect(seen.dialog.get_by_role("alert")).to_contain_text("there is another token named webshop")
    await page.keyboard.press("Escape")
    await seen.press("Revoke webshop")
    await seen.agree("Revoke")
    await expect(seen.row("webshop")).to_have_count(0)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        await with_token(seen, secret, "/v1/session")


async def test_a_page_whose_token_is_revoked_is_out(someone: As) -> None:
    seen = await someone.logged_in("tina", "operator")
    await expect(seen.page.get_by_role("heading", name="Overview")).to_be_visible()
    await asyncio.to_thread(seen.node.ask, "/v1/tokens/tina", method="DELETE")
    await expect(seen.page.get_by_label("Token")).to_be_visible()


async def test_the_cluster_tells_how_large_log_and_snapshot_are(seen: Seen) -> None:
    page = await seen.at("#/cluster")
    (node,) = (await seen.ask("/v1/cluster"))["nodes"]
    assert node["log_bytes"] > 0
    assert node["snapshot_bytes"] > 0
    row = page.get_by_role("row").filter(has_text="this page")
    await expect(row).to_contain_text("KiB")
    await expect(page.get_by_role("columnheader", name="Log", exact=True)).to_be_visible()
    await expect(page.get_by_role("columnheader", name="Snapshot", exact=True)).to_be_visible()


async def with_token(seen: Seen, secret: str, path: str) -> Any:
    return await asyncio.to_thread(seen.node.ask, path, token=secret)
