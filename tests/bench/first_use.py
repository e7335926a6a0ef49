"""From nothing to the output of `echo hello`, as the README says it: python -m tests.bench.first_use [--rounds N] [--json FILE]

A clone of this work tree's last commit in an empty directory, with an empty home and an environment of nothing but PATH
and the settings of pip: its first command (a virtual environment, the install, `quvatlh run`), then `add --wait -- echo
hello` and `logs`. Seconds by phase; the install is mostly what pip downloads, which a cache of packages answers here.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.bench import report

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300.0
PHASES = ("clone", "environment", "install", "run_listens", "add_and_wait", "logs")


class Stage:
    """One person's first minutes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._home = directory / "home"
        self._tree = directory / "quvatlh"
        self._home.mkdir()
        usual = {name: value for name, value in os.environ.items() if name == "PATH" or name.startswith("PIP_")}
        # Ports of its own: on this machine another node may be running.
        self._environ: Mapping[str, str] = usual | {
            "HOME": str(self._home),
            "QUVATLH_NODE_DATA": str(self._home / "data"),
            "QUVATLH_HTTP_LISTEN": "127.0.0.1:0",
            "QUVATLH_PEER_LISTEN": "127.0.0.1:0",
        }
        self.seconds: dict[str, float] = {}

    def play(self) -> None:
        python = shutil.which("python3") or "python3"
        self._do("clone", "git", "clone", "--quiet", str(ROOT), str(self._tree), where=self._directory)
        self._do("environment", python, "-m", "venv", ".venv")
        self._do("install", ".venv/bin/pip", "install", "--quiet", ".")
        began = time.monotonic()
        node = subprocess.Popen(
            [".venv/bin/quvatlh", "run"],
            cwd=self._tree,
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert node.stdout is not None
            url = node.stdout.readline().partition("/login")[0]
            self.seconds["run_listens"] = time.monotonic() - began
            token = (self._home / "data" / "token").read_text().strip()
            asked = ("--url", url, "--token", token)
            task = self._do("add_and_wait", ".venv/bin/quvatlh", "add", *asked, "--wait", "--", "echo", "hello").strip()
            hello = self._do("logs", ".venv/bin/quvatlh", "logs", *asked, task)
            if hello != "hello\n":
                raise AssertionError(f"the output was {hello!r}")
        finally:
            node.send_signal(signal.SIGTERM)
            try:
                node.wait(PATIENCE_S)
            finally:
                node.kill()
                node.communicate()

    def _do(self, phase: str, *command: str, where: Path | None = None) -> str:
        began = time.monotonic()
        done = subprocess.run(
            command,
            cwd=where or self._tree,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        self.seconds[phase] = time.monotonic() - began
        return done.stdout


def main() -> None:
    parser = report.parser("tests.bench.first_use", __doc__)
    parser.add_argument("--rounds", type=int, default=1)
    told = parser.parse_args()
    rows = report.Rows()
    for number in range(told.rounds):
        with tempfile.TemporaryDirectory(prefix="quvatlh-first-") as directory:
            stage = Stage(Path(directory))
            stage.play()
        figures = {f"{phase}_s": stage.seconds[phase] for phase in PHASES}
        without = sum(stage.seconds[phase] for phase in ("run_listens", "add_and_wait", "logs"))
        rows.add(
            f"first use, round {number + 1}",
            **figures,
            together_s=sum(stage.seconds.values()),
            once_installed_s=without,
        )
    rows.write(told.json)


if __name__ == "__main__":
    main()
