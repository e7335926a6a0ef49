"""What is wrong with a configuration, and where: all of it at once, so that one run shows every mistake."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    path: str
    """The key, dotted: `peer.secret_file`. Empty when the whole source is at fault."""
    message: str
    source: str = ""
    """File, environment variable or flag that the value came from; empty for a value that nobody gave."""

    def __str__(self) -> str:
        where = f" ({self.source})" if self.source else ""
        return f"{self.path or 'configuration'}: {self.message}{where}"


class ConfigError(Exception):
    """The configuration was not taken; nothing was started."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = tuple(faults)
