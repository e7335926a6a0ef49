"""Frames between a node and the process of its policies: four bytes of length, then msgpack.

A request is [number, state, [job, ...]]. A job is [verb, source, first, second]: CHECK; JUDGE with task and the group's actions
by worker; ANNOUNCE with task and action. What comes back is a list, `told.Told` on the node's side:
[number, place of the first answer, answers, whether that was all, then of a birth alone: the signal that ended the cell
before, and the number and place of what it ran]. "All" may be before the end: what has no answer then is asked again. An
answer is [word, score, text, line, column].
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgpack

from quvatlh.policy.bounds import FRAME_BYTES_MAX

LENGTH: Final = struct.Struct("<I")
PLACE: Final = struct.Struct("<II")
"""In the shared page: number of the frame and place of the job that runs, counted from 1; two zeros: none does."""
PAGE_BYTES: Final = 4096

CHECK, JUDGE, ANNOUNCE = 0, 1, 2


class BadFrame(ValueError):
    """Not what the other end writes: the stream is lost."""


_packer = msgpack.Packer()


def packed(value: object) -> bytes:
    """TypeError, ValueError or OverflowError for what is no plain data."""
    body: bytes = _packer.pack(value)
    return body


def array(length: int) -> bytes:
    """The head of an array whose items follow, packed before."""
    head: bytes = _packer.pack_array_header(length)
    return head


def frame(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


def request(number: int, state: bytes, jobs: list[bytes]) -> bytes:
    """Of a state and jobs that are packed."""
    return frame(b"".join((array(3), packed(number), state, array(len(jobs)), *jobs)))


def unpacked(body: bytes) -> Any:
    try:
        return msgpack.unpackb(body, strict_map_key=False, ext_hook=_no_extension)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise BadFrame(str(error)) from error


def length_of(head: bytes) -> int:
    (length,) = LENGTH.unpack(head)
    if not 0 < length <= FRAME_BYTES_MAX:
        raise BadFrame(f"a frame of {length} bytes")
    return int(length)


def _no_extension(code: int, _data: bytes) -> None:
    """Nothing but plain data: anything else would be an object of Python within reach of Lua."""
    raise BadFrame(f"extension {code}")
