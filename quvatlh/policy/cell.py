"""The process of the policies. A warden that has loaded everything forks a cell; the cell answers; when a policy ends it,
the warden forks the next. No start of an interpreter stands between a hostile policy and the questions after it.

Both hold the one socket. Only a cell reads and writes it; the page that is shared with the node says which question runs, so
that nobody has to guess which one it was.
"""

from __future__ import annotations

import gc
import mmap
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from quvatlh.policy import frames
from quvatlh.policy.bounds import CPU_S, FLUSH_S, SLICE_S
from quvatlh.policy.frames import PLACE
from quvatlh.policy.lua import Answer, Meter, Policies

_OfGroup = Callable[[dict[str, int]], None]

BAD: Final = 1
IDLE_DEATH: Final = 2


def main(socket_fd: int, page_fd: int, announcement_bytes_max: int) -> None:
    """The warden: returns when the node has closed its end, exits when the stream or the machine is not to be trusted."""
    line = socket.socket(fileno=socket_fd)
    page = mmap.mmap(page_fd, frames.PAGE_BYTES)
    _give_up_powers()
    gc.collect()
    gc.freeze()
    before = (0, 0, 0)
    while True:
        pid = os.fork()
        if pid == 0:
            os._exit(_cell(line, page, before, announcement_bytes_max))
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status):
            sys.exit(os.WEXITSTATUS(status))
        number, place = PLACE.unpack_from(page)
        if place == 0:
            sys.exit(IDLE_DEATH)
        before = (os.WTERMSIG(status), number, place)


def _give_up_powers() -> None:
    """It needs no files, and leaves no core: a second wall, should Lua itself have a hole."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))


def _cell(line: socket.socket, page: mmap.mmap, before: tuple[int, int, int], announcement_bytes_max: int) -> int:
    """`before`: the signal that ended the one before, and what that one ran."""
    cell = _Cell(line, page, announcement_bytes_max)
    try:
        cell.tell(0, 0, [], *before, is_all=True)
        while (request := _read(line)) is not None:
            cell.serve(*request)
        return 0
    except (OSError, frames.BadFrame):
        return BAD


def _read(line: socket.socket) -> Any:
    """A frame; None at the end of the stream. Not a byte more than the frame is taken: the next is the next cell's."""
    head = _exactly(line, frames.LENGTH.size)
    return None if head is None else frames.unpacked(_exactly(line, frames.length_of(head)) or b"")


def _exactly(line: socket.socket, size: int) -> bytes | None:
    data = line.recv(size, socket.MSG_WAITALL)
    while 0 < len(data) < size:  # a signal came between
        more = line.recv(size - len(data), socket.MSG_WAITALL)
        if not more:
            raise frames.BadFrame("the stream ends within a frame")
        data += more
    return data or None


class _Cell:
    def __init__(self, line: socket.socket, page: mmap.mmap, announcement_bytes_max: int) -> None:
        self._line = line
        self._page = page
        self._announcement_bytes_max = announcement_bytes_max
        self._policies = Policies(Meter(_begin, _end))

    def serve(self, number: int, state: dict[str, Any], jobs: Sequence[Sequence[Any]]) -> None:
        """Answer one job after the other; send what is there before anyone waits long for it; give way after a slice."""
        began = flushed = time.monotonic()
        first, answers = 0, []
        of_group = _groups(state)
        for place, job in enumerate(jobs, 1):
            PLACE.pack_into(self._page, 0, number, place)
            answers.append(self._answer(of_group, state, *job))
            PLACE.pack_into(self._page, 0, 0, 0)
            now = time.monotonic()
            if now - began > SLICE_S:
                break
            if now - flushed > FLUSH_S:
                self.tell(number, first, answers, is_all=False)
                first, answers, flushed = place, [], now
        self.tell(number, first, answers, is_all=True)

    def tell(self, number: int, first: int, answers: list[Answer], *before: int, is_all: bool) -> None:
        self._line.sendall(frames.frame(frames.packed((number, first, answers, is_all, *before))))

    def _answer(
        self, of_group: _OfGroup, state: dict[str, Any], verb: int, source: str, first: Any, second: Any
    ) -> Answer:
        if verb == frames.CHECK:
            return self._policies.check(source)
        if verb == frames.ANNOUNCE:
            return self._policies.announce(source, state, first, second, self._announcement_bytes_max)
        of_group(second)
        return self._policies.judge(source, state, first)


def _groups(state: dict[str, Any]) -> _OfGroup:
    """Sets the actions of the group that a question is about; a question that names none has those of the state."""
    cluster = state.setdefault("cluster", {})
    if not isinstance(cluster, dict):  # a state that somebody wrote down
        return lambda _group: None
    own = cluster.get("group", {})

    def of_group(group: dict[str, int]) -> None:
        cluster["group"] = group or own

    return of_group


def _begin() -> None:
    signal.setitimer(signal.ITIMER_PROF, CPU_S)


def _end() -> None:
    signal.setitimer(signal.ITIMER_PROF, 0.0)
