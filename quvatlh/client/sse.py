"""Server-sent events from bytes, as far as a node uses them: id, event, data on one or more lines, comments. Pure."""

from __future__ import annotations

from dataclasses import dataclass

EVENT_BYTES_MAX = 8 * 1024 * 1024
"""Of one event that has not ended: beyond it, it is no stream of ours."""


@dataclass(frozen=True, slots=True)
class Frame:
    id: str
    """The last that was said, as the standard wants it."""
    kind: str
    data: str


class Parser:
    def __init__(self) -> None:
        self._tail = b""
        self._id = ""
        self._kind = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[Frame]:
        """The events that are complete now; ValueError when it cannot be a stream of events."""
        *lines, self._tail = (self._tail + chunk).split(b"\n")
        if len(self._tail) > EVENT_BYTES_MAX:
            raise ValueError("an event without end")
        frames = []
        for line in lines:
            frame = self._line(line.removesuffix(b"\r").decode())
            if frame is not None:
                frames.append(frame)
        return frames

    def _line(self, line: str) -> Frame | None:
        if not line:
            frame = Frame(self._id, self._kind or "message", "\n".join(self._data)) if self._data else None
            self._kind, self._data = "", []
            return frame
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            self._id = value
        elif name == "event":
            self._kind = value
        elif name == "data":
            self._data.append(value)
        return None
