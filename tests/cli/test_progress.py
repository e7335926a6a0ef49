"""Bars as a terminal shows them: a pseudo-terminal is what standard error is, and what was drawn on it is looked at."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from typing import Any, Self

import pytest

from tests.cli.stage import Stage
from tests.fakes.pool import TOKEN

COMMAND = [sys.executable, "-c", "from quvatlh.cli.main import main; main(prog_name='quvatlh')"]
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
SECONDS_MAX = 60


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as made:
        yield made


class Watched:
    """A command whose standard error is a terminal of 100 columns."""

    def __init__(self, stage: Stage, *args: str) -> None:
        self._own, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        environ = {key: value for key, value in os.environ.items() if not key.startswith("QUVATLH_")}
        environ |= {"QUVATLH_URL": stage.url, "QUVATLH_TOKEN": TOKEN, "TERM": "xterm", "COLUMNS": "100"}
        self._process = subprocess.Popen([*COMMAND, *args], stdout=subprocess.PIPE, stderr=theirs, env=environ)
        os.close(theirs)
        self.shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        os.close(self._own)

    def until(self, text: str) -> None:
        """It is drawn, after what was waited for before; that is forgotten."""
        ends = time.monotonic() + SECONDS_MAX
        while text not in self.shown:
            assert select.select([self._own], [], [], max(0, ends - time.monotonic()))[0], self.shown[-200:]
            assert time.monotonic() < ends, self.shown[-200:]
            self.shown += SEQUENCE.sub("", os.read(self._own, 65536).decode(errors="replace"))
        self.shown = self.shown.partition(text)[2]

    def ended(self) -> tuple[int, bytes]:
        out, _ = self._process.communicate(timeout=SECONDS_MAX)
        return self._process.returncode, out


def add(stage: Stage, *ids: str) -> None:
    tasks: list[Any] = [{"id": each, "spec": {"work": {"command": ["true"]}}} for each in ids]
    stage.call(lambda: stage.pool._add(tasks))
    for each in ids:
        stage.tell(["start", each])


def say(stage: Stage, task_id: str, percent: int | None, text: str | None) -> None:
    def change() -> None:
        stage.pool.records[task_id]["actions"][-1]["progress"] = {"percent": percent, "text": text}

    stage.call(change)


def test_the_bar_of_one_task_is_its_own_progress_with_its_text(stage: Stage) -> None:
    add(stage, "t")
    with Watched(stage, "wait", "t") as watched:
        watched.until("waiting ")
        say(stage, "t", None, "looking")
        watched.until("looking")
        say(stage, "t", 12, "copying [bold]a[/]\r\x1b[2J b")
        watched.until("12 % copying [bold]a[/]  [2J b")
        say(stage, "t", 100, None)
        watched.until("100 %")
        stage.tell(["succeed", "t"])
        assert watched.ended() == (0, b"t succeeded in 0ms\n")


def test_the_bar_of_many_is_how_many_have_finished(stage: Stage) -> None:
    add(stage, "a", "b", "c")
    say(stage, "a", 50, "half")
    with Watched(stage, "wait", "a", "b", "c") as watched:
        watched.until("0/3")
        stage.tell(["succeed", "b"])
        watched.until("1/3")
        stage.tell(["succeed", "c"])
        watched.until("2/3")
        assert "half" not in watched.shown
        stage.tell(["succeed", "a"])
        assert watched.ended()[0] == 0
