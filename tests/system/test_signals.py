from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from quvatlh.system.signals import StopSignals

CHILD = """
import asyncio
from quvatlh.system.signals import StopSignals

async def main():
    with StopSignals() as stop:
        print("ready", flush=True)
        print((await stop.wait()).name, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_is_a_wish_heard_even_before_it_is_waited_for(which: signal.Signals) -> None:
    with StopSignals() as stop:
        os.kill(os.getpid(), which)
        assert await stop.wait() is which
        assert await stop.wait() is which
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_second_signal_ends_the_process() -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGTERM)
        assert child.stdout.readline() == "SIGTERM\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=60) == -signal.SIGTERM


async def test_signals_are_waited_for_only_while_caught() -> None:
    with pytest.raises(RuntimeError):
        await StopSignals().wait()
