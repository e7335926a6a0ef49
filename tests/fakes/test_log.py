from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quvatlh.core.machine import Machine
from quvatlh.ports import Log, Unavailable, Unknown
from tests.contract_log import SOON_S, LogContract, Recorder
from tests.fakes.clock import FakeClock
from tests.fakes.log import FakeLog


class FakeRig:
    def __init__(self, log: FakeLog) -> None:
        self.fake = log

    @property
    def log(self) -> Log:
        return self.fake

    async def depose(self) -> None:
        self.fake.depose()

    async def elect(self) -> None:
        self.fake.elect()


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeLog]:
    machine = Machine(str(tmp_path / "state"))
    log = FakeLog(machine)
    yield log
    await log.stop()
    machine.close()


class TestFakeLog(LogContract):
    @pytest.fixture
    def rig(self, fake: FakeLog) -> FakeRig:
        return FakeRig(fake)


async def test_what_waits_in_one_turn_of_the_loop_shares_an_entry(fake: FakeLog) -> None:
    answers = await asyncio.gather(*(fake.propose(b"x", deadline=SOON_S) for _ in range(5)))
    assert len({answer.index for answer in answers}) == 1
    assert [answer.result for answer in answers] == [0, 1, 2, 3, 4]


async def test_a_write_held_back_is_unknown_at_its_deadline_and_may_yet_happen(fake: FakeLog) -> None:
    heard = Recorder()
    fake.listen(heard)
    fake.hold()
    with pytest.raises(Unknown):
        await fake.propose(b"held", deadline=0.01)
    fake.release()
    assert heard.items == [b"held"]


async def test_a_write_held_back_is_unknown_when_mastership_is_lost(fake: FakeLog) -> None:
    fake.hold()
    asked = asyncio.create_task(fake.propose(b"held", deadline=SOON_S))
    await asyncio.sleep(0.01)
    fake.depose()
    with pytest.raises(Unknown):
        await asked


async def test_a_write_that_waits_is_not_done_when_mastership_is_lost(fake: FakeLog) -> None:
    asked = asyncio.create_task(fake.propose(b"waits", deadline=SOON_S))
    asyncio.get_running_loop().call_soon(fake.depose)  # after the proposal, before the entry
    with pytest.raises(Unavailable):
        await asked


async def test_lost_answers_are_of_writes_that_happened(fake: FakeLog) -> None:
    heard = Recorder()
    fake.listen(heard)
    fake.lose_answers(1)
    with pytest.raises(Unknown):
        await fake.propose(b"one", deadline=SOON_S)
    await fake.propose(b"two", deadline=SOON_S)
    assert heard.items == [b"one", b"two"]


async def test_a_clock_set_back_does_not_turn_log_time_back(tmp_path: Path) -> None:
    clock = FakeClock(wall_ms=5000)
    machine = Machine(str(tmp_path / "state"))
    log = FakeLog(machine, clock=clock)
    clock.set_wall(1000)
    await log.propose(b"x", deadline=SOON_S)
    assert machine.time_ms == 5000
    machine.close()
