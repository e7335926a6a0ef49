"""What a task is told by its environment, in a process of its own: as os.environ, C and started processes see it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, os, subprocess
from quvatlh.runner.inside import environ

libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
NAMES = ("TASK_ID", "ACTION_ID", "ATTEMPT", "FENCE", "WORKER", "PAYLOAD")


def seen(message):
    environ.tell(message)
    names = [f"QUVATLH_{name}" for name in NAMES]
    python = [os.environ.get(name) for name in names]
    c = [libc.getenv(name.encode()) for name in names]
    assert c == [None if each is None else os.fsencode(each) for each in python], (c, python)
    listing = subprocess.run(["env", "-0"], capture_output=True, check=True).stdout.split(b"\\0")
    for name, value in zip(names, c):
        found = [line for line in listing if line.startswith(name.encode() + b"=")]
        assert found == ([] if value is None else [name.encode() + b"=" + value]), (name, value, found)
    return python


def message(**more):
    return {"task": "t", "id": "a", "attempt": 1, "token": 7, "worker": "w", **more}
"""


def ran(body: str) -> str:
    done = subprocess.run([sys.executable, "-c", PROGRAM + body], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_task_is_told_its_own() -> None:
    ran("""
assert seen(message()) == ["t", "a", "1", "7", "w", None]
assert seen(message(task="a longer one", token=123456)) == ["a longer one", "a", "1", "123456", "w", None]
assert seen(message(task="s", attempt=2, payload="/p")) == ["s", "a", "2", "7", "w", "/p"]
assert seen(message()) == ["t", "a", "1", "7", "w", None]
assert seen(message(payload="/q")) == ["t", "a", "1", "7", "w", "/q"]
assert seen({"id": "b"}) == ["", "b", "1", "0", "", None]
for size in (511, 512, 513, 5000, 3, 20000):
    assert seen(message(worker="\\u20ac" * size))[4] == "\\u20ac" * size
""")


@pytest.mark.parametrize("did", ['os.environ["{}"] = "mine"', 'os.environ.pop("{}")', 'os.environ["{}"] = "1"'])
def test_what_the_task_before_did_to_them_is_over(did: str) -> None:
    ran(f"""
seen(message())
for name in NAMES[:-1]:
    {did.format('QUVATLH_" + name + "')}
assert seen(message()) == ["t", "a", "1", "7", "w", None]
assert seen(message(attempt=2)) == ["t", "a", "2", "7", "w", None]
""")


def test_a_child_does_not_grow_by_what_it_tells() -> None:
    """By 340 bytes a task, before these had places of their own."""
    grown = ran("""
def size():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def tell(first):
    for number in range(first, first + 20_000):
        environ.tell(message(task=f"{number:036}", id=f"{number:036}", token=number, payload=f"/{number:036}"))

tell(0)
before = size()
tell(20_000)
print(size() - before)
""")
    assert int(grown) < 1_000_000
