"""What can be said of deploy/ without an engine; that its nodes run and are a cluster: tests/cluster/test_compose.py."""

from __future__ import annotations

import json
import re
import shlex
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from quvatlh import config as configuration
from quvatlh.api.guard import Guard
from quvatlh.config import Config
from tests.deploy.files import DEPLOY, ROOT, compose, containerfile, health_command, last, variables
from tests.fakes.pool import FakePool

SERVICES = compose()["services"]
NAMES = sorted(SERVICES)


def config(name: str) -> Config:
    return configuration.load(None, environ=variables() | SERVICES[name]["environment"], flags={})


@pytest.mark.parametrize("name", NAMES)
def test_each_node_has_a_configuration_without_faults_and_in_it_what_the_network_calls_it(name: str) -> None:
    found = config(name)
    assert found.node.name == name
    assert found.peer.advertised == f"{name}:7421"
    assert found.http.advertised == f"{name}:7420"
    assert found.peer.peers == tuple(f"{each}:7421" for each in SERVICES)


@pytest.mark.parametrize("name", NAMES)
def test_the_machines_programs_reach_each_node_and_no_other_machines_do(name: str) -> None:
    (published,) = SERVICES[name]["ports"]
    host, port, inside = published.split(":")
    assert (host, f"0.0.0.0:{inside}") == ("127.0.0.1", config(name).http.listen)
    guard = Guard(FakePool(), (*config(name).http.hosts, name))
    for own in (f"127.0.0.1:{port}", f"localhost:{port}", f"{name}:7420"):
        guard.check_place("POST", CIMultiDictProxy(CIMultiDict({"Host": own})), "172.18.0.2")


def test_no_two_nodes_share_a_port_or_a_volume() -> None:
    ports = [service["ports"][0].split(":")[1] for service in SERVICES.values()]
    data = [each for service in SERVICES.values() for each in service["volumes"] if "/var/lib/quvatlh" in each]
    assert len(set(ports)) == len(set(data)) == len(SERVICES) == 3
    assert sorted(each.partition(":")[0] for each in data) == sorted(compose()["volumes"])


@pytest.mark.parametrize("name", NAMES)
def test_the_data_is_on_the_volume_and_the_machine_is_known_after_a_boot(name: str) -> None:
    assert config(name).node.data == last("VOLUME") == last("WORKDIR")
    assert "/etc/machine-id:/etc/machine-id:ro" in SERVICES[name]["volumes"]


@pytest.mark.parametrize("name", NAMES)
def test_the_secret_comes_by_a_file(name: str) -> None:
    (secret,) = SERVICES[name]["secrets"]
    assert config(name).peer.secret_file == f"/run/secrets/{secret}"
    assert list(compose()["secrets"]) == [secret]
    assert list(compose()["secrets"][secret]) == ["file"]


@pytest.mark.parametrize("name", NAMES)
def test_a_stop_waits_longer_than_a_drain(name: str) -> None:
    grace_s = int(SERVICES[name]["stop_grace_period"].removesuffix("s"))
    unit = (DEPLOY / "quvatlh.service").read_text()
    (unit_s,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert min(grace_s, int(unit_s)) > config(name).worker.drain_ms / 1000 + 30


def test_the_image_has_an_owner_who_is_not_root() -> None:
    uid, _, gid = last("USER").partition(":")
    assert uid == gid == re.findall(r"--uid (\d+)", last("RUN"))[0]
    assert int(uid) >= 1000


def test_nothing_but_the_package_goes_into_the_image() -> None:
    copied = [shlex.split(each.rest) for each in containerfile() if each.word in {"COPY", "ADD"}]
    from_source = {source for words in copied if not words[0].startswith("--from") for source in words[:-1]}
    assert from_source == {"pyproject.toml", "README.md", "LICENSE", "quvatlh"}
    assert all((ROOT / source).exists() for source in from_source)
    context = (DEPLOY / "Containerfile.dockerignore").read_text().split()
    assert context[0] == "*"
    assert {line[1:] for line in context if line[0] == "!"} == from_source
    assert not [each for each in containerfile() if re.search(r"secret|token|password", each.rest, re.IGNORECASE)]


def test_the_parts_of_an_instruction_that_a_shell_does_not_see_are_lists() -> None:
    assert (json.loads(last("ENTRYPOINT")), json.loads(last("CMD"))) == (["quvatlh"], ["run"])
    assert last("STOPSIGNAL") == "SIGTERM"
    program, flag, code = health_command()
    assert (program, flag) == ("python3", "-c")
    compile(code, "HEALTHCHECK", "exec")
    assert "/healthz" in code


def test_the_python_of_the_image_is_one_that_the_package_takes() -> None:
    (version,) = (each.rest.partition("=")[2] for each in containerfile() if each.word == "ARG")
    assert tuple(map(int, version.split("."))) >= (3, 11)


@pytest.mark.parametrize("path", ["README.md", "quvatlh.service", "Containerfile", "compose.yaml"])
def test_the_readme_of_deploy_names_what_is_there(path: str) -> None:
    assert path == "README.md" or path in (DEPLOY / "README.md").read_text()
    assert (DEPLOY / path).exists()
    assert not [each for each in Path(DEPLOY).iterdir() if fnmatch(each.name, "*secret*")]


def test_services_differ_in_nothing_but_their_names_and_ports() -> None:
    def common(name: str) -> Any:
        text = re.sub(rf'"{name}(?=["/:])(?!:7421,)', '"NAME', json.dumps(SERVICES[name]))
        return re.sub(r"127\.0\.0\.1:\d+", "PORT", text)

    assert len({common(name) for name in NAMES}) == 1
