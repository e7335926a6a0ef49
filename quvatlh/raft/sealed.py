"""Small files that are replaced as a whole, and say so when they are damaged.

One line names kind, format version and CRC32, the next holds JSON, so that a person can read them with `cat`. The first
line stays as it is in every later format. What the fields mean is known to the owners: ballot.py and datadir.py.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from quvatlh.raft.disk import Disk, replace_file
from quvatlh.raft.settings import FORMAT_VERSION


class Damaged(Exception):
    """The bytes are not those that were written."""


class NewerFormat(Exception):
    """Written by a later version of this program: not to be touched by this one."""

    def __init__(self, path: str, version: int) -> None:
        super().__init__(
            f"{path} has format {version}, this program knows formats up to {FORMAT_VERSION}: "
            "run the version of quvatlh that wrote it, or a later one"
        )
        self.path = path


def write(disk: Disk, path: str, kind: str, fields: Mapping[str, Any]) -> None:
    """Durable on return."""
    body = json.dumps(fields, sort_keys=True)
    line = f"quvatlh-{kind} {FORMAT_VERSION}"
    replace_file(disk, path, f"{line} {_crc(line, body)}\n{body}\n".encode())


def read(disk: Disk, path: str, kind: str) -> dict[str, Any]:
    """The fields; Damaged, NewerFormat, or FileNotFoundError."""
    try:
        first, body, end = disk.read(path).decode().split("\n")
        name, version, crc = first.split(" ")
        number = int(version)
    except ValueError:
        raise Damaged(f"{path} is not a file of this kind, or only a part of one") from None
    if number > FORMAT_VERSION:
        raise NewerFormat(path, number)
    if end or name != f"quvatlh-{kind}" or crc != _crc(f"{name} {version}", body):
        raise Damaged(f"{path} does not match its checksum")
    fields = json.loads(body)
    assert isinstance(fields, dict)
    return fields


def _crc(line: str, body: str) -> str:
    return f"{zlib.crc32(f'{line}{chr(10)}{body}'.encode()):08x}"
