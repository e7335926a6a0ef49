"""Files and directories of a simulated disk, and what is left of them when the power goes.

A file has a durable beginning and bytes that nobody has synced; a directory has durable entries and a queue of changes
that nobody has synced. Nothing here knows processes or faults: see disk.py.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

SECTOR_BYTES = 512
"""The disk writes a sector whole or tears it; nothing is promised about the order of sectors."""


class FileNode:
    __slots__ = ("data", "synced", "unsure")

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = 0
        """The first so many bytes are durable, except `unsure`."""
        self.unsure: list[tuple[int, int]] = []
        """Ranges whose sync has failed: the kernel calls them clean, and no later sync writes them."""

    def sync(self) -> None:
        self.synced = len(self.data)

    def sync_failed(self) -> None:
        if self.synced < len(self.data):
            self.unsure.append((self.synced, len(self.data)))

    def truncate(self, size: int) -> None:
        """Cut, or lengthen with zeros."""
        if size > len(self.data):
            self.data.extend(bytes(size - len(self.data)))
        del self.data[size:]
        self.synced = min(self.synced, size)
        self.unsure = [(start, min(end, size)) for start, end in self.unsure if start < size]

    def power_fail(self, rng: random.Random) -> None:
        for start, end in self.unsure:
            if rng.random() < 0.5:
                self.data[start:end] = bytes(end - start)
        self.unsure.clear()
        synced = self.synced
        lost = len(self.data) - synced
        if lost:
            fate = rng.random()
            if fate < 0.25:
                del self.data[synced:]
            elif fate < 0.65:
                del self.data[synced + rng.randrange(lost + 1) :]
            elif fate < 0.9:
                self._tear(rng)
        self.synced = len(self.data)

    def _tear(self, rng: random.Random) -> None:
        """Each unsynced sector is there, or not, or in part, whatever became of those before it."""
        data = self.data
        del data[self.synced + rng.randrange(len(data) - self.synced) + 1 :]
        start = self.synced
        while start < len(data):
            end = min(len(data), (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
            fate = rng.random()
            if fate < 0.5:
                torn = start + (rng.randrange(end - start) if fate < 0.15 else 0)
                garbage = rng.random() < 0.3
                data[torn:end] = rng.randbytes(end - torn) if garbage else bytes(end - torn)
            start = end


@dataclass(slots=True, eq=False)
class Change:
    """Names set (or, None, taken away) in one step. `twin` is the other directory's half of a move between two."""

    names: dict[str, Node | None]
    twin: tuple[DirNode, Change] | None = None


@dataclass(slots=True, eq=False)
class DirNode:
    entries: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)

    def change(self, names: dict[str, Node | None]) -> Change:
        change = Change(names)
        _apply(self.entries, change)
        self.pending.append(change)
        return change

    def sync(self, upto: int | None = None) -> None:
        """Make the first `upto` changes durable, all by default. The half of a move that lies elsewhere comes along."""
        done, self.pending = self.pending[:upto], self.pending[len(self.pending) if upto is None else upto :]
        for change in done:
            _apply(self.durable, change)
        for change in done:
            if change.twin is not None:
                other, half = change.twin
                if half in other.pending:
                    other.sync(other.pending.index(half) + 1)


Node = FileNode | DirNode


def _apply(entries: dict[str, Node], change: Change) -> None:
    for name, node in change.names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def power_fail(root: DirNode, rng: random.Random) -> None:
    """Leave what a machine finds after its power came back: of each directory some first part of its unsynced changes,
    of each file some part of its unsynced bytes."""
    directories = _directories(root)
    for directory in directories:
        if directory.pending:
            directory.sync(rng.randrange(len(directory.pending) + 1))
    for directory in directories:
        directory.pending.clear()
        directory.entries = dict(directory.durable)
    files: dict[int, FileNode] = {}
    for directory in directories:
        for _, node in sorted(directory.entries.items(), key=lambda item: item[0]):
            if isinstance(node, FileNode):
                files.setdefault(id(node), node)
    for file in files.values():
        file.power_fail(rng)


def _directories(root: DirNode) -> list[DirNode]:
    """All that may be there afterwards, each once, parents first, in an order that depends on names alone."""
    found, seen = [root], {id(root)}
    for directory in found:
        nodes = [*sorted(directory.durable.items(), key=lambda item: item[0])]
        for change in directory.pending:
            nodes += [(name, node) for name, node in change.names.items() if node is not None]
        for _, node in nodes:
            if isinstance(node, DirNode) and id(node) not in seen:
                seen.add(id(node))
                found.append(node)
    return found
