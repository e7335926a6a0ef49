from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quvatlh.core.machine import Machine, OutOfOrder
from quvatlh.ports import Entry, MachineFactory
from quvatlh.ports import Machine as MachinePort
from tests.core.entries import entry
from tests.examples import examples


def applied(path: Path, *entries: Entry) -> Machine:
    machine = Machine(str(path))
    if entries:
        machine.begin()
        for each in entries:
            machine.apply(each)
        machine.commit()
    return machine


def test_it_is_the_machine_that_the_log_wants(tmp_path: Path) -> None:
    factory: MachineFactory = lambda directory: Machine(f"{directory}/state")  # noqa: E731 - the type is the test
    machine: MachinePort = factory(str(tmp_path))
    assert machine.applied_index == 0
    machine.close()


def test_an_item_results_in_its_position(tmp_path: Path) -> None:
    machine = applied(tmp_path / "state")
    machine.begin()
    assert list(machine.apply(entry(1, b"a", b"b", b""))) == [0, 1, 2]
    assert list(machine.apply(entry(2))) == []
    machine.commit()
    machine.close()


def test_what_was_committed_is_there_after_opening_again(tmp_path: Path) -> None:
    first = applied(tmp_path / "state", entry(1, b"a"), entry(2, b"b"))
    expected = (2, 1002, first.digest)
    first.close()
    again = applied(tmp_path / "state")
    assert (again.applied_index, again.time_ms, again.digest) == expected
    again.close()


def test_what_was_not_committed_is_gone(tmp_path: Path) -> None:
    machine = applied(tmp_path / "state", entry(1, b"a"))
    machine.begin()
    machine.apply(entry(2, b"b"))
    machine.close()
    again = applied(tmp_path / "state")
    assert again.applied_index == 1
    again.close()


def test_applying_again_changes_nothing(tmp_path: Path) -> None:
    machine = applied(tmp_path / "state", entry(1, b"a"), entry(2, b"b"))
    digest = machine.digest
    machine.begin()
    assert list(machine.apply(entry(1, b"other"))) == []
    assert list(machine.apply(entry(2, b"b"))) == []
    machine.commit()
    assert (machine.applied_index, machine.digest) == (2, digest)
    machine.close()


@pytest.mark.parametrize("wrong", [entry(3), entry(2, term=0), entry(2, time_ms=1000)])
def test_a_gap_an_older_term_or_an_earlier_time_stops_the_node(wrong: Entry, tmp_path: Path) -> None:
    machine = applied(tmp_path / "state", entry(1, b"a"))
    machine.begin()
    with pytest.raises(OutOfOrder):
        machine.apply(wrong)
    machine.close()


ENTRIES = st.lists(st.lists(st.binary(max_size=3), max_size=3), min_size=1, max_size=6)


@settings(max_examples=examples(25))  # each makes two files
@given(one=ENTRIES, other=ENTRIES)
def test_digests_are_equal_exactly_when_the_entries_are(
    one: list[list[bytes]], other: list[list[bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    def digest(items: list[list[bytes]]) -> bytes:
        path = tmp_path_factory.mktemp("digest") / "state"
        machine = applied(path, *(entry(index + 1, *each) for index, each in enumerate(items)))
        machine.close()
        return machine.digest

    assert (digest(one) == digest(other)) == (one == other)


def test_the_digest_does_not_depend_on_how_entries_were_grouped_into_transactions(tmp_path: Path) -> None:
    together = applied(tmp_path / "together", entry(1, b"a"), entry(2, b"b"), entry(3, b"c"))
    apart = applied(tmp_path / "apart", entry(1, b"a"))
    for each in (entry(2, b"b"), entry(3, b"c")):
        apart.begin()
        apart.apply(each)
        apart.commit()
    assert apart.digest == together.digest
    together.close()
    apart.close()
