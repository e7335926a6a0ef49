"""What `strace -f -ttt -T -y -xx` wrote, as calls: who, when it was entered, when it was back, on which file, with what bytes.

The tracer stops a thread at entry and at return of each call and goes on only after it has written that down: what stands
earlier in one file happened earlier, and so do times of different files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

TRACED = "fdatasync,fsync,write,writev,sendto,sendmsg"

_LINE = re.compile(r"(?P<pid>\d+) +(?P<at>\d+\.\d+) (?P<rest>.*)")
_BEGUN = re.compile(r"(?P<name>\w+)\((?P<fd>\d+)<(?P<file>.*?)>(?:, (?P<more>.*))?")
_RESUMED = re.compile(r"<\.\.\. (?P<name>\w+) resumed>(?P<more>.*)")
_BYTES = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_RESULT = re.compile(r"\) += (-?\d+)")


@dataclass(slots=True)
class Call:
    name: str
    fd: int
    file: str
    """Path, or kind and number of a socket."""
    entered: float
    data: bytes = b""
    """What was given to it, as far as it was taken."""
    returned: float = float("inf")
    result: int = -1


def calls_in(trace: Path) -> list[Call]:
    """In the order in which they were entered."""
    waiting: dict[str, Call] = {}
    calls: list[Call] = []
    for line in trace.read_text(errors="replace").splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        pid, at, rest = found["pid"], float(found["at"]), found["rest"]
        resumed = _RESUMED.match(rest)
        if resumed is not None:
            call = waiting.pop(pid, None)
            if call is not None:
                _finish(call, at, resumed["more"])
            continue
        begun = _BEGUN.match(rest)
        if begun is None:
            continue
        call = Call(begun["name"], int(begun["fd"]), _plain(begun["file"]).decode(), at)
        calls.append(call)
        call.data = b"".join(map(_plain, _BYTES.findall(rest)))
        if rest.endswith("<unfinished ...>"):
            waiting[pid] = call
        else:
            _finish(call, at + _duration(rest), rest)
    return calls


def _finish(call: Call, returned: float, rest: str) -> None:
    call.returned = returned
    result = _RESULT.search(rest)
    if result is not None:
        call.result = int(result[1])
        if call.data and call.result >= 0:
            call.data = call.data[: call.result]


def _duration(rest: str) -> float:
    """Of a call that nothing came between; of others the line that tells their return has its time."""
    found = re.search(r"<(\d+\.\d+)>$", rest)
    return 0.0 if found is None else float(found[1])


def _plain(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))
