"""How busy the machines of workers are and were: told with each beat, kept by the master for an hour, asked of it by others.

A worker remembers its own hour and tells all of it in its first beat to a master, so a new one draws what the old one drew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from quvatlh.core.model import Name
from quvatlh.ports import Clock, Log, LogError, Peers, Unavailable
from quvatlh.service import asks

KIND: Final = "loads"
ASK_S: Final = 0.2
"""Who looks at workers waits no longer for a master that does not answer."""
STEP_S: Final = asks.HOUR_STEP_S
PAIR: Final = asks.HOUR_PAIR
UNKNOWN: Final = 255
SILENT_S: Final = 10.0
"""A load that was told so long ago says nothing about now."""
FORGET_S: Final = 3600.0


class Hour:
    """Percent of processors and of memory in use, one pair a step."""

    def __init__(self) -> None:
        self._pairs = bytearray()
        """Oldest first, the last one being that of `_step`."""
        self._step = 0
        self._cpu_sum = 0.0
        self._n = 0
        """Measurements of the last step: processors are told as their mean."""

    def add(self, now_s: float, load: asks.Load) -> None:
        self._turn(now_s)
        self._cpu_sum += load.cpu_load
        self._n += 1
        free = load.memory_free_bytes / max(1, load.memory_total_bytes)
        self._pairs[-PAIR:] = bytes((_percent(self._cpu_sum / self._n), _percent(1 - free)))

    def told(self, now_s: float) -> bytes:
        """The last pair is now's."""
        if self._pairs:
            self._turn(now_s)
        return bytes(self._pairs)

    def heard(self, now_s: float, told: bytes) -> None:
        """What another has kept goes before what is here: of a step that it does not know, or had not begun, this stands."""
        size = min(max(len(self.told(now_s)), len(told)), asks.HOUR_BYTES)
        own, other = (bytes(each[-size:]).rjust(size, bytes((UNKNOWN,))) for each in (self._pairs, told))
        pairs = ((own if other[at] == UNKNOWN else other)[at : at + PAIR] for at in range(0, size, PAIR))
        self._pairs = bytearray(b"".join(pairs))
        self._step, self._cpu_sum, self._n = int(now_s / STEP_S), 0.0, 0

    def _turn(self, now_s: float) -> None:
        step = int(now_s / STEP_S)
        passed = min(step - self._step, asks.HOUR_BYTES // PAIR) if self._pairs else 1
        if passed > 0:
            self._pairs += bytes((UNKNOWN,)) * PAIR * passed
            del self._pairs[: -asks.HOUR_BYTES]
            self._step, self._cpu_sum, self._n = step, 0.0, 0


class _Known:
    __slots__ = ("heard_at", "hour", "load")

    def __init__(self, load: asks.Load) -> None:
        self.load = load
        self.hour = Hour()
        self.heard_at = 0.0


class Wish(Struct, frozen=True, array_like=True):
    worker: Name | None = None
    """Whose hour is wanted; None: everybody's load of now."""


class Told(Struct, frozen=True, array_like=True):
    now: dict[str, asks.Load] = {}
    hour: bytes = b""


_WISH, _TOLD = asks.Form(Wish), asks.Form(Told)


class HostLoads:
    def __init__(self, log: Log, peers: Peers, clock: Clock) -> None:
        self._log = log
        self._peers = peers
        self._clock = clock
        self._known: dict[str, _Known] = {}
        peers.handle(KIND, self._asked)

    def heard(self, beat: asks.Beat) -> None:
        """Of a worker that has proved itself, on the master."""
        if beat.load is None:
            return
        now = self._clock.boot()
        known = self._known.get(beat.worker)
        if known is None:
            self._known = {name: each for name, each in self._known.items() if now - each.heard_at < FORGET_S}
            known = self._known[beat.worker] = _Known(beat.load)
        if beat.hour:
            known.hour.heard(now, beat.hour)
        known.load, known.heard_at = beat.load, now
        known.hour.add(now, beat.load)

    async def now(self) -> Mapping[str, asks.Load]:
        """By worker; of who is not in it nothing is known."""
        return (await self._told(Wish())).now

    async def hour(self, worker: str) -> bytes:
        """Hour.told, empty where nothing is known."""
        return (await self._told(Wish(worker))).hour

    async def _told(self, wish: Wish) -> Told:
        master = self._log.role.master
        if master == self._log.node_id:
            return self._own(wish)
        if master is not None:
            with contextlib.suppress(LogError, asks.Unreadable):
                answer: Told = _TOLD.decode(await self._peers.request(master, KIND, _WISH.encode(wish), deadline=ASK_S))
                return answer
        return Told()

    def _own(self, wish: Wish) -> Told:
        now = self._clock.boot()
        if wish.worker is None:
            return Told({name: each.load for name, each in self._known.items() if now - each.heard_at < SILENT_S})
        known = self._known.get(wish.worker)
        if known is None:
            return Told()
        hour = known.hour.told(now)
        has_begun = now - known.heard_at < STEP_S and hour[-1] == UNKNOWN  # nothing of this step was told yet
        return Told(hour=hour[:-PAIR] if has_begun else hour)

    async def _asked(self, _asker: str, body: bytes) -> bytes:
        if self._log.role.master != self._log.node_id:
            raise Unavailable("this node is not master")
        return _TOLD.encode(self._own(_WISH.decode(body)))


def _percent(share: float) -> int:
    return round(100 * min(1.0, max(0.0, share)))


def columns(told: bytes) -> dict[str, list[int | None]]:
    """Of an hour, oldest first; None where it was not known."""
    values = [None if each == UNKNOWN else each for each in told]
    return {"cpu": values[0::PAIR], "memory": values[1::PAIR]}
