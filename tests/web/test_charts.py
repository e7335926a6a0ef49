"""What a chart says of a moment: under a pointer, by keys, under a finger; and that nothing runs while nobody points."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.web import browser
from tests.web.seen import Seen, expect

SLOTS = 12
START = "2026-03-01T12:00:00.000Z"
"""Of the first slot, long ago for the browser: then the date is told with the time."""


def history() -> dict[str, Any]:
    """A minute, in which each slot is told from all others. The last one is still being filled."""
    counted = [5 * n for n in range(SLOTS)]
    names = ("added", "claimed", "succeeded", "failed", "retrying", "deleted")
    gauges = ("scheduled", "pending", "claimed", "running", "retrying", "failed")
    waits: list[int | None] = [None if n < 2 else 100 * n for n in range(SLOTS)]
    return {
        "step": "5s",
        "from": START,
        "counts": dict.fromkeys(names, counted),
        "waits": {"wait_p50_ms": waits, "wait_p95_ms": [each and each * 10 for each in waits]},
        "tasks": {name: list(range(SLOTS)) for name in gauges},
        "live": {},
    }


async def shown(seen: Seen) -> None:
    async def answer(route: Any) -> None:
        await route.fulfill(status=200, content_type="application/json", body=json.dumps(history()))

    await seen.page.route("**/v1/history", answer)
    await seen.page.reload()
    await expect(seen.page.get_by_role("slider")).to_have_count(4)


def plot(seen: Seen, title: str) -> Any:
    return seen.page.get_by_role("slider", name=re.compile(f"^{title},"))


async def spot(seen: Seen, title: str, share: float) -> tuple[float, float]:
    """So far along the time of a chart; its first fifteenth are the axis."""
    await plot(seen, title).scroll_into_view_if_needed()
    box = await plot(seen, title).bounding_box()
    return box["x"] + box["width"] * (1 + 14 * share) / 15, box["y"] + 60


async def test_what_was_under_the_pointer_is_read_while_it_points(seen: Seen) -> None:
    await shown(seen)
    readouts = seen.page.locator(".readout")
    await expect(readouts).to_have_count(0)
    await seen.page.mouse.move(*await spot(seen, "Tasks a second", 0.5))
    await expect(readouts).to_have_text(re.compile(r":30.* ago.*added 5.*done 5.*failed 5"))
    line = await seen.page.locator(".pointed .at").bounding_box()
    x, _ = await spot(seen, "Tasks a second", 0.5)
    assert line is not None
    assert abs(line["x"] - x) < 2
    await seen.page.mouse.move(*await spot(seen, "Wait until the start", 0.99))
    await expect(readouts).to_have_count(1)
    await expect(readouts).to_contain_text("95 of 100 10 s")
    await expect(readouts).to_contain_text("half 1.0 s")
    await seen.page.mouse.move(*await spot(seen, "Wait until the start", 0))
    await expect(readouts).to_contain_text("half \N{EN DASH}")
    await expect(seen.page.locator(".pointed .dot")).to_have_count(0)
    await seen.page.mouse.move(2, 2)
    await expect(readouts).to_have_count(0)


async def test_it_stays_where_it_is_while_the_page_is_drawn_anew(seen: Seen) -> None:
    await shown(seen)
    await seen.page.mouse.move(*await spot(seen, "Running", 0.5))
    readout = seen.page.locator(".readout")
    await expect(readout).to_contain_text("running 12")
    await seen.page.evaluate("window.kept = document.querySelector('.readout')")
    await seen.page.evaluate("document.querySelector('.chart .line').setAttribute('d', '')")
    async with seen.page.expect_response("**/v1/history"):
        pass
    await seen.drawn()
    await expect(readout).to_contain_text("running 12")
    assert await seen.page.evaluate("window.kept.isConnected")


async def test_the_keys_go_from_moment_to_moment_and_each_is_heard_once(seen: Seen) -> None:
    await shown(seen)
    rates, readout = plot(seen, "Tasks a second"), seen.page.locator(".readout")
    await expect(rates).to_have_attribute("aria-valuetext", "now: added 10, done 10, failed 10")
    await expect(rates).to_have_attribute("aria-valuemax", "10")
    await seen.page.get_by_role("link", name=re.compile("^Failed")).last.focus()
    for _ in range(20):
        if await rates.evaluate("(e) => e === document.activeElement"):
            break
        await seen.page.keyboard.press("Tab")
    await expect(readout).to_contain_text("added 10")
    for key, value in (("ArrowLeft", "9"), ("ArrowLeft", "8"), ("ArrowRight", "9"), ("Home", "0"), ("PageUp", "10")):
        await seen.page.keyboard.press(key)
        await expect(readout).to_contain_text(f"added {value}")
        heard = await rates.get_attribute("aria-valuetext")
        assert heard is not None
        assert heard.endswith(f"added {value}, done {value}, failed {value}"), heard
        assert await rates.get_attribute("aria-valuenow") == value
    await seen.page.keyboard.press("Escape")
    await expect(readout).to_have_count(0)
    await seen.page.keyboard.press("ArrowLeft")
    await expect(readout).to_contain_text("added 9")
    await seen.page.evaluate("""() => {
        window.heard = 0;
        const it = document.activeElement;
        new MutationObserver(() => { window.heard += 1; }).observe(it, { attributeFilter: ["aria-valuetext"] });
    }""")
    async with seen.page.expect_response("**/v1/history"):
        pass
    await seen.drawn()
    assert await seen.page.evaluate("window.heard") <= 1
    assert "added 9" in str(await rates.get_attribute("aria-valuetext"))
    await seen.page.keyboard.press("Tab")
    await expect(rates).to_have_attribute("aria-valuetext", "now: added 10, done 10, failed 10")


async def test_a_finger_reads_it_on_a_phone_and_the_page_is_no_wider(seen: Seen) -> None:
    async with browser.started() as running, browser.tab(running, browser.PHONE, "dark") as tab:
        phone = await Seen(seen.node, tab).entered()
        await shown(phone)
        for share, value in ((0.0, 0), (0.45, 5), (0.99, 11)):
            await phone.page.touchscreen.tap(*await spot(phone, "Waiting", share))
            readout = phone.page.locator(".readout")
            await expect(readout).to_contain_text(f"ready {value}")
            box = await readout.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= browser.PHONE[0]
        assert await phone.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        await phone.page.touchscreen.tap(*await spot(phone, "Running", 0.5))
        await expect(phone.page.locator(".readout")).to_have_count(1)


async def test_nothing_is_drawn_for_it_while_nobody_points(seen: Seen) -> None:
    await shown(seen)
    await seen.page.evaluate("""() => {
        window.touched = 0;
        const all = [...document.querySelectorAll(".pointed")];
        const observer = new MutationObserver((records) => { window.touched += records.length; });
        for (const each of all) observer.observe(each, { subtree: true, childList: true, attributes: true });
    }""")
    async with seen.page.expect_response("**/v1/history"):
        pass
    await seen.drawn()
    assert await seen.page.evaluate("window.touched") == 0
