"""Requests to the world outside of the cluster, by HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True)
class Outgoing:
    method: str
    url: str
    """http or https, with a host."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    timeout_s: float = 30.0
    """For the whole of it, from the name's look-up to the last byte of the answer."""
    delivery: str | None = None
    """Signed under this id, the same in each attempt; None: as it is."""
    answer_bytes_max: int | None = None
    """An answer with more in its body is a fault; None: it is cut off."""
    is_end: bool = False
    """The cluster itself tells of an end: signed so that nothing a producer asks for can look like it."""


@dataclass(frozen=True, slots=True)
class Incoming:
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    """As much as is kept of it."""
    body_bytes: int
    """All that came before it was cut off."""


SendTrouble = Literal["timeout", "unreachable", "forbidden", "too_large"]
"""Its time was over; nobody answered as HTTP does; the address is none that may be asked from here; more was answered than
was to be."""


class SendFault(Exception):
    """There is no answer that counts. But for `forbidden` it may have arrived."""

    def __init__(self, code: SendTrouble, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Sender(Protocol):
    async def send(self, request: Outgoing) -> Incoming:
        """Whatever status it is answered with, also one that points elsewhere: nothing is followed. Raises SendFault, and
        ValueError for what is no request. May be cancelled."""
        ...

    async def close(self) -> None: ...
