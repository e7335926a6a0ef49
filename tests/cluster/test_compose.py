"""The three nodes of the compose file as processes on the loopback: its commands and its environment, other addresses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.ports import Reserved
from tests.daemon.program import PATIENCE_S, Program
from tests.deploy.files import compose, health_command, variables

SERVICES = compose()["services"]
CLI = [sys.executable, "-c", "from quvatlh.cli.main import main; main()"]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[str, Program]]:
    """Started as one `up` does, and listening."""
    secret = tmp_path / "secret"
    secret.write_text("not the secret of anybody else\n")
    secret.chmod(0o600)
    ports = {name: Reserved() for name in SERVICES}

    def here(name: str, value: str) -> str:
        for each, port in ports.items():
            value = value.replace(f"{each}:7421", port.address)
        translated = {"0.0.0.0:7421": ports[name].address, "0.0.0.0:7420": "127.0.0.1:0"}
        return translated.get(value, value.replace("/run/secrets/quvatlh", str(secret)))

    started = {}
    try:
        for name, service in SERVICES.items():
            given = variables() | service["environment"]
            environ = {key: here(name, value) for key, value in given.items() if key.startswith("QUVATLH_")}
            started[name] = Program(tmp_path / name, **environ)
        for node in started.values():
            node.listening()
        yield started
    finally:
        for node in started.values():
            node.kill()
        for port in ports.values():
            port.release()


def inside(node: Program, *command: str) -> subprocess.CompletedProcess[str]:
    """As `compose exec` has it: the node's environment, and its data directory."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("QUVATLH_")}
    environ = clean | {"QUVATLH_URL": node.url, "QUVATLH_NODE_DATA": str(node.data)}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def is_healthy(node: Program) -> bool:
    return inside(node, sys.executable, *health_command()[1:]).returncode == 0


def test_they_are_one_cluster_that_runs_tasks_and_outlives_any_of_them(nodes: dict[str, Program]) -> None:
    for node in nodes.values():
        assert is_healthy(node)
        node.ready()
    for node in nodes.values():
        added = inside(node, *CLI, "add", "--wait", "--", "echo", "hello")
        assert (added.returncode, len(added.stdout.split())) == (0, 1), added.stderr
        assert inside(node, *CLI, "logs", added.stdout.strip()).stdout == "hello\n"
    cluster = nodes["two"].ask("/v1/cluster")
    assert sorted(each["name"] for each in cluster["nodes"]) == sorted(SERVICES)
    master = nodes.pop(cluster["master"])
    master.kill()
    assert not is_healthy(master)
    for node in nodes.values():
        added = inside(node, *CLI, "add", "--wait", "--", "true")
        assert added.returncode == 0, added.stderr
    assert nodes.popitem()[1].stop() == 0
