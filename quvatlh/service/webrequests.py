"""What an `http` work asks for, and what the status of its answer comes to: success, another try, or the end. Pure.

Statuses are named one by one or by class (`2xx`); who is named himself counts before his class. Where nobody says anything,
2xx is a success, 410 the end, and everything else is tried again, since who was asked may have been about to change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from quvatlh.codec.urls import without_secrets
from quvatlh.ports import Incoming, RunError

BODY_BYTES_MAX: Final = 1024 * 1024
"""Of an answer, where its limit is given; else it is cut off and that is no fault."""
TEXT_CHARS_MAX: Final = 200
_GONE: Final = 410
AS_END: Final = "end"

Status = int | str
"""204, or `2xx`."""
Verdict = Literal["expect", "permanent", "retry"]
_NAMED: Final[tuple[Verdict, ...]] = ("expect", "permanent", "retry")


_OF_THE_MESSAGE: Final = frozenset(
    {"connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)


class WebRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands under `http`."""

    url: str
    method: str | None = None
    """None: POST where something is sent, else GET."""
    headers: dict[str, str] = {}
    body: str | None = None
    """None: the payload."""
    sign: bool | Literal["end"] = False
    """With the task's id as the delivery's. `end`: by the cluster, as what it tells itself; no producer can ask for that."""
    expect: tuple[Status, ...] = ()
    """These alone are a success; none named: 2xx."""
    permanent: tuple[Status, ...] = ()
    retry: tuple[Status, ...] = ()
    max_bytes: int | None = None
    """An answer of more is a failure for good."""


def asked(given: Mapping[str, Any]) -> WebRequest:
    """ValueError for what is none. Headers of the message itself, which old logs may hold, are left out."""
    try:
        request = msgspec.convert(dict(given), WebRequest)
    except msgspec.ValidationError as error:
        raise ValueError(f"http: {error}") from None
    for name, value in request.headers.items():
        if not name.isascii() or not value.isprintable():
            raise ValueError(f"http: header {name[:60]!r} cannot be sent")
    for each in (*request.expect, *request.permanent, *request.retry):
        if not is_status(each):
            raise ValueError(f"http: {each!r} is no status such as 204 or 2xx")
    if any(map(is_of_the_message, request.headers)):
        kept = {name: value for name, value in request.headers.items() if not is_of_the_message(name)}
        request = msgspec.structs.replace(request, headers=kept)
    if request.max_bytes is not None and not 0 <= request.max_bytes <= BODY_BYTES_MAX:
        raise ValueError(f"http: max_bytes must be from 0 to {BODY_BYTES_MAX}")
    return request


def is_of_the_message(name: str) -> bool:
    """A header that says how the message is carried: its sender's, who could not be understood with another."""
    lower = name.lower()
    return lower in _OF_THE_MESSAGE or lower.startswith("proxy-")


def is_status(given: object) -> bool:
    if isinstance(given, int) and not isinstance(given, bool):
        return 100 <= given <= 599
    return isinstance(given, str) and given in {"1xx", "2xx", "3xx", "4xx", "5xx"}


def verdict(request: WebRequest, status: int) -> Verdict:
    for word in (status, f"{status // 100}xx"):
        for name in _NAMED:
            if word in getattr(request, name):
                return name
    if status == _GONE:
        return "permanent"
    return "expect" if 200 <= status < 300 and not request.expect else "retry"


def judged(request: WebRequest, answer: Incoming) -> RunError | None:
    """None: it is what was wanted."""
    found = verdict(request, answer.status)
    if found == "expect":
        return None
    return RunError("status", _words(answer), final=found == "permanent")


def _words(answer: Incoming) -> str:
    status = answer.status
    if status == _GONE:
        return "status 410: who is asked wants to hear no more"
    if 300 <= status < 400 and "location" in answer.headers:
        place = without_secrets(answer.headers["location"])[:TEXT_CHARS_MAX]
        return f"status {status}: it points to {place}, and is not followed"
    said = " ".join(answer.body[: 4 * TEXT_CHARS_MAX].decode(errors="replace").split())[:TEXT_CHARS_MAX]
    return f"status {status}{': ' if said else ''}{said}"
