"""The protocol of warm processes, version 1: a line of JSON each way. DESIGN.md says what a process has to do.

To it: run, stop. From it: ready, result, error, progress, output, refused.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final

import msgspec

from quvatlh.core.limits import LARGE_RESULT_BYTES_MAX, PACKED_RESULT, TIME_MS_MAX
from quvatlh.ports import ActionSpec

VERSION: Final = 1
LINE_BYTES_MAX: Final = 32 * 1024 * 1024
"""A result of 16 MiB, escaped as badly as it can be."""
BUILT_BYTES_MAX: Final = 64 * 1024
"""Of a result in msgpack that is built to see that it can be. Where each byte is a list, 16 MiB are a gigabyte and seconds: such
a one is walked through, which finds what is torn, and not a text that is no UTF-8 or a time that there is not."""


class Run(msgspec.Struct, tag="run"):
    id: str
    call: str
    args: msgspec.Raw
    kwargs: msgspec.Raw
    task: str
    attempt: int
    token: int
    worker: str
    payload: str | None = None
    """Path of a file with the task's payload."""
    timeout: float | None = None
    """Seconds; for its information, since the executor counts."""


class Said(msgspec.Struct):
    """Any message from a process; what it does not know of a newer version is no fault."""

    type: str
    id: str = ""
    version: int = 0
    value: msgspec.Raw = msgspec.Raw()
    began: Annotated[float, msgspec.Meta(ge=0, le=TIME_MS_MAX)] = 0
    """By its clock; 0: when it was sent."""
    ms: float | None = None
    """How long it ran."""
    drained: int = 0
    """By the monotonic clock, in nanoseconds: what is written beside the protocol after this is of the next call."""
    shared: bool = False
    """It ran beside others."""
    leaving: bool = False
    """The process ends after this: what it has not begun is free again."""
    class_: str | None = msgspec.field(name="class", default="")
    text: str | None = ""
    trace: str | None = ""
    permanent: bool = False
    unfit: bool = False
    """What was asked for cannot be called: it does not exist, or not with these arguments."""
    stopped: bool = False
    """It ended because it was told to."""
    after: float | None = None
    percent: float | None = None
    stream: str = "stdout"
    data: str | None = None
    """Base64, in place of text."""
    packed: str | None = None
    """Of a result: base64 of msgpack, in place of a value."""


class TooLarge(ValueError):
    """A result that is more than anybody keeps."""


class Garbage(ValueError):
    """What was said is no message."""


_DECODER: Final = msgspec.json.Decoder(Said)
_ENCODER: Final = msgspec.json.Encoder()
_NOTHING: Final = (b"[]", b"{}")
STOP: Final = b'{"type":"stop"}\n'


def run(spec: ActionSpec, payload: str | None) -> bytes:
    call = spec.work.call
    assert call is not None
    message = Run(
        spec.id, call.target, msgspec.Raw(call.args), msgspec.Raw(call.kwargs), spec.task_id, spec.attempt, spec.fence,
        spec.worker, payload, spec.timeout_s,
    )  # fmt: skip
    return _ENCODER.encode(message) + b"\n"


def stop(action_id: str) -> bytes:
    return _ENCODER.encode({"type": "stop", "id": action_id}) + b"\n"


def recall(action_id: str) -> bytes:
    """Of calls that stand behind others, which only our own children have: answered by `recalled`, unless it has begun."""
    return _ENCODER.encode({"type": "recall", "id": action_id}) + b"\n"


def read(line: bytes) -> Said:
    try:
        return _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        shown = line[:80].decode("utf-8", "replace")
        raise Garbage(f"wrote what is no message to its protocol channel: {shown!r} ({error})") from None


def written(said: Said) -> bytes:
    """The bytes of an `output`."""
    if said.data is None:
        return (said.text or "").encode("utf-8", "replace")
    try:
        return base64.b64decode(said.data, validate=True)
    except (binascii.Error, ValueError):
        raise Garbage("sent output that is no base64") from None


def value(said: Said) -> bytes | None:
    """The result as JSON that everybody can read; or, behind its mark, in msgpack that everybody can. Or TooLarge."""
    if said.packed is not None:
        return PACKED_RESULT + _bounded(_packed(said.packed))
    if not said.value:
        return None
    try:
        plain = msgspec.json.decode(said.value)
        found = None if plain is None else msgspec.json.encode(plain)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise Garbage(f"returned what others could not read: {error}") from None

    return None if found is None else _bounded(found)


def _bounded(result: bytes) -> bytes:
    if len(result) > LARGE_RESULT_BYTES_MAX:
        raise TooLarge(
            f"what it returned has {len(result)} bytes; at most {LARGE_RESULT_BYTES_MAX}, the rest belongs into a file"
        )
    return result


_BUILD: Final = msgspec.msgpack.Decoder().decode
_WALK: Final = msgspec.msgpack.Decoder(msgspec.Raw).decode


def _packed(given: str) -> bytes:
    try:
        data = base64.b64decode(given, validate=True)
        (_BUILD if len(data) <= BUILT_BYTES_MAX else _WALK)(data)
    except (ValueError, TypeError, msgspec.MsgspecError, RecursionError) as error:
        raise Garbage(f"returned what others could not read: {error}") from None
    return data
