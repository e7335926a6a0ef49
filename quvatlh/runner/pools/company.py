"""The processes that a warm process has around it, read from /proc: whether a call has left any.

What was there when it said `ready` is its own matter: helpers that it keeps for as long as it lives. What is there after a
call and was not then, is the call's. Not seen: what is started by a process that is neither the program nor of those
that came with its command, as long as that one lives; and what has left the session, lost its parent and cleaned its
environment.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator

from quvatlh.runner import tree

Process = tuple[int, bytes]
"""With its time of birth, since numbers come again."""


class Company:
    def __init__(self, pid: int, server: int, mark: str, others: Collection[int]) -> None:
        """Of a process that has said `ready`. `others`: children of its server that are no orphans."""
        self._pid = pid
        self._server = server
        self._mark = mark.encode()
        self.programs = [pid, *_on_the_same_input(pid)]
        """Itself, and what stands behind it."""
        self._first = set(self._now(others))

    def has_grown(self, others: Collection[int]) -> bool:
        return any(each not in self._first for each in self._now(others))

    def _now(self, others: Collection[int]) -> Iterator[Process]:
        for program in self.programs:
            for pid in tree.children_of(program):
                yield from _living(pid)
        for pid in tree.children_of(self._server):
            if pid not in others and pid != self._pid and self._is_orphan_of_it(pid):
                yield from _living(pid)

    def _is_orphan_of_it(self, pid: int) -> bool:
        return tree.session_of(pid) == self._pid or tree.has_in_environment(pid, self._mark)


def _on_the_same_input(pid: int) -> Iterator[int]:
    """A shell or `bundle exec` may stand before the program, which then has the protocol's pipe from it, by whatever number."""
    wanted = _file(f"/proc/{pid}/fd/0")
    waiting = tree.children_of(pid) if wanted else []
    while waiting:
        found = waiting.pop()
        if wanted in _files(found):
            yield found
            waiting += tree.children_of(found)


def _files(pid: int) -> Iterator[str | None]:
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            yield _file(f"/proc/{pid}/fd/{fd}")


def _file(path: str) -> str | None:
    with contextlib.suppress(OSError):
        return os.readlink(path)
    return None


def _living(pid: int) -> Iterator[Process]:
    """Itself, unless it has ended or is about to."""
    born = tree.born(pid)
    if born is not None:
        yield pid, born
