"""Clock, entropy and host: that the real ones and their fakes keep the promises of the ports."""

from __future__ import annotations

from pathlib import Path

import pytest

from quvatlh.ports import Clock, Entropy
from quvatlh.system.clock import RealClock
from quvatlh.system.entropy import RealEntropy
from quvatlh.system.host import machine_id
from tests.fakes.clock import FakeClock
from tests.fakes.entropy import FakeEntropy

CLOCKS = [RealClock(), FakeClock()]
ENTROPIES = [RealEntropy(), FakeEntropy()]


@pytest.mark.parametrize("clock", CLOCKS, ids=lambda clock: type(clock).__name__)
def test_a_clock_counts_seconds_up_and_knows_the_century(clock: Clock) -> None:
    assert 0 < clock.boot() <= clock.boot()
    assert isinstance(clock.wall_ms(), int)
    assert 1_600_000_000_000 < clock.wall_ms() < 4_100_000_000_000


def test_a_fake_clock_moves_when_told() -> None:
    clock = FakeClock(boot=1.0, wall_ms=1000)
    clock.advance(2.5)
    assert (clock.boot(), clock.wall_ms()) == (3.5, 3500)
    clock.set_wall(5)
    assert (clock.boot(), clock.wall_ms()) == (3.5, 5)


@pytest.mark.parametrize("entropy", ENTROPIES, ids=lambda entropy: type(entropy).__name__)
def test_chance_lies_in_its_range_and_tokens_have_their_length(entropy: Entropy) -> None:
    drawn = [entropy.random() for _ in range(100)]
    assert all(0 <= each < 1 for each in drawn)
    assert len(set(drawn)) > 90
    assert [len(entropy.token(nbytes)) for nbytes in (0, 16, 32)] == [0, 16, 32]
    assert entropy.token(16) != entropy.token(16)


def test_the_same_seed_is_the_same_chance() -> None:
    assert [FakeEntropy(1).random(), FakeEntropy(1).token(4)] == [FakeEntropy(1).random(), FakeEntropy(1).token(4)]


def test_a_machine_has_one_id_and_another_one_another(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("b08dfa6083e7567a1921a715000001fb\n")
    (tmp_path / "two").write_text("c08dfa6083e7567a1921a715000001fb\n")
    one = machine_id([str(tmp_path / "one")])
    assert one == machine_id([str(tmp_path / "none"), str(tmp_path / "one")])
    assert one != machine_id([str(tmp_path / "two")])
    assert len(bytes.fromhex(one)) == 16
    assert "b08dfa60" not in one


@pytest.mark.parametrize("content", ["", "uninitialized\n", None])
def test_without_a_machine_id_the_boot_stands_for_the_machine(content: str | None, tmp_path: Path) -> None:
    boot = tmp_path / "boot"
    boot.write_text("first\n")
    if content is not None:
        (tmp_path / "id").write_text(content)
    files = [str(tmp_path / "id")]
    first = machine_id(files, str(boot))
    assert first == machine_id(files, str(boot))
    boot.write_text("second\n")
    assert first != machine_id(files, str(boot))
