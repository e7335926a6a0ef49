"""A snapshot on its way to a node that the log cannot help any more, over a connection of its own.

The sender copies its state file beside the running one and streams the copy; what is not taken is not read, so a slow
receiver slows only itself. The receiver writes a whole new generation (state and an empty log that begins behind it) and
checks the digest; nothing of it counts until the owner has made it current by one rename.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from quvatlh.ports import STATE_FILE, Unavailable
from quvatlh.raft.journal import Journal
from quvatlh.raft.segment import Base
from quvatlh.raft.wire import WireError

if TYPE_CHECKING:
    from quvatlh.raft.disk import Disk, Lane
    from quvatlh.raft.settings import Settings


class SnapshotFailed(Exception):
    """The transfer ended without a snapshot; it is begun anew later."""


FAILURES = (SnapshotFailed, OSError, TimeoutError, WireError, Unavailable)
"""What may end a transfer without anybody's fault: the other side, the network, a full disk."""


class Channel(Protocol):
    """What a transfer needs of a connection of kind `snapshot`."""

    def send(self, message: list[Any]) -> bool: ...

    async def drain(self) -> None: ...

    async def receive(self) -> Any: ...

    def close(self, reason: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Source:
    """A copy of the state, and where in the log it stands."""

    path: str
    base: Base


def manifest(base: Base, size: int) -> list[Any]:
    return ["snapshot", base.index, base.term, base.time_ms, base.membership, size]


def base_of(message: Any) -> tuple[Base, int]:
    """The base and the size that a manifest names."""
    match message:
        case ["snapshot", int(index), int(term), int(time_ms), bytes(membership), int(size)]:
            return Base(index, term, time_ms, membership), size
        case ["busy", str(why)]:
            raise SnapshotFailed(why)
        case _:
            raise SnapshotFailed("no manifest")


async def serve(channel: Channel, source: Source, disk: Disk, lane: Lane, settings: Settings) -> None:
    """Stream the copy; returns when the receiver has it, synced."""
    size = disk.size(source.path)
    digest = hashlib.blake2b(digest_size=32)
    offset = 0
    async with asyncio.timeout(settings.snapshot_stall_s) as stall:
        channel.send(manifest(source.base, size))
        while offset < size:
            at = offset
            chunk = await lane.run(lambda: disk.read(source.path, at, settings.snapshot_chunk_bytes))  # noqa: B023 - awaited
            digest.update(chunk)
            offset += len(chunk)
            if not channel.send(["data", chunk]):
                raise SnapshotFailed("the receiver went away")
            await channel.drain()
            stall.reschedule(asyncio.get_running_loop().time() + settings.snapshot_stall_s)
        channel.send(["end", digest.digest()])
        await channel.drain()
        await channel.receive()


async def fetch(channel: Channel, generation: str, disk: Disk, lane: Lane, settings: Settings) -> Base:
    """Write the generation that the sender streams into an empty directory, synced; where it stands."""
    path = f"{generation}/{STATE_FILE}"
    digest = hashlib.blake2b(digest_size=32)
    async with asyncio.timeout(settings.snapshot_stall_s) as stall:
        base, size = base_of(await channel.receive())
        file = await lane.run(lambda: disk.create(path))
        try:
            received = 0
            while True:
                match await channel.receive():
                    case ["data", bytes(chunk)] if chunk and received + len(chunk) <= size:
                        digest.update(chunk)
                        received += len(chunk)
                        await lane.run(lambda data=chunk: file.write(data))  # type: ignore[misc]
                    case ["end", bytes(theirs)] if received == size and theirs == digest.digest():
                        break
                    case _:
                        raise SnapshotFailed("the stream was not what its manifest and digest say")
                stall.reschedule(asyncio.get_running_loop().time() + settings.snapshot_stall_s)
            await lane.run(file.sync)
        finally:
            # Not on the lane: whoever is cancelled must not wait. A file that is removed while open takes its space along.
            file.close()
        await lane.run(lambda: Journal.create(disk, f"{generation}/log", base))
        await lane.run(lambda: disk.sync_dir(generation))
        channel.send(["done"])
        await channel.drain()
        return base
