"""What doors are told of the node and its cluster: whether it is ready, who is there, a backup."""

from __future__ import annotations

from pathlib import Path

import pytest

from quvatlh import ports
from quvatlh.core import commands as c
from quvatlh.core.model import WorkerFacts
from quvatlh.ports import Member
from quvatlh.service.pool import Unavailable
from tests.service.stand import asked, one, text, two


async def test_a_backup_says_how_large_it_is(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        backup = await stand.pool.backup(asked())
        assert len(await text(backup.chunks)) == backup.size_bytes


async def test_readiness_says_what_is_missing(tmp_path: Path) -> None:
    async with one(tmp_path, elect=False) as stand:
        assert (stand.pool.readiness().ready, stand.pool.readiness().code) == (False, "no_master")
        stand.log.elect()
        await stand.working()
        await stand.until(lambda: stand.pool.readiness().ready)
        assert stand.pool.authenticate("the admin token") is not None
        stand.node._status.token_waits = True
        assert "token" in stand.pool.readiness().detail
        stand.node._status.token_waits = False
        await stand.node.drain()
        assert stand.pool.readiness().code == "stopping"


async def test_the_cluster_is_told_with_its_master(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        cluster = await stand.pool.cluster(asked())
        assert (cluster["master"], cluster["node"], cluster["index"] > 0) == ("n1", "n1", True)
        assert [node["id"] for node in cluster["nodes"]] == ["n1"]


async def test_a_node_lives_as_long_as_a_worker_of_any_of_its_names_does(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, _):
        await follower.working()
        await master.node.door.propose(c.Presence("n2", follower.node.session.id or "", up=False, heard=True), 1)

        async def states() -> list[str]:
            return [node["state"] for node in (await master.pool.cluster(asked()))["nodes"]]

        assert await states() == ["up", "lost"]
        facts = WorkerFacts("n2", role="node", slots=1, facts={"node_id": "n2"})
        await master.node.door.propose(c.OpenSession("renamed", "s-9", b"x" * 32, "elsewhere", facts), 1)
        assert await states() == ["up", "up"]


async def test_a_backup_is_streamed_and_leaves_nothing(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.add()
        backup = await stand.pool.backup(asked())
        assert (await text(backup.chunks)).startswith(b"SQLite format 3")
        assert not list(tmp_path.glob("backup-*"))


async def test_a_backup_that_nobody_reads_leaves_nothing_either(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        backup = await stand.pool.backup(asked())
        assert not list(tmp_path.glob("*backup-*"))
        await backup.chunks.aclose()  # type: ignore[attr-defined]


async def test_a_backup_without_room_is_a_problem_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with one(tmp_path, slots=0) as stand:

        async def backup(_path: str) -> int:
            raise ports.Unavailable("no room", "disk_full")

        monkeypatch.setattr(stand.log, "backup", backup)
        with pytest.raises(Unavailable) as caught:
            await stand.pool.backup(asked())
        assert (caught.value.code, caught.value.status) == ("disk_full", 503)


async def test_an_even_number_of_voters_is_warned_about(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        told = "2 voters, an even number: they work, and bear the loss of none, as 1 would; add a node, or remove one"
        assert [(await stand.pool.cluster(asked()))["warning"] for stand in (master, follower)] == [told, told]
        master.log.found(*(Member(name, name, f"{name}:1") for name in ("n1", "n2", "n3", "n4")))
        assert (
            "4 voters, an even number: they work, and bear the loss of 1, as 3 would"
            in (await master.pool.cluster(asked()))["warning"]
        )
        assert (await master.pool.remove_member(asked(), "n4"))["warning"] is None
