"""Carries the bytes of the log to the disk, in order, on the lane.

The loop queues, one job takes all that waits, and one fdatasync covers it; what queues meanwhile is the next job. A file
is finished and synced before the next one exists, and the head and the name of a new file are durable before its first
record, so that whatever a crash leaves can be told from damage. After a failure nothing is ever written again: what the
disk holds is unknown then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from quvatlh.raft.disk import Disk, File, Lane, parent


@dataclass(slots=True)
class _Piece:
    path: str
    header: bytes | None
    """Of a file that this piece begins."""
    parts: list[bytes] = field(default_factory=list)


class LogWriter:
    """`take` is called as a job takes what waits, `done` on the loop once that is synced."""

    def __init__(
        self,
        disk: Disk,
        lane: Lane,
        path: str,
        *,
        take: Callable[[], None],
        done: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._disk = disk
        self._lane = lane
        self._take = take
        self._done = done
        self._failed = failed
        self._file: File | None = disk.append(path)
        self._queue = [_Piece(path, None)]
        self._tasks: set[asyncio.Task[None]] = set()
        self._rest = asyncio.Event()
        """Set while nothing is being written."""
        self._rest.set()
        self.stopped = False
        """Closed or failed: nothing more is taken."""

    def begin(self, path: str, header: bytes) -> None:
        """What is put from now on goes to a new file."""
        self._queue.append(_Piece(path, header))

    def put(self, head: bytes, payload: bytes) -> None:
        self._queue[-1].parts += (head, payload)

    def kick(self) -> None:
        """See to it that what waits is written."""
        if self._rest.is_set() and not self.stopped and self._waits():
            self._begin()

    def remove(self, paths: list[str]) -> None:
        """In this order, each gone for good before the next one goes."""
        if paths and not self.stopped:
            task = asyncio.get_running_loop().create_task(self._remove(paths))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Write what waits, then let go of the file. Whoever calls, and however often, all is done on return."""
        self.kick()
        while not self._rest.is_set():
            await self._rest.wait()
        while self._tasks:
            await asyncio.wait(self._tasks)
        self.stopped = True
        if self._file is not None:
            self._file.close()
            self._file = None

    def _waits(self) -> bool:
        return len(self._queue) > 1 or bool(self._queue[0].parts)

    def _begin(self) -> None:
        pieces, self._queue = self._queue, [_Piece(self._queue[-1].path, None)]
        self._rest.clear()
        self._take()
        self._lane.give(partial(self._write, pieces), self._written)

    def _written(self, failure: BaseException | None) -> None:
        """On the loop. No task comes between: an idle node's write is answered after one turn of the loop less."""
        self._rest.set()
        try:
            if failure is not None:
                raise failure
            self._done()
        except Exception as error:  # noqa: BLE001 - whatever it is, the disk is not to be trusted, and the owner stops
            self._give_up(error)
        self.kick()

    def _give_up(self, error: Exception) -> None:
        if not self.stopped:
            self.stopped = True
            self._failed(error)

    async def _remove(self, paths: list[str]) -> None:
        try:
            await self._lane.run(partial(self._remove_files, paths))
        except Exception as error:  # noqa: BLE001 - as in _written
            self._give_up(error)

    def _write(self, pieces: list[_Piece]) -> None:
        """On the lane."""
        for piece in pieces:
            if piece.header is not None:
                self._begin_file(piece.path, piece.header)
            assert self._file is not None
            if piece.parts:
                self._file.write(b"".join(piece.parts))
        assert self._file is not None
        self._file.sync()

    def _begin_file(self, path: str, header: bytes) -> None:
        assert self._file is not None
        self._file.sync()
        self._file.close()
        self._file = self._disk.create(path)
        self._file.write(header)
        self._file.sync()
        self._disk.sync_dir(parent(path))

    def _remove_files(self, paths: list[str]) -> None:
        """On the lane. Were a later name gone before an earlier one, the files left would not join."""
        for path in paths:
            self._disk.remove(path)
            self._disk.sync_dir(parent(path))
