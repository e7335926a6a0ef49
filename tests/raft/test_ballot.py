"""Term and vote: never taken back, whatever crashes."""

from __future__ import annotations

import random

import pytest

from quvatlh.raft.ballot import Ballot, BallotBug, BallotCorrupt
from quvatlh.raft.sealed import NewerFormat
from tests.raft.parts import HOME, PoweredMachine
from tests.sim.process import Crashed


@pytest.fixture
def machine() -> PoweredMachine:
    machine = PoweredMachine()
    machine.view.mkdir(HOME)
    machine.view.sync_dir("/")
    return machine


def test_a_new_ballot_is_of_term_0_without_a_vote_and_on_disk_at_once(machine: PoweredMachine) -> None:
    ballot = Ballot.open(machine.view, HOME)
    assert (ballot.term, ballot.voted_for) == (0, None)
    assert machine.power_fail().exists(f"{HOME}/ballot")


def test_what_was_set_survives_the_loss_of_power(machine: PoweredMachine) -> None:
    ballot = Ballot.open(machine.view, HOME)
    ballot.set(3, None)
    ballot.set(3, "b")
    again = Ballot.open(machine.power_fail(), HOME)
    assert (again.term, again.voted_for) == (3, "b")


def test_a_crash_in_the_midst_leaves_the_old_or_the_new() -> None:
    seen = set()
    for seed in range(20):
        for step in range(1, 20):
            machine = PoweredMachine(seed)
            machine.view.mkdir(HOME)
            machine.view.sync_dir("/")
            ballot = Ballot.open(machine.view, HOME)
            ballot.set(1, "a")
            machine.disk.crash_at_op(step)
            try:
                ballot.set(2, "b")
            except Crashed:
                set_returned = False
            else:
                set_returned = True
            again = Ballot.open(machine.power_fail(), HOME)
            state = (again.term, again.voted_for)
            assert state in ({(2, "b")} if set_returned else {(1, "a"), (2, "b")})
            seen.add((set_returned, state))
            if set_returned:
                break
    assert len(seen) == 3


def test_a_term_never_falls(machine: PoweredMachine) -> None:
    ballot = Ballot.open(machine.view, HOME)
    ballot.set(5, None)
    with pytest.raises(BallotBug, match="term 5 was to fall to 4"):
        ballot.set(4, "a")
    assert (ballot.term, ballot.voted_for) == (5, None)


@pytest.mark.parametrize("second", ["b", None])
def test_one_vote_a_term(machine: PoweredMachine, second: str | None) -> None:
    ballot = Ballot.open(machine.view, HOME)
    ballot.set(5, "a")
    with pytest.raises(BallotBug, match="the vote for a in term 5"):
        ballot.set(5, second)
    ballot.set(6, second)
    assert (ballot.term, ballot.voted_for) == (6, second)


def test_nothing_is_written_when_nothing_changes(machine: PoweredMachine) -> None:
    ballot = Ballot.open(machine.view, HOME)
    ballot.set(5, "a")
    before = machine.disk.ops
    ballot.set(5, "a")
    assert machine.disk.ops == before


@pytest.mark.parametrize("kind", ["write", "sync", "rename", "sync_dir"])
def test_after_a_failed_write_nothing_more_is_promised(machine: PoweredMachine, kind: str) -> None:
    ballot = Ballot.open(machine.view, HOME)
    machine.disk.fail(kind)
    with pytest.raises(OSError, match="Input/output error"):
        ballot.set(1, "a")
    with pytest.raises(BallotBug, match="an earlier write failed"):
        ballot.set(1, "b")


def test_no_byte_of_a_ballot_may_change(machine: PoweredMachine) -> None:
    ballot = Ballot.open(machine.view, HOME)
    ballot.set(12, "node-a")
    path = f"{HOME}/ballot"
    whole = machine.view.read(path)
    rng = random.Random(1)
    for offset in range(len(whole)):
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << rng.randrange(8)
        machine.view.remove(path)
        machine.view.create(path).write(bytes(damaged))
        with pytest.raises((BallotCorrupt, NewerFormat)):
            Ballot.open(machine.view, HOME)


def test_no_end_of_a_ballot_may_be_missing_and_the_words_say_what_to_do(machine: PoweredMachine) -> None:
    ballot = Ballot.open(machine.view, HOME)
    ballot.set(12, "node-a")
    path = f"{HOME}/ballot"
    whole = machine.view.read(path)
    for size in range(len(whole)):
        machine.view.truncate(path, size)
        with pytest.raises(BallotCorrupt, match=r"/data/ballot .*rejoin as a new node: `quvatlh cluster remove ID`"):
            Ballot.open(machine.view, HOME)
        machine.view.remove(path)
        machine.view.create(path).write(whole)


def test_a_ballot_of_a_later_version_is_left_alone(machine: PoweredMachine) -> None:
    machine.view.create(f"{HOME}/ballot").write(b"quvatlh-ballot 2 00000000\nwhatever\n")
    with pytest.raises(NewerFormat, match="/data/ballot has format 2, this program knows formats up to 1"):
        Ballot.open(machine.view, HOME)
