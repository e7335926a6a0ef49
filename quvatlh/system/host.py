"""Which machine this is, as it says itself. Facts only; what follows from a changed machine is decided by who asks."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Sequence

MACHINE_ID_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")
BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"


def machine_id(files: Sequence[str] = MACHINE_ID_FILES, boot_id_file: str = BOOT_ID_FILE) -> str:
    """32 hex digits that no other machine has.

    Without a machine id one is derived from the boot id: it holds until the next boot, then the machine counts as
    another. That errs on the safe side: a copy is never taken for the original.
    """
    for path in files:
        found = _first_line(path)
        if found and found != "uninitialized":
            return _digest("machine", found)
    return _digest("boot", _first_line(boot_id_file) or host_name())


def host_name() -> str:
    return socket.gethostname()


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""


def _digest(kind: str, value: str) -> str:
    """A digest, since the id itself is meant to stay on the machine."""
    return hashlib.blake2b(f"quvatlh {kind} {value}".encode(), digest_size=16).hexdigest()


def is_root() -> bool:
    return os.geteuid() == 0
