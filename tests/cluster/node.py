"""One node as a process of its own: started, killed, stopped, thawed, asked. What a cluster of them does is cluster.py's."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.line import Answer, Line, NoAnswer, NotSent

ROOT = Path(__file__).parents[2]
PATIENCE_S = 90.0
"""For what takes well below a second on an idle machine. Only its end is a failure."""
POLL_S = 0.005
"""Between looks where nothing tells of an event."""
TOLD_CHARS = 3000

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


class StartFailed(Exception):
    """The process ended before it listened."""

    def __init__(self, name: str, status: int, told: str) -> None:
        super().__init__(f"node {name} ended with status {status}:\n{told[-TOLD_CHARS:]}")
        self.status = status
        self.told = told


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node lives and how it is reached."""

    name: str
    directory: Path
    peer: str
    client: str
    peers: tuple[str, ...]
    secret_file: Path
    settings: str = ""
    insecure: bool = False
    ticker: bool = False
    prefix: tuple[str, ...] = ()
    """Command in front: `ip netns exec ...`, `strace ...`."""
    new_socket: Callable[[], socket.socket] = socket.socket
    python: tuple[str, ...] = (sys.executable, "-m", "tests.support.program")
    data_in: Path | None = None
    """Where the data directory is, if not beside the rest."""
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        return (self.data_in or self.directory) / "data"

    def command(self) -> list[str]:
        flags = {
            "data": self.data,
            "name": self.name,
            "peer": self.peer,
            "peers": ",".join(self.peers),
            "secret-file": self.secret_file,
            "client": self.client,
            "settings": self.settings,
        }
        given = [part for key, value in flags.items() if str(value) for part in (f"--{key}", str(value))]
        given += ["--insecure", "true"] * self.insecure + ["--ticker"] * self.ticker
        return [*self.prefix, *self.python, *given]


def _die_with_parent() -> None:
    """Between fork and exec: a test run that is killed leaves nothing behind, stopped processes included."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass
class Node:
    place: Place
    id: str = ""
    """Known from the first status on."""
    process: asyncio.subprocess.Process | None = None
    started: int = 0
    frozen: bool = False
    _line: Line = field(init=False)

    def __post_init__(self) -> None:
        self._line = self.line()
        self.place.directory.mkdir(parents=True, exist_ok=True)

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def log(self) -> Path:
        """Standard error of all its lives."""
        return self.place.directory / "stderr"

    @property
    def pid(self) -> int:
        """Of the node itself, whatever command stands in front; that command's while the node is not there yet."""
        assert self.process is not None
        own = self.process.pid
        if self.place.prefix[:1] != ("strace",):
            return own
        with contextlib.suppress(FileNotFoundError, ValueError):
            holder = int((self.place.data / "lock").read_text())
            if _parent(holder) == own:
                return holder
        return own

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def line(self) -> Line:
        return Line(self.place.client, self.place.new_socket)

    # -- its life

    async def start(self) -> None:
        """Returns when it listens. StartFailed with what it said when it does not."""
        assert not self.running
        self.started += 1
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as errors:
            self.process = await asyncio.create_subprocess_exec(
                *self.place.command(),
                cwd=ROOT,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env={**_usual_environ(), "PYTHONUNBUFFERED": "1", **self.place.environ},
                preexec_fn=_die_with_parent,  # no thread of ours holds a lock at that point
            )
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            said = await self.process.stdout.readline()
        if not self.listens(said):
            status = await self.ended()
            raise StartFailed(self.name, status, self.log.read_bytes()[before:].decode())

    def listens(self, said: bytes) -> bool:
        """Whether its first line says so."""
        return said == b"ready\n"

    async def ended(self) -> int:
        """Wait for the end of the process; its status."""
        assert self.process is not None
        async with asyncio.timeout(PATIENCE_S):
            status = await self.process.wait()
        self._line.close()
        self.frozen = False
        return status

    def strike(self) -> None:
        """kill -9, and nothing else: not even a wait."""
        os.kill(self.pid, signal.SIGKILL)

    async def kill(self) -> None:
        if self.running:
            # Not by the process object: looking whether the process lives, it would take its end from who waits for it.
            with contextlib.suppress(ProcessLookupError):
                self.strike()
            await self.ended()

    async def stop(self) -> int:
        """In order, as an operator would."""
        os.kill(self.pid, signal.SIGTERM)
        return await self.ended()

    def freeze(self) -> None:
        self.frozen = True
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        self.frozen = False
        os.kill(self.pid, signal.SIGCONT)

    # -- what it says

    async def ask(self, op: str, *, patience_s: float = PATIENCE_S, **fields: Any) -> Answer:
        return await self._line.ask({"op": op, "deadline": patience_s, **fields}, patience_s + 1)

    async def status(self) -> Answer:
        found = await self.ask("status")
        self.id = found["node"]
        return found

    async def until(self, holds: Callable[[Answer], object], what: str, within_s: float = PATIENCE_S) -> Answer:
        """Its status, once it says what is waited for."""
        found: Answer = {}

        async def look() -> bool:
            nonlocal found
            try:
                found = await self.status()
            except (NotSent, NoAnswer):
                return False
            return bool(holds(found))

        await until(look, lambda: f"node {self.name}: {what}; its status is {found}", within_s)
        return found

    def told(self) -> list[dict[str, Any]]:
        """Its log lines; what is no line of the log is under `text`."""
        if not self.log.exists():
            return []
        lines = []
        for line in self.log.read_text().splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                lines.append({"text": line})
        return lines

    def heard(self, event: str) -> list[dict[str, Any]]:
        """Lines of that event."""
        return [line for line in self.told() if line.get("event") == event]

    def memory_bytes(self, what: str = "VmRSS") -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(what + ":"):
                return int(line.split()[1]) * 1024
        raise AssertionError(what)


def _usual_environ() -> dict[str, str]:
    """Nothing of this machine's own configuration reaches a node."""
    return {name: value for name, value in os.environ.items() if not name.startswith("QUVATLH_")}


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


async def until(holds: Callable[[], Any], what: Callable[[], str], within_s: float = PATIENCE_S) -> None:
    """Look again and again; AssertionError with `what` when the time is over."""
    ends = time.monotonic() + within_s
    while True:
        found = holds()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return
        if time.monotonic() > ends:
            raise AssertionError(f"not within {within_s:g} s: {what()}")
        await asyncio.sleep(POLL_S)
