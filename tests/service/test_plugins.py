"""Disciplines of other packages: found by a real entry point, announced by every node, asked by the master."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core import market
from quvatlh.core.disciplines import UNPLACED, Discipline
from quvatlh.core.model import TaskSpec
from quvatlh.core.plugins import unannounced
from quvatlh.core.results import Worked
from quvatlh.service import asks
from quvatlh.service.door import Refusal
from quvatlh.system import plugins
from tests.service.bidding import ready
from tests.service.stand import Stand, one, two
from tests.service.test_lanes import WORK, fill, order, put

EDF = '''
class EarliestDeadlineFirst:
    """The task that expires first goes first; those that never do go last."""

    name = "edf"
    version = "1.0"

    def place(self, task):
        if task.key == "poison":
            raise ValueError("no luck")
        return 2**52 if task.expires_ms is None else task.expires_ms


class Nameless:
    version = "1.0"


class Priority(EarliestDeadlineFirst):
    name = "priority"
'''
POINTS = """[quvatlh.disciplines]
edf = edf_discipline:EarliestDeadlineFirst
nameless = edf_discipline:Nameless
priority = edf_discipline:Priority
missing = edf_discipline:Missing
"""


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Path]:
    """A package as pip would lay it down."""
    site = tmp_path / "site"
    info = site / "edf_discipline-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "edf_discipline.py").write_text(EDF)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: edf-discipline\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()
    yield site
    sys.path.remove(str(site))
    sys.modules.pop("edf_discipline", None)


def found() -> dict[str, Discipline]:
    return dict(plugins.disciplines(lambda *_, **__: None))


async def expiring(stand: Stand, names: dict[str, int | None], **spec: Any) -> None:
    now = stand.clock.wall_ms()
    tasks = tuple(
        c.NewTask(name, TaskSpec(WORK, **spec), expires_ms=None if after is None else now + after)
        for name, after in names.items()
    )
    await stand.node.door.propose(c.Add(tasks), 1.0)


def test_what_cannot_be_used_is_told_and_is_not_there(installed: Path) -> None:
    told: list[tuple[str, str]] = []
    known = plugins.disciplines(lambda _text, **more: told.append((more["entry_point"], more["why"])))
    assert {name: each.version for name, each in known.items()} == {"edf": "1.0"}
    assert [point for point, _ in told] == [f"edf_discipline:{name}" for name in ("Missing", "Nameless", "Priority")]
    assert [why for _, why in told][1:] == ["its name is no word of a-z, 0-9 and _ . -", "priority is built in"]


async def test_a_queue_goes_by_its_plug_in(installed: Path, tmp_path: Path) -> None:
    async with one(tmp_path, slots=1, ahead=False, disciplines=found()) as stand:
        await ready(stand)
        await put(stand, discipline="edf")
        await fill(stand, ["first"], queue="other")
        await stand.until_state("first", "running")
        await expiring(stand, {"never": None, "late": 900_000, "soon": 300_000, "later": 950_000, "next": 310_000})
        await stand.until(lambda: not unplaced(stand))
        stand.end(stand.running()[0])
        await stand.until_state("first", "succeeded")
        assert await order(stand, 5) == ["soon", "next", "late", "later", "never"]


async def test_one_that_fails_leaves_the_order_of_arrival_and_is_told_once(installed: Path, tmp_path: Path) -> None:
    async with one(tmp_path, slots=1, disciplines=found()) as stand:
        await stand.until(lambda: unannounced(stand.machine.db, "edf") is None)
        await put(stand, discipline="edf")
        await fill(stand, ["a", "b"], key="poison", slots=99)
        await expiring(stand, {"c": 300_000}, slots=99)
        await stand.until(lambda: not unplaced(stand))
        lane = market.ready(stand.machine.db)[0]
        rows = market.ready_tasks(stand.machine.db, "default", lane.shape, limit=9)
        assert [row.id for row in rows] == ["c", "a", "b"]
        notes = [fields for text, fields in stand.notes if text == "a queue is not ordered by its discipline"]
        assert notes == [{"discipline": "edf", "queue": "default", "why": "it failed: ValueError: no luck"}]


async def test_what_waited_before_gets_its_place_and_loses_it_again(installed: Path, tmp_path: Path) -> None:
    async with one(tmp_path, slots=1, disciplines=found()) as stand:
        await stand.until(lambda: unannounced(stand.machine.db, "edf") is None)
        await expiring(stand, {"late": 900_000, "soon": 300_000}, slots=99)

        def ranks() -> list[str]:
            return [row[0] for row in stand.machine.db.execute("SELECT id FROM task ORDER BY rank, seq")]

        await put(stand, discipline="edf")
        await stand.until(lambda: ranks() == ["soon", "late"])
        await put(stand, discipline="fifo")
        await stand.until(lambda: ranks() == ["late", "soon"])
        told = await stand.node.door.propose(c.SetRanks("default", (c.Rank(2, -5),), "edf"), 1.0)
        assert told.answer == Worked(0, more=False)
        assert ranks() == ["late", "soon"]


async def test_a_plug_in_that_a_voter_has_not_is_refused(installed: Path, tmp_path: Path) -> None:
    async with two(tmp_path, disciplines=found()) as (master, follower, _):
        await ready(master, follower)
        await master.until(lambda: unannounced(master.machine.db, "edf") is None)
        follower.node.duties.placer._disciplines = {}
        await follower.node.duties.placer.announce()
        with pytest.raises(Refusal) as refused:
            await master.node.door.write(asks.Do(c.PatchQueue("default", c.QueueChanges(discipline="edf"))), 1.0)
        assert refused.value.rejection.errors[0].path == "discipline"
        assert refused.value.rejection.errors[0].message == "the plug-in edf is missing on n2"


async def test_a_daemon_that_goes_on_with_a_session_tells_what_it_has_now(installed: Path, tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await ready(stand)
        assert unannounced(stand.machine.db, "edf") is not None
        await stand.crash()
        object.__setattr__(stand.options, "disciplines", found())
        stand.begin()
        await stand.until(lambda: unannounced(stand.machine.db, "edf") is None)


def unplaced(stand: Stand) -> int:
    sql = "SELECT count(*) FROM task WHERE ready = 1 AND rank = ? AND queue = 'default'"
    return int(stand.machine.db.execute(sql, (UNPLACED,)).fetchone()[0])
