"""What the clients of a run saw, for the judge of histories."""

from __future__ import annotations

import random
from typing import Any

from tests.histories.history import Call
from tests.histories.history import History as Recorded
from tests.histories.judge import judge
from tests.sim.judge import Violation


class History:
    def __init__(self) -> None:
        self._recorded = Recorded()
        self._values: list[int] = [0]

    def recent(self, rng: random.Random) -> int:
        """A value that a register may well have now."""
        return rng.choice(self._values[-4:])

    def invoke(self, _client: int, verb: list[Any], now_s: float) -> Call:
        match verb:
            case ["write", name, value]:
                self._values.append(value)
                return self._recorded.call(name, "write", value, at=now_s)
            case ["cas", name, old, new]:
                self._values.append(new)
                return self._recorded.call(name, "cas", (old, new), at=now_s)
            case ["add", name, value]:
                return self._recorded.call(name, "add", value, at=now_s)
            case ["read", name]:
                return self._recorded.call(name, "members" if name == "t" else "read", at=now_s)
        raise AssertionError(verb)

    def done(self, call: Call, result: Any, now_s: float) -> None:
        call.answered(frozenset(result) if isinstance(result, list) else result, now_s)

    def failed(self, call: Call) -> None:
        call.not_done()

    def unknown(self, call: Call) -> None:
        call.unknown()

    def judge(self) -> None:
        verdict = judge(self._recorded.close())
        if not verdict:
            raise Violation(f"{verdict.object} is not linearizable: {verdict.story}")
