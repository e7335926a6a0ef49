"""The market of the fake pool: workers that are what a test makes them, policies that nobody runs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase

from quvatlh.core.owned import OwnedBy, OwnedFilter
from quvatlh.core.rejections import FieldError
from quvatlh.service.pool import Balanced, Call, Groups, Json, NewTask, Page, Rejected
from tests.fakes.gate import Gate, known

FINISHED = frozenset({"succeeded", "failed", "deleted"})


def worker(name: str, slots: int = 2, *tags: str) -> Json:
    return {
        "name": name,
        "node": name,
        "role": "node",
        "state": "up",
        "tags": [*tags, f"worker={name}", f"node={name}"],
        "adapters": ["command"],
        "slots": slots,
        "free": slots,
        "queues": ["*"],
        "facts": {"os": "linux", "cpus": slots},
        "load": {
            "cpu_load": 0.25,
            "memory_free_bytes": 3 << 30,
            "memory_total_bytes": 4 << 30,
            "disk_free_bytes": 20 << 30,
        },
    }


class FakeMarket(Gate):
    def __init__(self) -> None:
        super().__init__()
        self.crew: dict[str, Json] = {"one": worker("one")}
        self.refusing: set[str] = set()
        """Workers that load nothing."""
        self.stored: dict[str, Json] = {}
        """Policies."""
        self.announced: list[Json] = []
        self.owns: list[Json] = []
        """Live actions."""
        self.placed: dict[str, str] = {}
        """Task -> worker."""
        self.why: dict[str, Json] = {}
        """Task -> what `explain` says, where a test says it."""

    async def balance(self, call: Call, group: str, most: int | None, *, dry_run: bool) -> Balanced:
        await self._enter(call)
        return self._once(call.key, lambda: self._balance(group, most, dry_run=dry_run))  # type: ignore[no-any-return]

    async def explain(self, call: Call, task_id: str) -> Json:
        await self._enter(call)
        record = known(self.records, task_id, "task")
        tags = record["spec"].get("tags", ())
        workers = [self._verdict(each, tags) for each in self.crew.values()]
        told = {
            "state": record["state"],
            "reason": "next" if record["state"] == "pending" else record["state"],
            "text": f"it is {record['state']}",
            "change": None,
            "position": 1 if record["state"] == "pending" else None,
            "holders": [],
            "workers": workers,
            "eta": None,
        }
        return told | self.why.get(task_id, {})

    async def workers(self, call: Call) -> Sequence[Json]:
        await self._enter(call)
        return [self.crew[name] for name in sorted(self.crew)]

    async def worker(self, call: Call, name: str) -> Json:
        await self._enter(call)
        return dict(known(self.crew, name, "worker"))

    async def worker_load(self, call: Call, name: str) -> Json:
        await self._enter(call)
        known(self.crew, name, "worker")
        return {"step_ms": 5000, "cpu": [None, 50, 25], "memory": [None, 24, 25]}

    async def patch_worker(self, call: Call, name: str, changes: Json) -> Json:
        await self._enter(call)
        return self._once(call.key, lambda: self._patch(name, dict(changes)))  # type: ignore[no-any-return]

    async def reload_worker(self, call: Call, name: str, environment: str | None) -> Json:
        await self._enter(call)
        if known(self.crew, name, "worker")["role"] == "pull":
            raise Rejected("conflict", f"{name} is a pull worker")
        if name in self.refusing:
            raise Rejected("conflict", f"worker {name} does not load anything now")
        if environment not in {None, "default"}:
            raise Rejected("not_found", f"worker {name} has no environment {environment}")
        return {"worker": name, "environments": ["default"]}

    async def announcements(self, call: Call, group: str | None) -> Sequence[Json]:
        await self._enter(call)
        return [each for each in self.announced if group in {None, each["group"]}]

    async def owned(self, call: Call, wanted: OwnedFilter, limit: int, cursor: str | None) -> Page:
        await self._enter(call)
        found = [each for each in self.owns if _is_wanted(each, wanted)]
        after = int(cursor or 0)
        page = [each for each in found if each["token"] > after]
        return Page(page[:limit], str(page[limit - 1]["token"]) if len(page) > limit else None, len(found))

    async def count_owned(self, call: Call, wanted: OwnedFilter, by: OwnedBy) -> Groups:
        await self._enter(call)
        counted = Counter(each[by] for each in self.owns if _is_wanted(each, wanted))
        return Groups([{"value": value, "count": n} for value, n in counted.most_common()], partial=False)

    async def policies(self, call: Call) -> Sequence[Json]:
        await self._enter(call)
        return [_without_source(self.stored[name]) for name in sorted(self.stored)]

    async def policy(self, call: Call, name: str) -> Json:
        await self._enter(call)
        return dict(known(self.stored, name, "policy"))

    async def put_policy(self, call: Call, name: str, source: str) -> Json:
        await self._enter(call)
        _compiles(source)
        before = self.stored.get(name, {"version": 0, "source": None})
        if before["source"] != source:
            digest = hashlib.blake2b(source.encode(), digest_size=8).hexdigest()
            self.stored[name] = {
                "name": name,
                "version": before["version"] + 1,
                "digest": digest,
                "at_ms": self.now_ms,
                "source": source,
            }
        return _without_source(self.stored[name])

    async def delete_policy(self, call: Call, name: str) -> None:
        await self._enter(call)
        known(self.stored, name, "policy")
        for record in self.records.values():
            if (record["spec"].get("policy") or {}).get("name") == name:
                raise Rejected("not_empty", f"tasks name policy {name}, as {record['id']} does")
        del self.stored[name]

    async def test_policy(
        self, call: Call, source: str, task: str | NewTask, worker: str | None, states: Sequence[Json] | None = None
    ) -> Sequence[Json]:
        await self._enter(call)
        _compiles(source)
        if isinstance(task, str):
            known(self.records, task, "task")
        if states is None:
            asked = list(self.crew.values()) if worker is None else [known(self.crew, worker, "worker")]
            states = [{"worker": {"name": one["name"]}, "cluster": {"group": {}}} for one in asked]
        word, score = ("bid", 1.0) if "true" in source else ("no_bid", None)
        names = [(each["worker"]["name"], each) for each in states]
        return [
            {"worker": name, "verdict": word, "score": score, "text": "", "state": state}
            for name, state in names
            if worker in {None, name}
        ]

    def _balance(self, group: str, most: int | None, *, dry_run: bool) -> Balanced:
        held = [one for one in self.records.values() if one["spec"].get("group", "default") == group]
        if not held:
            raise Rejected("not_found", f"there is no task of group {group}")
        load = Counter({name: 0 for name, one in self.crew.items() if one["state"] == "up"})
        load.update(self.placed[one["id"]] for one in held if one["id"] in self.placed)
        moves: list[Json] = []
        for record in held:
            source, target = self.placed.get(record["id"]), min(load, key=lambda name: (load[name], name))
            if source and load[source] - load[target] > 1 and len(moves) < (most or len(held)):
                moves.append({"task": record["id"], "from": source, "to": target})
                load[source] -= 1
                load[target] += 1
                if not dry_run:
                    self.placed[record["id"]] = target
        self.index += not dry_run
        return Balanced(moves, None if dry_run else self.index)

    def _patch(self, name: str, changes: Json) -> Json:
        made = dict(known(self.crew, name, "worker"))
        if "draining" in changes:
            made["state"] = "draining" if changes.pop("draining") else "up"
        if "slots" in changes:
            made["free"] = max(0, made["free"] + changes["slots"] - made["slots"])
        self.crew[name] = made | changes
        self.index += 1
        return self.crew[name]

    def _verdict(self, of: Json, tags: Sequence[str]) -> Json:
        missing = [tag for tag in tags if not any(fnmatchcase(own, tag) for own in of["tags"])]
        if of["state"] != "up":
            verdict, detail = of["state"], ""
        elif missing:
            verdict, detail = "tags", ", ".join(missing)
        else:
            verdict, detail = "would_run" if of["free"] else "slots", ""
        return {"name": of["name"], "verdict": verdict, "detail": detail, "score": None}


def _is_wanted(action: Json, wanted: OwnedFilter) -> bool:
    return all(getattr(wanted, name) in {None, action[name]} for name in ("group", "queue", "worker", "kind"))


def _compiles(source: str) -> None:
    """As much of Lua as is needed here."""
    if source.count("(") != source.count(")"):
        error = FieldError("source", "line 1, column 9: ')' expected near <eof>")
        raise Rejected("invalid", f"{error.path}: {error.message}", [error])


def _without_source(policy: Json) -> Json:
    return {name: value for name, value in policy.items() if name != "source"}
