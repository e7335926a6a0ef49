"""The end of a stream in memory, and as clean text for the record."""

from __future__ import annotations

from quvatlh.core.limits import OUTPUT_SHORT_BYTES_MAX
from quvatlh.runner.settings import TAIL_BYTES

_LONGEST_CHARACTER = 4


class Tail:
    """The last TAIL_BYTES of what was added."""

    __slots__ = ("_bytes", "total")

    def __init__(self) -> None:
        self._bytes = b""
        self.total = 0
        """Everything ever added."""

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self._bytes = (self._bytes + data if len(data) < TAIL_BYTES else data)[-TAIL_BYTES:]

    def text(self) -> str:
        """Valid Unicode without zero characters; a character that the cut split is left out, not mangled."""
        return clean(self._bytes, cut=self.total > len(self._bytes))


def clean(data: bytes, *, cut: bool) -> str:
    """`cut`: something stood before, so that the first bytes may be the rest of a character."""
    if cut:
        data = data[_rest_of_character(data) :]
    return data.decode("utf-8", "replace").replace("\x00", "\N{REPLACEMENT CHARACTER}")


def fits(data: bytes) -> bool:
    """Whether the record says all of it: its share is enough whatever the other has, and it is clean text as it stands."""
    if len(data) > OUTPUT_SHORT_BYTES_MAX or 0 in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def last(text: str, size: int) -> str:
    """The end of a text in at most `size` bytes of UTF-8, whole characters."""
    data = text.encode()
    if len(data) <= size:
        return text
    data = data[len(data) - size :]
    return data[_rest_of_character(data) :].decode()


def share(stdout: str, stderr: str, size: int = TAIL_BYTES) -> tuple[str, str]:
    """Both in `size` bytes: half for each, and what one does not need is the other's."""
    half = size // 2
    for_stderr = max(half, size - len(stdout.encode()))
    kept = last(stderr, for_stderr)
    return last(stdout, size - len(kept.encode())), kept


def _rest_of_character(data: bytes) -> int:
    """How many bytes at the start continue a character that began before."""
    count = 0
    while count < min(_LONGEST_CHARACTER - 1, len(data)) and data[count] & 0xC0 == 0x80:
        count += 1
    return count
