"""What a node can be asked (DESIGN.md section 9), one method each. Tasks and what else the wire knows stay plain dicts.

Every write has an Idempotency-Key, the caller's or one made here, so that it may be repeated without harm. Readings that
go on (lists, logs, events, backups) are iterators, and go on where they were when a node is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Self
from urllib.parse import quote

import msgspec

from quvatlh.client import streams
from quvatlh.client.errors import Rejected, Unknown
from quvatlh.client.http import EVENTS, MSGPACK, Answer, Begun, Http, Options, Request, new_key
from quvatlh.client.segments import segments
from quvatlh.client.streams import Download, Event, Log
from quvatlh.client.uploads import Cut, Upload

__all__ = ["Added", "Balanced", "Client", "Cut", "Done", "Download", "Event", "Json", "Log"]

Json = dict[str, Any]
ADD_TASKS_MAX: Final = 5000
"""Of one event."""
POLL_S: Final = 0.2
"""How often a verb that is worked off is asked how far it is."""


@dataclass(frozen=True, slots=True)
class Added:
    ids: Sequence[str]
    """`ids[i]` is the task that stands for `tasks[i]`."""
    index: int
    existing: Mapping[int, Literal["id", "unique"]]
    """Positions where an older task stands for it, and by what."""


@dataclass(frozen=True, slots=True)
class Done:
    matched: int
    done: int
    index: int | None
    """None: it was more than one entry takes, and was worked off in many."""
    over: int = 0
    """delete: of those done, so many were over before, and stay as they are."""


@dataclass(frozen=True, slots=True)
class Balanced:
    moves: Sequence[Json]
    """`{task, from, to}`"""
    index: int | None
    """None of a plan."""


class Client:
    """Entered, used by any number of coroutines, left."""

    def __init__(self, options: Options, http: Http | None = None) -> None:
        self.options = options
        self._http = http or Http(options)

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    # --- tasks ---

    async def add(self, tasks: Sequence[Mapping[str, Any]], *, key: str | None = None) -> Added:
        """One event, all or nothing."""
        return _added(await self._write("POST", EVENTS, {"event": "ADD", "tasks": tasks}, key))

    async def add_begun(self, begun: Begun) -> Added:
        """An ADD that has left already."""
        return _added(await self._http.ask(begun.request, _value, begun))

    @property
    def url(self) -> str:
        """Of the node that answered last."""
        return self._http.url

    async def add_lines(self, read: Callable[[int], bytes], *, key: str | None = None) -> AsyncIterator[Cut]:
        """NDJSON of any length; `read(n)` gives its next bytes, at most n, and b"" at the end. What became of each cut,
        in order; a cut that was refused has its problem, and later ones go on. Its keys hang on `key` and the place in
        the text: the same text again under the same key adds nothing twice."""
        upload = Upload(self._http, key or new_key())
        async for segment in segments(read):
            if segment.lines:
                async for cut in upload.send(segment):
                    yield cut

    async def tasks(self, /, **query: object) -> Json:
        """One page: `{items, next, total}`, or `{groups}` with `group_by`. A list of values is given with commas."""
        return await self._read("/v1/tasks", query)

    async def all_tasks(self, /, **query: object) -> AsyncIterator[Json]:
        """Task by task, page by page."""
        cursor: str | None = None
        while True:
            page = await self.tasks(**query, cursor=cursor)
            for item in page["items"]:
                yield item
            cursor = page["next"]
            if cursor is None:
                return

    async def task(self, task_id: str, *, wait_s: float = 0.0, consistent: bool = False) -> Json:
        """As it is when it has finished (a service: runs), or the wait is over. `consistent`: as of now, or later; else a
        node may tell how it was a moment ago."""
        query = {"wait": f"{int(wait_s * 1000)}ms"} if wait_s > 0 else {}
        query |= {"consistent": "1"} if consistent else {}
        return await self._read(_path("/v1/tasks", task_id), query, wait_s=wait_s)

    async def actions(self, task_id: str) -> list[Json]:
        """Its live runs, and the last hundred that ended."""
        return await self._items(f"{_path('/v1/tasks', task_id)}/actions")

    async def result(self, task_id: str) -> Any:
        """In the own types of JSON, or of msgpack where it is in that."""
        path = f"{_path('/v1/tasks', task_id)}/result"
        return await self._http.ask(Request("GET", path, headers={"Accept": f"{MSGPACK}, */*"}), Answer.value)

    def log(
        self,
        task_id: str,
        stream: Literal["stdout", "stderr"] = "stdout",
        *,
        action: str | None = None,
        follow: bool = False,
        offset: int = 0,
    ) -> Log:
        """What an action wrote: the named one, else the last; from the byte at `offset` on. With `follow` until the action
        has ended."""
        query = _query({"stream": stream, "action": action, "follow": "1" if follow else None})
        return Log(self._http, Request("GET", f"{_path('/v1/tasks', task_id)}/log", query), offset)

    async def act(
        self,
        verb: str,
        *,
        ids: Iterable[str] = (),
        match: Mapping[str, Any] | None = None,
        to: str | None = None,
        queue: str | None = None,
        changes: Mapping[str, Any] | None = None,
        key: str | None = None,
        on_progress: Callable[[int, int], None] = lambda _done, _matched: None,
    ) -> Done:
        """retry (in `queue`, else each in its own), kill, delete, relocate (`to` a worker, else away from where they are) or
        update (by `changes`; None takes expires, limit or keep away). Where tasks are so many that it is worked off,
        returns when it is done."""
        which: Json = {"ids": list(ids)} if match is None else {"match": match}
        which |= {} if to is None else {"to": to}
        which |= {} if queue is None else {"queue": queue}
        which |= {} if changes is None else {"set": changes}
        return await self._worked_off(await self._write("POST", _path("/v1/tasks", verb), which, key), on_progress)

    async def _worked_off(self, given: Json, on_progress: Callable[[int, int], None]) -> Done:
        """At once, or in the background until it is done."""
        if "bulk" not in given:
            return Done(given["matched"], given["done"], given["index"], given.get("over", 0))
        while True:
            bulk = await self._bulk(given["bulk"])
            on_progress(bulk["done"], bulk["matched"])
            if bulk["state"] == "done":
                return Done(bulk["matched"], bulk["done"], None, bulk.get("over", 0))
            await asyncio.sleep(POLL_S)

    async def _bulk(self, bulk_id: str) -> Json:
        """How far it is. Only the node that works it off knows."""
        try:
            return await self._read(_path("/v1/bulk", bulk_id), {})
        except Rejected as problem:
            if problem.code != "not_found":
                raise
            words = "the node that worked it off was lost: what it did is done, and the same again does the rest"
            raise Unknown("unknown", words, url=problem.url) from problem

    # --- queues ---

    async def queues(
        self,
        *,
        sort: Literal["name", "-pending", "-running", "-failed"] = "name",
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Json:
        """One page, by name or those with most such tasks first: `{items, next, total}`; a queue is its settings and
        `{counts, oldest_pending_at, rates}`."""
        return await self._read(
            "/v1/queues", {"sort": None if sort == "name" else sort, "limit": limit, "cursor": cursor}
        )

    async def queue(self, name: str) -> Json:
        return await self._read(_path("/v1/queues", name), {})

    async def put_queue(self, name: str, settings: Mapping[str, Any], *, key: str | None = None) -> Json:
        """All its settings: what is not named is as without -> the queue as it is then."""
        return await self._write("PUT", _path("/v1/queues", name), settings, key)

    async def patch_queue(self, name: str, changes: Mapping[str, Any], *, key: str | None = None) -> Json:
        """What is not named stays, None takes back; the queue is made if there is none."""
        return await self._write("PATCH", _path("/v1/queues", name), changes, key)

    async def pause_queue(self, name: str, *, key: str | None = None) -> Json:
        """Nothing more starts; what runs goes on."""
        return await self._write("POST", _path("/v1/queues", name, "pause"), None, key)

    async def resume_queue(self, name: str, *, key: str | None = None) -> Json:
        return await self._write("POST", _path("/v1/queues", name, "resume"), None, key)

    async def purge_queue(
        self,
        name: str,
        states: Sequence[str] = (),
        *,
        key: str | None = None,
        on_progress: Callable[[int, int], None] = lambda _done, _matched: None,
    ) -> Done:
        """What waits is deleted; of `states` instead, where some are named. What is over leaves the list."""
        body = {"states": list(states)} if states else {}
        given = await self._write("POST", _path("/v1/queues", name, "purge"), body, key)
        return await self._worked_off(given, on_progress)

    async def delete_queue(self, name: str, *, key: str | None = None) -> None:
        """Not while it has tasks, listed ones included."""
        await self._write("DELETE", _path("/v1/queues", name), None, key)

    async def classes(self) -> list[Json]:
        """`{name, parent, rate, ceil, burst, priority, of}`"""
        return await self._items("/v1/classes")

    async def queue_class(self, name: str) -> Json:
        return await self._read(_path("/v1/classes", name), {})

    async def put_class(self, name: str, settings: Mapping[str, Any], *, key: str | None = None) -> Json:
        return await self._write("PUT", _path("/v1/classes", name), settings, key)

    async def patch_class(self, name: str, changes: Mapping[str, Any], *, key: str | None = None) -> Json:
        """What is not named stays, None takes back; the class is made if there is none."""
        return await self._write("PATCH", _path("/v1/classes", name), changes, key)

    async def delete_class(self, name: str, *, key: str | None = None) -> None:
        """Not while classes or queues hang on it."""
        await self._write("DELETE", _path("/v1/classes", name), None, key)

    # --- the dashboard ---

    async def link(self) -> str:
        """An address that logs a browser in, once, within ten minutes."""
        asked = Request("POST", "/v1/session/link", is_question=True)
        return await self._http.ask(asked, lambda answer: f"{_place(answer.url)}{answer.json()['url']}")

    async def history(self) -> Json:
        """The last hour as one node saw it, a column for each thing counted: `{step, from, counts, waits, tasks, live}`."""
        return await self._read("/v1/history", {})

    # --- placement ---

    async def explain(self, task_id: str) -> Json:
        """Why it is not running, worker by worker: `{state, reason, text, position, holders, workers, eta}`."""
        return await self._read(f"{_path('/v1/tasks', task_id)}/explain", {})

    async def balance(
        self, group: str, *, dry_run: bool = False, most: int | None = None, key: str | None = None
    ) -> Balanced:
        """Even out a group's actions over the workers that may run them, by at most `most` moves."""
        event = {"event": "BALANCE", "group": group, "dry_run": dry_run, "max": most}
        given = await self._write("POST", EVENTS, event, key)
        return Balanced(given["moves"], given["index"])

    async def workers(self) -> list[Json]:
        return await self._items("/v1/workers")

    async def worker(self, name: str) -> Json:
        return await self._read(_path("/v1/workers", name), {})

    async def worker_load(self, name: str) -> Json:
        """Percent of its machine in use, oldest first, at most an hour until now: `{step, cpu, memory}`."""
        return await self._read(_path("/v1/workers", name, "load"), {})

    async def patch_worker(self, name: str, changes: Mapping[str, Any], *, key: str | None = None) -> Json:
        """Any of `tags, queues, slots` -> the worker as it is then."""
        return await self._write("PATCH", _path("/v1/workers", name), changes, key)

    async def drain(self, name: str, *, key: str | None = None) -> Json:
        """It finishes what it has, and takes nothing new."""
        return await self._write("POST", _path("/v1/workers", name, "drain"), None, key)

    async def undrain(self, name: str, *, key: str | None = None) -> Json:
        return await self._write("POST", _path("/v1/workers", name, "undrain"), None, key)

    async def reload(self, name: str, environment: str | None = None) -> Json:
        """Its environments, or the one, begin anew: `{worker, environments}`."""
        path, query = _path("/v1/workers", name, "reload"), _query({"environment": environment})
        return await self._http.ask(Request("POST", path, query, is_question=True), _value)

    async def announcements(self, group: str | None = None) -> list[Json]:
        """What live actions announce: `{task, action, group, name, worker, at, data}`."""
        return await self._items("/v1/announcements", group=group)

    async def live(self, filters: Json | None = None, by: str | None = None) -> Json:
        """A page of live actions, by `group, queue, worker, kind`: `{items, next, total}`; `by` worker, group or queue it is
        `{groups: [{value, count}]}`, exact."""
        return await self._read("/v1/actions", {**(filters or {}), "group_by": by})

    async def policies(self) -> list[Json]:
        """`{name, version, digest, at}`"""
        return await self._items("/v1/policies")

    async def policy(self, name: str) -> Json:
        """With its `source`."""
        return await self._read(_path("/v1/policies", name), {})

    async def put_policy(self, name: str, source: str, *, key: str | None = None) -> Json:
        return await self._write("PUT", _path("/v1/policies", name), {"source": source}, key)

    async def delete_policy(self, name: str, *, key: str | None = None) -> None:
        """Not while tasks that have not finished name it."""
        await self._write("DELETE", _path("/v1/policies", name), None, key)

    async def test_policy(
        self,
        source: str,
        task: str | Mapping[str, Any],
        worker: str | None = None,
        states: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[Json]:
        """What the live workers (or the one) would answer for a task, by its id or as ADD takes it; nothing runs:
        `{worker, verdict, score, text, state}`. `states` that were recorded from such answers are judged instead."""
        asked_with = {"source": source, "task": task, "worker": worker}
        body = msgspec.json.encode(asked_with if states is None else asked_with | {"states": states})
        asked = Request("POST", "/v1/policies/test", body=body, is_question=True)
        found: list[Json] = (await self._http.ask(asked, _value))["items"]
        return found

    # --- schedules ---

    async def schedules(self) -> list[Json]:
        return await self._items("/v1/schedules")

    async def schedule(self, name: str) -> Json:
        """With its rule in plain words (`text`), and the next ten slots (`next`)."""
        return await self._read(_path("/v1/schedules", name), {})

    async def put_schedule(self, name: str, schedule: Mapping[str, Any], *, key: str | None = None) -> Json:
        """`{cron | every, zone, task, catchup, overlap, jitter, paused}` -> the schedule as it is then."""
        return await self._write("PUT", _path("/v1/schedules", name), schedule, key)

    async def delete_schedule(self, name: str, *, key: str | None = None) -> None:
        await self._write("DELETE", _path("/v1/schedules", name), None, key)

    async def run_schedule(self, name: str, *, key: str | None = None) -> Json:
        """Now, beside its slots: `{task, why}`."""
        return await self._write("POST", _path("/v1/schedules", name, "run"), None, key)

    async def pause_schedule(self, name: str, *, key: str | None = None) -> Json:
        return await self._write("POST", _path("/v1/schedules", name, "pause"), None, key)

    async def resume_schedule(self, name: str, *, key: str | None = None) -> Json:
        return await self._write("POST", _path("/v1/schedules", name, "resume"), None, key)

    async def ledger(self, name: str, *, limit: int = 100, cursor: str | None = None) -> Json:
        """What became of its slots, the latest first: a page, as of `tasks`."""
        return await self._read(f"{_path('/v1/schedules', name)}/ledger", {"limit": limit, "cursor": cursor})

    # --- what happens ---

    def events(self, /, since: str | None = None, **query: object) -> AsyncIterator[Event]:
        """What happens from `since` on, else from now on, without end; over nodes that are lost."""
        return streams.events(self._http, self.cluster, since, _query(query))

    # --- cluster ---

    async def cluster(self) -> Json:
        return await self._read("/v1/cluster", {})

    async def add_member(self, member: Mapping[str, str], *, key: str | None = None) -> Json:
        return await self._write("POST", "/v1/cluster/members", member, key)

    async def remove_member(self, member_id: str, *, key: str | None = None) -> Json:
        return await self._write("DELETE", _path("/v1/cluster/members", member_id), None, key)

    def backup(self) -> Download:
        """The state of the cluster, to be written to a file."""
        return Download(self._http, Request("GET", "/v1/cluster/backup", silence_s=streams.SILENCE_S))

    async def tokens(self) -> list[Json]:
        return await self._items("/v1/tokens")

    async def token(self, name: str) -> Json:
        """`{name, role, queues, groups, created_at, expires_at, expired}`"""
        return await self._read(_path("/v1/tokens", name), {})

    async def add_token(self, given: Mapping[str, Any]) -> Json:
        """`{name, role, queues?, groups?, expires?}` -> as `token`, with its `secret`, which nobody is told again. Without a key: whose
        answer was lost revokes it and makes another."""
        return await self._http.ask(Request("POST", "/v1/tokens", body=msgspec.json.encode(given)), _value)

    async def revoke_token(self, name: str) -> None:
        await self._write("DELETE", _path("/v1/tokens", name), None, None)

    # --- inside ---

    async def _read(self, path: str, query: Mapping[str, object], *, wait_s: float = 0.0) -> Json:
        return await self._http.ask(Request("GET", path, _query(query), wait_s=wait_s), _value)

    async def _items(self, path: str, **query: object) -> list[Json]:
        """Of a list that has no pages."""
        found: list[Json] = (await self._read(path, query))["items"]
        return found

    async def _write(self, method: str, path: str, value: object, key: str | None) -> Json:
        body = None if value is None else msgspec.json.encode(value)
        return await self._http.ask(Request(method, path, body=body, key=key or new_key()), _value)


def _value(answer: Answer) -> Any:
    return answer.json()


def _added(given: Json) -> Added:
    existing = {int(position): how for position, how in given.get("existing", {}).items()}
    return Added(given["ids"], given["index"], existing)


def _place(url: str) -> str:
    """Scheme, host and port of an address."""
    return "/".join(url.split("/", 3)[:3])


def _path(*parts: str) -> str:
    """The first part is a path, the others may be anything."""
    return "/".join([parts[0], *(quote(part, safe=":") for part in parts[1:])])


def _query(given: Mapping[str, object]) -> dict[str, str]:
    """Without what was not given."""
    return {name: _text(value) for name, value in given.items() if value is not None and value != ()}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
