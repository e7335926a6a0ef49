"""`quvatlh run` as a process, and what may be asked of it over HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from quvatlh.cli.main import main; main()", "run"]
PATIENCE_S = 90.0


def until_there(gate: Path) -> str:
    """A command of a shell that ends once there is such a file."""
    return f"while [ ! -e {gate} ]; do sleep 0.02; done"


class Program:
    def __init__(
        self, directory: Path, *flags: str, prefix: Sequence[str] = (), ca: str | None = None, **environ: str
    ) -> None:
        """`prefix` is a command in front, as `ip netns exec ...`; `ca` who signed its certificate, if it shows one."""
        self.directory = directory
        self.data = directory / "data"
        directory.mkdir(exist_ok=True)
        settings = {"QUVATLH_HTTP_LISTEN": "127.0.0.1:0", "QUVATLH_PEER_LISTEN": "127.0.0.1:0"} | environ
        clean = {name: value for name, value in os.environ.items() if not name.startswith("QUVATLH_")}
        self.errors = directory / "stderr"
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [*prefix, *COMMAND, "--data", str(self.data), *flags],
                cwd=ROOT,
                env=clean | settings,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.url = self.link = ""
        self._trust = None if ca is None else ssl.create_default_context(cafile=ca)

    def listening(self) -> Program:
        """Standard output has the link into the dashboard once it listens, and nothing else."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        match = re.fullmatch(r"(https?://127\.0\.0\.1:\d+)/login\?once=[\w-]+\n", line)
        assert match, (line, self.told())
        self.link, self.url = line.strip(), match[1]
        return self

    def ready(self) -> Program:
        ends = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._get("/readyz", {})
                return self
            except (urllib.error.URLError, ConnectionError):
                assert time.monotonic() < ends, self.told()
                time.sleep(0.01)

    def ask(self, path: str, body: object = None, *, method: str | None = None, token: str = "") -> Any:
        """By the node's own token, unless another is given."""
        return json.loads(self.raw(path, body, method=method, token=token))

    def raw(self, path: str, body: object = None, *, method: str | None = None, token: str = "") -> bytes:
        token = token or (self.data / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return self._get(path, headers, None if body is None else json.dumps(body).encode(), method)

    def add(self, **task: Any) -> str:
        return str(self.ask("/v1/events", {"event": "ADD", "tasks": [task]})["ids"][0])

    def done(self, task: str, wait: str = "60s") -> Any:
        return self.ask(f"/v1/tasks/{task}?wait={wait}")

    def until(self, task: str, state: str) -> None:
        ends = time.monotonic() + PATIENCE_S
        while self.ask(f"/v1/tasks/{task}")["state"] != state:
            assert time.monotonic() < ends, self.ask(f"/v1/tasks/{task}")
            time.sleep(0.01)

    def ask_to_stop(self, which: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(which)

    def stop(self, which: signal.Signals = signal.SIGTERM) -> int:
        self.ask_to_stop(which)
        return self.ended()

    def ended(self) -> int:
        status = self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        assert self.process.stdout.read() == b""
        self.process.stdout.close()
        return status

    def told(self) -> str:
        return self.errors.read_text()

    def tells(self, words: str) -> Program:
        """Waits for a line with these words."""
        ends = time.monotonic() + PATIENCE_S
        while words not in self.told():
            assert self.process.poll() is None, self.told()
            assert time.monotonic() < ends, self.told()
            time.sleep(0.01)
        return self

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _get(self, path: str, headers: dict[str, str], body: bytes | None = None, method: str | None = None) -> bytes:
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE_S, context=self._trust) as answer:
            found: bytes = answer.read()
        return found
