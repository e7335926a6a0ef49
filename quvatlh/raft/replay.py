"""Opens the files of a log: finds what they hold, decides what is torn and what is damaged, and only then repairs.

Refusing comes before repairing: a log that is refused is left as it was found, for whoever looks into it. What was read
may be in the page cache only, so it is synced before anyone relies on it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from quvatlh.raft import entries
from quvatlh.raft.disk import Disk, replace_file
from quvatlh.raft.runs import Discontinuous, Run, Runs
from quvatlh.raft.segment import RECORD_BYTES, Corrupt, Torn, holds_records, scan, unpack_header

_NAME = re.compile(r"(\d{10})\.log")


class LogCorrupt(Exception):
    """The log is not what was written, or does not reach the state. The node must not go on with it."""

    def __init__(self, file: str, offset: int, why: str) -> None:
        super().__init__(
            f"{file}, offset {offset}: {why}. The log of this node cannot be trusted, so it does not start. Restore a "
            "backup, or move the data directory away and rejoin as a new node: `quvatlh cluster remove ID` for the old "
            "one, `quvatlh cluster add ID HOST:PORT` for the new one"
        )
        self.file = file
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Loss:
    """An end that a crash tore: never synced, so never promised."""

    file: str
    offset: int
    lost_bytes: int
    header: bool
    """Not even the head of the file was whole."""

    def in_words(self) -> str:
        return f"{self.file}: {self.lost_bytes} bytes of a torn write cut at offset {self.offset}"


def file_name(directory: str, seq: int) -> str:
    return f"{directory}/{seq:010d}.log"


class Stamp(NamedTuple):
    """What an entry changes of a Base."""

    time_ms: int
    """0 when it bears no time."""
    membership: bytes | None
    """None when it changes none."""


def stamp_of(command: bytes, term: int) -> Stamp:
    """A no-op changes nothing, and neither does an entry that was made in another term, for it is void."""
    head = entries.head(command)
    if head.kind == entries.NO_OP or head.term != term:
        return Stamp(0, None)
    if head.kind != entries.MEMBERSHIP:
        return Stamp(head.time_ms, None)
    return Stamp(head.time_ms, entries.pack_membership(entries.unpack_membership_entry(command)))


def replay(disk: Disk, directory: str, applied_index: int) -> tuple[Runs, list[Loss]]:
    """All that the files hold. `applied_index` is how far the state is, which the log must reach and reach back to."""
    reader = _Reader(disk, directory)
    seqs = _numbers(disk, directory)
    for seq in seqs:
        reader.read(seq, last=seq == seqs[-1])
    runs = reader.runs
    last = file_name(directory, runs.last.seq)
    if runs.last_index < applied_index:
        why = f"the log ends with entry {runs.last_index}, but the state has applied entry {applied_index}"
        offset = reader.losses[0].offset if reader.losses else runs.last.file_bytes
        raise LogCorrupt(reader.losses[0].file if reader.losses else last, offset, why)
    if runs.base.index > applied_index:
        why = f"the log begins after entry {runs.base.index}, but the state has applied only entry {applied_index}"
        raise LogCorrupt(file_name(directory, seqs[0]), 0, why)
    for loss in reader.losses:
        _repair(disk, loss)
    _rewrite(disk, last)
    return runs, reader.losses


class _Reader:
    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self.runs = Runs()
        self.losses: list[Loss] = []
        self._begun = False

    def read(self, seq: int, *, last: bool) -> None:
        file = file_name(self._directory, seq)
        data = self._disk.read(file)
        try:
            self._read(seq, file, data, last=last)
        except Corrupt as exc:
            raise LogCorrupt(file, exc.offset, exc.why) from None
        except Discontinuous as exc:
            raise LogCorrupt(file, 0, str(exc)) from None

    def _read(self, seq: int, file: str, data: bytes, *, last: bool) -> None:
        header = unpack_header(data)
        if header is None:
            if not last or not self._begun or holds_records(data):
                raise Corrupt(0, "the head of the file is damaged")
            self.losses.append(Loss(file, 0, len(data), header=True))
            return
        base, offset = header
        self._begun = True
        self.runs.push(Run(seq, base, offset))
        for found in scan(data, offset, base):
            if isinstance(found, Torn):
                if not last:
                    raise Corrupt(found.offset, "the file ends here, but a later file had been begun")
                self.losses.append(Loss(file, found.offset, len(data) - found.offset, header=False))
                return
            start = found.offset + RECORD_BYTES
            command = data[start : start + found.length]
            self.runs.append(found.term, found.length, stamp_of(command, found.term).membership)


def _numbers(disk: Disk, directory: str) -> list[int]:
    seqs = [int(name[1]) for name in map(_NAME.fullmatch, disk.listdir(directory)) if name]
    if not seqs:
        raise LogCorrupt(directory, 0, "there is no log file")
    for before, after in pairwise(seqs):
        if after != before + 1:
            raise LogCorrupt(file_name(directory, before + 1), 0, "the file is missing")
    return seqs


def _repair(disk: Disk, loss: Loss) -> None:
    if loss.header:
        disk.remove(loss.file)
    else:
        disk.truncate(loss.file, loss.offset)


def _rewrite(disk: Disk, last: str) -> None:
    """Make what was read durable. All files but the last were synced before the next one was begun; syncing the last one
    again would not do: after a sync that failed, an earlier process may have left bytes that only the page cache holds
    and calls clean. Written anew they are on the disk, or this raises."""
    replace_file(disk, last, disk.read(last))
