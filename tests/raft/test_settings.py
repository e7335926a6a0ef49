"""Numbers that cannot keep the promises are told apart from those that can."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from quvatlh.raft.settings import MIB, Settings
from tests.sim.run import SIM_SETTINGS


def test_the_defaults_hold() -> None:
    assert Settings().check() == []


def test_what_the_simulation_runs_with_holds() -> None:
    assert SIM_SETTINGS.check() == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"heartbeat_s": 0.1}, "election_min_s must be more than three heartbeat_s"),
        ({"election_min_s": 0.15}, "election_min_s must be more than three heartbeat_s"),
        ({"election_max_s": 0.3}, "election_max_s must be above election_min_s"),
        ({"election_max_s": 0.1}, "election_max_s must be above election_min_s"),
        ({"lease_fraction": 1.0}, "lease_fraction must lie between 0 and 1"),
        ({"lease_fraction": 1.5}, "lease_fraction must lie between 0 and 1"),
        ({"lease_fraction": 0.0}, "lease_fraction must lie between 0 and 1"),
        ({"lease_fraction": 0.3}, "must outlast two heartbeat_s"),
        ({"group_bytes_max": 9 * MIB}, "group_bytes_max must not exceed entry_bytes_max"),
        ({"frame_bytes_max": 8 * MIB}, "frame_bytes_max must be above entry_bytes_max"),
        ({"append_bytes_max": 20 * MIB}, "frame_bytes_max must be above append_bytes_max"),
        ({"append_bytes_max": 5 * MIB}, "append_bytes_max must not exceed append_window_bytes"),
        ({"link_buffer_bytes_max": 16 * MIB}, "link_buffer_bytes_max must be above"),
        ({"append_window_bytes": 30 * MIB}, "link_buffer_bytes_max must be above"),
        ({"silence_s": 1.0}, "silence_s must be more than two ping_s"),
        ({"redial_min_s": 1.0}, "redial_min_s must not exceed redial_max_s"),
        ({"voters_max": 0}, "voters_max must lie between 1 and 7"),
        ({"voters_max": 8}, "voters_max must lie between 1 and 7"),
        ({"in_flight_entries": 0}, "in_flight_entries must be at least 1"),
    ],
)
def test_a_relation_that_does_not_hold_is_named(wrong: dict[str, float], said: str) -> None:
    found = replace(Settings(), **wrong).check()  # type: ignore[arg-type]
    assert any(said in line for line in found), found


def test_all_faults_are_shown_at_once() -> None:
    assert len(replace(Settings(), lease_fraction=2.0, voters_max=9, in_flight_entries=0).check()) == 3


def test_pysyncobj_takes_the_defaults() -> None:
    from pysyncobj import SyncObjConf

    chosen = Settings()
    conf = SyncObjConf(
        raftMinTimeout=chosen.election_min_s,
        raftMaxTimeout=chosen.election_max_s,
        appendEntriesPeriod=chosen.heartbeat_s,
    )
    conf.validate()


def test_every_number_is_of_a_known_kind_and_not_negative() -> None:
    for field in fields(Settings):
        value = getattr(Settings(), field.name)
        for number in value if isinstance(value, tuple) else (value,):
            assert isinstance(number, int | float)
            assert number >= 0
