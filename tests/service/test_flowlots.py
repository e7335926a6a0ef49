"""Many tasks of a queue that is fair by key come at once to what one by one comes to (as test_lots.py has it)."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

from quvatlh.core.disciplines.sfq import Fair
from quvatlh.core.model import Rate
from quvatlh.core.rows import QUEUED_SELECT
from quvatlh.service import auction
from tests.service.bidding import ready
from tests.service.stand import PATIENCE_S, one, two
from tests.service.test_lots import given

COUNT = 120
MANY = 800
"""Of two entries."""
KEYS = (None, "a", "b", "c", "d", "e", "e\0f")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held back is not given up, however slow the machine is."""
    monkeypatch.setattr(auction, "PROPOSE_S", PATIENCE_S)
    monkeypatch.setattr(auction, "AWARDS_MAX", MANY // 2)


def some(random: Random, odd_share: float = 0.0, count: int = COUNT) -> list[dict[str, Any]]:
    odd: list[dict[str, Any]] = [
        {"name": "few", "limit": 2}, {"lease_ms": 2000}, {"kind": "service"}, {"name": "few"},
    ]  # fmt: skip
    specs: list[dict[str, Any]] = []
    for _ in range(count):
        spec = dict(random.choice(odd)) if random.random() < odd_share else random.choice([{}, {"name": "many"}])
        key = random.choice(KEYS[: random.choice((2, 7))])
        specs.append(spec | {"key": key, "priority": random.randrange(3), "cost": random.randrange(1, 4)})
    return specs


def limits(random: Random) -> dict[str, Any]:
    some: list[dict[str, Any]] = [
        {}, {"limit_per_key": 7}, {"limit": 30}, {"limit_per_worker": 25, "limit_per_key": 20},
    ]  # fmt: skip
    weights = {key: random.randrange(1, 5) for key in KEYS if key is not None and random.random() < 0.5}
    return random.choice(some) | {"key_weights": weights, "discipline": "sfq"}


def by_the_book(specs: list[dict[str, Any]], changes: dict[str, Any], most: int) -> list[str]:
    """The first of a line with the least start tag, again and again."""
    lines: defaultdict[str | None, list[tuple[int, int, int]]] = defaultdict(list)
    for n, spec in enumerate(specs):
        lines[spec["key"]].append((-spec["priority"], n, spec["cost"]))
    fair, found, live = Fair(), list[str](), Counter[str | None]()
    most = min(most, changes.get("limit", most), changes.get("limit_per_worker", most))
    per_key = changes.get("limit_per_key", most)
    for line in lines.values():
        line.sort()
    while len(found) < most:
        able = [key for key, line in lines.items() if line and (key is None or live[key] < per_key)]
        if not able:
            break
        key = min(able, key=lambda each: (fair.start_tag(each or ""), lines[each][0][1]))
        _, n, cost = lines[key].pop(0)
        fair.serve(key or "", cost, changes["key_weights"].get(key, 1))
        live[key] += 1
        found.append(f"t{n}")
    return found


@pytest.mark.parametrize("seed", range(24))
async def test_lots_of_flows_give_the_same_as_one_by_one(seed: int, tmp_path: Path) -> None:
    """In every third run not all are plain."""
    random = Random(seed)
    specs, changes = some(random, odd_share=0.0 if seed % 3 else random.choice((0.02, 0.1))), limits(random)
    slots = random.choice((50, 90))
    found = []
    for apart in (False, True):
        async with one(tmp_path / str(apart), slots=slots, ahead=False) as stand:
            await ready(stand)
            found.append(await given(stand, specs, apart=apart, **changes))
    assert found[0] == found[1]
    assert len(found[0]) > 20
    if seed % 3:
        assert [task for task, _ in found[0]] == by_the_book(specs, changes, slots)


@pytest.mark.parametrize("changes", [{}, {"limit_per_key": 17}, {"limit": 41}])
async def test_a_line_that_is_alone_goes_on_in_a_row(changes: dict[str, Any], tmp_path: Path) -> None:
    """As far as its limit, and up to what is not plain; tags are moved by each."""
    random = Random(1)
    specs: list[dict[str, Any]] = [
        {
            "key": "a",
            "cost": random.randrange(1, 3),
            "priority": random.randrange(2),
            "lease_ms": 2000 if n == 30 else None,
        }
        for n in range(COUNT)
    ]
    changes = changes | {"discipline": "sfq", "key_weights": {"a": 2}}
    found = []
    for apart in (False, True):
        async with one(tmp_path / str(apart), slots=50, ahead=False) as stand:
            await ready(stand)
            awards = await given(stand, specs, apart=apart, **changes)
            found.append((awards, stand.machine.db.execute("SELECT * FROM turn WHERE scope <> 'queues'").fetchall()))
    assert found[0] == found[1]
    assert [task for task, _ in found[0][0]] == by_the_book(specs, changes, 50)


@pytest.mark.parametrize("seed", range(4))
async def test_what_is_under_way_counts_for_flows_keys_and_workers(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    specs = some(random, count=MANY)
    changes = limits(random) | random.choice([{"limit_per_key": 170}, {"limit_per_worker": 650}, {"limit": 600}])
    found = []
    for apart in (False, True):
        async with one(tmp_path / str(apart), slots=900, ahead=False) as stand:
            await ready(stand)
            found.append(await given(stand, specs, apart=apart, **changes))
    assert found[0] == found[1]
    assert [task for task, _ in found[0]] == by_the_book(specs, changes, MANY)


async def test_several_workers_share_a_lot_of_flows_as_they_share_single_tasks(tmp_path: Path) -> None:
    specs = some(Random(1))
    found = []
    for apart in (False, True):
        async with two(tmp_path / str(apart), slots=25, ahead=False) as (master, follower, _):
            await ready(master, follower)
            found.append(await given(master, specs, apart=apart, discipline="sfq", limit_per_key=20))
    assert found[0] == found[1]
    assert {worker for _, worker in found[0]} == {"n1", "n2"}
    assert len(found[0]) == 50


async def test_what_is_under_way_counts_for_the_rate(tmp_path: Path) -> None:
    """A lot that ends at what is not plain is followed by a round at once: nothing of that is refused."""
    specs: list[dict[str, Any]] = [{"key": "a", "lease_ms": 2000 if n == 12 else None} for n in range(COUNT)]
    found = []
    for apart in (False, True):
        async with one(tmp_path / str(apart), slots=90, ahead=False) as stand:
            await ready(stand)
            found.append(await given(stand, specs, apart=apart, discipline="sfq", rate=Rate(1, 3_600_000), burst=20))
    assert found[0] == found[1] == [(f"t{n}", "n1") for n in range(20)]


@pytest.mark.parametrize("once", [5, 50])
async def test_lots_of_flows_go_ahead_of_slots_but_for_what_must_not_wait_for_one(once: int, tmp_path: Path) -> None:
    specs: list[dict[str, Any]] = [{} for _ in range(COUNT)]
    specs[once] = {"delivery": "at-most-once"}
    found = []
    for apart in (False, True):
        async with one(tmp_path / str(apart), slots=4) as stand:
            await ready(stand)
            for _ in range(8):
                stand.node.pace._run_times.learn("default", 5.0)
            found.append(await given(stand, specs, apart=apart, discipline="sfq"))
    assert found[0] == found[1]
    assert len(found[0]) == min(44, once)


async def test_a_lot_of_flows_is_read_by_the_line(tmp_path: Path) -> None:
    """One question for the first of all lines and two for each line, and none about what is under way."""
    async with one(tmp_path, slots=900, ahead=False) as stand:
        await ready(stand)
        said: list[str] = []
        stand.machine.db.set_trace_callback(said.append)
        assert len(await given(stand, [{"key": "a"} for _ in range(MANY)], apart=False, discipline="sfq")) == MANY
        stand.machine.db.set_trace_callback(None)
        assert sum(each.startswith("SELECT seq, rank, cost, once") for each in said) <= 10
        assert not [each for each in said if each.startswith(f"{QUEUED_SELECT} WHERE ready")]
