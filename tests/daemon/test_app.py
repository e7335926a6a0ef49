"""`quvatlh run --app`: an app served, told of when it cannot be, loaded anew when its files change, its schedules kept to it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.program import PATIENCE_S, ROOT, Program
from tests.support.executors import end_executor

APP = """
from quvatlh import App
from shop.words import WORD

app = App()


@app.schedule("*/5 * * * *", zone="Europe/Berlin")
def {name}() -> str:
    return WORD
"""
CODE = {"words.py": "WORD = 'one'\n", "__init__.py": "", "tasks.py": APP.format(name="tidy")}
MISSING = "app shop.tasks cannot be loaded: there is no module shop in {directory}, on PYTHONPATH, or in "


class Shop:
    """A directory with an app in it, and a node that is told of it."""

    def __init__(self, directory: Path, *flags: str, code: Mapping[str, str] = {}, **environ: str) -> None:
        self.directory = directory / "code"
        self.directory.mkdir()
        for name, text in code.items():
            self.write(name, text)
        default = json.dumps({"default": {"cwd": str(self.directory)}})
        environ |= {"QUVATLH_WORKER_ENVIRONMENTS": default, "PYTHONPATH": str(ROOT)}
        flags = ("--name", "n", "--slots", "2", "--app", "shop.tasks", *flags)
        self.node = Program(directory / "one", *flags, **environ)
        self._heard = 0

    def write(self, name: str, text: str) -> None:
        """Whole, as editors do it."""
        path = self.directory / "shop" / name
        path.parent.mkdir(exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(text)
        new.replace(path)

    def tells(self, words: str) -> str:
        """The next line of the node's log that has these words."""
        ends = time.monotonic() + PATIENCE_S
        while True:
            told = self.node.told()
            for line in told[self._heard :].splitlines():
                if words in line:
                    self._heard = told.index(line, self._heard) + len(line)
                    return line
            assert time.monotonic() < ends, told
            time.sleep(0.01)

    def run(self, function: str) -> Any:
        return self.node.done(self.node.add(work={"python": f"shop.tasks:{function}"}, retry={"attempts": 1}))

    def schedules(self) -> list[str]:
        return [each["name"] for each in self.node.ask("/v1/schedules")["items"]]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path, "--reload")
    made.node.listening().ready()
    yield made
    made.node.kill()
    end_executor(made.node.data)


def test_an_app_is_told_of_served_and_loaded_anew_as_it_changes(shop: Shop) -> None:
    node = shop.node
    shop.tells(MISSING.format(directory=shop.directory))
    assert shop.run("tidy")["error"]["code"] == "environment"
    for name, text in CODE.items():
        shop.write(name, text)
    told = json.loads(shop.tells("app shop.tasks loaded"))
    assert (told["tasks"], told["schedules"]) == (1, 1)
    shop.tells('"put": ["shop.tasks:tidy"]')
    assert shop.run("tidy")["result"] == "one"
    assert node.ask("/v1/schedules/shop.tasks:tidy/run", {})["task"]

    shop.write("words.py", "WORD = 'another'\n")
    shop.tells("changed: it is loaded anew")
    assert shop.run("tidy")["result"] == "another"

    shop.write("tasks.py", APP.format(name="sweep"))
    shop.tells('"gone": ["shop.tasks:tidy"]')
    assert (shop.schedules(), shop.run("sweep")["result"]) == (["shop.tasks:sweep"], "another")

    shop.write("tasks.py", "def sweep(:\n")
    line = shop.tells("cannot be loaded")
    assert f"{shop.directory}/shop/tasks.py, line 1: invalid syntax" in line
    assert shop.schedules() == ["shop.tasks:sweep"], "who cannot be loaded has said nothing"
    shop.write("tasks.py", "1 / 0\n")
    assert "line 1: ZeroDivisionError: division by zero\\nTraceback" in shop.tells("cannot be loaded")
    shop.write("tasks.py", "def sweep(): return 'plain'\n")
    shop.tells("app shop.tasks has no App")
    shop.tells('"gone": ["shop.tasks:sweep"]')
    assert (shop.schedules(), shop.run("sweep")["result"]) == ([], "plain")
    assert node.process.poll() is None


def test_a_worker_alone_puts_schedules_through_its_node_and_a_person_has_it_loaded_anew(tmp_path: Path) -> None:
    token = {"QUVATLH_TOKEN": "a-token-of-both-that-is-long-enough"}
    main = Program(tmp_path / "main", "--name", "main", "--slots", "0", **token).listening().ready()
    (main.data / "token").write_text(token["QUVATLH_TOKEN"])
    shop = Shop(tmp_path, "--role", "worker", "--server", main.url, code=CODE, **token)
    work = {"python": "shop.tasks:tidy"}
    try:
        shop.tells('"put": ["shop.tasks:tidy"]')
        assert [each["name"] for each in main.ask("/v1/schedules")["items"]] == ["shop.tasks:tidy"]
        assert main.done(main.add(work=work))["result"] == "one"
        shop.write("words.py", "WORD = 'another'\n")
        shop.write("tasks.py", APP.format(name="tidy").replace("*/5", "61"))
        assert main.ask("/v1/workers/n/reload", {}) == {"worker": "n", "environments": ["default"]}
        assert "cron" in shop.tells("schedule shop.tasks:tidy is refused")
        assert main.done(main.add(work=work))["result"] == "another"
    finally:
        for program in (shop.node, main):
            program.kill()
            end_executor(program.data)
