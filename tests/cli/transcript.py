"""Transcripts: what a person types and sees, one text file a story, run against a real server.

```
# a comment
@ later 5m                 something happens at the node: the words of stage.py
@ terminal 80              from here on a terminal of so many columns watches; `@ pipe` ends that
@ file tasks.yaml          a file with the lines `< ...` below it
$ quvatlh add -- echo hi   a command
< yes                      a line of its standard input
> 000000000001-0000        a line of its standard output
! quvatlh: no              a line of its standard error
= 1                        its exit status; none means 0
```
`python -m tests.cli.transcript` writes anew what the commands print now: read the diff before you keep it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from click.testing import CliRunner

from quvatlh.cli.main import main
from quvatlh.cli.surroundings import Surroundings
from tests.cli.stage import Stage
from tests.fakes.pool import TOKEN

HERE = Path(__file__).parent / "transcripts"
OUTPUT = ("> ", "! ", "= ")
PYTHON_ONLY = re.compile(r"--idempotency-key [0-9a-f]{32}")


@dataclass
class Step:
    """A line and what hangs on it."""

    line: str
    given: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)


def stories() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.txt"))


def parse(text: str) -> list[Step]:
    steps: list[Step] = []
    for line in text.splitlines():
        if line.startswith("<"):
            steps[-1].given.append(line[2:])
        elif line.startswith(OUTPUT) or line in {">", "!"}:
            steps[-1].expected.append(line)
        else:
            steps.append(Step(line))
    return steps


def play(name: str) -> tuple[str, str]:
    """The text as it stands, and as it would be written now."""
    text = (HERE / f"{name}.txt").read_text()
    made: list[str] = []
    with (
        tempfile.TemporaryDirectory() as directory,
        _inside(directory),
        Stage() as stage,
        contextlib.ExitStack() as stack,
    ):
        player = _Player(stage, directory)
        stack.callback(player.close)
        for step in parse(text):
            made += [step.line, *(f"< {line}".rstrip() for line in step.given), *player.take(step)]
    return text, "\n".join(made) + "\n"


class _Player:
    def __init__(self, stage: Stage, directory: str) -> None:
        self._stage = stage
        self._directory = directory
        self._columns: int | None = None
        # Bound and not listening: nobody else gets the port, and whoever dials it is refused.
        self._taken = socket.socket()
        self._taken.bind(("127.0.0.1", 0))
        self._closed = f"http://127.0.0.1:{self._taken.getsockname()[1]}"
        self._environ = {"HOME": directory, "QUVATLH_URL": stage.url, "QUVATLH_TOKEN": TOKEN}

    def close(self) -> None:
        self._taken.close()

    def take(self, step: Step) -> list[str]:
        match shlex.split(step.line, comments=True):
            case ["@", "terminal", columns]:
                self._columns = int(columns)
            case ["@", "pipe"]:
                self._columns = None
            case ["@", "file", name]:
                Path(name).write_text("".join(f"{line}\n" for line in step.given))
            case ["@", "set", name, value]:
                self._environ[name] = value
            case ["@", "nobody", "listens"]:
                self._environ["QUVATLH_URL"] = self._closed
            case ["@", *words]:
                self._stage.tell(words)
            case ["$", "quvatlh", *args]:
                return self._run(args, step.given)
        return []

    def _run(self, args: list[str], given: list[str]) -> list[str]:
        is_terminal = self._columns is not None
        around = Surroundings(
            environ=self._environ,
            is_root=False,
            wall_ms=lambda: self._stage.pool.now_ms,
            columns=self._columns,
            watched=is_terminal,
            bars=False,  # they move, and a transcript stands still
            asks=is_terminal,
        )
        stdin = "".join(f"{line}\n" for line in given)
        runner = CliRunner()
        result = runner.invoke(main, args, input=stdin, env=dict(self._environ), obj=around, prog_name="quvatlh")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        lines = [f"> {line}".rstrip() for line in self._plain(result.stdout)]
        lines += [f"! {line}".rstrip() for line in self._plain(result.stderr)]
        return [*lines, f"= {int(result.exit_code)}"] if result.exit_code else lines

    def _plain(self, text: str) -> list[str]:
        """Without what differs from run to run."""
        for shown, name in (
            (self._stage.url, "http://node"),
            (self._closed, "http://closed"),
            (os.path.realpath(self._directory), "~"),
        ):
            text = text.replace(shown, name)
        return PYTHON_ONLY.sub("--idempotency-key KEY", text).replace(self._directory, "~").splitlines()


@contextlib.contextmanager
def _inside(directory: str) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


if __name__ == "__main__":
    for story in sys.argv[1:] or stories():
        old, new = play(story)
        (HERE / f"{story}.txt").write_text(new)
        print(f"{story}: {'the same' if old == new else 'written anew'}")
