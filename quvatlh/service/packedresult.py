"""A result in msgpack, and what of it can be shown where everything is JSON."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from quvatlh.service.depths import is_deeper

LEVELS_MAX: Final = 64
"""Of one that is shown: it stands within what else is told of its task."""


class PackedResult(NamedTuple):
    data: bytes
    """As it is in the record."""

    def shown(self) -> Any:
        """As JSON has it: bytes as base64, times and keys as text, null for NaN and infinities; None where it has nothing."""
        try:
            value = msgspec.msgpack.decode(self.data)
            if is_deeper(value, LEVELS_MAX):
                return None
            return msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(value, str_keys=True)))
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
            return None
