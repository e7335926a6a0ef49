"""A snapshot as one file, and a new cluster of one node made of it.

The file is a head (magic, length), the manifest that a transfer would open with, the state file and a digest over all of
it. Restoring never joins an old cluster: its ids are gone, so the state goes on in a new one, to which nodes are added.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import msgpack

from quvatlh.ports import STATE_FILE, Member
from quvatlh.raft import entries, founding
from quvatlh.raft.journal import Journal
from quvatlh.raft.snapshot import Source, base_of, manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from quvatlh.raft.datadir import DataDir
    from quvatlh.raft.disk import Disk
    from quvatlh.raft.settings import Settings

_MAGIC = b"QVATLHBK"
_HEAD = struct.Struct("<8sI")
_DIGEST_BYTES = 32
_PARTIAL = ".partial"


class BackupDamaged(Exception):
    """This file is no backup, or not all of one."""


class NotEmpty(Exception):
    """The data directory is in use by a node that has a log already."""


def write(source: Source, path: str, disk: Disk, settings: Settings) -> None:
    """Write and sync; under a name beside it first, so that a file of this name is always whole. On a lane."""
    size = disk.size(source.path)
    opening = msgpack.packb(manifest(source.base, size))
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    partial = f"{path}{_PARTIAL}"
    disk.remove(partial)
    file = disk.create(partial)

    def put(data: bytes) -> None:
        digest.update(data)
        file.write(data)

    try:
        put(_HEAD.pack(_MAGIC, len(opening)) + opening)
        for offset in range(0, size, settings.snapshot_chunk_bytes):
            put(disk.read(source.path, offset, settings.snapshot_chunk_bytes))
        file.write(digest.digest())
        file.sync()
        disk.rename(partial, path)
        disk.sync_dir(path.rpartition("/")[0] or ".")
    except BaseException:
        remove(path, disk)
        raise
    finally:
        file.close()


def remove(path: str, disk: Disk) -> None:
    """Whatever there is of it."""
    for name in (f"{path}{_PARTIAL}", path):
        disk.remove(name)


def restore(
    path: str,
    data: DataDir,
    own: Member,
    disk: Disk,
    settings: Settings,
    check: Callable[[str], None] = lambda _state: None,
) -> int:
    """Make of the backup the first generation of an empty data directory, in a cluster of its own; the index it goes on from.

    `check` raises what the state file in it is refused for; the directory is as it was then.
    """
    if not data.is_empty:
        raise NotEmpty(f"the data directory {data.path} holds a log already: restore into an empty one")
    head = disk.read(path, 0, _HEAD.size)
    if len(head) < _HEAD.size or _HEAD.unpack(head)[0] != _MAGIC:
        raise BackupDamaged(f"{path} is not a backup of quvatlh")
    opening = disk.read(path, _HEAD.size, _HEAD.unpack(head)[1])
    try:
        base, size = base_of(msgpack.unpackb(opening))
    except Exception as error:
        raise BackupDamaged(f"{path} has a damaged manifest") from error
    begin = _HEAD.size + len(opening)
    if disk.size(path) != begin + size + _DIGEST_BYTES:
        raise BackupDamaged(f"{path} is not complete")
    digest = hashlib.blake2b(head + opening, digest_size=_DIGEST_BYTES)
    generation = data.new_generation()
    file = disk.create(f"{generation}/{STATE_FILE}")
    try:
        for offset in range(0, size, settings.snapshot_chunk_bytes):
            chunk = disk.read(path, begin + offset, min(settings.snapshot_chunk_bytes, size - offset))
            digest.update(chunk)
            file.write(chunk)
        file.sync()
    finally:
        file.close()
    if disk.read(path, begin + size) != digest.digest():
        disk.remove(generation)
        raise BackupDamaged(f"{path} is damaged: its digest does not match")
    try:
        check(f"{generation}/{STATE_FILE}")
    except BaseException:
        disk.remove(generation)
        raise
    membership = entries.pack_membership(founding.found_alone(own))
    Journal.create(disk, f"{generation}/log", replace(base, membership=membership))
    data.publish(generation)
    return base.index
