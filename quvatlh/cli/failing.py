"""A no, as people read it: what happened, and what to do about it. And the exit status that scripts read."""

from __future__ import annotations

import re

from quvatlh.cli.printing import plain
from quvatlh.cli.status import ExitStatus
from quvatlh.client import Broken, Problem, Token, Unavailable, Unknown, Unreachable

FAULTS_SHOWN = 20
_PLACE = re.compile(r"^(?:tasks|lines)\[(\d+)\]\.?")


def status(problem: Problem) -> ExitStatus:
    if isinstance(problem, Unavailable):
        return ExitStatus.UNAVAILABLE
    return ExitStatus.UNKNOWN if isinstance(problem, Unknown | Broken) else ExitStatus.REJECTED


def document(problem: Problem) -> dict[str, object]:
    errors = [{"path": one.path, "message": one.message} for one in problem.errors]
    return {"kind": kind(problem), "code": problem.code, "detail": problem.detail, "errors": errors}


def kind(problem: Problem) -> str:
    """One of the four, whatever grew out of it."""
    if isinstance(problem, Unavailable):
        return "unavailable"
    return type(problem).__name__.lower()


def told(problem: Problem, token: Token, *, first: int = 0, only_one: bool = False) -> list[str]:
    """Lines. `first` is the number of what `tasks[0]` means; with `only_one` there is no need to say which task."""
    if isinstance(problem, Unreachable):
        return _unreachable(problem)
    if problem.code == "unauthorized":
        words = "a token is needed, and none was found" if token.value is None else plain(problem.detail)
        return [f"quvatlh: {words}", *_token_story(token)]
    if isinstance(problem, Unknown):
        return [
            f"quvatlh: it may have happened, or not: {plain(problem.detail)}",
            "  Look before you ask again; with the same --id or --idempotency-key it is safe to.",
        ]
    if isinstance(problem, Broken):
        return [f"quvatlh: {plain(problem.detail)}"]
    lines = _faults(problem, first, only_one=only_one)
    if isinstance(problem, Unavailable):
        lines.append("  It was certainly not done; ask again in a moment.")
    return lines


def _faults(problem: Problem, first: int, *, only_one: bool) -> list[str]:
    if not problem.errors:
        return [f"quvatlh: {plain(problem.detail or problem.code)}"]
    shown = [
        f"quvatlh: {plain(_place(one.path, first, only_one=only_one))}{plain(one.message)}"
        for one in problem.errors[:FAULTS_SHOWN]
    ]
    more = len(problem.errors) - FAULTS_SHOWN
    return [*shown, f"quvatlh: and {more} more"] if more > 0 else shown


def _place(path: str, first: int, *, only_one: bool) -> str:
    """`tasks[3].queue` -> `task 4: queue: `, counted as people count."""
    path = path.removeprefix("match.").removeprefix("set.")
    match = _PLACE.match(path)
    if match is None:
        return f"{path}: " if path and path.partition("[")[0] not in {"ids", "match"} else ""
    rest = path[match.end() :]
    which = "" if only_one else f"task {int(match[1]) + first + 1}: "
    return f"{which}{rest}: " if rest else which


def _unreachable(problem: Unreachable) -> list[str]:
    lines = [f"quvatlh: nobody answers at {url}: {plain(why)}" for url, why in problem.failures.items()]
    reasons = " ".join(problem.failures.values())
    if "certificate" in reasons:
        lines.append("  If its authority is one of your own, give its file with --ca or QUVATLH_CA.")
    elif "TLS" in reasons:
        lines.append("  Is it http:// there, not https://?")
    elif "refused" in reasons:
        lines.append("  Is the daemon running? To start one here: quvatlh run")
        lines.append("  If it runs elsewhere, give its address with --url or QUVATLH_URL.")
    else:
        lines.append("  Is it the right address, in --url or QUVATLH_URL? If so, ask again in a moment.")
    return lines


def _token_story(token: Token) -> list[str]:
    if token.value is not None:
        return [
            f"  It came from {token.source}. Looked at, in this order:",
            *looked(token),
            "  Is it the right --url, and the right --data?",
        ]
    return [
        "  Looked at, in this order:",
        *looked(token),
        "  A node writes its token into the file `token` of its data directory at its",
        "  first start. If it runs with --data DIR, say --data DIR here too.",
    ]


def looked(token: Token) -> list[str]:
    return [f"    {place}: {found}" for place, found in token.looked]
