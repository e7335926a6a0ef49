"""The data directory: one identity for ever, one generation at a time."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from quvatlh.config.model import NodeRole
from quvatlh.raft import sealed
from quvatlh.raft.datadir import CopiedDirectory, DataDir, DataDirDamaged, OtherRole
from quvatlh.raft.disk import DirectoryInUse, Disk, RealDisk
from tests.raft.parts import HOME, PoweredMachine
from tests.sim.process import Crashed


class Chance:
    """Entropy of a seed."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = random.Random(seed)

    def random(self) -> float:
        return self._rng.random()

    def token(self, nbytes: int) -> bytes:
        return self._rng.randbytes(nbytes)


def opened(disk: Disk, seed: int = 0, *, machine_id: str = "m1", role: NodeRole = "node") -> DataDir:
    return DataDir.open(disk, HOME, Chance(seed), machine_id, role=role, now_ms=5, lock=False)


def generation(data: DataDir, disk: Disk, text: bytes) -> str:
    """A generation as founding makes it: files synced, directories left to publish."""
    path = data.new_generation()
    disk.mkdir(f"{path}/log")
    for name in ("state", "log/0000000001.log"):
        file = disk.create(f"{path}/{name}")
        file.write(text)
        file.sync()
        file.close()
    return path


def contents(data: DataDir, disk: Disk) -> list[bytes]:
    path = data.generation_path()
    return [disk.read(f"{path}/state"), disk.read(f"{path}/log/0000000001.log")]


@pytest.fixture
def machine() -> PoweredMachine:
    return PoweredMachine()


def test_a_new_directory_is_empty_and_has_an_id_that_stays(machine: PoweredMachine) -> None:
    data = opened(machine.view)
    assert data.is_empty
    assert re.fullmatch(r"[a-z2-7]{26}", data.node_id)
    assert opened(machine.power_fail(), seed=1).node_id == data.node_id


def test_two_directories_have_two_ids() -> None:
    assert len({opened(PoweredMachine().view, seed=seed).node_id for seed in range(5)}) == 5


def test_the_identity_says_where_and_when_it_was_made(machine: PoweredMachine) -> None:
    data = opened(machine.view)
    fields = sealed.read(machine.view, f"{HOME}/identity", "identity")
    assert fields == {"node_id": data.node_id, "machine_id": "m1", "role": "node", "created_ms": 5}


def test_a_published_generation_survives_the_loss_of_power() -> None:
    for seed in range(20):
        machine = PoweredMachine(seed)
        data = opened(machine.view)
        data.publish(generation(data, machine.view, b"one"))
        assert not data.is_empty
        disk = machine.power_fail()
        assert contents(opened(disk), disk) == [b"one", b"one"]


def test_all_names_of_a_generation_are_durable_before_it_is_named(machine: PoweredMachine) -> None:
    data = opened(machine.view)
    path = generation(data, machine.view, b"one")
    ops: list[str] = []
    machine.disk.on_op = lambda kind, path: ops.append(f"{kind} {path}")
    data.publish(path)
    assert ops == [
        f"sync_dir {path}/log",
        f"sync_dir {path}",
        f"sync_dir {HOME}",
        *(f"{kind} {HOME}/current.tmp" for kind in ("create", "write", "sync", "rename")),
        f"sync_dir {HOME}",
    ]


def test_an_unpublished_generation_is_not_there_and_goes() -> None:
    machine = PoweredMachine()
    data = opened(machine.view)
    generation(data, machine.view, b"one")
    again = opened(machine.restart())
    assert again.is_empty
    path = again.new_generation()
    assert path == f"{HOME}/gen-000002"
    assert [name for name in machine.view.listdir(HOME) if name.startswith("gen-")] == ["gen-000002"]
    assert machine.view.listdir(path) == []


def test_a_new_generation_leaves_the_current_one_alone(machine: PoweredMachine) -> None:
    data = opened(machine.view)
    data.publish(generation(data, machine.view, b"one"))
    data.new_generation()
    data.new_generation()
    assert contents(data, machine.view) == [b"one", b"one"]
    assert [n for n in machine.view.listdir(HOME) if n.startswith("gen-")] == ["gen-000001", "gen-000003"]


