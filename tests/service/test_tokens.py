from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from quvatlh.core import commands as c
from quvatlh.service import asks, tokens
from quvatlh.service.pool import Principal, Unavailable
from tests.fakes.entropy import FakeEntropy
from tests.service.stand import asked, one, two


def test_the_first_start_makes_a_token_for_its_owner_alone_and_keeps_it(tmp_path: Path) -> None:
    token, place = tokens.own_token(str(tmp_path), {}, FakeEntropy())
    assert place == str(tmp_path / "token")
    assert os.stat(place).st_mode & 0o777 == 0o600
    assert tokens.own_token(str(tmp_path), {}, FakeEntropy(9)) == (token, place)
    assert len(token) >= 32


def test_a_token_of_the_environment_is_not_written_down(tmp_path: Path) -> None:
    assert tokens.own_token(str(tmp_path), {"QUVATLH_TOKEN": "a" * 16}, FakeEntropy()) == ("a" * 16, "QUVATLH_TOKEN")
    assert list(tmp_path.iterdir()) == []


async def test_the_nodes_own_token_joins_the_table_by_its_hash(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.until(lambda: stand.principal("the admin token"))
        mark = tokens.hash_of("the admin token").hex()[:16]
        assert stand.pool.authenticate("the admin token") == Principal("admin-n1", "admin", mark=mark)
        assert stand.pool.authenticate("the admin tokem") is None
        (row,) = await stand.pool.tokens(asked())
        assert "the admin token" not in repr(row)
        assert (await stand.pool.token(asked(), "admin-n1"))["role"] == "admin"


async def test_any_node_takes_it(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        await master.until(lambda: follower.principal("the admin token"))


async def test_a_revoked_token_is_refused_at_once_and_stays_revoked(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.until(lambda: stand.principal("the admin token"))
        await stand.node.door.write(asks.Do(c.RevokeToken("admin-n1")), 1)
        assert stand.pool.authenticate("the admin token") is None
        await asyncio.wait_for(stand.node._introduce(), 5)
        assert stand.pool.authenticate("the admin token") is None


async def test_a_name_that_is_anothers_is_not_taken(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.until(lambda: stand.principal("the admin token"))
        await tokens.introduce(stand.node.door, stand.state, "another token", "n1")
        found = stand.pool.authenticate("another token")
        assert found is not None
        assert found.name.startswith("admin-n1-")
        assert stand.pool.authenticate("the admin token") is not None


async def test_a_stranger_is_told_so_only_by_a_node_that_can_know(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0, elect=False) as stand:
        with pytest.raises(Unavailable, match="no master is known") as caught:
            stand.pool.authenticate("a token of elsewhere")
        assert caught.value.code == "no_master"
        stand.log.elect()
        await stand.until(lambda: stand.principal("the admin token"))
        await stand.until(lambda: not stand.node._status.token_waits)
        assert stand.pool.authenticate("a token of elsewhere") is None
        stand.committed = stand.machine.applied_index + 3
        with pytest.raises(Unavailable, match="3 entries are not applied here yet"):
            stand.pool.authenticate("a token of elsewhere")
        assert stand.pool.authenticate("the admin token") is not None


async def test_the_nodes_own_token_is_unavailable_until_it_has_joined(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, switchboard):
        await master.until(lambda: follower.principal("the admin token"))
        switchboard.cut("n1")
        follower.node._status.token_waits = True
        with pytest.raises(Unavailable, match="the token of this node is not known to the cluster yet"):
            follower.pool.authenticate("the token of n2")


async def test_a_revoked_token_is_refused_by_who_is_behind_too(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.until(lambda: stand.principal("the admin token"))
        await stand.node.door.write(asks.Do(c.RevokeToken("admin-n1")), 1)
        stand.log.depose(None)
        assert stand.pool.authenticate("the admin token") is None
