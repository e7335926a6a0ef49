"""Faults on purpose in what keeps schedules, and in what pull workers are promised; see planted.py.

Seeds that find them, of 20 virtual seconds: 5 both of slots after a failover, 4 what is late, 1 overlap, 13 a renewal
after a proposed loss. (What pull workers do has changed since a claim asked again and a stale token were found.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import msgspec

from quvatlh.core.queries import action_id
from quvatlh.core.rows import LiveRow
from quvatlh.core.verbs import schedules
from quvatlh.service.cron import Cron
from quvatlh.service.presence import Presence
from quvatlh.service.pullasks import Heard, Report, Reports
from quvatlh.service.pullreports import PullReports
from quvatlh.service.pulls import Pulls
from quvatlh.service.slots import Gap, Run, Skip
from tests.sim.planted import Planted, all_of, fault_of

fault = fault_of("table")


# --- schedules --------------------------------------------------------------------------------------------------------


@fault
def slot_decided_again_after_a_failover() -> Planted:
    """A master that is elected again goes by what it knew when it was one before, and apply believes it. Either alone does no
    harm: apply refuses what the ledger has, and who reads the ledger proposes no such slot."""

    def stale(schedule: Any, name: str, version: int, _slot: int | None) -> Any:
        return real_stale(schedule, name, version, None)

    async def refresh(self: Cron) -> None:
        if len(self._plans):
            self._is_all_changed = False
        await real_refresh(self)

    real_stale, real_refresh = schedules._stale, Cron._refresh
    return all_of(patch.object(schedules, "_stale", stale), patch.object(Cron, "_refresh", refresh))


@fault
def slots_forgotten_when_the_master_changes() -> Planted:
    """A new master begins with the next slot from now on, whatever was due while there was none."""

    def plan(self: Cron, row: tuple[Any, ...]) -> None:
        name, version, next_at, *rest = row
        real(self, (name, version, None if next_at is None else max(next_at, self._log.time_ms), *rest))

    real = Cron._plan
    return patch.object(Cron, "_plan", plan)


@fault
def late_slots_never_made_up_for() -> Planted:
    """Whatever `catchup` says, what was missed stays so."""

    def decide(self: Gap, late: list[int], then: int | None) -> Iterator[Run | Skip]:
        catchup, self.plan.catchup = self.plan.catchup, "skip"
        yield from real(self, late, then)
        self.plan.catchup = catchup

    real = Gap._decide
    return patch.object(Gap, "_decide", decide)


@fault
def overlap_judged_by_the_proposer() -> Planted:
    """Apply does not look whether the run before has ended."""
    return patch.object(schedules, "_held", lambda *_, **__: "")


# --- pull workers -----------------------------------------------------------------------------------------------------


@fault
def stale_token_of_a_pull_worker_accepted() -> Planted:
    """What it says of a task is taken for the action that the task has now."""

    def of_now(self: PullReports, report: Report) -> Report:
        sql = "SELECT token FROM live WHERE task = ?"
        row = self._state.db.execute(sql, (self._tasks.get(report.token),)).fetchone()
        return report if row is None else msgspec.structs.replace(report, token=row[0], action=action_id(row[0]))

    async def take(self: PullReports, ask: Reports) -> Heard:
        reports = tuple(of_now(self, each) for each in ask.reports) if self._state.is_open else ask.reports
        return await real(self, msgspec.structs.replace(ask, reports=reports))

    real = PullReports.take
    return patch.object(PullReports, "take", take)


@fault
def claim_asked_again_not_renewed() -> Planted:
    """Its worker counts from the last asking, and the master from the award."""

    def renewed(_self: Pulls, rows: Sequence[LiveRow], _arrived: float) -> tuple[int, ...]:
        return tuple(row.token for row in rows)

    return patch.object(Pulls, "_renewed", renewed)


@fault
def renewal_of_a_pulled_action_after_its_proposed_loss() -> Planted:
    """One that comes before the loss is decided is answered well, and the action is another's in a moment."""

    def renew(self: Presence, action: LiveRow, arrived: float) -> bool:
        self._condemned.pop(action.token, None)
        return real(self, action, arrived)

    real = Presence.renew
    return patch.object(Presence, "renew", renew)
