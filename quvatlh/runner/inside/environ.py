"""What a task is told by its environment, and with it each process that it starts.

setenv never gives back what it was told once, a hundred bytes a variable: a child that runs a million tasks would grow by
hundreds of megabytes. So each of these variables has a place of its own, which the system is told of once and which is
written anew for each task. Standard library only, Python 3.9 or newer.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

ROOM = 512
_ENCODING = sys.getfilesystemencoding()
_ENVIRON: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]  # noqa: SLF001 - os.environ itself would call setenv
_LIBC: Any = ctypes.CDLL(None)


class Variable:
    def __init__(self, name: str) -> None:
        self._name = name.encode()
        self._places: list[Any] = []
        """The last one counts. Those before stay: somebody may look at them, and together they are no larger."""
        self._room = memoryview(b"")
        """For the value in it."""
        self._value = b""

    def tell(self, text: str) -> None:
        value = text.encode(_ENCODING, "surrogateescape")
        stands = _ENVIRON.get(self._name)
        if stands is self._value and value == stands:
            return
        if len(value) >= len(self._room):
            self._make(len(value))
            stands = None
        self._room[: len(value) + 1] = value + b"\0"
        # For the first time; or the task before has set it, or taken it away. Of one byte there are no two objects.
        if stands is None or stands is not self._value or len(stands) < 2:
            _LIBC.putenv(self._places[-1])
        self._value = _ENVIRON[self._name] = value

    def withdraw(self) -> None:
        if self._name in _ENVIRON:
            del os.environ[self._name.decode()]

    def _make(self, size: int) -> None:
        head = self._name + b"="
        place = ctypes.create_string_buffer(head, len(head) + max(ROOM, 2 * size))
        self._places.append(place)
        self._room = memoryview(place).cast("B")[len(head) :]


TASK, ACTION, ATTEMPT = Variable("QUVATLH_TASK_ID"), Variable("QUVATLH_ACTION_ID"), Variable("QUVATLH_ATTEMPT")
FENCE, WORKER, PAYLOAD = Variable("QUVATLH_FENCE"), Variable("QUVATLH_WORKER"), Variable("QUVATLH_PAYLOAD")


def tell(message: dict[str, Any]) -> None:
    TASK.tell(message.get("task", ""))
    ACTION.tell(message["id"])
    ATTEMPT.tell(str(message.get("attempt", 1)))
    FENCE.tell(str(message.get("token", 0)))
    WORKER.tell(message.get("worker", ""))
    payload = message.get("payload")
    if payload is None:
        PAYLOAD.withdraw()
    else:
        PAYLOAD.tell(payload)
