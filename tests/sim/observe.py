"""The judge's eyes inside the engine: what it sends, votes, appends and in which term it is.

The real classes are used as they are; here their methods are wrapped for the time of a run, so that a judge hears of
calls that no port shows. Nothing of what they do is changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from quvatlh.ports import Membership
from quvatlh.raft import entries
from quvatlh.raft.engine import Engine
from quvatlh.raft.log import RaftLog
from quvatlh.raft.prevote import PreVote
from tests.sim.judge import Judge


@contextlib.contextmanager
def observed(judge: Judge) -> Iterator[None]:
    send, appended, broadcast, tick = Engine.send, Engine._appended, RaftLog._broadcast_membership, Engine.tick
    adopt_term, on_campaign, take, on_next = Engine.adopt_term, Engine._on_campaign, PreVote.take, Engine._on_next

    def see_send(self: Engine, node_id: str, message: Any) -> None:
        own = self._own_id
        if message["type"] == "response_vote":
            judge.voted(own, message["term"], node_id)
        elif message["type"] == "request_vote":
            judge.voted(own, message["term"], own)
            if self._prevote in judge.backed or self._by_hand_over:
                judge.backed_terms.add(message["term"])
        send(self, node_id, message)

    def see_appended(self: Engine, index: int, command: bytes) -> None:
        judge.membership_logged(self, index, command)
        appended(self, index, command)

    def see_broadcast(self: RaftLog, index: int, membership: Membership) -> None:
        if index:
            judge.membership_applied(index, entries.pack_membership(membership))
        broadcast(self, index, membership)

    def see_tick(self: Engine) -> None:
        judge.term_seen(self._own_id, self.term())
        tick(self)
        judge.term_seen(self._own_id, self.term())

    def see_adopt_term(self: Engine, term: int) -> None:
        acted = self.acts()
        adopt_term(self, term)
        if acted:
            judge.deposed(self._own_id, term)

    def see_campaign(self: Engine, link: Any, term: int, last_index: int, last_term: int, by_hand_over: bool) -> None:  # noqa: FBT001
        acted = self.acts()
        on_campaign(self, link, term, last_index, last_term, by_hand_over)
        if acted and not self.leads():
            judge.deposed_by_request(self._own_id, term)

    def see_next(self: Engine, link: Any, term: int, next_index: int, reset: bool, success: bool) -> None:  # noqa: FBT001
        on_next(self, link, term, next_index, reset, success)
        judge.matched(self, link.node_id)

    def see_take(self: PreVote, needed: int, now: float) -> bool:
        taken = take(self, needed, now)
        if taken:
            judge.backed.add(self)
        return taken

    Engine.adopt_term, Engine._on_campaign, PreVote.take = see_adopt_term, see_campaign, see_take  # type: ignore[method-assign]
    Engine._on_next = see_next  # type: ignore[method-assign]
    Engine.send, Engine._appended, RaftLog._broadcast_membership, Engine.tick = see_send, see_appended, see_broadcast, see_tick  # type: ignore[method-assign]
    try:
        yield
    finally:
        Engine.adopt_term, Engine._on_campaign, PreVote.take = adopt_term, on_campaign, take  # type: ignore[method-assign]
        Engine._on_next = on_next  # type: ignore[method-assign]
        Engine.send, Engine._appended, RaftLog._broadcast_membership, Engine.tick = send, appended, broadcast, tick  # type: ignore[method-assign]
