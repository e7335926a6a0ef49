"""Log entries and their answers as bytes: a version byte, then msgpack of the types of core, and nothing else.

Every type of core says by itself how it is written (arrays with fields at the end, maps without defaults), so there is no
second description to keep in step. Here are versions, and what becomes of bytes that are none of ours.
"""

from __future__ import annotations

from quvatlh.codec.values import VERSION, Unreadable, Values

__all__ = ["VERSION", "Unreadable", "Values"]
