"""What the exit status of every command means. Scripts rely on it: a number is never given another meaning."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    DONE = 0
    REJECTED = 1
    """Certainly not done, and asking again changes nothing."""
    USAGE = 2
    """The command line or the configuration is wrong."""
    UNAVAILABLE = 3
    """Certainly not done; asking again later may help."""
    UNKNOWN = 4
    """It may have happened."""
    TASK_FAILED = 5
    """The task that was waited for has failed."""
