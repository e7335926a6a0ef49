"""kill -9 between, before and in the middle of transactions: index and content always agree, and no commit is forgotten.

The page cache survives a killed process, so every commit that was told must be there; what a power failure takes is
tested in test_statefile.py by leaving out the write-ahead file.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.register import RegisterMachine

WRITER = """
import sys
from quvatlh.ports import Entry
from tests.support.register import RegisterMachine, add, write

machine = RegisterMachine(sys.argv[1])
index = machine.applied_index
while True:
    machine.begin()
    for _ in range(1 + index % 4):
        index += 1
        machine.apply(Entry(index, 1, index, (write("last", index), add("all", index))))
    machine.commit()
    print(index, flush=True)
    if index % 50 == 0:
        machine.checkpoint()
"""


@pytest.mark.parametrize("seed", range(8))
def test_index_and_content_agree_after_kill_9(seed: int, tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    chance = random.Random(seed)
    told = 0
    for _ in range(2):
        told = max(told, killed_writer(path, chance.uniform(0.0, 0.1)))
        machine = RegisterMachine(path)
        index = machine.applied_index
        assert index >= told
        assert machine.read("last") == index
        assert machine.members("all") == set(range(1, index + 1))
        machine.close()


def killed_writer(path: str, after_s: float) -> int:
    """The last index that the writer has told before it was killed, `after_s` after its first commit."""
    with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        told = int(writer.stdout.readline())
        time.sleep(after_s)  # what is awaited is an instant of no meaning
        writer.send_signal(signal.SIGKILL)
        lines = writer.stdout.read().splitlines(keepends=True)
    return max([told, *(int(line) for line in lines if line.endswith("\n"))])
