"""Faults on purpose in the table, the services and what they promise; found by the world of tasks.

As in planted.py: each takes one remedy away, by name; where another remedy hides it, that one too, and the fault says which.

One that is named in the contract is not here: a master that counts leases from its election, not from the shortest election
time (0.3 s) after it. No run can show it, since three others stand before it. A beat that renews was answered by the old
master while it held the leadership lease, of 0.9 * 0.3 s from when a majority's answers were *asked* for; the voters elect
nobody for 0.3 s from when they were asked, unless its process is gone or it has handed over, and then it answers nobody any
more. So at the election, at e, each worker counts its lease from s < e - 0.03 s, and ends
the action by s + L; the new master, counting from e alone, waits until e + 1.002 L + 0.3 s. It would still be 0.33 s late, less
what two clocks differ in (0.002 L), and what a kill takes. Planted instead is what the count is there for:
`new-master-takes-who-is-unheard-for-silent`.

How many seeds each took, of 20 virtual seconds, from seed 1: lease-not-counted 1, give-back-keeps-the-attempt 1, stale-finish 1,
beats-sent-for-a-stopped-executor 2, renewal-by-a-master-without-lease 2, new-master-takes-who-is-unheard 2, executor-with-grace 3,
limit-checked-only-by-the-proposer 4, session-reopened 4, renewal-of-an-action-after-its-proposed-loss 4,
at-most-once-awarded-again 8, end-of-a-claim 10, expiry-ignored 29. Those CI plays.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Final
from unittest.mock import patch

import msgspec

from quvatlh.core import commands as c
from quvatlh.core.events import Event
from quvatlh.core.rows import LiveRow, TaskRow
from quvatlh.core.unit import Unit
from quvatlh.core.verbs import VERBS, award, ending, person
from quvatlh.ports import RunError, Unavailable, Unknown
from quvatlh.raft.lease import Lease
from quvatlh.runner.executor.keeper import Keeper
from quvatlh.service import asks
from quvatlh.service.door import Door, Written
from quvatlh.service.feed import Feed
from quvatlh.service.pool import Call, Position
from quvatlh.service.presence import Presence
from quvatlh.service.reads import Reads
from quvatlh.service.session import Session
from quvatlh.service.worker import Worker
from tests.sim.planted import FAULTS, WORLD_OF, Planted, all_of, fault_of, planted
from tests.sim.table import planted_time
from tests.sim.table.executor import SimExecutor
from tests.sim.table.hands import STOPPED, SimRunner

__all__ = ["FAULTS", "WORLD_OF", "planted", "planted_time"]

fault = fault_of("table")
FOR_EVER_S: Final = 1e9


# --- apply ------------------------------------------------------------------------------------------------------------


@fault
def limit_checked_only_by_the_proposer() -> Planted:
    """Apply believes what the master saw when it proposed."""
    return all_of(
        patch.object(award._Batch, "_queue_refusal", lambda *_: None),
        patch.object(award._Batch, "_holder_refusal", lambda *_: None),
    )


@fault
def expiry_ignored_at_award() -> Planted:
    """Only the chore that expires tasks looks at the time."""

    def refusal(self: Any, queue: Any, task: award.Task, each: c.Award) -> str | None:
        if isinstance(task, TaskRow):  # a task that goes the short way has no expiry
            task = copy(task)
            task.expiry = None
        return real(self, queue, task, each)

    real = award._Batch.refusal
    return patch.object(award._Batch, "refusal", refusal)


@fault
def success_deleted() -> Planted:
    """A person who deletes takes back what has succeeded, too."""

    def delete(unit: Unit, task: TaskRow, *, failed: bool) -> bool:
        if task.state != "succeeded":
            return real(unit, task, failed=failed)
        was = copy(task)
        task.state = "deleted"
        unit.store(task, was)
        unit.tell_task("task.deleted", task)
        return True

    real = person._delete
    return patch.object(person, "_delete", delete)


@fault
def give_back_keeps_the_attempt() -> Planted:
    """A claim that never began counts as one."""

    def given_back(unit: Unit, action: LiveRow, task: TaskRow) -> None:
        task.attempts += 1
        real(unit, action, task)

    real = ending.given_back
    return patch.object(ending, "given_back", given_back)


@fault
def end_of_a_claim_of_a_finished_task_untold() -> Planted:
    """A killed task's claim is given back, and nobody hears that its slot is free."""

    def given_back(unit: Unit, action: LiveRow, task: TaskRow) -> None:
        told = len(unit.events)
        real(unit, action, task)
        if task.finished:
            del unit.events[told:]

    real = ending.given_back
    return patch.object(ending, "given_back", given_back)


