from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.service.stand import Stand, asked, two


async def nodes(stand: Stand) -> dict[str, dict[str, Any]]:
    return {node["name"]: node for node in (await stand.pool.cluster(asked()))["nodes"]}


async def test_each_node_says_how_far_it_is_and_what_it_keeps(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, switchboard):
        await master.until(lambda: not follower.node._status.token_waits)
        for stand in (master, follower):
            told = await nodes(stand)
            assert {node["snapshot_bytes"] > 4096 for node in told.values()} == {True}
            assert told["n2"]["index"] == follower.machine.applied_index
            assert {node["term"] for node in told.values()} == {master.log.role.term}
            assert {node["log_bytes"] for node in told.values()} == {0}
        switchboard.cut("n2")
        told = await nodes(master)
        assert [told["n2"][name] for name in ("term", "index", "log_bytes", "snapshot_bytes")] == [None] * 4
        assert told["n1"]["snapshot_bytes"] > 4096
