"""Whoever may add a task chooses its names, keys, outputs and errors: none of it is ever more than text on the page."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.web.seen import Seen, expect

MARK = "pwned"
REFUSED = "Trusted(HTML|Script)|Content[- ]Security[- ]Policy"
"""What a browser writes of what it has refused."""
CORPUS = (
    f"<script>window.{MARK}=1</script>",
    f"<img src=x onerror=window.{MARK}=1>",
    f"<svg onload=window.{MARK}=1>",
    f"\"><iframe srcdoc='<script>parent.{MARK}=1</script>'>",
    f"javascript:window.{MARK}=1",
    f"'-window.{MARK}=1-'",
    f"{{{{constructor.constructor('window.{MARK}=1')()}}}}",
    f"<a href='javascript:window.{MARK}=1' autofocus onfocus=window.{MARK}=1>x</a>",
    "</bdi></td></table><style>*{display:none}</style>",
    "${7*7}<%= 7*7 %>`id`",
)
PLACES = (
    "#/",
    "#/tasks",
    "#/failed?by=error",
    "#/failed?by=name",
    "#/failed?by=queue",
    "#/failed?by=group",
    "#/failed?by=worker",
    "#/services",
    "#/workers",
    "#/queues",
)


async def add_hostile(seen: Seen, number: int, text: str) -> str:
    """In every field that a producer controls."""
    plain = text.replace("/", "|")  # a slash may stand in names and keys alone
    quoted = "'" + text.replace("'", "'\\''") + "'"
    task: dict[str, Any] = {
        "id": f"hostile-{number}",
        "name": text,
        "key": text,
        "group": plain,
        "queue": plain,
        "payload": {text: text, "turned": "\u202egnp.exe"},
        "retry": {"attempts": 1},
        "work": {"shell": f"printf %s {quoted}; printf %s {quoted} >&2; exit 9", "env": {"X": text}},
        "unique": {"key": text, "while": "10s"},
    }
    added = await seen.add(**task)
    await seen.add(
        id=f"waiting-{number}", name=text, group=plain, queue=plain, tags=[plain], work={"command": [text, text]}
    )
    return added


@pytest.mark.parametrize(("number", "text"), list(enumerate(CORPUS)))
async def test_a_producers_words_are_shown_and_never_run(seen: Seen, number: int, text: str) -> None:
    page = seen.page
    foreign: list[str] = []
    page.on(
        "request", lambda request: foreign.append(request.url) if not request.url.startswith(seen.node.url) else None
    )
    failed = await add_hostile(seen, number, text)
    await seen.state(failed, "failed")
    plain = text.replace("/", "|")
    await seen.at(f"#/tasks/{failed}")
    await expect(page.get_by_role("heading", level=1)).to_have_text(text)
    await expect(page.locator(".log")).to_contain_text(text)
    await page.get_by_text("as the interface tells it").click()
    await seen.at(f"#/tasks/waiting-{number}")
    await expect(page.get_by_label("Why it is not running")).to_contain_text(plain)
    for place in PLACES:
        await seen.at(place)
        await expect(page.locator("main")).not_to_contain_text("reading…")
        await unharmed(seen)
    await seen.at("#/tasks")
    await page.get_by_role("combobox", name="Search tasks").fill("queue:")
    await expect(page.get_by_role("option").filter(has_text=plain.split()[0][:20]).first).to_be_visible()
    await unharmed(seen)
    assert foreign == []
    await seen.ask("/v1/tasks/delete", {"ids": [failed, f"waiting-{number}"]})


@pytest.mark.parametrize(("number", "text"), list(enumerate(CORPUS)))
async def test_what_workers_policies_results_and_schedules_say_is_text_too(seen: Seen, number: int, text: str) -> None:
    page, plain = seen.page, text.replace("/", "|")
    await seen.tell(
        "PUT",
        f"/v1/schedules/{quote(plain, safe='')}",
        {"every": "1h", "task": {"name": text, "work": {"command": [text]}}},
    )
    await seen.add(id=f"pulled-{number}", queue=f"pull-{number}", retry={"attempts": 1}, work={"pull": True})
    claim = {"worker": plain, "queues": [f"pull-{number}"], "tags": [plain], "wait": "20s", "lease": "10m"}
    (action,) = (await seen.ask("/v1/work/claim", claim))["actions"]
    held = {"action": action["action"], "token": action["token"]}
    await seen.ask("/v1/work/progress", {**held, "percent": 50, "text": text})
    await seen.at(f"#/tasks/pulled-{number}")
    await expect(page.locator("main")).to_contain_text("50 %")
    await expect(page.locator("main")).to_contain_text(text)
    await seen.at(f"#/workers?name={quote(plain, safe='')}")
    await expect(page.get_by_label("Runs now", exact=True)).to_contain_text(f"pulled-{number}")
    await seen.ask("/v1/work/fail", {**held, "error": {"code": plain, "text": text}, "permanent": True})
    await seen.at(f"#/tasks/pulled-{number}")
    await expect(page.get_by_label("Error", exact=True)).to_contain_text(text)
    await unharmed(seen)
    lua = f"function(state, task) error([==[{text}]==]) end"
    announce = f"function() return {{says = [==[{text}]==]}} end"
    await seen.add(id=f"judged-{number}", policy=lua, work={"command": ["true"]})
    await seen.add(id=f"tells-{number}", work={"python": "builtins:str", "args": [text]})
    service = {"kind": "service", "slots": 0, "group": plain, "announce": announce}
    await seen.add(id=f"serves-{number}", name=text, **service, work={"command": ["sleep", "60"]})
    await seen.at(f"#/tasks/judged-{number}")
    await expect(page.get_by_label("What each worker says")).to_contain_text(text)
    await seen.state(f"tells-{number}", "succeeded")
    await seen.at(f"#/tasks/tells-{number}")
    await expect(page.get_by_label("Result")).to_contain_text(text)
    await unharmed(seen)
    await seen.state(f"serves-{number}", "running")
    await seen.at(f"#/services?group={quote(plain, safe='')}")
    await expect(page.get_by_label("Announcements")).to_contain_text("says")
    for place in ("#/schedules?name=", "#/queues/", "#/failed?by=error&open=", "#/services?group="):
        await seen.at(place + quote(plain, safe=""))
        await expect(page.locator("main")).not_to_contain_text("reading…")
        await expect(page.locator("main")).to_contain_text(plain)
        await unharmed(seen)
    await seen.ask("/v1/tasks/delete", {"ids": [f"serves-{number}", f"judged-{number}"]})


async def unharmed(seen: Seen) -> None:
    found = await seen.page.evaluate(
        f"""() => [typeof window.{MARK}, document.querySelectorAll('main script, main img, main iframe, main style, main [onerror]').length,
            [...document.querySelectorAll('a')].filter((a) => a.protocol === 'javascript:').length,
            getComputedStyle(document.querySelector('main')).display]"""
    )
    assert found == ["undefined", 0, 0, "block"]
    assert seen.tab.wrong == []


async def test_a_problem_that_repeats_what_was_asked_is_text_too(seen: Seen) -> None:
    await seen.at(f"#/tasks/{'%3Cimg%20src%3Dx%20onerror%3Dwindow.pwned%3D1%3E'}")
    await expect(seen.page.get_by_role("alert")).to_contain_text("there is no task")
    await unharmed(seen)


async def test_beneath_it_the_browser_itself_refuses(seen: Seen) -> None:
    """Were there a way to have something parsed, or code that is not ours, the policy of the page would stop it."""
    tries = """() => {
        const found = [];
        const attempt = (name, action) => { try { action(); found.push(name); } catch { /* refused */ } };
        attempt('innerHTML', () => { document.createElement('div').innerHTML = '<b>x</b>'; });
        attempt('eval', () => (0, eval)('1'));
        attempt('write', () => document.write('x'));
        const script = document.createElement('script');
        attempt('inline', () => { script.textContent = 'window.pwned = 1'; });
        return [found, typeof window.pwned];
    }"""
    seen.tab.forgiven.append(REFUSED)
    # The driver's own evaluations are let through eval: what counts is what a page's code could do.
    found, mark = await seen.page.evaluate(tries)
    assert mark == "undefined"
    assert [name for name in found if name != "eval"] == []
