"""Whether Lua can be taken: asked of the judge once a source, remembered by its hash, told with the place of each fault."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from quvatlh.core.limits import ERROR_CHARS_MAX
from quvatlh.core.model import Code, TaskSpec
from quvatlh.core.rejections import FieldError
from quvatlh.ports import CodeKind, Judge, Question
from quvatlh.service.asks import Draft, Offer
from quvatlh.service.pool import Json, Rejected

KNOWN_MAX: Final = 10_000
FAULTS_MAX: Final = 50


class Sources:
    def __init__(self, judge: Judge | None) -> None:
        """Without a judge sources are taken as they are, and what is wrong with them shows when they are judged."""
        self._judge = judge
        self._known: OrderedDict[tuple[CodeKind, bytes], str] = OrderedDict()

    async def fault(self, source: str, kind: CodeKind = "policy") -> str:
        """`line 1, column 5: …`; empty where there is none."""
        if self._judge is None:
            return ""
        key = (kind, hashlib.blake2b(source.encode("utf-8", "surrogatepass"), digest_size=16).digest())
        known = self._known.get(key)
        if known is None:
            found = await self._judge.check(source, kind)
            known = self._known[key] = "" if found is None else str(found)
            while len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return known

    async def compiles(self, source: str) -> None:
        """Rejected(invalid) where it does not."""
        fault = await self.fault(source)
        if fault:
            raise Rejected("invalid", "the policy does not compile", [FieldError("source", fault)])

    async def judge(self, state: Json, source: str, task: Json, group: Mapping[str, int]) -> Offer:
        """What it makes of a task, by the state that is given."""
        if self._judge is None:
            raise Rejected("conflict", "no policies are run here")
        (verdict,) = await self._judge.judge(state, [Question(source, task, group)])
        return Offer(0, verdict.word, verdict.score, verdict.text[:ERROR_CHARS_MAX])

    async def check(self, drafts: Sequence[Draft]) -> None:
        """Rejected(invalid) with all that does not compile."""
        faults: list[FieldError] = []
        for position, draft in enumerate(drafts):
            if draft.spec.policy is not None or draft.spec.announce is not None:
                faults += await self.faults(f"tasks[{position}]", draft.spec)
        if faults:
            raise Rejected("invalid", "a policy does not compile", faults[:FAULTS_MAX])

    async def faults(self, path: str, spec: TaskSpec) -> list[FieldError]:
        """Of one task, whose place is told before them."""
        return [
            *await self._faults(f"{path}.policy", spec.policy, "policy"),
            *await self._faults(f"{path}.announce", spec.announce, "announce"),
        ]

    async def _faults(self, path: str, code: Code | None, kind: CodeKind) -> list[FieldError]:
        if code is None:
            return []
        if (code.source is None) == (code.name is None):
            return [FieldError(path, "must have exactly one of source and name")]
        fault = "" if code.source is None else await self.fault(code.source, kind)
        return [FieldError(path, fault)] if fault else []
