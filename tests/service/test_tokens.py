from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from quvatlh.core import commands as c
from quvatlh.core.scopes import Scope
from quvatlh.service import asks, tokens
from quvatlh.service.pool import Principal, Rejected, Unavailable, Until
from tests.fakes.entropy import FakeEntropy
from tests.service.stand import asked, one, two

ALL = Scope(("*",), ("*",))


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
        await stand.until(lambda: stand.principal("the admin token") and not stand.node._status.token_waits)
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


async def test_a_token_expires_by_the_clock_of_the_node_that_is_asked(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        made = await stand.pool.add_token(asked(), "ci", "viewer", ALL, Until(in_ms=60_000))
        assert made["expires_at_ms"] == stand.clock.wall_ms() + 60_000
        stand.clock.advance(59.999)
        found = stand.principal(made["secret"])
        assert found is not None
        assert found.expires_at_ms == made["expires_at_ms"]
        assert not (await stand.pool.token(asked(), "ci"))["expired"]
        stand.clock.advance(0.001)
        with pytest.raises(Rejected, match=r"token ci expired at 2023-11-14T22:14:20.000Z") as caught:
            stand.pool.authenticate(made["secret"])
        assert caught.value.code == "unauthorized"
        assert (await stand.pool.token(asked(), "ci"))["expired"]


async def test_no_clock_that_is_set_back_makes_a_token_last_longer(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        made = await stand.pool.add_token(asked(), "ci", "viewer", ALL, Until(in_ms=60_000))
        stand.clock.advance(60)
        await stand.add(id="later")
        stand.clock.set_wall(stand.clock.wall_ms() - 3_600_000)
        with pytest.raises(Rejected, match="token ci expired"):
            stand.pool.authenticate(made["secret"])


async def test_an_end_that_is_over_is_refused(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        with pytest.raises(Rejected, match="expires") as caught:
            await stand.pool.add_token(asked(), "ci", "viewer", ALL, Until(at_ms=stand.clock.wall_ms()))
        assert caught.value.code == "invalid"


async def test_two_nodes_cannot_revoke_the_last_two_admins_at_once(tmp_path: Path) -> None:
    async with two(tmp_path, slots=0) as (master, follower, _):
        await master.until(lambda: not (master.node._status.token_waits or follower.node._status.token_waits))
        for name in [each["name"] for each in await master.pool.tokens(asked())][2:]:
            await master.pool.revoke_token(asked(), name)
        names = [each["name"] for each in await master.pool.tokens(asked())]
        if len(names) == 1:
            names.append((await master.pool.add_token(asked(), "second", "admin", ALL))["name"])
        both = (master.pool.revoke_token(asked(), names[0]), follower.pool.revoke_token(asked(), names[1]))
        done = await asyncio.gather(*both, return_exceptions=True)
        (refused,) = [each for each in done if each is not None]
        assert isinstance(refused, Rejected)
        assert refused.code == "conflict"
        assert "is the last token of role admin" in str(refused)
        assert len(await master.pool.tokens(asked())) == 1


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
