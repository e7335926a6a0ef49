"""The judge's eyes inside the engine: what it sends, votes, appends and in which term it is.

The real classes are used as they are; here their methods are wrapped for the time of a run, so that a judge hears of
calls that no port shows. Nothing of what they do is changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from quvatlh.ports import Membership
from quvatlh.raft import entries
from quvatlh.raft.engine import Engine
from quvatlh.raft.link import Link
from quvatlh.raft.log import RaftLog
from quvatlh.raft.prevote import PreVote
from tests.sim.judge import Judge

Wrapped = tuple[type, str, Callable[..., Any]]


@contextlib.contextmanager
def observed(judge: Judge) -> Iterator[None]:
    """While this lasts the judge sees."""
    with contextlib.ExitStack() as stack:
        for owner, name, wrapper in (*_votes(judge), *_depositions(judge), *_terms(judge), *_memberships(judge)):
            stack.enter_context(patch.object(owner, name, wrapper))
        yield


def _votes(judge: Judge) -> list[Wrapped]:
    send, take = Engine.send, PreVote.take

    def see_send(self: Engine, node_id: str, message: Any) -> None:
        own = self._own_id
        if message["type"] == "response_vote":
            judge.voted(own, message["term"], node_id)
        elif message["type"] == "request_vote":
            judge.voted(own, message["term"], own)
            if self._prevote in judge.backed or self._by_hand_over:
                judge.backed_terms.add(message["term"])
        send(self, node_id, message)

    def see_take(self: PreVote, needed: int, now: float) -> bool:
        taken = take(self, needed, now)
        if taken:
            judge.backed.add(self)
        return taken

    return [(Engine, "send", see_send), (PreVote, "take", see_take)]


def _depositions(judge: Judge) -> list[Wrapped]:
    adopt_term, on_campaign = Engine.adopt_term, Engine._on_campaign

    def see_adopt_term(self: Engine, term: int) -> None:
        acted = self.acts()
        adopt_term(self, term)
        if acted:
            judge.deposed(self._own_id, term)

    def see_campaign(self: Engine, link: Link, *fields: Any) -> None:
        acted = self.acts()
        on_campaign(self, link, *fields)
        if acted and not self.leads():
            judge.deposed_by_request(self._own_id, self.term())

    return [(Engine, "adopt_term", see_adopt_term), (Engine, "_on_campaign", see_campaign)]


def _terms(judge: Judge) -> list[Wrapped]:
    tick, on_next = Engine.tick, Engine._on_next

    def see_tick(self: Engine) -> None:
        judge.term_seen(self._own_id, self.term())
        tick(self)
        judge.term_seen(self._own_id, self.term())
        judge.commits(self)

    def see_next(self: Engine, link: Link, *fields: Any) -> None:
        on_next(self, link, *fields)
        judge.matched(self, link.node_id)

    return [(Engine, "tick", see_tick), (Engine, "_on_next", see_next)]


def _memberships(judge: Judge) -> list[Wrapped]:
    appended, broadcast = Engine._appended, RaftLog._broadcast_membership

    def see_appended(self: Engine, index: int, command: bytes) -> None:
        judge.membership_logged(self, index, command)
        appended(self, index, command)

    def see_broadcast(self: RaftLog, index: int, membership: Membership) -> None:
        if index:
            judge.membership_applied(index, entries.pack_membership(membership))
        broadcast(self, index, membership)

    return [(Engine, "_appended", see_appended), (RaftLog, "_broadcast_membership", see_broadcast)]