@fault
def stale_finish_accepted() -> Planted:
    """A finish is taken for the task, whoever owns it now."""

    def finish(unit: Unit, command: c.Finish) -> Any:
        ends = []
        for end in command.ends:
            row = unit.db.execute("SELECT token, session FROM live WHERE task = ?", (end.task,)).fetchone()
            if row is not None:
                command = msgspec.structs.replace(command, session=row[1])
                end = msgspec.structs.replace(end, token=row[0])  # noqa: PLW2901 - what it becomes
            ends.append(end)
        return real(unit, msgspec.structs.replace(command, ends=tuple(ends)))

    real = VERBS[c.Finish]
    return patch.dict(VERBS, {c.Finish: finish})


@fault
def at_most_once_awarded_again_after_a_loss() -> Planted:
    """What became of a lost at-most-once action is not known, and it begins again."""

    def lost(unit: Unit, action: LiveRow, task: TaskRow, *, died: bool) -> None:
        once, task.once = task.once, 0
        real(unit, action, task, died=died)
        task.once = once

    real = ending.lost
    return patch.object(ending, "lost", lost)


@fault
def request_ids_forgotten_at_failover() -> Planted:
    """A new master begins without the requests that the old one has answered."""

    def elected(unit: Unit, command: c.Elected) -> Any:
        unit.db.execute("DELETE FROM request")
        return real(unit, command)

    real = VERBS[c.Elected]
    return patch.dict(VERBS, {c.Elected: elected})


# --- answers ----------------------------------------------------------------------------------------------------------


@fault
def answer_before_apply() -> Planted:
    """What is written is told before this node has it."""

    async def write(self: Door, wish: asks.Wish, deadline_s: float, request: c.Request | None = None) -> Written:
        with patch.object(self, "_log", _NeverBehind(self._log)):
            return await real(self, wish, deadline_s, request)

    real = Door.write
    return patch.object(Door, "write", write)


class _NeverBehind:
    """A log that says that it has applied everything."""

    applied_index = 2**53

    def __init__(self, log: Any) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


@fault
def barrier_read_without_barrier() -> Planted:
    """A consistent read sees what this node happens to have."""

    async def barrier(_self: Reads, _call: Call) -> None:
        pass

    return patch.object(Reads, "_barrier", barrier)


@fault
def doubt_forgotten() -> Planted:
    """The last attempt was certainly without effect, and that is what the client is told of all of them."""

    async def at_master(self: Door, wish: asks.Wish, ends: float, request: c.Request | None) -> Written:
        try:
            return await real(self, wish, ends, request)
        except Unknown as error:
            raise Unavailable(error.detail) from error

    real = Door._at_master
    return patch.object(Door, "_at_master", at_master)


# --- the feed ---------------------------------------------------------------------------------------------------------


@fault
def feed_skipping_at_a_snapshot() -> Planted:
    """A reader goes on behind the snapshot as if nothing had happened in it."""

    def reset(self: Feed, index: int) -> None:
        ring, kept, floor = self._ring.copy(), self._kept, self._floor
        real(self, index)
        self._ring, self._kept, self._floor = ring, kept, floor

    real = Feed.reset
    return patch.object(Feed, "reset", reset)


@fault
def last_event_told_again() -> Planted:
    """Who comes back with the last place he saw gets that event once more."""

    def after(self: Feed, place: Position) -> list[tuple[int, Event]]:
        return real(self, Position(place.index, place.n - 1))

    real = Feed._after
    return patch.object(Feed, "_after", after)


# --- leases -----------------------------------------------------------------------------------------------------------


@fault
def renewal_by_a_master_without_lease() -> Planted:
    """Who believes to be master answers beats, and believes it until it hears of another. Alone the check of the lease at a
    beat would not be missed: without a majority a master steps down after 0.6 s, and the next one counts from 0.3 s after
    its election, 0.3 s or more after the last majority, and waits 0.3 s longer than a lease."""

    def beat(self: Presence, beat: asks.Beat) -> asks.BeatAnswer:
        with patch.object(self, "_log", _Believer(self._log)):
            return real(self, beat)

    real = Presence.beat
    return all_of(patch.object(Presence, "beat", beat), patch.object(Lease, "silent_since", lambda *_: 0.0))


