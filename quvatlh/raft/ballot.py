"""Term and vote of this node: a promise to the others, so on disk before anything else is said.

The file lies beside the generations, not in them: a snapshot replaces the log, never a vote. Writing is inline, since it
happens once an election and everything that follows has to wait for it anyway.
"""

from __future__ import annotations

from quvatlh.raft import sealed
from quvatlh.raft.disk import Disk

BALLOT_FILE = "ballot"


class BallotCorrupt(Exception):
    """What this node promised is not readable, so it must not promise again under its id."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"term and vote cannot be read: {why}. This node could vote twice, so it does not start. Move the data "
            "directory away and rejoin as a new node: `quvatlh cluster remove ID` for the old one, "
            "`quvatlh cluster add ID HOST:PORT` for the new one"
        )
        self.path = path


class BallotBug(Exception):
    """A term or a vote was to be taken back. Stops the node."""


class Ballot:
    """`term` only grows; in one term `voted_for` goes from None to one node and stays."""

    def __init__(self, disk: Disk, path: str, term: int, voted_for: str | None) -> None:
        self._disk = disk
        self._path = path
        self._term = term
        self._voted_for = voted_for
        self._failed = False

    @classmethod
    def open(cls, disk: Disk, directory: str) -> Ballot:
        """The ballot of this directory; one that is not there yet is made, in term 0, durably."""
        path = f"{directory}/{BALLOT_FILE}"
        if not disk.exists(path):
            ballot = cls(disk, path, 0, None)
            ballot._write(0, None)
            return ballot
        try:
            fields = sealed.read(disk, path, "ballot")
            return cls(disk, path, int(fields["term"]), fields["voted_for"])
        except (sealed.Damaged, KeyError) as exc:
            raise BallotCorrupt(path, str(exc)) from None

    @property
    def term(self) -> int:
        return self._term

    @property
    def voted_for(self) -> str | None:
        return self._voted_for

    def set(self, term: int, voted_for: str | None) -> None:
        """Durable on return. After an OSError nobody knows what the disk holds, so nothing more is taken."""
        if self._failed:
            raise BallotBug(f"{self._path}: an earlier write failed; nothing may be promised after it")
        if term < self._term:
            raise BallotBug(f"term {self._term} was to fall to {term}")
        if (term, voted_for) == (self._term, self._voted_for):
            return
        if term == self._term and self._voted_for is not None:
            raise BallotBug(f"the vote for {self._voted_for} in term {term} was to become one for {voted_for}")
        self._write(term, voted_for)
        self._term, self._voted_for = term, voted_for

    def _write(self, term: int, voted_for: str | None) -> None:
        try:
            sealed.write(self._disk, self._path, "ballot", {"term": term, "voted_for": voted_for})
        except BaseException:
            self._failed = True
            raise
