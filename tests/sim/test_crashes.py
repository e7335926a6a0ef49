"""What a simulated disk keeps and loses at a crash, and how its lanes and faults behave."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.sim.nodes import SECTOR_BYTES
from tests.sim.world import Env, World


@pytest.fixture
def world() -> Iterator[World]:
    with World(1) as made:
        yield made


async def idle(_: Env) -> None:
    await asyncio.Event().wait()


@st.composite
def disk_programs(draw: st.DrawFn) -> list[tuple[str, str, int]]:
    step = st.tuples(
        st.sampled_from(["create", "write", "write", "sync", "truncate", "rename", "remove", "sync_dir"]),
        st.sampled_from(["x", "y", "z"]),
        st.integers(0, 1500),
    )
    return draw(st.lists(step, max_size=30))


class Model:
    """What one directory may hold after a crash, kept beside a program that runs on it."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        """Name to number of the file, as the process sees it."""
        self.since_sync: list[dict[str, int]] = [{}]
        """`names` at the last sync of the directory and after each step since: one of these survives the power."""
        self.data: dict[int, bytes] = {}
        self.least: dict[int, bytes] = {}
        """Of each file, what must be there whatever happens to the power."""
        self.in_cache: dict[int, bytes] = {}
        """Of each file, what must be there after a kill: all but the write that was under way."""

    async def run(self, env: Env, program: list[tuple[str, str, int]]) -> None:
        for number, (kind, name, size) in enumerate(program):
            if kind == "sync_dir":
                env.disk.sync_dir("/d")
                self.since_sync.clear()
            elif kind == "create" and name not in self.names:
                env.disk.create(f"/d/{name}").close()
                self.names[name] = number
                self.data[number] = self.least[number] = self.in_cache[number] = b""
            elif kind != "create" and name in self.names:
                self.change(env, kind, name, size)
            self.since_sync.append(dict(self.names))

    def change(self, env: Env, kind: str, name: str, size: int) -> None:
        path, file = f"/d/{name}", self.names[name]
        if kind == "write":
            self.data[file] += bytes([1 + len(self.data[file]) % 255]) * size
            env.disk.append(path).write(self.data[file][len(self.in_cache[file]) :])
        elif kind == "sync":
            env.disk.append(path).sync()
            self.least[file] = self.data[file]
        elif kind == "truncate":
            cut = self.data[file][:size].ljust(size, b"\0")
            self.least[file] = self.in_cache[file] = self.least[file][:size]
            env.disk.truncate(path, size)
            self.least[file] = self.data[file] = cut
        elif kind == "rename":
            env.disk.rename(path, "/d/y")
            self.names["y"] = self.names.pop(name)
        elif kind == "remove":
            env.disk.remove(path)
            del self.names[name]
        self.in_cache[file] = self.data[file]

    def allows(self, found: dict[str, bytes], power: bool) -> bool:
        must = self.least if power else self.in_cache
        return any(
            state.keys() == found.keys() and all(found[name].startswith(must[file]) for name, file in state.items())
            for state in (self.since_sync if power else [self.names])
        )


@settings(max_examples=examples(300))
@given(program=disk_programs(), crash_at=st.integers(1, 30), power=st.booleans(), seed=st.integers(0, 1 << 30))
def test_a_crash_loses_only_what_was_not_synced(
    program: list[tuple[str, str, int]], crash_at: int, power: bool, seed: int
) -> None:
    with World(seed) as world:
        host = world.host("a")
        model = Model()

        async def main(env: Env) -> None:
            env.disk.mkdir("/d")
            env.disk.sync_dir("/")
            host.disk.crash_at_op(crash_at)
            await model.run(env, program)

        host.start(main)
        world.run_for(60)
        assert not host.running
        if power:
            host.power_fail()
        entries = host.disk.directory("/d").entries
        assert model.allows({name: bytes(host.disk.file(f"/d/{name}").data) for name in entries}, power)


def test_a_rename_that_was_not_synced_is_there_or_not() -> None:
    found = set()
    for seed in range(40):
        with World(seed) as world:
            host = world.host("a")
            disk = host.start(idle).disk
            disk.mkdir("/d")
            disk.sync_dir("/")
            disk.create("/d/old").close()
            disk.sync_dir("/d")
            disk.rename("/d/old", "/d/new")
            host.power_fail()
            found.add(tuple(host.disk.directory("/d").entries))
    assert found == {("old",), ("new",)}


def test_a_move_between_directories_never_loses_the_file() -> None:
    found = set()
    for seed in range(60):
        with World(seed) as world:
            host = world.host("a")
            disk = host.start(idle).disk
            for name in ("a", "b"):
                disk.mkdir(f"/{name}")
            disk.sync_dir("/")
            disk.create("/a/file").close()
            disk.sync_dir("/a")
            disk.rename("/a/file", "/b/file")
            host.power_fail()
            found.add(tuple(name for name in "ab" if host.disk.find(f"/{name}/file") is not None))
    assert found == {("a",), ("b",), ("a", "b")}


def test_unsynced_sectors_tear_in_every_way() -> None:
    kinds = set()
    for seed in range(300):
        with World(seed) as world:
            host = world.host("a")
            disk = host.start(idle).disk
            file = disk.create("/file")
            disk.sync_dir("/")
            file.write(b"s" * 700)
            file.sync()
            file.write(b"u" * 5 * SECTOR_BYTES)
            host.power_fail()
            data = bytes(host.disk.file("/file").data)
            assert data.startswith(b"s" * 700)
            rest = data[700:]
            kept = rest.strip(b"u")
            kinds.add(
                "none" if not rest else "all" if rest == b"u" * 5 * SECTOR_BYTES else "cut" if not kept else "gap"
            )
            if kept and rest.endswith(b"u"):
                kinds.add("later survives")
    assert kinds == {"none", "all", "cut", "gap", "later survives"}


def test_what_a_failed_sync_left_is_not_saved_by_the_next_one() -> None:
    lost = 0
    for seed in range(20):
        with World(seed) as world:
            host = world.host("a")
            file = host.start(idle).disk.create("/file")
            file.write(b"x" * 100)
            host.disk.fail("sync")
            with pytest.raises(OSError, match="Input/output"):
                file.sync()
            file.sync()
            host.disk.root.sync()
            host.power_fail()
            lost += bytes(host.disk.file("/file").data) != b"x" * 100
    assert 0 < lost < 20


def test_a_full_disk_takes_a_part_and_refuses(world: World) -> None:
    host = world.host("a")
    file = host.start(idle).disk.create("/file")
    host.disk.capacity_bytes = 10
    file.write(b"12345678")
    with pytest.raises(OSError, match="No space"):
        file.write(b"9abc")
    assert bytes(host.disk.file("/file").data) == b"123456789a"
    host.disk.mend()
    file.write(b"!")


def test_a_lane_keeps_order_and_answers_only_the_living(world: World) -> None:
    did: list[int] = []
    answered: list[int] = []

    async def main(env: Env) -> None:
        lane = env.lane()

        async def one(number: int) -> None:
            await lane.run(lambda: did.append(number))
            answered.append(number)
            if number == 3:
                env.process.exit()

        await asyncio.gather(*(one(number) for number in range(10)))

    world.host("a").start(main)
    world.run_for(1)
    assert answered == [0, 1, 2, 3]
    assert did[:4] == [0, 1, 2, 3]
    assert len(did) <= 5
