"""What the tests of calls call. Found by its directory being the environment's: it knows no test."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone, tzinfo
from typing import Any, BinaryIO, NoReturn

from quvatlh.task import Cancelled, Context, Packed, PermanentFailure, Retry, current

HEAP: list[bytes] = []


def noop() -> None: ...


def add(left: int, right: int = 1) -> int:
    return left + right


def whose() -> list[object]:
    task = current()
    payload = None if task.payload is None else task.payload.decode()
    return [task.task, task.action, task.attempt, task.token, task.worker, payload, os.environ["QUVATLH_FENCE"]]


def pid() -> int:
    return os.getpid()


def short_pid() -> int:
    """In a moment: others stand behind it meanwhile."""
    time.sleep(0.002)
    return os.getpid()


async def shared_pid() -> int:
    await asyncio.sleep(0)
    return os.getpid()


def speak(word: str) -> None:
    print(word, "printed")
    print(word, "complained", file=sys.stderr)
    logging.getLogger("jobs").warning("%s logged", word)
    current().log(word, "noted")
    os.system(f"echo {word} from a shell")
    os.write(1, f"{word} from below\n".encode())


buffers: list[BinaryIO] = []


def keep_buffer() -> None:
    buffers.append(sys.stdout.buffer)


def fill_buffer(word: str) -> None:
    """By what was kept of a call before, and without the end of a line."""
    buffers[0].write(word.encode())


def mutter(word: str) -> None:
    sys.stdout.write(word)


async def murmur(word: str, times: int = 20) -> None:
    for _ in range(times):
        print(word)
        logging.getLogger("jobs").warning(word)
        await asyncio.sleep(0.001)


def broken() -> NoReturn:
    raise ValueError("no good")


def later() -> NoReturn:
    raise Retry("not yet", after=7)


def never() -> NoReturn:
    raise PermanentFailure("not at all")


def leaves() -> NoReturn:
    sys.exit(4)


def segfault() -> None:
    ctypes.string_at(0)


def vanish() -> NoReturn:
    os._exit(3)


def spin() -> NoReturn:
    while True:
        pass


def deaf() -> NoReturn:
    while True:
        try:
            while True:
                time.sleep(60)
        except Cancelled:
            pass


def rest(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def waits(path: str) -> None:
    """Until it is there."""
    while not os.path.exists(path):
        time.sleep(0.005)


def writes(path: str, seconds: float) -> None:
    time.sleep(seconds)
    with open(path, "a") as file:
        file.write("x")


def tidy(path: str) -> NoReturn:
    try:
        current().progress(0, "begun")
        while True:
            time.sleep(60)
    except Cancelled:
        with open(path, "w") as file:
            file.write("tidied")
        raise


def looks() -> str:
    while not current().cancelled:
        sum(range(1000))
    return "seen"


async def nap(seconds: float = 0.01) -> float:
    await asyncio.sleep(seconds)
    return seconds


async def dozes(path: str) -> None:
    """Until it is there."""
    while not os.path.exists(path):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.005)


async def crash_when(others: int) -> None:
    """Once so many run beside it."""
    while len(asyncio.all_tasks()) <= others:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.001)
    os._exit(9)


async def blocks() -> NoReturn:
    while True:
        pass


def steps() -> None:
    for percent in (10, 60, 100):
        current().progress(percent, f"{percent} done")
        time.sleep(0.12)


def shapeless() -> object:
    return object()


def mixed(size: int) -> list[object]:
    """What JSON has no form for."""
    return [float("inf"), {b"k": b"\0\xff" * size}, datetime(2026, 1, 2, tzinfo=timezone.utc)]  # noqa: UP017 - Python 3.9


def naive() -> list[object]:
    return [b"", {"when": datetime(2026, 1, 2)}]  # noqa: DTZ001 - that is the point


class Unwritable(dict[str, int]):
    def items(self) -> NoReturn:
        raise RuntimeError("not these")


def unwritable() -> dict[str, int]:
    return Unwritable(a=1)


def nowhen() -> datetime:
    class Zone(tzinfo):
        def utcoffset(self, _when: datetime | None) -> NoReturn:
            raise LookupError("no such place")

    return datetime(2026, 1, 2, tzinfo=Zone())  # type: ignore[abstract]


def torn(text: str) -> list[str]:
    return [text, text.encode().decode("ascii", "surrogateescape")]


def wide() -> str:
    return "\U0001f4a1"


def mispacked() -> Packed:
    return Packed("no bytes")  # type: ignore[arg-type]


def large(size: int) -> str:
    return "x" * size


def leaks() -> int:
    """A process that outlives the call, in a session of its own."""
    return subprocess.Popen(["sleep", "1000"], start_new_session=True).pid


def keeps(path: str) -> None:
    """A process in a session of its own, for as long as the call goes on."""
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    with open(f"{path}.new", "w") as file:
        file.write(str(process.pid))
    os.rename(f"{path}.new", path)
    process.wait()


def grows(megabytes: int) -> int:
    HEAP.append(b"x" * (megabytes * 1_000_000))
    return os.getpid()


def babble() -> None:
    """Onto every descriptor that is open."""
    for fd in range(3, 30):
        with contextlib.suppress(OSError):
            os.write(fd, b"this is no message\n")


def surroundings() -> list[Any]:
    import resource

    return [os.getcwd(), os.environ.get("A"), sys.stdin.read(), resource.getrlimit(resource.RLIMIT_NOFILE)[0]]


def descriptors() -> list[str]:
    found = []
    for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{fd}").split(":")[0])
    return found


class Wrapped:
    """As a library wraps a function."""

    def __quvatlh_run__(self, word: str) -> str:
        context: Context = current()
        return f"{word} in {context.task}"


wrapped = Wrapped()


def marks(path: str) -> NoReturn:
    """Says that it is alive for as long as it is."""
    while True:
        with open(path, "a") as file:
            file.write("beat\n")
        time.sleep(0.01)


def forks(then: str) -> str:
    """The copy falls out of the task, before the task itself does."""
    pid = os.fork()
    if pid == 0:
        if then == "raises":
            raise ValueError("in the copy")
        return "copy"
    os.waitpid(pid, 0)
    return "original"


async def async_forks(then: str) -> str:
    await asyncio.sleep(0)
    return forks(then)


def forks_and_speaks() -> int:
    """What a copy may do, and how it ends by what it is sent."""
    heard, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        current().progress(50, "not told")
        current().log("noted by the copy")
        os.write(told, b"x")
        while not current().cancelled:
            time.sleep(0.01)
    os.read(heard, 1)
    current().progress(1, "told")
    os.kill(pid, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def starts(path: str, then: str) -> int:
    """A process that outlives the call, unless it is waited for."""
    process = await asyncio.create_subprocess_exec("sleep", "1000")
    with open(f"{path}.new", "w") as file:
        file.write(str(process.pid))
    os.rename(f"{path}.new", path)
    current().progress(0, "begun")
    if then == "waits":
        await process.wait()
    elif then == "ends it":
        process.terminate()
        await process.wait()
    elif then == "fails":
        raise ValueError("no good")
    return process.pid


async def leaves_late(path: str) -> int:
    """A process, once there is that file; nobody else in this process goes on before."""
    process = await asyncio.create_subprocess_exec("sleep", "1000")
    current().progress(0, "begun")
    waits(path)
    return process.pid


async def forks_a_worker(word: str) -> None:
    """As a pool of processes does for code that blocks."""
    pid = os.fork()
    if pid == 0:
        print(word, "printed by the copy", flush=True)
        os._exit(0)
    os.waitpid(pid, 0)  # noqa: ASYNC222 - nobody else is there
