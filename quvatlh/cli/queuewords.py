"""How queues look: as rows of a table, and one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from quvatlh.cli.printing import age, labelled, plain, print_json, taken, when
from quvatlh.cli.session import Session, seconds

HEADS = ("QUEUE", "PENDING", "RUNNING", "LATER", "FAILED", "OLDEST", "IN/S", "OUT/S", "WAIT", "SETTINGS")
KEEP = {"keep": {"age": "1d", "count": 100_000}, "keep_failed": {"age": "30d", "count": 1_000_000}}
"""As without a setting."""
NONE = "none"
_FACTOR, _JITTER = 2, "10%"

Json = dict[str, Any]


def row(one: Json, now_ms: int) -> list[object]:
    counts, rates = one["counts"], one["rates"]
    return [
        one["name"],
        f"{counts['pending']:,}",
        f"{counts['claimed'] + counts['running']:,}",
        f"{counts['scheduled'] + counts['retrying']:,}",
        f"{counts['failed']:,}",
        age(one["oldest_pending_at"], now_ms),
        f"{rates['in']:.3g}",
        f"{rates['out']:.3g}",
        rounded((rates["wait"] or {}).get("p95", "-")),
        ", ".join(_settings(one)) or "-",
    ]


def _settings(one: Json) -> Iterator[str]:
    """What differs from a queue that nobody set."""
    if one["paused"]:
        yield "paused"
    for field, words in (("limit", "limit"), ("limit_per_key", "per key"), ("limit_per_worker", "per worker")):
        if one[field] is not None:
            yield f"{words} {one[field]}"
    if one["rate"] is not None:
        yield one["rate"] + ("" if one["burst"] is None else f" burst {one['burst']}")
    if one["discipline"] != "priority":
        yield one["discipline"]
    if one["weight"] != 1:
        yield f"weight {one['weight']}"
    if one["class"] is not None:
        yield f"class {one['class']}"
    if one["unique"] is not None:
        yield "unique"
    if one["workers"] != ["*"]:
        yield f"workers {','.join(one['workers']) or NONE}"


def tell(session: Session, found: Json) -> None:
    if session.as_json:
        print_json(found)
        return
    click.echo(click.style(plain(found["name"]), bold=True) + (click.style("  paused", fg="yellow") * found["paused"]))
    for label, value in pairs(found, session.around.wall_ms()):
        click.echo(labelled(label, value))


def pairs(one: Json, now_ms: int) -> Iterator[tuple[str, str]]:
    """Labels and what stands behind them, plain."""
    counts, rates = one["counts"], one["rates"]
    yield "tasks", ", ".join(f"{n:,} {state}" for state, n in {**counts, **one.get("over", {})}.items() if n) or "none"
    if one["oldest_pending_at"]:
        yield "oldest", when(one["oldest_pending_at"], now_ms)
    failures = f", {rates['failed']:.3g}/s failed" if rates["failed"] else ""
    failures += f", {rates['retried']:.3g}/s tried again" if rates["retried"] else ""
    yield "rates", f"{rates['in']:.3g}/s in, {rates['out']:.3g}/s out{failures}, over {rates['span']}"
    for field in ("wait", "run"):
        if rates[field]:
            yield field, ", ".join(f"{word} {rounded(span)}" for word, span in rates[field].items())
    yield from _rules(one)


def rounded(text: str) -> str:
    """As a node says it, to the millisecond: 42495ms. For people: 42s."""
    found = seconds(text)
    return taken(found) if found else text


def _rules(one: Json) -> Iterator[tuple[str, str]]:
    yield "discipline", plain(one["discipline"]) + (f", weight {one['weight']}" if one["weight"] != 1 else "")
    for field, label in (("limit", "limit"), ("limit_per_key", "per key"), ("limit_per_worker", "per worker")):
        if one[field] is not None:
            yield label, f"{one[field]:,} at once"
    if one["key_weights"]:
        yield "key weights", plain(", ".join(f"{key}={weight}" for key, weight in one["key_weights"].items()))
    if one["rate"] is not None:
        yield "rate", one["rate"] + ("" if one["burst"] is None else f", burst {one['burst']}")
    if one["class"] is not None:
        yield "class", plain(one["class"])
    if one["workers"] != ["*"]:
        yield "workers", plain(", ".join(one["workers"])) or NONE
    yield from _defaults(one)


def _defaults(one: Json) -> Iterator[tuple[str, str]]:
    """Of its tasks, where they do not say otherwise."""
    if one["unique"] is not None:
        key = one["unique"].get("key")
        yield "unique", plain(f"while {one['unique']['while']}" + (f", key {key}" if key else ""))
    if one["retry"] is not None:
        words = [f"{one['retry']['attempts']} attempts, {_backoff_words(one['retry'])}"]
        for field, what in _PERMANENT.items():
            listed = ", ".join(map(str, one["retry"][field]))
            words += [f"none after {what} {listed}"] if listed else []
        yield "retry", plain(", ".join(words))
    if one["lease"] is not None:
        yield "lease", one["lease"]
    for field, usual in KEEP.items():
        if one[field] != usual:
            yield field.replace("_", " "), f"{one[field]['age']}, the last {one[field]['count']:,}"


_PERMANENT = {
    "permanent_exit_codes": "exit",
    "permanent_exceptions": "exception",
    "permanent_statuses": "HTTP status",
}


def _backoff_words(retry: Json) -> str:
    backoff = retry["backoff"]
    if isinstance(backoff, list):
        words = f"after {', '.join(backoff)}" + (f", at most {retry['max']}" if retry["max"] else "")
    else:
        words = f"{backoff} from {retry['first']}" + ("" if backoff == "constant" else f" to {retry['max']}")
    if backoff == "exponential" and retry["factor"] != _FACTOR:
        words += f" by {retry['factor']:g}"
    return words if retry["jitter"] == _JITTER else f"{words}, jitter {retry['jitter']}"