def test_sweeping_leaves_the_current_generation_and_the_files_of_the_node(machine: PoweredMachine) -> None:
    data = opened(machine.view)
    data.publish(generation(data, machine.view, b"one"))
    data.publish(generation(data, machine.view, b"two"))
    machine.view.create(f"{HOME}/ballot.tmp").close()
    machine.view.create(f"{HOME}/token").close()
    data.sweep()
    assert machine.view.listdir(HOME) == ["ballot", "current", "gen-000002", "identity", "token"]
    assert contents(data, machine.view) == [b"two", b"two"]
    disk = machine.power_fail()
    assert contents(opened(disk), disk) == [b"two", b"two"]


def test_copies_under_way_survive_a_sweep_and_end_with_the_process(machine: PoweredMachine) -> None:
    data = opened(machine.view)
    chance = Chance()
    first, second = data.scratch(chance), data.scratch(chance)
    assert first != second
    for path in (first, second):
        assert not machine.view.exists(path)
        machine.view.create(path).close()
    for name in ("backup-0123456789abcdef", "backup-0123456789abcdef.partial", "backup-monday"):
        machine.view.create(f"{HOME}/{name}").close()
    data.sweep()
    assert machine.view.exists(first)
    disk = machine.restart()
    opened(disk)
    assert disk.listdir(HOME) == ["backup-monday", "ballot", "current", "identity"]


def test_a_crash_at_any_step_leaves_the_old_generation_or_the_new_and_the_same_node() -> None:
    """Made, founded, replaced, swept: power lost at each mutation, with thirty fates of what was not synced."""
    seen = set()
    for seed in range(30):
        for step in range(1, 200):
            machine = PoweredMachine(seed)
            machine.disk.crash_at_op(step)
            done: list[str] = []
            try:
                data = opened(machine.view)
                done.append(data.node_id)
                data.publish(generation(data, machine.view, b"one"))
                done.append("one")
                data.publish(generation(data, machine.view, b"two"))
                done.append("two")
                data.sweep()
                done.append("swept")
            except Crashed:
                pass
            machine.disk.crash_at_op(0)
            disk = machine.power_fail()
            again = opened(disk, seed=0 if not done else 1)
            found = "" if again.is_empty else contents(again, disk)[0].decode()
            assert again.node_id == done[0] if done else again.is_empty
            assert found in {0: ("",), 1: ("", "one"), 2: ("one", "two"), 3: ("two",), 4: ("two",)}[len(done)]
            assert again.is_empty or contents(again, disk) == [found.encode()] * 2
            seen.add((len(done), found))
            if "swept" in done:
                break
        else:
            pytest.fail("the crash comes before the end, whatever the step")
    assert {(1, ""), (1, "one"), (2, "one"), (2, "two"), (3, "two"), (4, "two")} <= seen


def test_the_ballot_outlives_generations(machine: PoweredMachine) -> None:
    data = opened(machine.view)
    data.ballot.set(4, "b")
    data.publish(generation(data, machine.view, b"one"))
    data.sweep()
    again = opened(machine.power_fail())
    assert (again.ballot.term, again.ballot.voted_for) == (4, "b")


def test_a_copy_on_another_machine_does_not_start(machine: PoweredMachine) -> None:
    data = opened(machine.view)
    data.publish(generation(data, machine.view, b"one"))
    words = f"was made on another machine, as node {data.node_id}.*`quvatlh cluster remove {data.node_id}`"
    with pytest.raises(CopiedDirectory, match=words):
        opened(machine.view, machine_id="m2")
    assert contents(opened(machine.view), machine.view) == [b"one", b"one"]


@pytest.mark.parametrize("name", ["ballot", "current", "identity", "gen-000001"])
def test_what_was_made_with_the_directory_may_not_be_missing(machine: PoweredMachine, name: str) -> None:
    data = opened(machine.view)
    data.publish(generation(data, machine.view, b"one"))
    machine.view.remove(f"{HOME}/{name}")
    kept = machine.view.listdir(HOME)
    with pytest.raises(DataDirDamaged, match=rf"the data directory /data is damaged: .*{name}.*`quvatlh cluster"):
        opened(machine.view)
    assert machine.view.listdir(HOME) == kept


def test_a_vote_without_identity_is_not_taken_over_by_a_new_one(machine: PoweredMachine) -> None:
    opened(machine.view).ballot.set(1, "a")
    machine.view.remove(f"{HOME}/identity")
    with pytest.raises(DataDirDamaged, match="it holds a vote, but identity is gone"):
        opened(machine.view)


