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
from quvatlh.raft.wire import WireError
from tests.sim.process import PROCESS

AGAIN_S = (0.0, 0.05, 0.3, 1.0, 4.0)
"""A frame that comes again does so up to so much later."""
ANSWERS = ("next", "echo", "vote", "would")
OLDER = 4
"""Answers come again so much more often than questions: who acts on them is who may be led astray."""


@contextlib.contextmanager
def adversary(rng: random.Random, again_chance: float, low_chance: float) -> Iterator[None]:
    receive, send_append = Engine.receive, Engine._send_append

    def see_receive(self: Engine, link: Any, message: list[Any]) -> None:
        receive(self, link, message)
        if again_chance and rng.random() < again_chance * (OLDER if message[0] in ANSWERS else 1):
            process = PROCESS.get()
            delay_s = rng.random() * rng.choice(AGAIN_S)
            process.loop.call_later(delay_s, again, self, link, message, context=process.context)

    def again(engine: Engine, link: Any, message: list[Any]) -> None:
        # The engine of a generation that was replaced is not there any more.
        node = cast("RaftLog", engine._host)
        if node._engine is engine:
            with contextlib.suppress(WireError):
                node._received(link, message)

    def see_send_append(self: Engine, node_id: str, *, only_entries: bool = False) -> None:
        link = self._host.link(node_id)
        if low_chance and link is not None and rng.random() < low_chance:
            journal = self._journal
            low = max(journal.first_index + 1, self.next_index(node_id) - rng.randint(1, 6))
            rows = [journal.entry(low)] if low <= journal.last_index and rng.random() < 0.5 else []
            self._send_rows(link, min(low, journal.last_index + 1), rows)
        send_append(self, node_id, only_entries=only_entries)

    with patch.object(Engine, "receive", see_receive), patch.object(Engine, "_send_append", see_send_append):
        yield
