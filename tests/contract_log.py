"""What ports.Log promises, as one suite for every implementation.

An implementation plugs itself in with a class of its own and a fixture:

    class TestFakeLog(LogContract):
        @pytest.fixture
        async def rig(self, tmp_path) -> AsyncIterator[LogRig]: ...

The machine under the log is one whose result of an item is its position in the entry (core.machine.Positions).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest

from quvatlh.ports import Applied, Entry, Log, LogError, Member, Refused, Role, Unavailable, Unknown

SOON_S = 20.0
"""A deadline that is never met unless something is wrong."""


class LogRig(Protocol):
    """An acting master, and the power to end that."""

    @property
    def log(self) -> Log: ...

    async def depose(self) -> None:
        """Return once the node is not master any more, whoever is."""
        ...

    async def elect(self) -> None:
        """Return once the node acts again."""
        ...


@dataclass(slots=True)
class Recorder:
    """A LogListener that keeps what it hears."""

    entries: list[Entry] = field(default_factory=list)
    results: list[list[object]] = field(default_factory=list)
    roles: list[Role] = field(default_factory=list)
    resets: list[int] = field(default_factory=list)

    def applied(self, entry: Entry, results: Sequence[object]) -> None:
        self.entries.append(entry)
        self.results.append(list(results))

    def role_changed(self, role: Role) -> None:
        self.roles.append(role)

    def reset(self, index: int) -> None:
        self.resets.append(index)

    @property
    def items(self) -> list[bytes]:
        return [item for entry in self.entries for item in entry.items]


class LogContract:
    @pytest.fixture
    def heard(self, rig: LogRig) -> Recorder:
        recorder = Recorder()
        rig.log.listen(recorder)
        return recorder

    # -- writes

    async def test_a_write_is_applied_when_it_is_answered(self, rig: LogRig, heard: Recorder) -> None:
        answer = await rig.log.propose(b"one", deadline=SOON_S)
        assert rig.log.applied_index >= answer.index > 0
        assert [entry.index for entry in heard.entries if b"one" in entry.items] == [answer.index]

    async def test_the_answer_carries_what_the_machine_made_of_the_item(self, rig: LogRig, heard: Recorder) -> None:
        items = [b"%d" % number for number in range(20)]
        answers = await asyncio.gather(*(rig.log.propose(item, deadline=SOON_S) for item in items))
        by_index = {entry.index: entry for entry in heard.entries}
        places = [(by_index[answer.index].items.index(item)) for item, answer in zip(items, answers, strict=True)]
        assert [answer.result for answer in answers] == places

    async def test_writes_stand_in_the_order_in_which_they_were_made(self, rig: LogRig, heard: Recorder) -> None:
        items = [b"%d" % number for number in range(50)]
        answers = await asyncio.gather(*(rig.log.propose(item, deadline=SOON_S) for item in items))
        indexes = [answer.index for answer in answers]
        assert indexes == sorted(indexes)
        assert [item for item in heard.items if item in items] == items

    async def test_the_same_bytes_twice_are_two_writes(self, rig: LogRig, heard: Recorder) -> None:
        first = await rig.log.propose(b"same", deadline=SOON_S)
        second = await rig.log.propose(b"same", deadline=SOON_S)
        assert second.index > first.index
        assert heard.items == [b"same", b"same"]

    async def test_an_empty_item_is_a_write(self, rig: LogRig, heard: Recorder) -> None:
        assert isinstance(await rig.log.propose(b"", deadline=SOON_S), Applied)
        assert heard.items == [b""]

    async def test_a_deadline_that_is_over_ends_at_once_and_says_whether_it_is_done(
        self, rig: LogRig, heard: Recorder
    ) -> None:
        try:
            await rig.log.propose(b"late", deadline=0.0)
        except Unavailable:
            await rig.log.barrier(deadline=SOON_S)
            assert heard.items == []
        except Unknown:
            pass

    async def test_a_caller_that_goes_away_harms_nobody(self, rig: LogRig) -> None:
        task = asyncio.create_task(rig.log.propose(b"gone", deadline=SOON_S))
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert (await rig.log.propose(b"next", deadline=SOON_S)).index > 0

    # -- what listeners hear

    async def test_listeners_hear_every_entry_once_without_gaps(self, rig: LogRig, heard: Recorder) -> None:
        for number in range(10):
            await rig.log.propose(b"%d" % number, deadline=SOON_S)
        indexes = [entry.index for entry in heard.entries]
        assert indexes == list(range(indexes[0], indexes[0] + len(indexes)))

    async def test_listeners_hear_one_result_an_item(self, rig: LogRig, heard: Recorder) -> None:
        await asyncio.gather(*(rig.log.propose(b"%d" % number, deadline=SOON_S) for number in range(10)))
        assert [len(results) for results in heard.results] == [len(entry.items) for entry in heard.entries]

    async def test_log_time_is_what_the_next_entry_is_stamped_with(self, rig: LogRig, heard: Recorder) -> None:
        before = rig.log.time_ms
        await rig.log.propose(b"now", deadline=SOON_S)
        assert 0 < before <= heard.entries[-1].time_ms <= rig.log.time_ms

    async def test_term_and_log_time_never_fall(self, rig: LogRig, heard: Recorder) -> None:
        await rig.log.propose(b"before", deadline=SOON_S)
        await rig.depose()
        await rig.elect()
        await rig.log.propose(b"after", deadline=SOON_S)
        for quality in ([entry.term for entry in heard.entries], [entry.time_ms for entry in heard.entries]):
            assert quality == sorted(quality)
        assert heard.entries[0].time_ms > 0

    # -- reads

    async def test_a_barrier_covers_every_answered_write(self, rig: LogRig) -> None:
        answer = await rig.log.propose(b"one", deadline=SOON_S)
        index = await rig.log.barrier(deadline=SOON_S)
        assert index >= answer.index
        await rig.log.wait_applied(index, deadline=SOON_S)
        assert rig.log.applied_index >= index

    async def test_waiting_for_what_is_applied_returns_at_once(self, rig: LogRig) -> None:
        answer = await rig.log.propose(b"one", deadline=SOON_S)
        await rig.log.wait_applied(answer.index, deadline=0.1)

    async def test_waiting_ends_when_the_index_comes(self, rig: LogRig) -> None:
        answer = await rig.log.propose(b"one", deadline=SOON_S)
        waiting = asyncio.create_task(rig.log.wait_applied(answer.index + 1, deadline=SOON_S))
        await asyncio.sleep(0)
        assert not waiting.done()
        await rig.log.propose(b"two", deadline=SOON_S)
        await waiting

    async def test_waiting_for_what_does_not_come_is_unavailable_at_the_deadline(self, rig: LogRig) -> None:
        with pytest.raises(Unavailable):
            await rig.log.wait_applied(rig.log.applied_index + 1_000_000, deadline=0.05)

    # -- role

    async def test_a_master_says_so_everywhere(self, rig: LogRig) -> None:
        assert rig.log.acts()
        assert rig.log.role == Role(rig.log.role.term, rig.log.node_id, acting=True)
        assert rig.log.role.term >= 1
        membership = rig.log.membership
        assert membership is not None
        assert membership.is_voter(rig.log.node_id)

    async def test_a_deposed_master_takes_nothing(self, rig: LogRig, heard: Recorder) -> None:
        await rig.depose()
        assert not rig.log.acts()
        for asked in (
            rig.log.propose(b"refused", deadline=SOON_S),
            rig.log.barrier(deadline=SOON_S),
            rig.log.transfer(deadline=SOON_S),
            rig.log.add_member(Member("new", "new", "127.0.0.1:9"), deadline=SOON_S),
            rig.log.remove_member("new", deadline=SOON_S),
        ):
            with pytest.raises(Unavailable) as caught:
                await asked
            assert caught.value.code == "no_master"
        await rig.elect()
        await rig.log.propose(b"taken", deadline=SOON_S)
        assert heard.items == [b"taken"]

    async def test_the_same_node_elected_again_leads_a_later_term(self, rig: LogRig, heard: Recorder) -> None:
        term = rig.log.role.term
        await rig.depose()
        await rig.elect()
        assert rig.log.acts()
        assert rig.log.role.term > term
        assert [role.acting for role in heard.roles if role.master == rig.log.node_id][-1]
        assert any(not role.acting for role in heard.roles)

    # -- members

    async def test_a_new_member_is_a_learner_until_it_has_caught_up(self, rig: LogRig) -> None:
        """Nobody listens at the address; the second call brings it up to date."""
        for peer in ("127.0.0.1:9", "127.0.0.1:10"):
            with pytest.raises(Unknown):
                await rig.log.add_member(Member("new", "new", peer), deadline=0.2)
            membership = rig.log.membership
            assert membership is not None
            assert membership.learners == (Member("new", "new", peer),)
        after = await rig.log.remove_member("new", deadline=SOON_S)
        assert after.get("new") is None
        assert rig.log.membership == after

    async def test_a_master_is_not_removed_but_hands_over_first(self, rig: LogRig) -> None:
        with pytest.raises(Refused):
            await rig.log.remove_member(rig.log.node_id, deadline=SOON_S)

    async def test_nobody_is_removed_who_is_not_in(self, rig: LogRig) -> None:
        with pytest.raises(Refused):
            await rig.log.remove_member("nobody", deadline=SOON_S)

    async def test_leadership_goes_to_no_stranger(self, rig: LogRig) -> None:
        with pytest.raises(Refused):
            await rig.log.transfer("nobody", deadline=SOON_S)
        assert rig.log.acts()

    # -- backup and stop

    async def test_a_backup_is_a_new_file_that_holds_every_answered_write(self, rig: LogRig, tmp_path: Path) -> None:
        answer = await rig.log.propose(b"kept", deadline=SOON_S)
        path = tmp_path / "backup"
        assert answer.index <= await rig.log.backup(str(path)) <= rig.log.applied_index
        assert path.stat().st_size > 0

    async def test_a_backup_replaces_nothing(self, rig: LogRig, tmp_path: Path) -> None:
        (tmp_path / "backup").write_text("mine")
        with pytest.raises((FileExistsError, Refused)):
            await rig.log.backup(str(tmp_path / "backup"))
        assert (tmp_path / "backup").read_text() == "mine"

    async def test_a_stopped_node_takes_nothing_and_says_why(self, rig: LogRig) -> None:
        await rig.log.stop()
        assert not rig.log.acts()
        with pytest.raises(Unavailable) as caught:
            await rig.log.propose(b"late", deadline=SOON_S)
        assert caught.value.code == "stopping"

    async def test_what_is_under_way_at_a_stop_is_answered(self, rig: LogRig) -> None:
        asked = [asyncio.create_task(rig.log.propose(b"%d" % number, deadline=SOON_S)) for number in range(10)]
        waiting = asyncio.create_task(rig.log.wait_applied(rig.log.applied_index + 1_000_000, deadline=SOON_S))
        await asyncio.sleep(0)
        await rig.log.stop()
        async with asyncio.timeout(SOON_S / 2):
            answers = await asyncio.gather(*asked, waiting, return_exceptions=True)
        assert all(isinstance(answer, Applied | LogError) for answer in answers)
        assert isinstance(answers[-1], Unavailable)

    async def test_stopping_twice_is_stopping(self, rig: LogRig) -> None:
        await rig.log.stop()
        await rig.log.stop()
