from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.core.entries import entry
from tests.support.register import INVALID, RegisterMachine, add, cas, once, write


@pytest.fixture
def machine(tmp_path: Path) -> RegisterMachine:
    return RegisterMachine(str(tmp_path / "state"))


def done(machine: RegisterMachine, *items: bytes) -> list[object]:
    machine.begin()
    results = machine.apply(entry(machine.applied_index + 1, *items))
    machine.commit()
    return list(results)


def test_registers_and_sets_do_what_they_say(machine: RegisterMachine) -> None:
    items = (cas("r", None, 1), write("r", 2), cas("r", 1, 3), cas("r", 2, 4), add("s", 1), add("s", 1), add("s", "1"))
    assert done(machine, *items) == [True, True, False, True, True, False, True]
    assert (machine.read("r"), machine.read("none")) == (4, None)
    assert (machine.members("s"), machine.members("none")) == ({1, "1"}, set())
    machine.close()


def test_a_request_id_is_done_once_and_answered_as_the_first_time(machine: RegisterMachine) -> None:
    request = once("a", cas("r", None, 1))
    assert done(machine, request, request) == [True, True]
    assert done(machine, once("b", cas("r", None, 1)), request) == [False, True]
    machine.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=20), max_size=5))
def test_any_bytes_have_a_result(machine: RegisterMachine, items: list[bytes]) -> None:
    assert all(result in (True, False, INVALID) for result in done(machine, *items))
