"""pool.Market's workers, live actions, announcements and policies: read from the table, changed through the door."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from quvatlh.core import commands as c
from quvatlh.core import queries
from quvatlh.core.owned import OwnedBy, OwnedFilter, count_owned, list_owned
from quvatlh.core.rejections import FieldError
from quvatlh.core.scopes import narrowed
from quvatlh.core.views import PolicyView, WorkerView
from quvatlh.service import asks, records, scoping
from quvatlh.service.answers import shown
from quvatlh.service.hostloads import STEP_S, HostLoads, columns
from quvatlh.service.pool import Call, Groups, Json, Page, Rejected
from quvatlh.service.pulls import SETTABLE, set_by_person
from quvatlh.service.reads import Reads
from quvatlh.service.reception import BOUNDS
from quvatlh.service.sources import Sources
from quvatlh.service.writes import Writes

CURSOR_DIGITS_MAX: Final = 16
"""Of a token: below 2^53."""
CHANGEABLE: Final = frozenset({"tags", "queues", "slots", "draining"})


class Fleet:
    def __init__(self, reads: Reads, writes: Writes, sources: Sources, loads: HostLoads) -> None:
        self._reads = reads
        self._writes = writes
        self._sources = sources
        self._loads = loads

    # --- workers ---

    async def workers(self, call: Call) -> Sequence[Json]:
        views = await self._reads.read(call, queries.workers)
        now = await self._loads.now()
        return [records.worker(view, now.get(view.name)) for view in views]

    async def worker(self, call: Call, name: str) -> Json:
        view = await self.view(call, name)
        return records.worker(view, (await self._loads.now()).get(name))

    async def worker_load(self, call: Call, name: str) -> Json:
        await self.view(call, name)
        return {"step_ms": STEP_S * 1000, **columns(await self._loads.hour(name))}

    async def patch_worker(self, call: Call, name: str, changes: Json) -> Json:
        known = await self.view(call, name)
        unknown = sorted(changes.keys() - CHANGEABLE)
        if unknown:
            errors = [FieldError(field, "is not a field that can be changed") for field in unknown]
            raise Rejected("unknown_field", f"not to be changed: {', '.join(unknown)}", errors)
        given = dict(changes)
        if "tags" in given:
            own = set(records.own_tags(known))
            given["tags"] = [tag for tag in given["tags"] if tag not in own]
        try:
            wanted = msgspec.convert(given, c.WorkerChanges)
        except msgspec.ValidationError as error:
            raise Rejected("invalid", str(error)) from error
        _check_bounds(known, given.get("queues", ()))
        if known.facts.role == "pull" and given.keys() & SETTABLE:
            known = await self.view(replace(call, consistent=True), name)  # its facts are written as a whole
            wanted = msgspec.structs.replace(wanted, facts=set_by_person(known.facts, given.keys()))
        await self._writes.write(call, asks.Do(c.PatchWorker(name, wanted)))
        return await shown(self.worker(call, name))

    async def announcements(self, call: Call, group: str | None) -> Sequence[Json]:
        found = await self._reads.read(call, lambda db: queries.announcements(db, group, call.principal.scope))
        return [records.announcement(view) for view in found]

    # --- live actions ---

    async def owned(self, call: Call, wanted: OwnedFilter, limit: int, cursor: str | None) -> Page:
        after, mine = _token_of(cursor), _narrowed(call, wanted)
        page = await self._reads.read(call, lambda db: list_owned(db, mine, limit=limit, after=after))
        return Page(
            [records.owned(view) for view in page.items], None if page.last is None else str(page.last), page.total
        )

    async def count_owned(self, call: Call, wanted: OwnedFilter, by: OwnedBy) -> Groups:
        mine = _narrowed(call, wanted)
        found = await self._reads.read(call, lambda db: count_owned(db, mine, by))
        return Groups([{"value": group.value, "count": group.count} for group in found], partial=False)

    async def view(self, call: Call, name: str) -> WorkerView:
        found = await self._reads.read(call, lambda db: queries.workers(db, name))
        if not found:
            raise Rejected("not_found", f"there is no worker named {name}")
        return found[0]

    # --- policies ---

    async def policies(self, call: Call) -> Sequence[Json]:
        return [_policy(view) for view in await self._reads.read(call, queries.policies)]

    async def policy(self, call: Call, name: str) -> Json:
        found = await self._reads.read(call, lambda db: queries.policies(db, name))
        if not found:
            raise Rejected("not_found", f"there is no policy named {name}")
        return _policy(found[0]) | {"source": found[0].source}

    async def put_policy(self, call: Call, name: str, source: str) -> Json:
        await self._sources.compiles(source)
        await self._writes.write(call, asks.Do(c.PutPolicy(name, source)))
        made = await shown(self.policy(call, name))
        del made["source"]
        return made

    async def delete_policy(self, call: Call, name: str) -> None:
        try:
            await self._writes.write(call, asks.Do(c.DeletePolicy(name)))
        except Rejected as error:
            found = None
            if error.code == "not_empty":
                found = await self._reads.read(call, lambda db: queries.names_policy(db, name))
            if found is None:
                raise
            which, state = found
            text = f"{error.detail}, as {which} does, which is {state}; what has finished counts until it is purged"
            raise Rejected(error.code, text) from error


def _narrowed(call: Call, wanted: OwnedFilter) -> OwnedFilter:
    return msgspec.structs.replace(wanted, scope=call.principal.scope)


def _token_of(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= CURSOR_DIGITS_MAX):
        raise Rejected("invalid", "this is no cursor", [FieldError("cursor", "this is no cursor")])
    return int(cursor)


def bounds_of(worker: WorkerView) -> Sequence[str]:
    """The queues of the token that it connected with: it sees no task of others."""
    bounds: Sequence[str] = worker.facts.facts.get(BOUNDS, ["*"])
    return bounds


def _check_bounds(worker: WorkerView, queues: Sequence[str]) -> None:
    """Nobody widens what a worker's token allows it."""
    bounds = bounds_of(worker)
    for position, pattern in enumerate(queues):
        if narrowed([pattern], bounds) != (pattern,):
            text = f"{pattern} is not within the queues of its token, {scoping.listed(bounds)}"
            raise Rejected("conflict", f"worker {worker.name}: {text}", [FieldError(f"queues[{position}]", text)])


def _policy(view: PolicyView) -> Json:
    digest = hashlib.blake2b(view.source.encode(), digest_size=16).hexdigest()
    return {"name": view.name, "version": view.version, "digest": digest, "at_ms": view.at}
