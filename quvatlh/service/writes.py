"""pool.Pool's writes: checked requests become wishes of the door, its answers become the pool's, its noes problems."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from quvatlh import ports
from quvatlh.core import commands as c
from quvatlh.core import queries, results
from quvatlh.core.filters import TaskFilter
from quvatlh.core.limits import BATCH_MAX
from quvatlh.core.model import TaskSpec
from quvatlh.core.rejections import FieldError
from quvatlh.service import asks, scoping
from quvatlh.service.answers import outcome, problem, refusal
from quvatlh.service.bulks import Bulks, Verb
from quvatlh.service.door import Door, Refusal, Written
from quvatlh.service.pool import (
    Added,
    Bulk,
    Call,
    Done,
    Json,
    NewTask,
    Rejected,
    RequestKey,
    Turn,
    Unavailable,
    Unknown,
)
from quvatlh.service.reads import Reads
from quvatlh.service.reserve import Reserve
from quvatlh.service.sources import Sources
from quvatlh.service.status import Status

T = TypeVar("T")


class Commander(Protocol):
    def __call__(self, ids: Sequence[str], *, strict: bool) -> c.AnyCommand: ...


SLICE: Final = 200
"""Tasks converted between two turns of the loop: a few milliseconds."""
MEMBER_S: Final = 30.0
"""A new member has to catch up before it votes."""


class Writes:
    def __init__(
        self, door: Door, reads: Reads, status: Status, reserve: Reserve, bulks: Bulks, sources: Sources
    ) -> None:
        self._door = door
        self._status = status
        self._reads = reads
        self._reserve = reserve
        self._bulks = bulks
        self._sources = sources

    async def add(self, call: Call, tasks: Sequence[NewTask]) -> Added:
        if not self._reserve.has_room():
            raise Unavailable("disk_full", "the disk of this node is full; finishes and deletes still go")
        if call.turn is None:
            written = await self.write(call, asks.AddTasks(await self._drafts(call, tasks)))
        else:
            async with call.turn:
                wish = asks.AddTasks(await self._drafts(call, tasks))
                writing = asyncio.ensure_future(self.write(call, wish))  # begun in the order of the turns
            written = await writing
        answer = written.answer
        assert isinstance(answer, results.Added)
        return Added(answer.ids, written.index, answer.existing)

    async def _drafts(self, call: Call, tasks: Sequence[NewTask]) -> tuple[asks.Draft, ...]:
        drafts: list[asks.Draft] = []
        faults: list[FieldError] = []
        judge = scoping.is_bounded(call.principal)
        for position, task in enumerate(tasks):
            drafts.append(_draft(position, task))
            if judge:
                faults += scoping.check_new(call.principal, drafts[-1].spec, f"tasks[{position}]")
            if position % SLICE == SLICE - 1:
                await asyncio.sleep(0)
        if faults:
            raise scoping.refused(call.principal, faults)
        await self._sources.check(drafts)
        return tuple(drafts)

    async def act(self, call: Call, turn: Turn, which: Sequence[str] | TaskFilter) -> Done | Bulk:
        command = _commander(turn)
        scoping.check_move(call.principal, "set.queue", (turn.changes or {}).get("queue"))
        scoping.check_move(call.principal, "queue", turn.queue)
        strict = not isinstance(which, TaskFilter)
        if isinstance(which, TaskFilter):
            if turn.to is not None:
                await self._check_worker(call, turn.to)
            ids = await self._reads.matching(call, which, BATCH_MAX + 1)
            if len(ids) > BATCH_MAX:
                count = await self._reads.count(call, which)
                return await self.in_bulk(call, which, lambda some: command(some, strict=False), count or len(ids))
        else:
            ids = list(dict.fromkeys(which))
            if len(ids) > BATCH_MAX:
                raise Rejected("too_large", f"at most {BATCH_MAX} ids at once; name more by a filter")
        return await self.at_once(call, command(ids, strict=strict))

    async def at_once(self, call: Call, command: c.AnyCommand) -> Done | Bulk:
        """What fits into an entry; a Bulk where that is what its request was answered first."""
        written = await self.write(call, asks.Do(command))
        return outcome(written.answer, written.index)

    async def in_bulk(self, call: Call, wanted: TaskFilter, verb: Verb, matched: int) -> Done | Bulk:
        """What does not."""
        request = None if call.key is None else request_of(call.key)
        return await told(self._bulks.start(call, wanted, verb, matched, request))

    async def bulk(self, _call: Call, bulk_id: str) -> Json:
        return await self._bulks.state(bulk_id)

    async def _check_worker(self, call: Call, name: str) -> None:
        """Before a thousand moves to nobody."""
        if not await self._reads.read(call, lambda db: queries.workers(db, name)):
            text = f"there is no worker named {name}"
            raise Rejected("not_found", text, [FieldError("to", text)])

    async def add_member(self, call: Call, member: Mapping[str, str]) -> Json:
        wish = asks.AddMember(member["id"], member["name"], member["peer"], member["http"])
        await self.write(call, wish, max(MEMBER_S, call.deadline_ms / 1000))
        return await self._status.cluster(call)

    async def remove_member(self, call: Call, member_id: str) -> Json:
        """A master hands over first. Nothing that fails on the way does harm: the member is in, or it is not."""
        try:
            await self.write(call, asks.RemoveMember(member_id))
        except Unavailable as error:
            raise Unavailable(error.code, f"{error.detail}; node {member_id} is still a member: ask again") from error
        except Unknown as error:
            text = f"{error.detail}; look whether node {member_id} is still a member, and if it is, ask again"
            raise Unknown(text) from error
        return await self._status.cluster(call, without=member_id)

    async def write(self, call: Call, wish: asks.Wish, deadline_s: float | None = None) -> Written:
        request = self._door.request_id() if call.key is None else request_of(call.key)
        scope = call.principal.scope
        return await told(self._door.write(wish, deadline_s or call.deadline_ms / 1000, request, scope))


def _commander(turn: Turn) -> Commander:
    """The command of a verb over ids."""
    if turn.verb == "relocate":
        return lambda ids, *, strict: c.Relocate(tuple(c.Move(each, turn.to) for each in ids), strict)
    if turn.verb == "update":
        try:
            changes = msgspec.convert(turn.changes or {}, c.TaskChanges)
        except msgspec.ValidationError as error:
            raise Rejected("invalid", "cannot be set so", [FieldError("set", str(error))]) from error
        return lambda ids, *, strict: c.Update(tuple(ids), changes, strict, failed=True, timely=True)
    if turn.verb == "delete":
        return lambda ids, *, strict: c.Delete(tuple(ids), strict, failed=True)
    if turn.verb == "kill":
        return lambda ids, *, strict: c.Kill(tuple(ids), strict)
    return lambda ids, *, strict: c.RetryTasks(tuple(ids), strict, turn.queue, placed=True, exclusive=True, sooner=True)


async def told(work: Awaitable[T]) -> T:
    """What it gives, or one of the four problems."""
    try:
        return await work
    except ports.LogError as error:
        raise problem(error) from error
    except Refusal as error:
        raise refusal(error.rejection) from error


def request_of(key: RequestKey) -> c.Request:
    return c.Request(key.token, key.route, key.id, key.digest)


def _draft(position: int, task: NewTask) -> asks.Draft:
    given: dict[str, Any] = {**task}
    try:
        spec = msgspec.convert(given.pop("spec"), TaskSpec)
    except msgspec.ValidationError as error:
        raise Rejected(
            "invalid", "a task cannot be taken as it is", [FieldError(f"tasks[{position}]", str(error))]
        ) from error
    return asks.Draft(spec, **given)
