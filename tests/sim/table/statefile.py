"""The state file of a simulated disk: SQLite in memory, and an image of it for each commit.

What is on the disk for good is the image of the last checkpoint, a file of SimDisk. What was committed since stands in
`CommitImages`, which belongs to the machine: a kill keeps all of it, a power failure some first part, as SQLite's
write-ahead file does that was not synced.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Final

from quvatlh.core import statefile
from quvatlh.core.statefile import Meta, StateFile
from tests.sim.disk import DiskView

PAGE_BYTES: Final = 512
"""The least that SQLite knows: three dozen tables and indexes, most of them empty, have a page each."""
IMAGES_MAX: Final = 64
"""Of commits since a checkpoint; beyond it every second one is forgotten."""


class CommitImages:
    """Of one machine: state file -> images of the commits since its last checkpoint, oldest first, with their index."""

    def __init__(self) -> None:
        self._of: dict[str, list[tuple[int, bytes]]] = {}

    def at(self, path: str) -> list[tuple[int, bytes]]:
        return self._of.setdefault(path, [])

    def power_fail(self, rng: random.Random) -> None:
        for _, images in sorted(self._of.items()):
            del images[rng.randint(0, len(images)) :]


class SimStateFile(StateFile):
    """Keeps what StateFile promises, for one incarnation."""

    def __init__(self, path: str, schema: Sequence[str], disk: DiskView, images: CommitImages) -> None:
        self.path = path
        self._disk = disk
        self._images = images.at(path)
        new = not disk.exists(path)
        if new:
            self._images.clear()
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        self.db.deserialize(self._newest() or _empty(tuple(schema)))
        self.db.execute("PRAGMA trusted_schema=OFF")
        self.meta = statefile._checked_meta(self.db, path)
        if new:
            self._replace()

    def commit(self, meta: Meta) -> None:
        super().commit(meta)
        images = self._images
        images.append((meta.applied_index, self.db.serialize()))
        if len(images) > IMAGES_MAX:
            del images[:-1:2]

    def checkpoint(self) -> int:
        index = self.meta.applied_index
        self._replace()
        self._images[:] = [each for each in self._images if each[0] > index]
        return index

    def copy_to(self, path: str) -> int:
        self._write(path)
        return self.meta.applied_index

    def _newest(self) -> bytes | None:
        if self._images:
            return self._images[-1][1]
        return self._disk.read(self.path) if self._disk.exists(self.path) else None

    def _replace(self) -> None:
        """Whole or not at all, and durable on return."""
        partial = f"{self.path}.partial"
        self._disk.remove(partial)
        self._write(partial)
        self._disk.rename(partial, self.path)
        self._disk.sync_dir(self.path.rpartition("/")[0])

    def _write(self, path: str) -> None:
        file = self._disk.create(path)
        file.write(self.db.serialize())
        file.sync()
        file.close()


@cache
def _empty(schema: tuple[str, ...]) -> bytes:
    """The image of a new state."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute(f"PRAGMA page_size={PAGE_BYTES}")
    statefile._create(db, schema)
    image = db.serialize()
    db.close()
    return image
