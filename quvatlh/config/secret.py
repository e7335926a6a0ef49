"""Secrets, read from their files. What they prove, and how, is the business of who has them read."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from quvatlh.config.faults import ConfigError, Fault

SECRET_BYTES_MAX = 4096
"""More is surely the wrong file."""
SECRET_BYTES_ADVISED = 16
"""Below it, a recorded handshake can be tried against guesses."""

PATH = "peer.secret_file"


class Secret(NamedTuple):
    value: bytes
    """Without the white space around it, which editors add."""
    warnings: tuple[str, ...]
    """What should be better; for the log. Never holds the secret."""

    def __repr__(self) -> str:
        return "Secret(...)"


def read_secret(path: str, key: str = PATH) -> Secret:
    """ConfigError when there is none to be had."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            value = file.read(SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError([Fault(key, f"cannot be read: {error.strerror}", path)]) from error
    if len(value) > SECRET_BYTES_MAX:
        raise ConfigError([Fault(key, f"holds more than {SECRET_BYTES_MAX} bytes: not a secret", path)])
    value = value.strip()
    if not value:
        raise ConfigError([Fault(key, "is empty", path)])
    return Secret(value, tuple(_warnings(value, mode)))


def _warnings(value: bytes, mode: int) -> list[str]:
    warnings = []
    if mode & stat.S_IROTH:
        warnings.append("the secret file can be read by everyone on this machine: chmod 600")
    if len(value) < SECRET_BYTES_ADVISED:
        warnings.append(f"the secret is shorter than {SECRET_BYTES_ADVISED} bytes and can be guessed")
    return warnings
