"""How long the tasks of a queue run lately, as the master sees it by its own clock: from an award to its end.

Of some awards only, and in bounded memory. What waited behind others on its worker is reckoned back: with n in the hands of
k slots, an end comes k/n of the way. So no clock of a worker is asked, and prefetching does not deceive itself. What the log
takes is no run time: the award's way through it is seen, and the end's taken to be as long.

Where one entry ends all that a worker had, and that was more than its slots, it had run out of work, and the way there and back
is what was measured: then half of it counts. So what a worker is fed grows until it has enough, however slow the log is.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quvatlh.core.events import Event
from quvatlh.ports import Clock, Role
from quvatlh.service.runtimes import RunTimes

SAMPLES_MAX: Final = 256
"""Awards that are watched at once."""
TRUSTED_AFTER: Final = 4
"""Samples of a queue before anybody believes them."""
LONG_MS: Final = 1000.0
"""A watched action that has not ended by then counts as one that took so long, and is watched no more."""
HELD_MS: Final = 250.0
"""What a claim that was given back has waited in vain: it counts as a run of that length."""

RAN_OUT: Final = 0.5

_ENDS: Final = frozenset({"task.succeeded", "task.failed", "task.retrying"})
_OTHERWISE: Final = frozenset({"task.deleted", "task.relocated", "action.stopping", "action.ended"})


@dataclass(slots=True)
class _Sample:
    queue: str
    at: float
    share: float
    """Slots for each action that was in the worker's hands, at most 1."""
    worker: str
    slots: int
    way: float = 0.0
    """From the proposal until it was applied here."""


class Pace:
    """A Hearer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watched: OrderedDict[int, _Sample] = OrderedDict()
        self._run_times = RunTimes(TRUSTED_AFTER)
        self._unseen: set[str] = set()
        """Workers that have more than is watched."""

    def awarded(self, seq: int, queue: str, share: float, worker: str = "", slots: int = 0) -> None:
        """By the auction, before it is proposed: a little too early, never too late. `slots`: all that the worker has."""
        if len(self._watched) < SAMPLES_MAX:
            self._watched[seq] = _Sample(queue, self._clock.boot(), min(1.0, share), worker, slots)
        else:
            self._unseen.add(worker)

    def gave(self, seqs: Sequence[int], queue: str, worker: str, slots: int, taken: int, each: int) -> None:
        """The same of many at once, of `each` slots: `taken` were taken before."""
        room = max(0, SAMPLES_MAX - len(self._watched))
        for place, seq in enumerate(seqs[:room], 1):
            self.awarded(seq, queue, slots / max(1, taken + place * each), worker, slots)
        if len(seqs) > room:
            self._unseen.add(worker)

    def run_ms(self, queue: str) -> float | None:
        """About how long a task of it takes a slot; None while too few were seen."""
        return self._run_times.of(queue)

    def tidy(self) -> None:
        """Long ones make room."""
        now = self._clock.boot()
        while self._watched:
            seq, sample = next(iter(self._watched.items()))
            if now - sample.at < LONG_MS / 1000:
                return
            del self._watched[seq]
            self._run_times.learn(sample.queue, LONG_MS)

    # --- a Hearer ---

    def heard(self, _index: int, events: Sequence[Event]) -> None:
        if not self._watched and not self._run_times:
            return
        ended: list[_Sample] = []
        for event in events:
            if event.kind in _ENDS:
                sample = self._watched.pop(event.seq, None)
                if sample is not None:
                    ended.append(sample)
            elif event.kind == "task.claimed":
                sample = self._watched.get(event.seq)
                if sample is not None and not sample.way:
                    sample.way = self._clock.boot() - sample.at
            elif event.kind == "task.ready" and event.token:  # given back: it had waited for too long
                self._watched.pop(event.seq, None)
                self._run_times.learn(event.queue, HELD_MS)
            elif event.kind in _OTHERWISE:
                self._watched.pop(event.seq, None)
        if ended:
            self._learn(ended)

    def _learn(self, ended: Sequence[_Sample]) -> None:
        now, idle = self._clock.boot(), self._idle(ended)
        for sample in ended:
            ran_ms = max(0.0, now - sample.at - 2 * sample.way) * 1000 * sample.share
            self._run_times.learn(sample.queue, ran_ms * RAN_OUT if sample.worker in idle else ran_ms)

    def _idle(self, ended: Sequence[_Sample]) -> set[str]:
        """Workers that had more than their slots, and all of that has ended at once."""
        counts = Counter((sample.worker, sample.slots) for sample in ended if sample.worker)
        idle = {worker for (worker, slots), count in counts.items() if count > slots}
        if idle:
            idle.difference_update([sample.worker for sample in self._watched.values()])
            unseen, self._unseen = self._unseen & idle, self._unseen - idle
            idle -= unseen
        return idle

    def role_changed(self, role: Role) -> None:
        if not role.acting:
            self._watched.clear()
            self._unseen.clear()
            self._run_times.clear()

    def reset(self, _index: int) -> None:
        self._watched.clear()
        self._unseen.clear()
