"""Where each entry of the log stands: sixteen bytes of memory an entry, and no object.

A run is what one file holds of the log: contiguous entries after its base. A run whose base lies before the end of the
one before it cuts that one there, and this is the only way in which entries go from the end of the log: a file is never
changed. Files that a cut left without entries stay as dead until all before them go too. Nothing here reads or writes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from quvatlh.raft.segment import RECORD_BYTES, Base


class Discontinuous(Exception):
    """A run does not go on from the ones before it."""


class Run:
    """`offsets` has one item more than `terms`: where the next record would stand, had nothing been cut."""

    __slots__ = ("base", "file_bytes", "offsets", "seq", "terms")

    def __init__(self, seq: int, base: Base, header_bytes: int) -> None:
        self.seq = seq
        self.base = base
        self.offsets = array("Q", [header_bytes])
        self.terms = array("Q")
        self.file_bytes = header_bytes
        """Of the whole file, with what was cut and is still in it."""

    @property
    def last_index(self) -> int:
        return self.base.index + len(self.terms)

    def append(self, term: int, length: int) -> None:
        self.file_bytes += RECORD_BYTES + length
        self.terms.append(term)
        self.offsets.append(self.file_bytes)

    def cut(self, last_index: int) -> None:
        """Forget what comes after."""
        count = last_index - self.base.index
        del self.terms[count:]
        del self.offsets[count + 1 :]

    def offset_of(self, index: int) -> int:
        """Of the record; of the end of the last one for the index after it."""
        return self.offsets[index - self.base.index - 1]


class Runs:
    """All of the log, oldest first; at least one run, once opened."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._dead: list[Run] = []
        self.memberships: list[tuple[int, bytes]] = []
        """(index, packed) of all that the log holds; first the one in force at its base."""
        self.last_index = 0
        """Of the newest run. Asked by all, so it is kept."""

    @property
    def base(self) -> Base:
        return self._runs[0].base

    @property
    def last(self) -> Run:
        return self._runs[-1]

    @property
    def file_bytes(self) -> int:
        return sum(run.file_bytes for run in (*self._runs, *self._dead))

    def run_of(self, index: int) -> Run:
        """The run whose file holds the entry; the base of the log has none."""
        if not self.base.index < index <= self.last_index:
            raise IndexError(f"entry {index} is not in the log ({self.base.index + 1} to {self.last_index})")
        if index > self._runs[-1].base.index:
            return self._runs[-1]
        return self._runs[bisect_left(self._runs, index, key=_base_index) - 1]

    def term_at(self, index: int) -> int:
        if index == self.base.index:
            return self.base.term
        run = self.run_of(index)
        return run.terms[index - run.base.index - 1]

    def membership_at(self, index: int) -> bytes:
        return self.memberships[bisect_right(self.memberships, index, key=_index) - 1][1]

    def range_bytes(self, first: int, last: int) -> int:
        """What the records from `first` to `last` take in their files."""
        total = 0
        while first <= last:
            run = self.run_of(last)
            start = max(first, run.base.index + 1)
            total += run.offset_of(last + 1) - run.offset_of(start)
            last = start - 1
        return total

    def push(self, run: Run) -> None:
        """Go on with this run: what the log holds after its base is cut."""
        base = run.base
        if self._runs and base.index > self.last_index:
            missing = f"{self.last_index + 1} to {base.index}"
            raise Discontinuous(f"it goes on after entry {base.index}, but entries {missing} are missing")
        while self._runs and self._runs[-1].base.index >= base.index:
            self._dead.append(self._runs.pop())
        if self._runs:
            found = self.term_at(base.index)
            if found != base.term:
                raise Discontinuous(f"it goes on after entry {base.index} of term {base.term}, which has term {found}")
            self._runs[-1].cut(base.index)
        while self.memberships and self.memberships[-1][0] > base.index:
            self.memberships.pop()
        self._runs.append(run)
        self.last_index = run.last_index
        if len(self._runs) == 1:
            self.memberships = [(base.index, base.membership)]

    def append(self, term: int, length: int, membership: bytes | None) -> None:
        self._runs[-1].append(term, length)
        self.last_index += 1
        if membership is not None:
            self.memberships.append((self.last_index, membership))

    def drop_before(self, keep_from: int, created_seq: int) -> list[int]:
        """Forget the files without which entry keep_from - 1 is still known; their numbers, oldest first.

        The file that becomes the first is one of those up to `created_seq`, which are surely on the disk.
        """
        count = 0
        while count + 1 < len(self._runs):
            following = self._runs[count + 1]
            if following.base.index >= keep_from or following.seq > created_seq:
                break
            count += 1
        first_seq = self._runs[count].seq
        if first_seq > created_seq:
            return []
        dropped = [*self._runs[:count], *(run for run in self._dead if run.seq < first_seq)]
        self._dead = [run for run in self._dead if run.seq > first_seq]
        del self._runs[:count]
        in_force = self.membership_at(self.base.index)
        later = [found for found in self.memberships if found[0] > self.base.index]
        self.memberships = [(self.base.index, in_force), *later]
        return sorted(run.seq for run in dropped)


def _base_index(run: Run) -> int:
    return run.base.index


def _index(found: tuple[int, bytes]) -> int:
    return found[0]
