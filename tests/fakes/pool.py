"""A pool in memory that keeps its promises on one node. quvatlh.service.pool.Pool.

Tasks, ids, unique keys, remembered requests and events behave as promised; nothing runs by itself: a test says `finish`.
Faults are planted by `fail_next`; `hold` keeps writes waiting so that a test can look at what is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from quvatlh.core.filters import TaskFilter
from quvatlh.core.limits import ACTIONS_SHOWN_MAX, LEASE_MS_DEFAULT
from quvatlh.core.model import QueueSettings, Retry, Role
from quvatlh.core.rejections import FieldError
from quvatlh.core.scopes import Scope
from quvatlh.ports import voters_warning
from quvatlh.service.pool import (
    NEVER,
    Added,
    Backup,
    Bulk,
    Call,
    Done,
    GroupBy,
    Groups,
    Json,
    LogOutput,
    Metric,
    NewTask,
    Output,
    Page,
    Position,
    Principal,
    Readiness,
    Rejected,
    StreamEvent,
    TaskQuery,
    Turn,
    Until,
)
from quvatlh.service.tokens import hash_of
from quvatlh.service.wire import Line
from tests.fakes.gate import known
from tests.fakes.market import FINISHED, FakeMarket
from tests.fakes.pull import FakePull
from tests.fakes.queues import FakeQueues
from tests.fakes.timetable import FakeTimetable
from tests.fakes.watching import FakeWatching

LIVE: Final = frozenset({"claimed", "running", "stopping"})
TOKEN = "the-token-of-these-tests"
HERE = {
    "name": "one", "id": "n1", "peer": "127.0.0.1:7421", "http": "127.0.0.1:7420", "state": "up", "lag": 0,
    "term": 1, "index": 0, "log_bytes": 1_310_720, "snapshot_bytes": 98_304,
}  # fmt: skip


class FakePool(FakePull, FakeMarket, FakeTimetable):
    def __init__(self, *, bulk_above: int = 1000, events_kept: int = 100_000) -> None:
        super().__init__()
        self.queueing = FakeQueues(self)
        self.watching = FakeWatching()
        self.watching.principals[hash_of(TOKEN)] = Principal("root", "admin")
        self.unique: dict[tuple[str, str], str] = {}
        self.happened: list[StreamEvent] = []
        self.forgotten = 0
        """Index up to which events are no longer kept."""
        self.events_kept = events_kept
        self.bulk_above = bulk_above
        self.bulks = self.queueing.bulks
        self.members = {"n1": dict(HERE)}
        self.behind_ms = 0
        self.turns: list[asyncio.Lock | None] = []
        """Of all ADDs."""
        self.jumped: Json | None = None
        self.outputs: dict[tuple[str, Output], bytes] = {}
        self.output_error: BaseException | None = None
        self.tail_only = False
        self.is_worker_there = False
        self.counts_in_part = False
        self.log_begins = 0
        """What was written before it is no longer kept."""
        self.log_gap: tuple[int, int] | None = None
        """What was written from there to there is not kept, either."""
        self.is_ready = Readiness(ready=True)
        self.moved = asyncio.Event()
        self.keeps_events = True

    # --- what a test does to it ---

    def finish(self, task_id: str, result: object = None, *, state: str = "succeeded") -> None:
        record = self.records[task_id]
        record |= {"state": state, "finished_at_ms": self.now_ms, "result": result}
        self._tell(f"task.{state}", record)

    def write_output(self, task_id: str, data: bytes, output: Output = "stdout") -> None:
        self.outputs[task_id, output] = self.outputs.get((task_id, output), b"") + data
        self._move()

    def forget_events(self) -> None:
        self.forgotten = self.index
        self.happened.clear()
        self._move()

    # --- Pool ---

    def authenticate(self, bearer: str) -> Principal | None:
        return self.watching.recall(hash_of(bearer))

    def readiness(self) -> Readiness:
        return self.is_ready

    def metrics(self) -> Sequence[Metric]:
        return [Metric("tasks", "gauge", "Tasks\nby state", [({"state": 'a"b'}, len(self.records))])]

    async def add(self, call: Call, tasks: Sequence[NewTask]) -> Added:
        await self._enter(call)
        self.turns.append(call.turn)
        return self._once(call.key, lambda: self._add(tasks))  # type: ignore[no-any-return]

    async def act(self, call: Call, turn: Turn, which: Sequence[str] | TaskFilter) -> Done | Bulk:
        await self._enter(call)
        return self._once(call.key, lambda: self._act(turn, which))  # type: ignore[no-any-return]

    async def bulk(self, call: Call, bulk_id: str) -> Json:
        await self._enter(call)
        found: Json = known(self.bulks, bulk_id, "bulk")
        return found

    async def tasks(self, call: Call, query: TaskQuery) -> Page:
        await self._enter(call)
        found = [record for record in self.records.values() if self._holds(record, query.wanted)]
        found.sort(key=lambda record: (_sort_key(record, query.sort), record["id"]), reverse=query.descending)
        if query.cursor is not None and not query.cursor.isdigit():
            raise Rejected("invalid", "the cursor is none of this list", [FieldError("cursor", "is none of this list")])
        start = int(query.cursor or 0)
        rest = found[start + query.limit :]
        return Page(
            [_listed(self._shown(r)) for r in found[start : start + query.limit]],
            str(start + query.limit) if rest else None,
            len(found),
        )

    async def groups(self, call: Call, wanted: TaskFilter, by: GroupBy, parts: int | None = None) -> Groups:
        await self._enter(call)
        found: dict[Any, list[int]] = {}
        for record in self.records.values():
            if self._holds(record, wanted) and (parts is None or record.get("finished_at_ms")):
                group = found.setdefault(self._fields(record)[by], [0] * (1 + (parts or 0)))
                group[0] += 1
                if parts is not None:
                    group[-1] += 1
        ordered = sorted(found.items(), key=lambda item: (-item[1][0], str(item[0])))
        groups = [{"value": value, "count": n} | ({"parts": told} if told else {}) for value, (n, *told) in ordered]
        return Groups(groups, self.counts_in_part)

    async def task(self, call: Call, task_id: str, wait_ms: int = 0) -> Json:
        await self._enter(call)
        record = known(self.records, task_id, "task")
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while record["state"] not in FINISHED:
                    await self.moved.wait()
        except TimeoutError:
            pass
        return self._shown(record)

    async def actions(self, call: Call, task_id: str) -> Sequence[Json]:
        await self._enter(call)
        actions: Sequence[Json] = known(self.records, task_id, "task")["actions"]
        return actions

    async def result(self, call: Call, task_id: str) -> object:
        await self._enter(call)
        record = known(self.records, task_id, "task")
        if record["state"] != "succeeded":
            raise Rejected("conflict", f"{task_id} is {record['state']} and has no result")
        return record["result"]

    async def log(
        self, call: Call, task_id: str, output: Output, action: str | None, *, follow: bool, offset: int = 0
    ) -> LogOutput:
        await self._enter(call)
        known(self.records, task_id, "task")
        if action not in {None, "a1"}:
            raise Rejected("not_found", f"{task_id} has no action {action}")
        start = max(offset, self.log_begins)
        end: int | None = None
        if self.log_gap is not None:
            gap, behind = self.log_gap
            start = behind if gap <= start < behind else start
            end = gap if start < gap else None
        is_over = self.records[task_id]["state"] in FINISHED
        return LogOutput(
            self._output(task_id, output, start, end, follow=follow),
            self.tail_only,
            "a1",
            start,
            self.is_worker_there,
            len(self.outputs.get((task_id, output), b"")) if is_over else None,
        )

    async def events(self, call: Call, since: Position | None) -> AsyncIterator[StreamEvent]:
        await self._enter(call)
        if since is not None and since.index < self.forgotten:
            raise Rejected("gone", f"events up to {self.forgotten} are no longer kept")
        return self._events(since or Position(self.index, 2**53))

    async def cluster(self, call: Call) -> Json:
        await self._enter(call)
        nodes = list(self.members.values())
        clock = {"at_ms": 1_700_000_000_000, "behind_ms": self.behind_ms, "jumped": self.jumped}
        found = {"master": "one", "term": 1, "index": self.index, "node": "one", "nodes": nodes, "clock": clock}
        return found | {"warning": voters_warning(len(nodes))}

    async def add_member(self, call: Call, member: Mapping[str, str]) -> Json:
        await self._enter(call)
        self.members[member["id"]] = {**HERE, **member}
        return await self.cluster(call)

    async def remove_member(self, call: Call, member_id: str) -> Json:
        await self._enter(call)
        known(self.members, member_id, "member")
        if len(self.members) == 1:
            raise Rejected("conflict", "the last node stays")
        del self.members[member_id]
        return await self.cluster(call)

    async def backup(self, call: Call) -> Backup:
        await self._enter(call)
        return Backup(self.index, _pieces([b"state ", b"of the ", b"pool"]), 17)

    async def connect(self, call: Call, line: Line) -> None:
        """An echo."""
        while (frame := await line.receive()) is not None:
            await line.send(frame)

    async def tokens(self, call: Call) -> Sequence[Json]:
        await self._enter(call)
        return [self._token(each) for each in self.watching.principals.values()]

    def _token(self, who: Principal) -> Json:
        ends = who.expires_at_ms
        known = {"name": who.name, "role": who.role, "queues": [*who.queues], "groups": [*who.groups]}
        over = {"expires_at_ms": ends, "expired": ends is not None and ends <= self.now_ms, "revoked_at_ms": None}
        return known | {"created_at_ms": self.now_ms} | over

    async def token(self, call: Call, name: str) -> Json:
        found = [token for token in await self.tokens(call) if token["name"] == name]
        if not found:
            raise Rejected("not_found", f"there is no token {name}")
        return found[0]

    async def add_token(self, call: Call, name: str, role: Role, scope: Scope, until: Until = NEVER) -> Json:
        if name in self._names():
            raise Rejected("conflict", f"there is another token named {name}: revoke it first")
        secret = f"the-secret-of-{name}"
        ends = until.at_ms if until.in_ms is None else self.now_ms + until.in_ms
        if ends is not None and ends <= self.now_ms:
            raise Rejected("invalid", "expires is over already", [FieldError("expires", "must be later than now")])
        made = Principal(name, role, scope.queues, scope.groups, f"mark-of-{name}", ends)
        self.watching.principals[hash_of(secret)] = made
        return {**await self.token(call, name), "secret": secret}

    async def revoke_token(self, call: Call, name: str) -> None:
        await self._enter(call)
        digest = known(self._names(), name, "token")
        if name == "root":
            raise Rejected(
                "conflict", "root is the last token of role admin that does not expire: make another one first"
            )
        del self.watching.principals[digest]

    def _names(self) -> dict[str, bytes]:
        return {each.name: digest for digest, each in self.watching.principals.items()}

    # --- inside ---

    def _shown(self, record: Json) -> Json:
        """With what its queue holds for it."""
        spec = record["spec"]
        queue = self.queueing.settings.get(spec.get("queue", "default"), QueueSettings())
        held: Json = {
            "retry": msgspec.to_builtins(queue.retry or Retry()),
            "lease_ms": queue.lease_ms or LEASE_MS_DEFAULT,
        }
        return record | {"spec": held | spec}

    def _add(self, tasks: Sequence[NewTask]) -> Added:
        self.index += 1
        ids: list[str] = []
        existing: dict[int, str] = {}
        for position, task in enumerate(tasks):
            holder, why = self._holder(task)
            if why:
                existing[position] = why
            ids.append(holder or self._new(task, position))
        self._move()
        return Added(ids, self.index, existing)

    def _holder(self, task: NewTask) -> tuple[str, str]:
        chosen = task.get("id")
        if chosen in self.records:
            return chosen, "id"
        key = _unique_key(msgspec.to_builtins(task["spec"]))
        holder = self.unique.get(key) if key else None
        if holder is not None and self.records[holder]["state"] not in FINISHED:
            return holder, "unique"
        return "", ""

    def _new(self, task: NewTask, position: int) -> str:
        task_id = task.get("id") or f"{self.index:012x}-{position:04x}"
        at_ms = task.get("at_ms", self.now_ms + task.get("delay_ms", 0))
        record: Json = {
            "id": task_id,
            "spec": msgspec.to_builtins(task["spec"]),
            "state": "scheduled" if at_ms > self.now_ms else "pending",
            "created_at_ms": self.now_ms,
            "at_ms": at_ms,
            "due_at_ms": at_ms if at_ms > self.now_ms else None,
            "attempts": 0,
            "actions": [],
        }
        record |= {name: task[name] for name in ("payload", "payload_json") if name in task}
        self.records[task_id] = record
        key = _unique_key(msgspec.to_builtins(task["spec"]))
        if key:
            self.unique[key] = task_id
        self._happen("task.added", record, position)
        return task_id

    def _act(self, turn: Turn, which: Sequence[str] | TaskFilter) -> Done | Bulk:
        if isinstance(which, TaskFilter):
            ids = [task_id for task_id, record in self.records.items() if self._holds(record, which)]
        else:
            ids = list(dict.fromkeys(which))
            missing = [
                FieldError(f"ids[{n}]", f"there is no task {each}")
                for n, each in enumerate(which)
                if each not in self.records
            ]
            if missing:
                raise Rejected("not_found", f"there is no task {missing[0].message.split()[-1]}", missing)
        if turn.to is not None and turn.to not in self.crew:
            text = f"there is no worker named {turn.to}"
            raise Rejected("not_found", text, [FieldError("to", text)])
        if len(ids) > self.bulk_above:
            self.bulks["b1"] = {"id": "b1", "matched": len(ids), "done": 0, "state": "working"}
            return Bulk("b1")
        over = [each for each in ids if self.records[each]["state"] in {"succeeded", "deleted"}]
        done = sum(self._turn(turn, self.records[task_id]) for task_id in ids)
        return Done(len(ids), done, self.index, len(over) if turn.verb == "delete" else 0)

    def _turn(self, turn: Turn, record: Json) -> bool:
        """As the core does: a state without such a step is matched, and not done."""
        over, failed = record["state"] in FINISHED, record["state"] == "failed"
        changes = dict(turn.changes or {})
        if turn.verb == "delete":
            if failed or not over:
                self.finish(record["id"], state="deleted")
        elif over and turn.verb == "update":
            if not (failed and "at_ms" not in changes) and set(changes) != {"keep_ms"}:
                return False
            self._rewrite(record, changes)
        elif turn.verb == "kill":
            return over or self._kill(record)
        elif over != (turn.verb == "retry") or (over and not failed):
            return False
        elif turn.verb == "update":
            self._rewrite(record, changes)
        else:
            if turn.queue is not None:
                record["spec"]["queue"] = turn.queue
            record |= {"state": "pending", "finished_at_ms": None, "error": None}
            self.placed.pop(record["id"], None)
            if turn.to is not None:
                self.placed[record["id"]] = turn.to
            self._tell("task.relocated" if turn.verb == "relocate" else "task.ready", record)
        return True

    def _kill(self, record: Json) -> bool:
        if record["state"] not in {"claimed", "running"}:
            return False
        if record["actions"]:
            record["actions"][-1] |= {"state": "stopped", "finished_at_ms": self.now_ms}
        record["error"] = {"code": "killed", "text": "killed by a person"}
        self.finish(record["id"], state="failed")
        return True

    def _rewrite(self, record: Json, changes: dict[str, Any]) -> None:
        record |= {name: changes.pop(name) for name in ("at_ms", "expires_ms") if name in changes}
        record["spec"] |= changes

    def _fields(self, record: Json) -> dict[str, Any]:
        spec = record["spec"]
        return {
            "state": record["state"],
            "queue": spec.get("queue", "default"),
            "group": spec.get("group", "default"),
            "name": spec.get("name", record["id"]),
            "key": spec.get("key"),
            "worker": self.placed.get(record["id"]),
            "error": (record.get("error") or {}).get("code"),
        }

    def _holds(self, record: Json, wanted: TaskFilter) -> bool:
        spec = record["spec"]
        return (
            (not wanted.state or record["state"] in wanted.state)
            and all(
                getattr(wanted, name) in {None, value}
                for name, value in self._fields(record).items()
                if name != "state"
            )
            and (wanted.tag is None or wanted.tag in spec.get("tags", ()))
            and (wanted.created_after is None or record["created_at_ms"] > wanted.created_after)
            and (wanted.q is None or wanted.q in repr(record))
        )

    def _tell(self, kind: str, record: Json) -> None:
        self.index += 1
        self._happen(kind, record, 0)
        self._move()

    def _happen(self, kind: str, record: Json, n: int) -> None:
        if self.keeps_events:
            spec = record["spec"]
            data = {"id": record["id"], "state": record["state"], "queue": spec.get("queue", "default")}
            self.happened.append(StreamEvent(self.index, n, kind, data | {"group": spec.get("group", "default")}))

    async def _events(self, since: Position) -> AsyncIterator[StreamEvent]:
        place = since
        while True:
            moved = self.moved
            if place.index < self.forgotten:
                raise Rejected("gone", "this reader is too far behind")
            for event in [e for e in self.happened if Position(e.index, e.n) > place]:
                yield event
                place = Position(event.index, event.n)
            await moved.wait()

    async def _output(
        self, task_id: str, output: Output, sent: int, end: int | None, *, follow: bool
    ) -> AsyncIterator[bytes]:
        while sent != end:
            data = self.outputs.get((task_id, output), b"")[sent:end]
            if data:
                yield data
                sent += len(data)
                if self.output_error is not None:
                    raise self.output_error
            elif not follow or self.records[task_id]["state"] in FINISHED:
                return
            else:
                await self.moved.wait()

    def _move(self) -> None:
        self.moved.set()
        self.moved = asyncio.Event()


def _unique_key(spec: Json) -> tuple[str, str] | None:
    unique = spec.get("unique")
    return None if unique is None else (spec.get("group", "default"), unique.get("key") or repr(spec["work"]))


def _listed(record: Json) -> Json:
    """As the real one: without what only the task itself tells."""
    alone = {name: value for name, value in record.items() if name not in {"payload", "payload_json", "result"}}
    return alone | {"actions": [each for each in record["actions"] if each["state"] in LIVE][:ACTIONS_SHOWN_MAX]}


def _sort_key(record: Json, sort: str) -> int:
    if sort == "priority":
        return int(record["spec"].get("priority", 0))
    return int(record.get(f"{sort}_ms") or 0)


async def _pieces(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
