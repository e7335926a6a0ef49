"""What a machine tells of itself, now and for good, and what a cloud tells of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from quvatlh.ports import Host, fact_tags
from quvatlh.system import cloud
from quvatlh.system.facts import RealHost
from tests.fakes.host import FakeHost

GIB = 2**30

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[[Handler], Awaitable[str]]


# --- of every Host ---


@pytest.mark.parametrize("kind", ["fake", "real"])
async def test_a_host_knows_its_facts_and_its_load(kind: str, tmp_path: Path) -> None:
    host: Host = FakeHost() if kind == "fake" else RealHost(str(tmp_path), {})
    facts = await host.facts()
    assert facts.keys() >= {"os", "arch", "cpus", "memory_bytes", "hostname", "python"}
    assert await host.facts() == facts
    load = host.load()
    assert 0 <= load.cpu_load <= 1
    assert 0 < load.memory_free_bytes <= load.memory_total_bytes
    assert load.memory_total_bytes == facts["memory_bytes"]
    assert load.disk_free_bytes >= 0


def test_facts_are_tags() -> None:
    tags = fact_tags(
        {
            "os": "linux",
            "cpus": 2,
            "memory_bytes": 16 * GIB - 1,
            "cloud.zone": "eu-1a",
            "odd": "a\nb",
            "long": "x" * 300,
        }
    )
    assert tags == ("os=linux", "cpus=2", "memory_gib=15", "cloud.zone=eu-1a")


# --- the real one ---


async def test_the_real_facts_are_this_machine(tmp_path: Path) -> None:
    facts = await RealHost(str(tmp_path), {"QUVATLH_CLOUD_REGION": "eu-1"}).facts()
    assert facts["hostname"] == socket.gethostname()
    assert facts["arch"] == os.uname().machine
    assert facts["cpus"] == os.cpu_count()
    assert facts["cloud.region"] == "eu-1"


class Machine:
    """A /proc and a /sys/fs/cgroup of a test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc" / "self").mkdir(parents=True)
        (root / "cgroup").mkdir()
        self.write("proc/meminfo", "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n")
        self.write("proc/self/cgroup", "0::/\n")
        self.ticks(0, 0)

    def write(self, name: str, content: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def ticks(self, busy: int, idle: int) -> None:
        self.write("proc/stat", f"cpu {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n")

    def host(self) -> RealHost:
        return RealHost(str(self.root), {}, proc=str(self.root / "proc"), cgroups=str(self.root / "cgroup"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_load_is_the_share_of_processors_since_it_was_last_told(machine: Machine) -> None:
    host = machine.host()
    assert host.load().cpu_load == 0
    machine.ticks(30_000, 10_000)
    assert host.load().cpu_load == 0.75
    machine.ticks(30_001, 10_000)  # too short a span to tell of
    assert host.load().cpu_load == 0.75
    machine.ticks(30_001, 50_000)
    assert host.load().cpu_load == pytest.approx(0, abs=1e-4)


def test_memory_is_the_machines_without_a_tighter_cgroup(machine: Machine) -> None:
    load = machine.host().load()
    assert (load.memory_free_bytes, load.memory_total_bytes) == (4 * GIB, 8 * GIB)


def test_memory_is_that_of_the_tightest_cgroup_around(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "12:cpu:/old\n0::/system.slice/quvatlh.service\n")
    machine.write("cgroup/system.slice/quvatlh.service/memory.max", "max\n")
    machine.write("cgroup/system.slice/memory.max", f"{2 * GIB}\n")
    machine.write("cgroup/system.slice/memory.current", f"{GIB}\n")
    machine.write("cgroup/system.slice/memory.stat", f"anon 1\ninactive_file {GIB // 4}\n")
    load = machine.host().load()
    assert (load.memory_free_bytes, load.memory_total_bytes) == (GIB + GIB // 4, 2 * GIB)


# --- clouds ---


def test_the_environment_names_facts_of_the_cloud() -> None:
    environ = {
        "QUVATLH_CLOUD_REGION": "eu-1",
        "QUVATLH_CLOUD_Spot": "yes",
        "QUVATLH_CLOUD_": "x",
        "QUVATLH_CLOUD_A-B": "x",
    }
    environ |= {
        "QUVATLH_CLOUD_EMPTY": "",
        "QUVATLH_CLOUD_ODD": "a\nb",
        "QUVATLH_CLOUD_LONG": "x" * 1000,
        "CLOUD_ZONE": "z",
    }
    assert cloud.from_environment(environ) == {"region": "eu-1", "spot": "yes"}
    assert len(cloud.from_environment({f"QUVATLH_CLOUD_N{n}": "1" for n in range(1000)})) == cloud.FACTS_MAX


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    runners = []

    async def started(handler: Handler) -> str:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(application, shutdown_timeout=0)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}/meta?x=1"

    yield started
    for runner in runners:
        await runner.cleanup()


CLOUDS = {
    "plain": ({"region": "eu-1", "zone": "eu-1a"}, {"region": "eu-1", "zone": "eu-1a"}),
    "amazon": (
        {
            "region": "eu-1",
            "availabilityZone": "eu-1a",
            "instanceType": "t3",
            "instanceId": "i-7",
            "accountId": "secret",
        },
        {"region": "eu-1", "zone": "eu-1a", "instance_type": "t3", "instance_id": "i-7"},
    ),
    "google": (
        {
            "machineType": "projects/1/machineTypes/n1",
            "zone": "projects/1/zones/eu-1-b",
            "attributes": {"ssh-keys": "k"},
        },
        {"instance_type": "n1", "zone": "eu-1-b"},
    ),
    "azure": (
        {"compute": {"vmSize": "D2", "vmId": "0-1", "zone": ""}, "network": {"region": "eu"}},
        {"instance_type": "D2", "instance_id": "0-1", "region": "eu"},
    ),
    "nothing of it": ({"a": [1, 2], "zone": None, "region": True}, {}),
    "no object": ([1, 2], {}),
    "deep": ({"a": {"a": {"a": {"a": {"a": {"zone": "z"}}}}}}, {}),
    "odd values": ({"zone": "a\nb", "region": "x" * 1000}, {}),
}


@pytest.mark.parametrize(("told", "taken"), CLOUDS.values(), ids=CLOUDS.keys())
async def test_of_what_a_cloud_tells_only_the_place_is_taken(serve: Serve, told: Any, taken: dict[str, str]) -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.headers["Metadata-Flavor"] == "Google"
        assert request.headers["Metadata"] == "true"
        assert request.path_qs == "/meta?x=1"
        return web.json_response(told)

    assert await cloud.from_address(await serve(handler)) == taken


async def test_a_cloud_that_wants_a_token_first_gets_one(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.Response:
        if request.method == "PUT":
            assert request.path == "/latest/api/token"
            return web.Response(text="let-me-in")
        if request.headers.get("X-aws-ec2-metadata-token") != "let-me-in":
            return web.Response(status=401)
        return web.json_response({"region": "eu-1"})

    assert await cloud.from_address(await serve(handler)) == {"region": "eu-1"}


async def test_what_cannot_be_used_is_said_and_changes_nothing(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud, "ASK_S", 0.2)
    never = asyncio.Event()

    async def silent(_request: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    async def refusing(_request: web.Request) -> web.Response:
        return web.Response(status=401)

    async def elsewhere(_request: web.Request) -> web.Response:
        raise web.HTTPFound("http://127.0.0.1:1/")

    async def text(_request: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def nested(_request: web.Request) -> web.Response:
        return web.Response(text="[" * 50_000)

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b"x" * 10_000)
        return response

    whys = []
    for handler in (silent, refusing, elsewhere, text, nested, endless):
        url = await serve(handler)
        host = RealHost(
            str(tmp_path), {"QUVATLH_CLOUD_ZONE": "z"}, url, note=lambda _what, **more: whys.append(more["why"])
        )
        facts = await host.facts()
        assert {name: value for name, value in facts.items() if name.startswith("cloud.")} == {"cloud.zone": "z"}
    never.set()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    with pytest.raises(cloud.Silent):
        await cloud.from_address(url)
    assert whys == [
        "no answer within 0.2 s",
        "answered 401, and gave no token",
        "answered 302",
        "the answer is no JSON",
        "the answer is no JSON",
        "the answer is longer than 65536 bytes",
    ]


async def test_the_environment_goes_before_the_address(serve: Serve, tmp_path: Path) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.json_response({"region": "told", "zone": "told"})

    facts = await RealHost(str(tmp_path), {"QUVATLH_CLOUD_REGION": "written"}, await serve(handler)).facts()
    assert (facts["cloud.region"], facts["cloud.zone"]) == ("written", "told")
