"""The ends of an action's outputs as they travel with its finish: both streams, and how much each was in all.

A stream whose tail has all its bytes is whole here, and needs nobody to be asked. What is no such record (a worker of
another kind reports plain text) is the end of its standard output.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from quvatlh.core.limits import OUTPUT_HEAD_BYTES, OUTPUT_TAIL_BYTES_MAX
from quvatlh.ports import ActionFinished, StreamName

REPLACED = "\N{REPLACEMENT CHARACTER}".encode()
"""Stands for bytes that were no text: where there is one, what is kept has another length than what was written."""
_ROOM_BYTES: Final = OUTPUT_TAIL_BYTES_MAX - OUTPUT_HEAD_BYTES


class Tails(NamedTuple):
    stdout_bytes: int
    stderr_bytes: int
    stdout: str
    stderr: str

    def of(self, stream: StreamName) -> bytes:
        return (self.stdout if stream == "stdout" else self.stderr).encode()

    def is_whole(self, stream: StreamName) -> bool:
        return self.bytes_all(stream) == len(self.of(stream))

    def start(self, stream: StreamName) -> int:
        """The offset of its first byte in all that was written."""
        return max(0, self.bytes_all(stream) - len(self.of(stream)))

    def since(self, stream: StreamName, offset: int) -> bytes | None:
        """All that was written from the offset on; None where that is more than is kept here."""
        kept = self.of(stream)
        if offset >= self.bytes_all(stream):
            return b""
        if offset < self.start(stream) or (REPLACED in kept and not self.is_whole(stream)):
            return None
        return kept[offset - self.start(stream) :]

    def bytes_all(self, stream: StreamName) -> int:
        return self.stdout_bytes if stream == "stdout" else self.stderr_bytes

    @property
    def text(self) -> str:
        """For people who want one text."""
        return self.stdout + self.stderr


NOTHING = Tails(0, 0, "", "")
_DECODER: msgspec.msgpack.Decoder[tuple[int, int, str, str]] = msgspec.msgpack.Decoder(tuple[int, int, str, str])


def pack(event: ActionFinished) -> bytes:
    """At most OUTPUT_TAIL_BYTES_MAX; nothing of nothing. Half for each, and what one does not need is the other's."""
    if not event.stdout_bytes and not event.stderr_bytes:
        return b""
    stderr = _last(event.stderr_tail, max(_ROOM_BYTES // 2, _ROOM_BYTES - len(event.stdout_tail.encode())))
    stdout = _last(event.stdout_tail, _ROOM_BYTES - len(stderr.encode()))
    return msgspec.msgpack.encode((event.stdout_bytes, event.stderr_bytes, stdout, stderr))


def of_text(text: str) -> bytes:
    """Of whoever tells only the end of what it wrote, as one text."""
    if not text:
        return b""
    return msgspec.msgpack.encode((len(text.encode()), 0, _last(text, _ROOM_BYTES), ""))


def unpack(data: bytes | None) -> Tails:
    if not data:
        return NOTHING
    try:
        return Tails(*_DECODER.decode(data))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Tails(len(data), 0, data.decode(errors="replace"), "")


def _last(text: str, bytes_max: int) -> str:
    data = text.encode()
    return text if len(data) <= bytes_max else data[len(data) - bytes_max :].decode(errors="ignore")
