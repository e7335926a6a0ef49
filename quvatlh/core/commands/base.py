"""What all verbs are made of."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from quvatlh.core import limits
from quvatlh.core.model import Id, Name

TaskIds = Annotated[tuple[Id, ...], Meta(max_length=limits.BATCH_MAX)]
Blob = Annotated[bytes, Meta(max_length=limits.PAYLOAD_BYTES_MAX)]


class Command(Struct, frozen=True, array_like=True):
    """Base of all verbs."""


class Part(Struct, frozen=True, array_like=True, gc=False):
    """One of a batch."""


class Changes(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a PATCH names; what it does not name stays."""


class Request(Struct, frozen=True, array_like=True):
    """Under which name a write is remembered: its answer is the same for 24 h."""

    token: Name
    """Name of the bearer's token."""
    route: Name
    id: Name
    digest: Annotated[bytes, Meta(max_length=32)] = b""
    """Of the request's body: another body under the same name is a mistake, and refused."""
