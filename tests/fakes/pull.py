"""The pull workers of the fake pool: pending tasks whose work is for them are given out as they come; no lease ends here."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from quvatlh.service.pool import Call, Json
from quvatlh.service.pullasks import Report, Verb
from quvatlh.service.pullpool import Pulled, Wanted
from tests.fakes.gate import Gate


class FakePull(Gate):
    def __init__(self) -> None:
        super().__init__()
        self.pulled: dict[int, Json] = {}
        """Token -> the record of the task, of what is claimed."""
        self.returned: list[int] = []
        self.wanted: list[Wanted] = []
        self.reports: list[tuple[Verb, Report]] = []
        self._over: set[int] = set()

    async def claim(self, call: Call, wanted: Wanted) -> Pulled:
        self.wanted.append(wanted)
        await self._enter(call)
        actions = self._once(call.key, lambda: self._claim(wanted))
        return Pulled(actions, call.key is not None)

    async def give_back(self, pulled: Pulled) -> None:
        self.returned += [each["token"] for each in pulled.actions]

    async def report(self, call: Call, verb: Verb, reports: Sequence[Report]) -> Sequence[str]:
        await self._enter(call)
        return [self._report(verb, report) for report in reports]

    def _report(self, verb: Verb, report: Report) -> str:
        ends = verb in {"finish", "fail"}
        if report.action != f"a{report.token}":
            return "stale_token"
        if ends and report.token in self._over:
            return ""
        record = self.pulled.get(report.token)
        if record is None:
            return "stale_token"
        self.reports.append((verb, report))
        if ends:
            record["state"] = "succeeded" if verb == "finish" else "failed"
            del self.pulled[report.token]
            self._over.add(report.token)
        return ""

    def _claim(self, wanted: Wanted) -> list[Json]:
        found: list[Json] = []
        for record in self.records.values():
            spec = record["spec"]
            if len(found) == wanted.most:
                break
            if record["state"] != "pending" or not spec["work"].get("pull"):
                continue
            if not any(fnmatchcase(spec.get("queue", "default"), pattern) for pattern in wanted.queues):
                continue
            token = 1 + len(self.pulled) + len(self._over)
            record["state"] = "claimed"
            self.pulled[token] = record
            task = {name: value for name, value in record.items() if name not in {"payload", "payload_json"}}
            payload = {"payload": record.get("payload"), "payload_json": record.get("payload_json", True)}
            found.append({"action": f"a{token}", "token": token, "lease_ms": wanted.lease_ms, "task": task, **payload})
        return found
