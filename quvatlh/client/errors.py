"""The four kinds of no, as a client meets them, and how an answer becomes one. A fifth kind does not exist.

Which kind it is, is said by the status alone; codes are the server's and are passed on as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple, NoReturn

import msgspec

PROBLEM_TYPE = "application/problem+json"
RETRY_AFTER_S = 1.0
"""What an unavailable node gets when it does not say when to come again."""
RETRY_AFTER_S_MAX = 3600.0


class Fault(NamedTuple):
    """One thing wrong with what was asked."""

    path: str
    """`tasks[3].policy.name`; empty for the whole."""
    message: str


class Problem(Exception):
    """A no. One of the kinds below, never this class itself."""

    def __init__(self, code: str, detail: str, errors: Sequence[Fault] = (), *, url: str = "") -> None:
        super().__init__(detail)
        self.code = code
        """Of the closed list of section 3.4; empty where the answer was not of this program."""
        self.detail = detail
        self.errors = tuple(errors)
        self.url = url
        """Of the node that said it."""


class Rejected(Problem):
    """Certainly not done, and asking again changes nothing."""


class Unavailable(Problem):
    """Certainly not done; asking again later may help."""

    def __init__(
        self,
        code: str,
        detail: str,
        errors: Sequence[Fault] = (),
        *,
        url: str = "",
        retry_after_s: float = RETRY_AFTER_S,
    ) -> None:
        super().__init__(code, detail, errors, url=url)
        self.retry_after_s = retry_after_s


class OutputLost(Unavailable):
    """Who wrote it was lost while its output was read, or that was cut: what came next is not kept."""


class Unreachable(Unavailable):
    """No node answered at all. `failures` says for each address why."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        words = "; ".join(f"{url}: {why}" for url, why in failures.items())
        super().__init__("unreachable", f"no node answers: {words}")
        self.failures = dict(failures)


class Unknown(Problem):
    """It may have happened. Asking again under the same id or Idempotency-Key does no harm."""


class Broken(Problem):
    """A bug, here or there."""


def from_answer(status: int, headers: Mapping[str, str], body: bytes, url: str) -> Problem:
    """The problem that an answer outside 2xx stands for."""
    if headers.get("Content-Type", "").partition(";")[0].strip() != PROBLEM_TYPE:
        return _foreign(status, headers, url)
    try:
        document = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _foreign(status, headers, url)
    return from_document(document, status, retry_after_s=_retry_after_s(headers), url=url)


def from_document(
    document: Mapping[str, Any], status: int, *, retry_after_s: float = RETRY_AFTER_S, url: str = ""
) -> Problem:
    """By its fields; what is missing or of a wrong type is passed over."""
    code, detail = str(document.get("code", "")), str(document.get("detail", ""))
    errors = [
        Fault(str(each.get("path", "")), str(each.get("message", "")))
        for each in document.get("errors") or ()
        if isinstance(each, dict)
    ]
    if status in {429, 503}:
        return Unavailable(code, detail, errors, url=url, retry_after_s=retry_after_s)
    kind = Unknown if status == 504 else Broken if status >= 500 else Rejected
    return kind(code, detail, errors, url=url)


def _foreign(status: int, headers: Mapping[str, str], url: str) -> Problem:
    """Something between the node and us answered, or something else altogether."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    words = f"answered {status} {phrase}".rstrip() + ", but not as a Qu'vatlh node does: is this the right address?"
    if status >= 500:  # a proxy may have passed the request on before it lost its patience
        return Unknown("", words, url=url)
    if status == 429:
        return Unavailable("", words, url=url, retry_after_s=_retry_after_s(headers))
    return Rejected("", words, url=url)


def _retry_after_s(headers: Mapping[str, str]) -> float:
    given = headers.get("Retry-After", "")
    if not (given.isascii() and given.isdigit()):
        return RETRY_AFTER_S
    return min(float(given), RETRY_AFTER_S_MAX)


def not_ours(url: str, why: str) -> NoReturn:
    raise Broken("", f"{url} gave an answer that cannot be read ({why}): is this the right address?", url=url)
