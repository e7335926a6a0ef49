"""Why an environment cannot be had now: for the calls that ask for it, and in the executor's own log."""

from __future__ import annotations

import sys
from typing import Final

from quvatlh.ports import RunError
from quvatlh.runner.pools.call import CallRun

NOTE_S: Final = 60.0
"""Between two lines of an environment in that log, which has no bound of its own."""


class Refusal:
    def __init__(self) -> None:
        self.until_s = 0.0
        self.text = ""
        self._words = ""
        """The end of what a process has written that did not become ready."""
        self._noted_s: float | None = None

    def begin(self, text: str, words: str, now_s: float, for_s: float) -> None:
        self.text, self._words, self.until_s = text, words, now_s + for_s
        if text and (self._noted_s is None or now_s - self._noted_s >= NOTE_S):
            self._noted_s = now_s
            sys.stderr.write("\n".join(filter(None, (text, words.rstrip()))) + "\n")
            sys.stderr.flush()

    def told_to(self, run: CallRun) -> RunError:
        if self._words:
            run.wrote("stderr", self._words.encode())
        return RunError("environment", self.text)
