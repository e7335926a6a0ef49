"""Which of several connections between two nodes is the one that counts. Both ends answer alike, without asking.

The dialer numbers its connection: above every number it has seen or used with that peer. The key of a connection is
(number, whether the dialer's id is the smaller of the two). Each end compares the keys of a new connection and of its
current one, the acceptor before it says ACCEPT, the dialer when it hears it, and keeps the greater; the other is closed.

Why both ends come to the same: the keys of all connections between two processes are different (a dialer never uses a
number twice, and of two with the same number one was dialled by each), so they are in one order that both ends know.
An end never gives up a living connection for one with a smaller key. Whatever order the news reaches them in, the
greatest key among the connections that both have completed is current at both; the end that completes a smaller one
later closes it, and that one cannot have been more than passing at the other. If the greatest dies before its ACCEPT
has arrived, none may be left for a moment: then they dial again.

A process started anew (another `incarnation`) takes the place of the old one whatever the numbers, since its clock, and
so its first number, may be behind; the connection to a dead process does not answer, so there is nothing to keep. Should
the last word of the dead process arrive after its successor was here, it takes the place back, until its end is seen.

A dialer says whom it believes to dial (`to`). Where it did not know, it learns the id, but takes no place from a living
connection: it may be linked to that very node already, by another address.
"""

from __future__ import annotations

from typing import NamedTuple

from quvatlh.ports import Clock
from quvatlh.raft.handshake import SEQ_MAX, Doc

PEERS_REMEMBERED_MAX = 4096
"""Peers whose numbers are known. One that was forgotten answers with its number, once."""


class Key(NamedTuple):
    """Compared in this order."""

    seq: int
    dialled_by_smaller_id: bool


def key_of(seq: int, dialer_id: str, acceptor_id: str) -> Key:
    return Key(seq, dialer_id < acceptor_id)


def takes_over(key: Key, doc: Doc, current_key: Key, current_doc: Doc, *, knows_us: bool = True) -> bool:
    """Whether the connection with `key` and the peer's `doc` takes the place of a living one to the same id."""
    return doc["incarnation"] != current_doc["incarnation"] or (knows_us and key > current_key)


class Numbers:
    """Hands out numbers for connections, greater than all seen or used with a peer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._used = 0
        self._seen: dict[str, int] = {}

    def saw(self, node_id: str, seq: int) -> None:
        """Note a number used with that peer, by either end."""
        highest = max(seq, self._seen.pop(node_id, 0))
        self._seen[node_id] = highest
        if len(self._seen) > PEERS_REMEMBERED_MAX:
            del self._seen[next(iter(self._seen))]

    def highest(self, node_id: str) -> int:
        return self._seen.get(node_id, 0)

    def next(self, node_id: str | None) -> int:
        """For a connection to that peer, or to one not known yet."""
        seen = self._seen.get(node_id, 0) if node_id is not None else 0
        number = max(self._clock.wall_ms(), self._used + 1, seen + 1)
        self._used = min(number, SEQ_MAX)
        return self._used
