"""`quvatlh top` as a person has it: in a terminal, against a daemon, with keys."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.ports import Reserved
from tests.daemon.program import PATIENCE_S, ROOT, Program

pytestmark = pytest.mark.long

BEGIN = "import os; os.open(os.ttyname(0), os.O_RDWR); from quvatlh.cli.main import main; main()"
"""Who opens a terminal as leader of a new session is controlled by it: Ctrl-C is a signal."""
PIECES = re.compile(r"\x1b\[(\d+);1H|\x1b\[(\?)?([\d;]*)([A-Za-z])|([^\x1b]+)")


class Screen:
    """A pseudo-terminal with as much of a terminal as top writes: lines, clearing, the other screen."""

    def __init__(self, node: Program, first: str = "", **environ: str) -> None:
        """`first` is said to Python before the command begins."""
        self.keys, self._terminal = os.openpty()
        self.before = termios.tcgetattr(self._terminal)
        self.lines: dict[int, str] = {}
        self.raw = ""
        self.modes: set[str] = set()
        self._row = 1
        self._decode = codecs.getincrementaldecoder("utf-8")()
        self._rest = ""
        """The beginning of a sequence."""
        token = (node.data / "token").read_text().strip()
        self.resize(80, 24)
        self.process = subprocess.Popen(
            [sys.executable, "-c", first + BEGIN, "top"],
            cwd=ROOT,
            env=os.environ | {"QUVATLH_URL": node.url, "QUVATLH_TOKEN": token, "TERM": "xterm"} | environ,
            stdin=self._terminal,
            stdout=self._terminal,
            stderr=self._terminal,
            start_new_session=True,
        )

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.keys, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.keys, keys.encode())

    def text(self) -> str:
        return "\n".join(self.lines.get(row, "").rstrip() for row in range(1, max(self.lines, default=0) + 1))

    def until(self, *words: str) -> str:
        """All of them are on the screen."""
        return self.when(lambda text: all(each in text for each in words), words)

    def when(self, holds: Callable[[str], bool], told: Any = None) -> str:
        ends = time.monotonic() + PATIENCE_S
        while not holds(self.text()):
            assert time.monotonic() < ends, (told, self.text())
            assert self.process.poll() is None, (told, self.text())
            self._read(0.1)
        return self.text()

    def ended(self) -> int:
        ends = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < ends, self.text()
            self._read(0.05)
        self._read(0.0)
        return self.process.returncode

    def restored(self) -> bool:
        return termios.tcgetattr(self._terminal) == self.before and not self.modes

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.keys)
        os.close(self._terminal)

    def _read(self, timeout_s: float) -> None:
        if not select.select([self.keys], [], [], timeout_s)[0]:
            return
        data = b""
        with contextlib.suppress(OSError):
            while select.select([self.keys], [], [], 0)[0] and (more := os.read(self.keys, 65536)):
                data += more
        text = self._rest + self._decode.decode(data)
        self.raw += text[len(self._rest) :]
        whole = re.sub(r"\x1b[^A-Za-z]*\Z", "", text)
        self._rest = text[len(whole) :]
        for row, private, codes, letter, words in PIECES.findall(whole):
            self._take(row, private, codes, letter, words)

    def _take(self, row: str, private: str, codes: str, letter: str, words: str) -> None:
        if row:
            self._row = int(row)
            self.lines[self._row] = ""
        elif words:
            self.lines[self._row] = self.lines.get(self._row, "") + words
        elif private and codes in {"1049", "25", "7"}:
            self._mode(codes, is_set=letter == "h")
        elif letter == "J":
            self.lines.clear()

    def _mode(self, code: str, *, is_set: bool) -> None:
        """What differs from a terminal at rest: the other screen; no cursor; no wrapping."""
        (self.modes.add if is_set is (code == "1049") else self.modes.discard)(code)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path / "one")
    yield program.listening().ready()
    program.kill()


@pytest.fixture
def begin() -> Iterator[Callable[..., Screen]]:
    made: list[Screen] = []

    def start(node: Program, first: str = "", **environ: str) -> Screen:
        made.append(Screen(node, first, **environ))
        return made[-1]

    yield start
    for screen in made:
        screen.close()


def test_it_shows_what_happens_and_leaves_the_terminal_as_it_was(node: Program, begin: Callable[..., Screen]) -> None:
    screen = begin(node)
    screen.until("[1 overview]", "All is well", "quvatlh add -- echo hello", "q quit")
    assert screen.modes == {"1049", "25", "7"}
    task = node.add(queue="letters", work={"shell": "echo said; exit 3"}, retry={"attempts": 1})
    assert node.done(task)["state"] == "failed"
    screen.until("letters", "exit status 3", "1 failed")
    screen.press("2")
    screen.until("[2 queues]", "> letters")
    screen.press("\r")
    screen.until("queue letters", "discipline")
    screen.press("q3")
    screen.until("[3 tasks]", "> failed", "exit status 3")
    screen.press("\r")
    screen.until(task, "| said")
    screen.resize(120, 40)
    screen.when(lambda text: len(text.splitlines()) == 40)
    screen.press("q4")
    screen.until("[4 workers]", "0 of ")
    screen.press("/queue:nothere\r")
    screen.until("filter queue:nothere", "No task fits.")
    screen.press("q")
    assert screen.ended() == 0
    assert screen.restored()
    assert screen.raw.endswith("\x1b[?1049l")


def test_ctrl_c_and_a_signal_leave_the_terminal_as_it_was(node: Program, begin: Callable[..., Screen]) -> None:
    for key, status in (("\x03", 130), ("\x04", 0), ("", 0)):
        screen = begin(node, NO_COLOR="1")
        screen.until("All is well")
        if key:
            screen.press(key)
        else:
            screen.process.send_signal(signal.SIGTERM)
        assert screen.ended() == status
        assert screen.restored()
        assert not re.search(r"\x1b\[[\d;]*3[0-7]m", screen.raw), "a colour"


def test_a_script_gets_one_frame_or_its_data(node: Program) -> None:
    node.done(node.add(queue="letters", work={"command": ["true"]}))
    environ = os.environ | {"QUVATLH_URL": node.url, "QUVATLH_TOKEN": (node.data / "token").read_text().strip()}

    def told(*words: str) -> str:
        command = [sys.executable, "-c", "from quvatlh.cli.main import main; main()", "top", *words]
        return subprocess.run(command, cwd=ROOT, env=environ, check=True, capture_output=True, text=True).stdout

    frame = told("--once", "--view", "queues")
    assert re.search(r"^> letters +0 ", frame, re.MULTILINE)
    assert "\x1b" not in frame
    data = json.loads(told("--json"))
    assert data["queues"]["items"][0]["name"] == "letters"
    assert data["cluster"]["master"]


def test_a_crash_is_told_on_the_terminal_as_it_was(node: Program, begin: Callable[..., Screen]) -> None:
    screen = begin(node, "import quvatlh.cli.top as broken; broken.press = None; ")
    screen.until("All is well")
    screen.press("2")
    assert screen.ended() == 1
    assert screen.restored()
    assert "TypeError" in screen.raw.partition("\x1b[?1049l")[2]


def test_a_node_that_goes_away_is_told_and_found_again(tmp_path: Path, begin: Callable[..., Screen]) -> None:
    reserved = Reserved()
    first = Program(tmp_path / "one", "--http", reserved.address).listening().ready()
    again = None
    try:
        screen = begin(first)
        screen.until("live", "All is well")
        first.kill()
        screen.until("gone", "No answer", "All is well")
        screen.press("3")
        screen.until("[3 tasks]", "gone")
        again = Program(tmp_path / "one", "--http", reserved.address).listening().ready()
        screen.until("live", "No tasks.")
        again.add(name="afterwards", work={"command": ["true"]})
        screen.until("afterwards")
        screen.press("q")
        assert screen.ended() == 0
    finally:
        for program in (first, again):
            if program is not None:
                program.kill()
        reserved.release()
