from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from quvatlh.ports import Clock, Member
from quvatlh.service.pool import Unavailable
from quvatlh.service.reserve import HOLDS_S, RESERVE_BYTES, RESERVE_SHARE, Reserve
from tests.fakes.clock import FakeClock
from tests.service.stand import FULL, ROOMY, Stand, asked, several

GIB = 2**30


def reserve(free: int, total: int, clock: Clock | None = None) -> Reserve:
    return Reserve(lambda: (free, total), clock or FakeClock())


@pytest.mark.parametrize(
    ("free", "total", "has_room"),
    [
        (RESERVE_BYTES, GIB, True),
        (RESERVE_BYTES - 1, GIB, False),
        (int(1000 * GIB * RESERVE_SHARE), 1000 * GIB, True),
        (int(1000 * GIB * RESERVE_SHARE) - 1, 1000 * GIB, False),
    ],
)
def test_the_reserve_is_a_share_of_the_disk_and_never_less_than_enough(free: int, total: int, has_room: bool) -> None:
    assert reserve(free, total).has_room() is has_room


def test_a_disk_is_looked_at_once_a_second() -> None:
    clock, looks = FakeClock(), []

    def room() -> tuple[int, int]:
        looks.append(clock.boot())
        return ROOMY

    looked = Reserve(room, clock)
    for _ in range(5):
        assert looked.has_room()
    clock.advance(1)
    assert looked.free_bytes == ROOMY[0]
    assert len(looks) == 2


@pytest.fixture
async def stands(tmp_path: Path) -> AsyncIterator[list[Stand]]:
    """Three voters, the first is master."""
    async with several(tmp_path, 3, slots=0) as (found, _):
        for stand in found:
            stand.log.found(*(Member(each.name, each.name, f"{each.name}:7421", "") for each in found))
        yield found


async def fill(stand: Stand) -> None:
    stand.room = FULL
    stand.clock.advance(1)
    await stand.node.reserves.tell()


async def states(stand: Stand) -> dict[str, str]:
    cluster: Any = await stand.pool.cluster(asked())
    return {node["name"]: node["state"] for node in cluster["nodes"]}


async def test_any_node_tells_whose_disk_is_full_and_whose_is_not_any_more(stands: list[Stand]) -> None:
    await fill(stands[2])
    for stand in stands:
        assert await states(stand) == {"n1": "up", "n2": "up", "n3": "disk_full"}
    stands[2].room = ROOMY
    stands[2].clock.advance(1)
    await stands[2].node.reserves.tell()
    for stand in stands:
        assert await states(stand) == {"n1": "up", "n2": "up", "n3": "up"}


async def test_a_word_that_is_not_said_again_is_forgotten(stands: list[Stand]) -> None:
    await fill(stands[2])
    stands[0].clock.advance(HOLDS_S)
    assert (await states(stands[0]))["n3"] == "up"


async def test_the_master_takes_no_add_when_the_roomy_voters_are_no_majority(stands: list[Stand]) -> None:
    master, second, third = stands
    await fill(third)
    await master.add()
    await second.add()
    await fill(second)
    with pytest.raises(Unavailable) as caught:
        await master.add()
    assert caught.value.code == "disk_full"


async def test_a_full_node_is_ready_and_says_that_it_takes_no_add(stands: list[Stand]) -> None:
    stand = stands[1]
    await stand.until(lambda: stand.pool.readiness().ready)
    assert stand.pool.readiness().detail == ""
    await fill(stand)
    readiness = stand.pool.readiness()
    assert (readiness.ready, readiness.code) == (True, "disk_full")
    numbers = {metric.name: metric.samples[0][1] for metric in stand.pool.metrics() if metric.samples}
    assert numbers["disk_has_room"] == 0
    assert (numbers["disk_free_bytes"], numbers["disk_reserve_bytes"]) == (FULL[0], int(FULL[1] * RESERVE_SHARE))
