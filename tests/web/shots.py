"""Pictures of every view: `python -m tests.web.shots DIR`. Wide and phone, light and dark; to be looked at by a person."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.daemon.program import Program
from tests.web import browser, scene

VIEWS = {
    "overview": "#/",
    "tasks": "#/tasks",
    "search": "#/tasks?q=queue%3Aemails+state%3Afailed%2Csucceeded",
    "task-running": "#/tasks/long",
    "task-waiting": "#/tasks/waits-for-a-gpu",
    "failed": "#/failed?by=error&open=exit",
    "queues": "#/queues",
    "queue": "#/queues/images",
    "workers": "#/workers?name=alpha",
    "services": "#/services?group=shop",
    "schedules": "#/schedules",
    "cluster": "#/cluster",
}
SIZES = {"wide": browser.WIDE, "phone": browser.PHONE}
SETTLE_MS = 900


async def shoot(node: Program, directory: Path, only: set[str]) -> list[str]:
    wrong: list[str] = []
    async with browser.started() as running:
        for size_name, size in SIZES.items():
            for scheme in ("light", "dark"):
                async with browser.tab(running, size, scheme) as tab:
                    await tab.page.goto(f"{node.url}/#/")
                    await tab.page.get_by_role("heading", name="Qu'vatlh").wait_for()
                    if not only or "login" in only:
                        await tab.page.screenshot(path=directory / f"login-{size_name}-{scheme}.png")
                    link = node.url + node.ask("/v1/session/link", {})["url"]
                    await tab.page.goto(link)
                    await tab.page.get_by_role("navigation").wait_for()
                    for name, place in VIEWS.items():
                        if only and name not in only:
                            continue
                        await tab.page.goto(f"{node.url}/{place}")
                        await tab.page.wait_for_timeout(SETTLE_MS)
                        path = directory / f"{name}-{size_name}-{scheme}.png"
                        await tab.page.screenshot(path=path, full_page=True)
                        width = await tab.page.evaluate("document.documentElement.scrollWidth - innerWidth")
                        if width > 0:
                            wrong.append(f"{path.name}: {width} px wider than the screen")
                    wrong += [f"{size_name} {scheme}: {error}" for error in tab.wrong]
    return wrong


def main(directory: Path, only: set[str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data:
        node = Program(Path(data), "--name", "alpha", "--slots", "3", "--tags", "zone=eu-1,ssd").listening().ready()
        try:
            scene.fill(node)
            scene.settle(node)
            for line in asyncio.run(shoot(node, directory, only)):
                print(line)
        finally:
            node.kill()


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    if lacking := browser.missing():
        sys.exit(lacking)
    main(Path(sys.argv[1]), set(sys.argv[2:]))
