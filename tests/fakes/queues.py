"""The queues of the fake pool: settings that a test may look at, and counters of what is in the pool's records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from quvatlh.core.commands import ClassChanges, QueueChanges
from quvatlh.core.model import HtbClass, QueueSettings, TaskState
from quvatlh.core.rejections import FieldError
from quvatlh.core.verbs.queues import fault_of
from quvatlh.service.pool import Bulk, Call, Done, Json, Metric, Page, Rejected
from quvatlh.service.queueing import QueueSort
from tests.fakes.gate import Gate, known

COUNTED: Final = ("scheduled", "pending", "claimed", "running", "retrying", "failed")
OVER: Final = ("succeeded", "deleted")
DISCIPLINES: Final = ("priority", "fifo", "sfq")
_DEPTH: Final[Mapping[QueueSort, Sequence[str]]] = {
    "-pending": ("pending",),
    "-running": ("claimed", "running"),
    "-failed": ("failed",),
}


def _depth(record: Json, sort: QueueSort) -> int:
    counts: dict[str, int] = record["counts"]
    return -sum(counts[state] for state in _DEPTH.get(sort, ()))


class FakeQueues:
    """quvatlh.service.queueing.Queueing"""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.settings: dict[str, QueueSettings] = {}
        self.tree: dict[str, HtbClass] = {}
        self.rates: dict[str, Json] = {}
        self.unplaceable: dict[str, Json] = {}
        """Queue -> rates, where a test says them."""
        self.bulk_above = 1000
        self.bulks: dict[str, Json] = {}

    async def queues(self, call: Call, limit: int, cursor: str | None, sort: QueueSort = "name") -> Page:
        await self._gate._enter(call)
        self._use()
        records = sorted(map(self._record, self.settings), key=lambda record: (_depth(record, sort), record["name"]))
        names = [f"after-{record['name']}" for record in records]
        start = names.index(cursor) + 1 if cursor in names else 0
        more = names[start + limit - 1] if len(names) > start + limit else None
        return Page(records[start : start + limit], more, len(records))

    async def queue(self, call: Call, name: str) -> Json:
        await self._gate._enter(call)
        return self._known(name)

    async def put_queue(self, call: Call, name: str, settings: Json) -> Json:
        await self._gate._enter(call)
        return self._gate._once(call.key, lambda: self._set(name, msgspec.convert(settings, QueueSettings)))  # type: ignore[no-any-return]

    async def patch_queue(self, call: Call, name: str, changes: Json) -> Json:
        await self._gate._enter(call)
        named = msgspec.convert(changes, QueueChanges)
        settings = named.on(self.settings.get(name, QueueSettings()))
        fault = fault_of(named, settings)
        if fault is not None:
            raise Rejected("invalid", f"{fault.path} {fault.message}", [fault])
        return self._gate._once(call.key, lambda: self._set(name, settings))  # type: ignore[no-any-return]

    async def delete_queue(self, call: Call, name: str) -> None:
        await self._gate._enter(call)
        self._known(name)
        held = len(self._in(name))
        if held:
            raise Rejected("not_empty", f"queue {name} has tasks ({held} of them): purge it of these states first")
        del self.settings[name]

    async def purge_queue(self, call: Call, name: str, states: Sequence[TaskState]) -> Done | Bulk:
        await self._gate._enter(call)
        self._known(name)
        found = [record for record in self._in(name) if record["state"] in states]
        if len(found) > self.bulk_above:
            self.bulks["b2"] = {"id": "b2", "matched": len(found), "done": 0, "state": "working"}
            return Bulk("b2")
        for record in found:
            if record["state"] in {"scheduled", "pending", "retrying"}:
                record["state"] = "deleted"
            else:
                del self._gate.records[record["id"]]
        self._gate.index += 1
        return Done(len(found), len(found), self._gate.index)

    async def classes(self, call: Call) -> Sequence[Json]:
        await self._gate._enter(call)
        return [_class(name, self.tree[name]) for name in sorted(self.tree)]

    async def get_class(self, call: Call, name: str) -> Json:
        await self._gate._enter(call)
        return _class(name, known(self.tree, name, "class"))

    async def put_class(self, call: Call, name: str, settings: Json) -> Json:
        await self._gate._enter(call)
        return self._place(name, msgspec.convert(settings, HtbClass))

    async def patch_class(self, call: Call, name: str, changes: Json) -> Json:
        await self._gate._enter(call)
        named = _named(msgspec.convert(changes, ClassChanges))
        return self._place(name, msgspec.structs.replace(self.tree.get(name, HtbClass()), **named))

    async def delete_class(self, call: Call, name: str) -> None:
        await self._gate._enter(call)
        known(self.tree, name, "class")
        if any(each.parent == name for each in self.tree.values()):
            raise Rejected("not_empty", f"class {name} has children")
        del self.tree[name]

    async def numbers(self) -> Sequence[Metric]:
        return []

    def _use(self) -> None:
        for record in self._gate.records.values():
            self.settings.setdefault(record["spec"].get("queue", "default"), QueueSettings())

    def _in(self, name: str) -> list[Json]:
        return [each for each in self._gate.records.values() if each["spec"].get("queue", "default") == name]

    def _known(self, name: str) -> Json:
        self._use()
        known(self.settings, name, "queue")
        return self._record(name)

    def _set(self, name: str, settings: QueueSettings) -> Json:
        if settings.discipline not in DISCIPLINES:
            fault = FieldError("discipline", f"there is no discipline {settings.discipline}")
            raise Rejected("invalid", "unknown discipline", [fault])
        if settings.class_ is not None and settings.class_ not in self.tree:
            fault = FieldError("class", f"there is no class named {settings.class_}")
            raise Rejected("invalid", "unknown class", [fault])
        self.settings[name] = settings
        self._gate.index += 1
        return self._record(name)

    def _record(self, name: str) -> Json:
        settings = self.settings[name]
        held = [record["state"] for record in self._in(name)]
        made: Json = msgspec.to_builtins(msgspec.structs.asdict(settings))
        pending = [record["created_at_ms"] for record in self._in(name) if record["state"] == "pending"]
        rates = {"in": 0.0, "out": 0.0, "failed": 0.0, "retried": 0.0, "wait": None, "run": None, "span_ms": 60_000}
        return {
            "name": name,
            **{field.removesuffix("_"): value for field, value in made.items()},
            "keep": msgspec.structs.asdict(settings.keep),
            "keep_failed": msgspec.structs.asdict(settings.keep_failed),
            "counts": {state: held.count(state) for state in COUNTED},
            "over": {state: held.count(state) for state in OVER},
            "oldest_pending_at_ms": min(pending, default=None),
            "oldest_placeable_at_ms": min(pending, default=None),
            "unplaceable": self.unplaceable.get(name),
            "rates": rates | self.rates.get(name, {}),
        }

    def _place(self, name: str, settings: HtbClass) -> Json:
        if settings.parent is not None and settings.parent not in self.tree:
            fault = FieldError("parent", f"there is no class named {settings.parent}")
            raise Rejected("invalid", "the class does not fit into the tree", [fault])
        self.tree[name] = settings
        self._gate.index += 1
        return _class(name, settings)


def _class(name: str, settings: HtbClass) -> Json:
    return {"name": name, **msgspec.structs.asdict(settings)}


def _named(changes: msgspec.Struct) -> Mapping[str, Any]:
    fields = {field: getattr(changes, field) for field in changes.__struct_fields__}
    return {field: value for field, value in fields.items() if value is not msgspec.UNSET}