class _Believer:
    """A log that acts as long as it leads."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def acts(self) -> bool:
        return bool(self._log.role.acting)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


@fault
def new_master_takes_who_is_unheard_for_silent() -> Planted:
    """Leases are counted from the last beat that this very master has heard."""

    def role_changed(self: Presence, role: Any) -> None:
        before = self._elected_at
        real(self, role)
        self._elected_at = before

    real = Presence.role_changed
    return patch.object(Presence, "role_changed", role_changed)


@fault
def renewal_of_an_action_after_its_proposed_loss() -> Planted:
    """A beat that comes before the loss is decided renews the action, which is another's in a moment."""

    def lost(self: Presence, live: list[LiveRow]) -> list[c.AnyCommand]:
        commands = real(self, live)
        self._condemned = {}
        return commands

    real = Presence._lost
    return all_of(patch.object(Presence, "_lost", lost), _without_doubt())


@fault
def claim_from_before_a_silence_begins() -> Planted:
    """A node that lags tells its worker, after a silence, of a claim that was lost in it."""
    return _without_doubt()


def _without_doubt() -> Planted:
    """What a worker does after a silence hides what the faults beside it would show: it begins nothing from before."""
    return patch.object(Worker, "doubted", lambda *_: None)


@fault
def claim_taken_away_before_it_is_told_begins() -> Planted:
    """A worker forgets what the master's answer took away of which its node has not told it yet."""

    def foreign(self: Worker, tokens: tuple[int, ...]) -> None:
        real(self, tokens)
        self._disowned.clear()
        for token in tokens:
            self._reports._gifts.pop(token, None)

    real = Worker.foreign
    return all_of(patch.object(Worker, "foreign", foreign), _without_doubt())


@fault
def stop_of_an_early_claim_forgotten() -> Planted:
    """What somebody wants ended before the session is confirmed begins all the same."""

    def stop(self: Worker, tokens: Sequence[int]) -> None:
        early = list(self._early)
        real(self, tokens)
        self._early = early

    real = Worker.stop
    return patch.object(Worker, "stop", stop)


@fault
def session_reopened_by_a_copied_data_directory() -> Planted:
    """Who comes with a new executor is taken for the old machine, whose actions ended with the old executor."""

    def is_ended_with(self: Presence, wish: asks.Open) -> bool:
        return wish.worker in self.workers()

    def open_session(unit: Unit, command: c.OpenSession) -> Any:
        sql = "UPDATE session SET directory = ? WHERE worker = ?"
        unit.db.execute(sql, (command.directory, command.worker))
        return real(unit, command)

    real = VERBS[c.OpenSession]
    return all_of(
        patch.object(Presence, "is_ended_with", is_ended_with), patch.dict(VERBS, {c.OpenSession: open_session})
    )


@fault
def lease_not_counted_by_the_executor() -> Planted:
    """An action goes on until somebody says that it is over."""
    return patch.object(Keeper, "_ends_s", lambda *_: FOR_EVER_S)


@fault
def executor_with_grace_at_lease_end() -> Planted:
    """What is over is asked to end, while another begins it."""

    def stop(self: SimRunner, action_id: str, grace_s: float | None = None, why: RunError = STOPPED) -> None:
        real(self, action_id, None if why.code == "lease" else grace_s, why)

    real = SimRunner.stop
    return patch.object(SimRunner, "stop", stop)


@fault
def beats_sent_for_a_stopped_executor() -> Planted:
    """The daemon answers for its executor."""

    async def ask(self: SimExecutor) -> float:
        if self.life is None:
            raise ConnectionError
        return 0.0

    return patch.object(SimExecutor, "ask", ask)


@fault
def beats_counted_from_their_answers() -> Planted:
    """A worker's leases run from when it heard the answer, which may have been long under way."""

    def answered(self: Session, answer: asks.BeatAnswer, _sent: float) -> None:
        real(self, answer, self._clock.boot())

    real = Session._answered
    return patch.object(Session, "_answered", answered)
