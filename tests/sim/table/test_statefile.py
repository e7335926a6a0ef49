"""What a crash leaves of a simulated state file."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from quvatlh.core.machine import Machine
from quvatlh.core.tables_digest import tables_digest
from tests.core.entries import entry
from tests.sim.disk import DiskView, SimDisk
from tests.sim.loop import SimLoop
from tests.sim.table.statefile import IMAGES_MAX, CommitImages, SimStateFile

PATH = "/data/state"


class Machines:
    """Of one simulated machine; each `open` is another process on it."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.disk = SimDisk(random.Random(1))
        self.images = CommitImages()

    def open(self) -> Machine:
        view = DiskView(self.disk, self.loop.process("n1"))
        if not view.exists("/data"):
            view.mkdir("/data")
            view.sync_dir("/")
        return Machine(PATH, None, lambda path, schema: SimStateFile(path, schema, view, self.images))

    def power_fail(self, seed: int) -> None:
        self.disk.power_fail(random.Random(seed))
        self.images.power_fail(random.Random(seed))


@pytest.fixture
def machines() -> Iterator[Machines]:
    loop = SimLoop()
    yield Machines(loop)
    loop.close()


def commit(machine: Machine, *indexes: int) -> None:
    for index in indexes:
        machine.begin()
        machine.apply(entry(index, b"item"))
        machine.commit()


def test_a_new_state_survives_its_first_power_failure(machines: Machines) -> None:
    machines.open()
    machines.power_fail(1)
    assert machines.open().applied_index == 0


def test_a_killed_process_loses_nothing_that_was_committed(machines: Machines) -> None:
    commit(machines.open(), 1, 2, 3)
    again = machines.open()
    assert again.applied_index == 3
    commit(again, 4)
    assert machines.open().applied_index == 4


def test_what_was_not_committed_is_gone_with_the_process(machines: Machines) -> None:
    machine = machines.open()
    commit(machine, 1)
    machine.begin()
    machine.apply(entry(2, b"item"))
    assert machines.open().applied_index == 1


def test_a_power_failure_leaves_the_last_checkpoint_or_any_later_commit(machines: Machines) -> None:
    machine = machines.open()
    commit(machine, 1, 2)
    assert machine.checkpoint() == 2
    commit(machine, 3, 4)
    kept = {image for image, _ in machines.images.at(PATH)}
    assert kept == {3, 4}
    left = set()
    for seed in range(40):
        images = list(machines.images.at(PATH))
        machines.power_fail(seed)
        left.add(machines.open().applied_index)
        machines.images.at(PATH)[:] = images
    assert left == {2, 3, 4}


def test_images_of_commits_are_bounded_and_the_newest_is_among_them(machines: Machines) -> None:
    machine = machines.open()
    last = 3 * IMAGES_MAX
    commit(machine, *range(1, last + 1))
    assert len(machines.images.at(PATH)) <= IMAGES_MAX
    assert machines.open().applied_index == last


def test_a_copy_is_the_state_as_it_was(machines: Machines) -> None:
    machine = machines.open()
    commit(machine, 1, 2)
    index = machine.copy_to("/data/copy")
    before = tables_digest(machine.db)
    commit(machine, 3)
    view = DiskView(machines.disk, machines.loop.process("n2"))
    copy = Machine("/data/copy", None, lambda path, schema: SimStateFile(path, schema, view, CommitImages()))
    assert (index, copy.applied_index) == (2, 2)
    assert tables_digest(copy.db) == before