@pytest.mark.parametrize("name", ["current", "identity"])
def test_a_damaged_file_is_refused_by_name(machine: PoweredMachine, name: str) -> None:
    opened(machine.view)
    machine.disk.flip_bit(f"{HOME}/{name}", 40)
    with pytest.raises(DataDirDamaged, match=f"/data/{name} does not match its checksum"):
        opened(machine.view)


def test_a_file_is_not_taken_for_one_of_another_kind(machine: PoweredMachine) -> None:
    opened(machine.view)
    machine.view.rename(f"{HOME}/identity", f"{HOME}/current")
    machine.view.create(f"{HOME}/identity").write(machine.view.read(f"{HOME}/current"))
    with pytest.raises(DataDirDamaged, match="/data/current does not match"):
        opened(machine.view)


def unmarked(disk: Disk) -> None:
    """As an earlier version left it."""
    path = f"{HOME}/identity"
    fields = sealed.read(disk, path, "identity")
    del fields["role"]
    disk.remove(path)
    sealed.write(disk, path, "identity", fields)


ROLES: list[tuple[NodeRole, NodeRole]] = [("node", "worker"), ("worker", "node")]


@pytest.mark.parametrize(("whose", "other"), ROLES)
def test_a_directory_is_a_nodes_or_a_workers_and_stays_so(
    machine: PoweredMachine, whose: NodeRole, other: NodeRole
) -> None:
    made = opened(machine.view, role=whose)
    words = (
        f"/data belongs to a {whose}: a {other} would .* Start the {other} with another --data, or with --role {whose}"
    )
    with pytest.raises(OtherRole, match=words):
        opened(machine.view, 1, role=other)
    assert opened(machine.view, 2, role=whose).node_id == made.node_id


@pytest.mark.parametrize(("first", "other"), ROLES)
def test_an_empty_directory_of_an_earlier_version_belongs_to_who_comes_first(
    machine: PoweredMachine, first: NodeRole, other: NodeRole
) -> None:
    made = opened(machine.view)
    unmarked(machine.view)
    assert opened(machine.view, 1, role=first).node_id == made.node_id
    with pytest.raises(OtherRole):
        opened(machine.view, 2, role=other)


def test_a_directory_of_an_earlier_version_with_a_log_is_a_nodes(machine: PoweredMachine) -> None:
    made = opened(machine.view)
    made.publish(generation(made, machine.view, b"one"))
    unmarked(machine.view)
    with pytest.raises(OtherRole, match="belongs to a node"):
        opened(machine.view, 1, role="worker")
    again = opened(machine.view, 2)
    assert (again.node_id, contents(again, machine.view)) == (made.node_id, [b"one", b"one"])


@pytest.mark.parametrize("name", ["current", "identity"])
def test_a_directory_of_a_later_version_is_refused(machine: PoweredMachine, name: str) -> None:
    opened(machine.view)
    machine.view.remove(f"{HOME}/{name}")
    machine.view.create(f"{HOME}/{name}").write(f"quvatlh-{name} 2 00000000\n{{}}\n".encode())
    with pytest.raises(sealed.NewerFormat, match=f"/data/{name} has format 2"):
        opened(machine.view)


def test_a_real_directory_is_locked_while_it_is_open(tmp_path: Path) -> None:
    path = f"{tmp_path}/a/b"
    data = DataDir.open(RealDisk(), path, Chance(), "m1")
    with pytest.raises(DirectoryInUse):
        DataDir.open(RealDisk(), path, Chance(), "m1")
    data.close()
    again = DataDir.open(RealDisk(), path, Chance(1), "m1")
    assert again.node_id == data.node_id
    again.close()


def test_a_refused_directory_is_not_left_locked(tmp_path: Path) -> None:
    path = str(tmp_path)
    DataDir.open(RealDisk(), path, Chance(), "m1").close()
    with pytest.raises(CopiedDirectory):
        DataDir.open(RealDisk(), path, Chance(), "m2")
    DataDir.open(RealDisk(), path, Chance(), "m1").close()


def test_generations_on_the_real_disk(tmp_path: Path) -> None:
    disk = RealDisk()
    data = DataDir.open(disk, str(tmp_path), Chance(), "m1")
    data.publish(generation(data, disk, b"one"))
    data.publish(generation(data, disk, b"two"))
    data.sweep()
    data.close()
    again = DataDir.open(disk, str(tmp_path), Chance(), "m1")
    assert contents(again, disk) == [b"two", b"two"]
    assert disk.listdir(str(tmp_path)) == ["ballot", "current", "gen-000002", "identity", "lock"]
    again.close()
