"""Which function carries out which verb: the whole list, in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

from quvatlh.core import commands as c
from quvatlh.core.results import Answer
from quvatlh.core.unit import Unit
from quvatlh.core.verbs import access, add, award, chores, classes, person, queues, reports, schedules, workers

Verb = Callable[[Unit, Any], Answer]

VERBS: Mapping[type, Verb] = {
    c.Add: add.add,
    c.Delete: person.delete,
    c.Kill: person.kill,
    c.RetryTasks: person.retry,
    c.Relocate: person.relocate,
    c.Update: person.update,
    c.Awards: award.award,
    c.Start: reports.start,
    c.Progress: reports.progress,
    c.Announce: reports.announce,
    c.Finish: reports.finish,
    c.GiveBack: reports.give_back,
    c.Lost: reports.lost,
    c.OpenSession: workers.open_session,
    c.EndSession: workers.end_session,
    c.PatchWorker: workers.patch_worker,
    c.Presence: workers.presence,
    c.PutQueue: queues.put_queue,
    c.PatchQueue: queues.patch_queue,
    c.DeleteQueue: queues.delete_queue,
    c.PurgeQueue: queues.purge_queue,
    c.PutClass: classes.put_class,
    c.PatchClass: classes.patch_class,
    c.DeleteClass: classes.delete_class,
    c.SetRanks: queues.set_ranks,
    c.PutSchedule: schedules.put,
    c.PauseSchedule: schedules.pause,
    c.DeleteSchedule: schedules.delete,
    c.Fire: schedules.fire,
    c.SkipSlots: schedules.skip,
    c.PutPolicy: access.put_policy,
    c.DeletePolicy: access.delete_policy,
    c.PutToken: access.put_token,
    c.RevokeToken: access.revoke_token,
    c.Promote: chores.promote,
    c.Expire: chores.expire,
    c.Forget: chores.forget,
    c.Sweep: chores.sweep,
    c.ForgetWorkers: workers.forget_workers,
    c.Rerank: queues.rerank,
    c.CheckDigest: chores.check_digest,
    c.Elected: chores.elected,
    c.ClockJumped: chores.clock_jumped,
    c.Nothing: chores.nothing,
    c.BeginBulk: person.begin_bulk,
}

assert set(VERBS) == set(get_args(c.AnyCommand))
