"""The frames that engines send each other: what there is, and what is none.

Lists whose first element is the kind. Each names the term of its sender, so that nobody is led by an old word.
"""

from __future__ import annotations

from typing import Any

from quvatlh.raft import entries
from quvatlh.raft.wire import WireError

_NUMBER = (int, float)
_NUMBERS_END = 2**63
SHAPES: dict[str, tuple[Any, ...]] = {
    "append": (int, _NUMBER, int, int, int, list),  # term, sent, previous index, its term, commit index, entries
    "echo": (int, _NUMBER, int),  # term, sent (as in the append), wall clock in ms
    "next": (int, int, bool, bool),  # term, next index wanted, start again there, everything before it is held
    "canvass": (int, int, int, int),  # own term, round, last index, last term: would you vote for me?
    "would": (int, int, bool),  # own term, round, yes
    "campaign": (int, int, int, bool),  # term, last index, last term, by hand-over
    "vote": (int,),  # term
    "take-over": (int,),  # term: campaign now
    "stale": (int,),  # own term, which is above that of the message it answers
    "behind": (int, int),  # term, first index of the master's log: fetch a snapshot
}


class MalformedMessage(WireError):
    """A peer sent a frame that is none of ours: its link ends."""

    def __init__(self, kind: object) -> None:
        super().__init__(f"a malformed message of kind {str(kind)[:40]!r}", "message")


def are_entries(rows: list[Any], prev_index: int) -> bool:
    """Whether these are entries that follow each other and the one before."""
    for index, row in enumerate(rows, prev_index + 1):
        match row:
            case [bytes(command), int(at), int(term)] if _is_number(at) and _is_number(term) and at == index:
                try:
                    entries.check(command)
                except entries.BadEntry:
                    return False
            case _:
                return False
    return True


def _is_number(value: Any) -> bool:
    """Whether it may be a term, an index or a time: no bool, and with room for one more in 64 bits."""
    return type(value) is int and 0 <= value < _NUMBERS_END


def _fits(value: object, wanted: Any) -> bool:
    return _is_number(value) if wanted is int else isinstance(value, wanted)


def check(message: list[Any]) -> tuple[str, list[Any]]:
    """Kind and fields of a frame; MalformedMessage for what is none."""
    kind, *fields = message
    shape = SHAPES.get(kind)
    if shape is None or len(fields) != len(shape) or not all(map(_fits, fields, shape)):
        raise MalformedMessage(kind)
    return kind, fields
