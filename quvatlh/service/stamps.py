"""What the master decides before the log: ids, and times made absolute. Ids are UUIDv7: they sort by the time of the ADD."""

from __future__ import annotations

from collections.abc import Sequence

from quvatlh.core import commands as c
from quvatlh.core.limits import TIME_MS_MAX
from quvatlh.ports import Clock, Entropy
from quvatlh.service.asks import Draft

_RANDOM_BYTES = 10
_VERSION = 0x7 << 76
_VARIANT = 0b10 << 62
_LOW = (1 << 62) - 1
_HIGH = (1 << 12) - 1
_COUNTER_BITS = 74
_TAIL = 1 << 48
"""As far as the last group of a UUID's digits counts."""


class Stamps:
    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._entropy = entropy
        self._last = 0

    def task_ids(self, count: int) -> list[str]:
        """Each greater than all before it: within a call they count up from a point that nobody can guess."""
        drawn = int.from_bytes(self._entropy.token(_RANDOM_BYTES), "big") >> 8
        first = max(self._last + 1, (self._clock.wall_ms() << _COUNTER_BITS) | drawn)
        self._last = first + count - 1
        return _uuids7(first, count)

    def new_tasks(self, drafts: Sequence[Draft], log_time_ms: int) -> tuple[c.NewTask, ...]:
        """Relative times count from log time: the master's own clock may be an hour off."""
        now = log_time_ms
        ids = iter(self.task_ids(sum(draft.id is None for draft in drafts)))
        return tuple(
            [
                c.NewTask(
                    next(ids) if draft.id is None else draft.id,
                    draft.spec,
                    draft.id is not None,
                    draft.at_ms if draft.delay_ms is None else _moment(draft.delay_ms, now),
                    draft.expires_ms if draft.expires_in_ms is None else _moment(draft.expires_in_ms, now),
                    draft.payload,
                    draft.payload_json,
                )
                for draft in drafts
            ]
        )


def _moment(relative_ms: int, now: int) -> int:
    return min(now + relative_ms, TIME_MS_MAX)


def _uuids7(first: int, count: int) -> list[str]:
    """They differ in their last group, until that overflows."""
    tail = first % _TAIL
    most = min(count, _TAIL - tail)
    head = _uuid7(first)[:-12]
    ids = [f"{head}{number:012x}" for number in range(tail, tail + most)]
    return ids if most == count else ids + _uuids7(first + most, count - most)


def _uuid7(number: int) -> str:
    """Of 48 bits of time and 74 of a counter."""
    high, low = number >> 62, number & _LOW
    value = (high >> 12 << 80) | _VERSION | ((high & _HIGH) << 64) | _VARIANT | low
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
