"""The log of this node: pysyncobj's journal, made durable.

Memory is ahead of the disk: an entry is visible as soon as it is added, and counts for nothing before `durable_index`
covers it. That is for the owner to see to; here it is only told. What contradicts an entry cuts the log there; nothing
else ever takes an entry from its end. On the loop's thread nothing is written; reading is done there, for entries that
are too old for memory. The bytes are segment.py's, the files replay.py's and logwriter.py's, term and vote ballot.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import overload

from quvatlh.raft import entries
from quvatlh.raft.ballot import Ballot
from quvatlh.raft.cache import Cache, LogEntry
from quvatlh.raft.disk import Disk, Lane
from quvatlh.raft.logwriter import LogWriter
from quvatlh.raft.replay import LogCorrupt, Stamp, file_name, replay, stamp_of
from quvatlh.raft.runs import Run, Runs
from quvatlh.raft.segment import RECORD_BYTES, Base, pack_header, pack_record, unpack_record
from quvatlh.raft.settings import Settings

__all__ = ["Base", "Journal", "JournalBug", "JournalClosed", "LogCorrupt", "Rows"]

FIRST_SEQ = 1


class JournalBug(Exception):
    """The log was to be changed in a way that no correct engine asks for. Stops the node."""


class JournalClosed(Exception):
    """The journal is closed, or the disk has failed: nothing more is taken."""


class Journal:
    """Entries `first_index` to `last_index`; the first is the base, which stands for all before it and bears no command.

    Hooks: `on_append(index, command)` when the entry is visible, `on_cut(index)` when those from index on are gone,
    `on_synced()` when durable_index and synced_ticket have moved, `on_failure(exc)` once, after which nothing is taken.
    """

    def __init__(
        self, disk: Disk, directory: str, lane: Lane, *, settings: Settings, ballot: Ballot, runs: Runs
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._settings = settings
        self._ballot = ballot
        self._runs = runs
        self._cache = Cache(settings.cache_bytes)
        self._block = ("", 0, b"")
        self._base_entry: LogEntry = (bytes([entries.NO_OP]), runs.base.index, runs.base.term)
        self._commit_index = 0
        self._closed = False
        self._ticket = 0
        self._taken = (0, runs.last_index, runs.last.seq)
        """What the sync under way will have covered: ticket, index, file."""
        self._created_seq = runs.last.seq
        """Files up to this one are on the disk for certain."""
        self.durable_index = runs.last_index
        self.appended_bytes = 0
        """Of all entries added since the opening: only grows."""
        self.synced_ticket = 0
        self.guard_index = 0
        """A cut at or below it is a bug: what is committed never changes."""
        self.recovered: list[str] = []
        """What a crash had torn, and the opening has cut: file, offset, bytes."""
        self.on_append: Callable[[int, bytes], None] = lambda _index, _command: None
        self.on_cut: Callable[[int], None] = lambda _index: None
        self.on_synced: Callable[[], None] = lambda: None
        self.on_failure: Callable[[Exception], None] = lambda _exc: None
        self._writer = LogWriter(
            disk,
            lane,
            file_name(directory, runs.last.seq),
            take=self._take,
            done=self._done,
            failed=self._fail,
        )
        self.last_time_ms = self._time_at(runs.last_index)
        """The greatest log time in the log or its base."""

    @staticmethod
    def create(disk: Disk, directory: str, base: Base) -> None:
        """The first file of a log that goes on from `base`, durable; the name of the directory is the caller's."""
        disk.mkdir(directory)
        file = disk.create(file_name(directory, FIRST_SEQ))
        try:
            file.write(pack_header(base))
            file.sync()
        finally:
            file.close()
        disk.sync_dir(directory)

    @classmethod
    def open(
        cls, disk: Disk, directory: str, lane: Lane, settings: Settings, ballot: Ballot, *, applied_index: int
    ) -> Journal:
        """All of it is durable when this returns. Raises LogCorrupt, and has changed nothing then."""
        runs, losses = replay(disk, directory, applied_index)
        journal = cls(disk, directory, lane, settings=settings, ballot=ballot, runs=runs)
        journal.recovered = [loss.in_words() for loss in losses]
        journal.guard_index = journal._commit_index = applied_index
        return journal

    # --- what is in it ----------------------------------------------------------------------------------------------

    @property
    def first_index(self) -> int:
        """Of the base."""
        return self._base_entry[1]

    @property
    def last_index(self) -> int:
        return self._runs.last_index

    @property
    def last_term(self) -> int:
        return self._runs.term_at(self._runs.last_index)

    @property
    def membership(self) -> bytes:
        """In force at the end of the log, packed."""
        return self._runs.memberships[-1][1]

    @property
    def membership_index(self) -> int:
        """Of the entry that put it in force; that of the base if none in the log did."""
        return self._runs.memberships[-1][0]

    @property
    def size_bytes(self) -> int:
        """Of all files, with what waits to be written and what was cut."""
        return self._runs.file_bytes

    def term_at(self, index: int) -> int:
        return self._runs.term_at(index)

    def entry(self, index: int) -> LogEntry:
        """(command, index, term). IndexError for what is not in the log."""
        if index == self._base_entry[1]:
            return self._base_entry
        return self._cache.get(index) or self._read(index)

    def range_bytes(self, first: int, last: int) -> int:
        """Of the entries from first to last in their files."""
        return self._runs.range_bytes(first, last)

    def base_at(self, index: int) -> Base:
        """What a log that begins after this entry goes on from."""
        return Base(index, self.term_at(index), self._time_at(index), self._runs.membership_at(index))

    # --- how it grows -----------------------------------------------------------------------------------------------

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Visible on return, written after the next kick. An entry that is there already, by index and term, is kept."""
        if self._closed or self._writer.stopped:
            raise JournalClosed(f"entry {idx} was added to a log that takes nothing more")
        last = self._runs.last_index
        if not self.first_index <= idx <= last + 1:
            raise JournalBug(f"entry {idx} was added to a log of {self.first_index} to {last}")
        if idx <= last:
            if self.term_at(idx) == term:
                return
            self._refuse_cut(idx, term)
        if term < self.term_at(idx - 1):
            raise JournalBug(f"entry {idx} of term {term} was to follow one of term {self.term_at(idx - 1)}")
        # Before anything is changed: it raises on bytes that are no entry.
        stamp = stamp_of(command, term)
        if idx <= last:
            self._cut(idx)
        elif self._runs.last.file_bytes >= self._settings.segment_bytes:
            self._go_on(Base(last, self.last_term, self.last_time_ms, self.membership))
        self._append(command, idx, term, stamp)

    def kick(self) -> None:
        """Write and sync what was added, as soon as the lane is free."""
        self._writer.kick()

    def ticket(self) -> int:
        """What synced_ticket will have reached once all that has been added so far is durable."""
        return self._ticket

    def compact(self, keep_from: int) -> list[str]:
        """Drop whole files, as long as entry keep_from - 1 stays known; the files that go, oldest first.

        They are out of the log at once and removed on the lane, but only when the file that then is the first is surely
        on the disk. How much to keep is the owner's to say.
        """
        names = [file_name(self._directory, seq) for seq in self._runs.drop_before(keep_from, self._created_seq)]
        base = self._runs.base
        self._base_entry = (bytes([entries.NO_OP]), base.index, base.term)
        self._cache.drop_to(base.index)
        self._writer.remove(names)
        return names

    async def close(self) -> None:
        """Takes nothing more; what was added is written and synced, and what is being removed is gone."""
        self._closed = True
        await self._writer.close()

    def _fail(self, exc: Exception) -> None:
        self.on_failure(exc)

    def _refuse_cut(self, idx: int, term: int) -> None:
        if idx <= max(self.guard_index, self.first_index):
            known = f"term {self.term_at(idx)}, which is kept up to {max(self.guard_index, self.first_index)}"
            raise JournalBug(f"entry {idx} of term {term} contradicts the one of {known}")

    def _cut(self, idx: int) -> None:
        base = self.base_at(idx - 1)
        self._cache.cut(idx)
        self._go_on(base)
        self.last_time_ms = base.time_ms
        self.durable_index = min(self.durable_index, base.index)
        # A sync that is under way covers entries that are no more.
        ticket, index, seq = self._taken
        self._taken = (ticket, min(index, base.index), seq)
        self.on_cut(idx)

    def _go_on(self, base: Base) -> None:
        """With a new file."""
        header = pack_header(base)
        seq = self._runs.last.seq + 1
        self._runs.push(Run(seq, base, len(header)))
        self._writer.begin(file_name(self._directory, seq), header)

    def _append(self, command: bytes, idx: int, term: int, stamp: Stamp) -> None:
        self._runs.append(term, len(command), stamp.membership)
        self.last_time_ms = max(self.last_time_ms, stamp.time_ms)
        self._cache.add((command, idx, term))
        self._writer.put(pack_record(idx, term, self.durable_index, command), command)
        self._ticket += 1
        self.appended_bytes += RECORD_BYTES + len(command)
        self._cache.shrink(self.durable_index)
        self.on_append(idx, command)

    def _take(self) -> None:
        self._taken = (self._ticket, self._runs.last_index, self._runs.last.seq)

    def _done(self) -> None:
        self.synced_ticket, self.durable_index, self._created_seq = self._taken
        self._cache.shrink(self.durable_index)
        self.on_synced()

    # --- reading ----------------------------------------------------------------------------------------------------

    def _read(self, index: int) -> LogEntry:
        """From the file, a block at a time: whoever asks for an old entry asks for the next ones too."""
        run = self._runs.run_of(index)
        term = run.terms[index - run.base.index - 1]
        file, offset, end = file_name(self._directory, run.seq), run.offset_of(index), run.offset_of(index + 1)
        name, start, data = self._block
        if name != file or not start <= offset <= end <= start + len(data):
            # Past what is durable another thread may be writing.
            limit = run.offset_of(min(self.durable_index, run.last_index) + 1)
            size = max(end - offset, min(self._settings.append_bytes_max, limit - offset))
            start, data = offset, self._disk.read(file, offset, size)
            self._block = (file, start, data)
        command = unpack_record(data, offset - start, index, term)
        if command is None or len(command) != end - offset - RECORD_BYTES:
            raise LogCorrupt(file, offset, f"entry {index} does not read as it was written")
        return (command, index, term)

    def _time_at(self, index: int) -> int:
        """Log time never goes back, so it is that of the last entry that bears one."""
        base = self._runs.base if index == self.first_index else self._runs.run_of(index).base
        for at in range(index, base.index, -1):
            command, _at, term = self.entry(at)
            time_ms = stamp_of(command, term).time_ms
            if time_ms:
                return time_ms
        return base.time_ms

    # --- pysyncobj's face -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.last_index - self.first_index + 1

    def __iter__(self) -> Iterator[LogEntry]:
        return iter(self[:])

    @overload
    def __getitem__(self, item: int) -> LogEntry: ...

    @overload
    def __getitem__(self, item: slice) -> Rows: ...

    def __getitem__(self, item: int | slice) -> LogEntry | Rows:
        if item == -1:  # asked several times a tick
            return self.entry(self.last_index)
        return Rows(self, self.first_index, self.last_index + 1)[item]

    def clear(self) -> None:
        raise JournalBug("the log was to be cleared")

    def deleteEntriesTo(self, entryTo: int) -> None:  # noqa: N802, N803 - pysyncobj's name
        raise JournalBug(f"the first {entryTo} entries were to be deleted by the engine")

    def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803
        """Nothing: entries that nothing contradicts stay. See add."""

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: N802, N803
        """Not kept on disk: what is committed is heard from the master again."""
        self._commit_index = raftCommitIndex

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        return self._commit_index

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:  # noqa: N802, N803
        self._ballot.set(term, votedForNodeId)

    def getCurrentTerm(self) -> int:  # noqa: N802
        return self._ballot.term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802
        """A log that came with a snapshot may be of a later term than the ballot: no vote was given in that one."""
        return self._ballot.voted_for if self._ballot.term >= self.last_term else None

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """Nothing waits for it."""

    def _destroy(self) -> None:
        """Nothing: the owner closes, in order."""


class Rows:
    """A slice of the log that is read as it is walked. Only as good as the log it was taken from: not to be kept."""

    def __init__(self, journal: Journal, first: int, end: int) -> None:
        self._journal = journal
        self._first = first
        self._end = end

    def __len__(self) -> int:
        return max(0, self._end - self._first)

    def __iter__(self) -> Iterator[LogEntry]:
        return map(self._journal.entry, range(self._first, self._end))

    @overload
    def __getitem__(self, item: int) -> LogEntry: ...

    @overload
    def __getitem__(self, item: slice) -> Rows: ...

    def __getitem__(self, item: int | slice) -> LogEntry | Rows:
        if isinstance(item, slice):
            start, stop, step = item.indices(len(self))
            if step != 1:
                raise ValueError("entries are read in order")
            return Rows(self._journal, self._first + start, self._first + stop)
        if not -len(self) <= item < len(self):
            raise IndexError(item)
        return self._journal.entry((self._first if item >= 0 else self._end) + item)
