"""A network that is worse than TCP: frames between engines come again, late, over connections that are gone by then; and
a master that offers a follower less than it could. Raft allows all of it, so nothing may come of it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any, cast
from unittest.mock import patch

from quvatlh.raft.engine import Engine
from quvatlh.raft.log import RaftLog
from quvatlh.raft.seams import LEADER
from quvatlh.raft.wire import WireError
from tests.sim.process import PROCESS, Process

AGAIN_S = (0.0, 0.05, 0.3, 1.0, 4.0)
"""A frame that comes again does so up to so much later."""
ANSWERS = ("next", "echo", "vote", "would")
OLDER = 4
"""Answers come again so much more often than questions: who acts on them is who may be led astray."""
REMEMBERED_MAX = 40
"""Answers of earlier leaderships that a new one may still get."""


class Adversary:
    def __init__(self, rng: random.Random, again_chance: float, low_chance: float) -> None:
        self._rng = rng
        self._again_chance = again_chance
        self._low_chance = low_chance
        self._old_answers: dict[Process, list[tuple[Any, list[Any]]]] = {}

    def received(self, engine: Engine, link: Any, message: list[Any]) -> None:
        if not self._again_chance:
            return
        if message[0] == "next":
            remembered = self._old_answers.setdefault(PROCESS.get(), [])
            remembered.append((link, message))
            del remembered[:-REMEMBERED_MAX]
        chance = self._again_chance * (OLDER if message[0] in ANSWERS else 1)
        if self._rng.random() < chance:
            self._again(engine, link, message, self._rng.random() * self._rng.choice(AGAIN_S))

    def leads(self, engine: Engine) -> None:
        """What was answered to an earlier leadership of this node arrives in the new one."""
        old = self._old_answers.get(PROCESS.get(), [])
        if old and self._rng.random() < 0.5:
            for link, message in self._rng.sample(old, min(4, len(old))):
                self._again(engine, link, message, self._rng.random() * 0.3)

    def low(self, engine: Engine, node_id: str) -> None:
        """An append that the follower needs less than the one that comes next."""
        link = engine._host.link(node_id)
        if link is None or self._rng.random() >= self._low_chance:
            return
        journal = engine._journal
        low = max(journal.first_index + 1, engine.next_index(node_id) - self._rng.randint(1, 6))
        rows = [journal.entry(low)] if low <= journal.last_index and self._rng.random() < 0.5 else []
        engine._send_rows(link, min(low, journal.last_index + 1), rows)

    def _again(self, engine: Engine, link: Any, message: list[Any], delay_s: float) -> None:
        process = PROCESS.get()
        process.loop.call_later(delay_s, self._deliver, engine, link, message, context=process.context)

    def _deliver(self, engine: Engine, link: Any, message: list[Any]) -> None:
        # The engine of a generation that was replaced is not there any more.
        node = cast("RaftLog", engine._host)
        if node._engine is engine:
            with contextlib.suppress(WireError):
                node._received(link, message)


@contextlib.contextmanager
def adversary(rng: random.Random, again_chance: float, low_chance: float) -> Iterator[None]:
    """While this lasts it has its way."""
    its = Adversary(rng, again_chance, low_chance)
    receive, send_append, state_changed = Engine.receive, Engine._send_append, Engine.state_changed

    def see_receive(self: Engine, link: Any, message: list[Any]) -> None:
        receive(self, link, message)
        its.received(self, link, message)

    def see_send_append(self: Engine, node_id: str, *, only_entries: bool = False) -> None:
        its.low(self, node_id)
        send_append(self, node_id, only_entries=only_entries)

    def see_state_changed(self: Engine, old: int, new: int) -> None:
        state_changed(self, old, new)
        if new == LEADER:
            its.leads(self)

    with (
        patch.object(Engine, "receive", see_receive),
        patch.object(Engine, "_send_append", see_send_append),
        patch.object(Engine, "state_changed", see_state_changed),
    ):
        yield
