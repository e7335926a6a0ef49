"""Measured, never asserted: each module is a command of its own, `python -m tests.bench.NAME`."""

import atexit
import shutil

from tests.bytecode import directory_of_its_own

if _made := directory_of_its_own():
    atexit.register(shutil.rmtree, _made, ignore_errors=True)
