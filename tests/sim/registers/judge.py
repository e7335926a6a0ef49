"""What must hold of registers beyond the log: nothing acknowledged is lost, nothing refused is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from quvatlh.ports import Entry
from tests.sim.box import AnyBox
from tests.sim.judge import Judge, Violation
from tests.sim.registers.box import RegisterBox


class RegisterJudge(Judge):
    def __init__(self) -> None:
        super().__init__()
        self.acked: dict[str, Any] = {}
        """request -> result, of every write that was answered."""
        self.refused: set[str] = set()
        """Requests of which it was said that they certainly did nothing."""
        self.done: dict[str, Any] = {}
        """request -> result, of every write that was applied: what is in the canon stays in it."""

    def _first_applied(self, _box: AnyBox, entry: Entry, results: Sequence[object]) -> None:
        for item, result in zip(entry.items, results, strict=True):
            request = msgpack.unpackb(item)[0]
            if request in self.refused:
                raise Violation(f"{request} was refused as certainly not done, and is applied at {entry.index}")
            self.done.setdefault(request, result)

    def acknowledge(self, request: str, result: Any) -> None:
        """At that moment, what is answered must have been applied."""
        if request not in self.done or self.done[request] != result:
            raise Violation(f"{request} was answered {result}, applied was {self.done.get(request)}")
        self.acked[request] = result

    def refuse(self, request: str) -> None:
        if request in self.done:
            raise Violation(f"{request} was refused as certainly not done, and had been applied")
        self.refused.add(request)

    def finish(self, members: Sequence[RegisterBox]) -> None:
        """All is healed and has settled: nothing acknowledged is missing anywhere."""
        for box in members:
            assert box.machine is not None
            state = box.machine.state
            for request, result in self.acked.items():
                if request not in state.answers:
                    raise Violation(f"{box.name} lost the acknowledged {request}")
                if state.answers[request] != result:
                    raise Violation(f"{request} was answered {result}, on {box.name} it is {state.answers[request]}")
