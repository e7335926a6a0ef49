"""The first view of `quvatlh top`: is it healthy, how much, where, and what went wrong last. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from quvatlh.cli.printing import age, count, plain, span, summary
from quvatlh.cli.session import seconds
from quvatlh.cli.toplines import Column, Line, Row, Span, bars, cut, gauge, table
from quvatlh.cli.topread import Seen

OLD_S: Final = 60.0
"""A task that could run has waited long."""
WRONG_MAX: Final = 3
"""Lines about what is wrong; more are counted."""
PART_MIN: Final = 3
"""Lines of a list with one row: a gap, heads, the row."""
GAUGE: Final = 10
NOTICE: Final = "cyan"
"""Of what waits for a worker that there is not: the cluster is none the worse for it."""
LACKS: Final = {
    "queue": "takes tasks of it",
    "adapter": "runs {}",
    "tag": "has the tag {}",
    "worker": "is {}, which they are pinned to",
    "slots": "has {} slots",
    "all": "has all that they ask for together",
}
RECENT: Final = 12
"""Steps after which what was known last is no longer said."""
LABEL: Final = 13
VALUE: Final = 8
FRESH: Final = (
    "Nothing has been added yet. In another terminal:",
    "",
    "  quvatlh add -- echo hello",
    "",
    "and it appears here.",
)

Json = dict[str, Any]


def overview(seen: Seen, columns: int, rows: int, now_ms: int) -> list[Line]:
    by = counts(seen)
    made = [*health(seen, by, now_ms), [], numbers(by)]
    if seen.get("states") is not None and not sum(by.values()):
        return [*made, [], *([Span(line)] for line in FRESH)]
    charts = list(_charts(seen.get("history"), columns))
    made += [[], *charts] if len(made) + len(charts) + 1 <= rows else []
    return made + _lists(seen, columns, rows - len(made), now_ms)


def counts(seen: Seen) -> dict[str, int]:
    groups = (seen.get("states") or {}).get("groups", ())
    return {group["value"]: group["count"] for group in groups}


# --- health ---


def health(seen: Seen, by: dict[str, int], now_ms: int) -> list[Line]:
    """One sentence, and below it what is wrong."""
    wrong = list(_wrong(seen, now_ms))
    tones = {tone for tone, _ in wrong}
    bad, look = "red" in tones, "yellow" in tones
    style, words = (
        ("red", "Something is wrong") if bad else ("yellow", "Look at this") if look else ("green", "All is well")
    )
    cluster, workers = seen.get("cluster") or {}, _items(seen, "workers")
    nodes = cluster.get("nodes", [])
    touch = sum(node["state"] != "lost" for node in nodes)
    of = f"{touch} of {count(len(nodes), 'node')}" if touch < len(nodes) else count(touch, "node")
    up = count(sum(worker["state"] == "up" for worker in workers), "worker")
    master = plain(cluster.get("master") or "none")
    rest = f"  {of}, {up} up, {by.get('running', 0):,} running, master {master}, term {cluster.get('term', '-')}"
    made = [[Span("● ", style), Span(words, f"bold {style}"), Span(rest)]]
    shown = wrong if len(wrong) <= WRONG_MAX else wrong[: WRONG_MAX - 1]
    made += [[Span(f"  ! {plain(text)}", tone)] for tone, text in shown]
    if len(shown) < len(wrong):
        made.append([Span(f"  ! and {len(wrong) - len(shown)} more", "dim")])
    return made


def _wrong(seen: Seen, now_ms: int) -> Iterator[tuple[str, str]]:
    cluster, workers = seen.get("cluster"), seen.get("workers")
    if cluster is not None:
        if not cluster["master"]:
            yield "red", "no master is known: nothing is added or started until one is elected"
        if lost := [node["name"] for node in cluster["nodes"] if node["state"] == "lost"]:
            yield "red", f"{count(len(lost), 'node')} out of touch: {', '.join(lost)}"
        clock = cluster.get("clock")
        if clock is not None and clock["behind"] != "0s":
            yield "yellow", f"log time stands still, the clocks are {clock['behind']} behind it: nothing becomes due"
        if full := [node["name"] for node in cluster["nodes"] if node["state"] == "disk_full"]:
            yield "red", f"no room on the disk of {', '.join(full)}: no task is taken there"
    if workers is not None:
        if not any(worker["state"] == "up" for worker in workers):
            yield "red", "no worker is up: nothing starts"
        elif lost := [each["name"] for each in workers if each["state"] == "lost" and each["role"] != "pull"]:
            yield "yellow", f"{count(len(lost), 'worker')} lost: {', '.join(lost)}"
    yield from _wrong_among(seen.get("queues") or {}, now_ms)


def _wrong_among(page: Json, now_ms: int) -> Iterator[tuple[str, str]]:
    for queue in page.get("items", ()):
        yield from _wrong_with(queue, now_ms)
    if page.get("next") and page["items"][-1]["counts"]["pending"]:
        judged = count(len(page["items"]), "queue")
        yield NOTICE, f"judged are the {judged} in which most waits, of {page['total']:,}"


def _wrong_with(queue: Json, now_ms: int) -> Iterator[tuple[str, str]]:
    pending = queue["counts"]["pending"]
    oldest = queue.get("oldest_placeable_at", queue["oldest_pending_at"])
    stuck = queue.get("unplaceable")
    if queue["paused"] and pending:
        yield "yellow", f"queue {queue['name']} is paused, {count(pending, 'task')} waiting"
    elif oldest and (waited := age(oldest, now_ms - round(OLD_S * 1000))) and not waited.startswith("in "):
        yield "yellow", f"queue {queue['name']}: the oldest task has waited for {age(oldest, now_ms)}"
    if stuck and not queue["paused"]:
        lack = stuck["lacks"][0]
        least = "at least " if stuck["at_least"] else ""
        none = LACKS[lack["what"]].format(lack["value"])
        yield (
            NOTICE,
            f"queue {queue['name']}: {least}{count(stuck['count'], 'task')} that no worker may have: none {none}",
        )


# --- numbers ---


def numbers(by: dict[str, int]) -> Line:
    made: Line = []
    later = by.get("scheduled", 0) + by.get("retrying", 0)
    for label, value, style in (
        ("running", by.get("running", 0) + by.get("claimed", 0), "cyan"),
        ("waiting", by.get("pending", 0), ""),
        ("later", later, ""),
        ("failed", by.get("failed", 0), "red" if by.get("failed") else ""),
        ("succeeded", by.get("succeeded", 0), ""),
    ):
        made += [Span(f"{value:,}", f"bold {style}"), Span(f" {label}   ", "dim")]
    return made


def _charts(history: Json | None, columns: int) -> Iterator[Line]:
    """A line each, to the last step that is whole."""
    if history is None:
        return
    room = columns - LABEL - VALUE - 2
    for label, style, values, unit in (
        ("added/s", "", _per_second(history, "added"), ""),
        ("done/s", "green", _per_second(history, "succeeded"), ""),
        ("failed/s", "red", _per_second(history, "failed"), ""),
        ("running", "cyan", _sum(history, "running", "claimed"), ""),
        ("waiting", "yellow", _sum(history, "pending"), ""),
        ("wait 95 %", "", history["waits"]["wait_p95_ms"], "ms"),
    ):
        whole = list(values)[:-1]
        last = next((value for value in reversed(whole[-RECENT:]) if value is not None), None)
        shown = "-" if last is None else span(last / 1000) if unit else short(last)
        yield [
            Span(f"  {label:<{LABEL - 2}}", "dim"),
            Span(f"{shown:>{VALUE}}", "bold"),
            Span("  "),
            Span(bars(whole, room), style),
        ]


def _per_second(history: Json, name: str) -> list[float | None]:
    step_s = seconds(history["step"]) or 1.0
    return [None if value is None else value / step_s for value in history["counts"].get(name, ())]


def _sum(history: Json, *names: str) -> list[float | None]:
    columns = [history["tasks"].get(name, ()) for name in names]
    return [None if None in values else sum(values) for values in zip(*columns, strict=False)]


def short(value: float) -> str:
    """Few digits: 0.02, 17, 1,234, 25k."""
    if value >= 10_000:
        return f"{value / 1000:,.0f}k" if value < 10_000_000 else f"{value / 1_000_000:,.0f}M"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


# --- lists ---


def _lists(seen: Seen, columns: int, rows: int, now_ms: int) -> list[Line]:
    """What room there is, shared; what one list does not need another takes."""
    parts = [_queues(seen, columns, now_ms), _workers(seen, columns), _failures(seen, columns, now_ms)]
    parts = [part for part in parts if len(part) > 1][: max(rows // PART_MIN, 0)]
    left, mine = rows, [0] * len(parts)
    smallest = sorted(range(len(parts)), key=lambda i: len(parts[i]))
    for done, i in enumerate(smallest):
        mine[i] = min(left // (len(parts) - done), len(parts[i]) + 1)
        left -= mine[i]
    return [line for part, lines in zip(parts, mine, strict=True) for line in ([], *_cut(part, lines - 1))]


def _cut(part: list[Line], lines: int) -> list[Line]:
    """Its first lines; what is left out is told where there is a line for that."""
    if len(part) <= lines or lines < PART_MIN:
        return part[:lines]
    return [*part[: lines - 1], [Span(f"  and {len(part) - lines + 1:,} more", "dim")]]


def _queues(seen: Seen, columns: int, now_ms: int) -> list[Line]:
    heads = [
        Column("QUEUE", grows=True),
        Column("WAITING", right=True),
        Column("RUNNING", right=True),
        Column("OLDEST", right=True),
        Column("IN/S", right=True, spare=True),
        Column("OUT/S", right=True, spare=True),
    ]
    items = sorted(_items(seen, "queues"), key=lambda queue: (-queue["counts"]["pending"], queue["name"]))
    return table(heads, [Row(_queue(queue, now_ms)) for queue in items], columns)


def _queue(queue: Json, now_ms: int) -> Sequence[str | Span]:
    by, rates = queue["counts"], queue["rates"]
    name = queue["name"] + (" (paused)" if queue["paused"] else "")
    running = by["running"] + by["claimed"]
    oldest = age(queue["oldest_pending_at"], now_ms)
    return [name, f"{by['pending']:,}", f"{running:,}", oldest, short(rates["in"]), short(rates["out"])]


def _workers(seen: Seen, columns: int) -> list[Line]:
    heads = [Column("WORKER", grows=True), Column("STATE"), Column("SLOTS"), Column("TAKEN", right=True)]
    items = sorted(_items(seen, "workers"), key=lambda worker: (-load(worker), worker["name"]))
    return table(
        heads, [Row([worker["name"], state_cell(worker["state"]), *slots(worker)]) for worker in items], columns
    )


def _failures(seen: Seen, columns: int, now_ms: int) -> list[Line]:
    heads = [
        Column("FAILED", right=True),
        Column("TASK"),
        Column("WHY", grows=True),
    ]
    rows = [
        Row([age(task["finished_at"], now_ms), cut(summary(task), columns // 3), Span(why(task), "red")])
        for task in _items(seen, "failures")
    ]
    return table(heads, rows, columns)


def why(task: Json) -> str:
    error = task.get("error") or {}
    return str(error.get("text") or error.get("code") or "")


def load(worker: Json) -> float:
    is_here = worker["slots"] and worker["state"] != "lost"
    return (worker["slots"] - worker["free"]) / worker["slots"] if is_here else 0.0


def slots(worker: Json) -> tuple[str, str]:
    if worker["state"] == "lost":
        return "", "-"
    taken = worker["slots"] - worker["free"]
    return gauge(taken, worker["slots"], GAUGE), f"{taken} of {worker['slots']}"


STYLES: Final = {
    "succeeded": "green",
    "failed": "red",
    "lost": "red",
    "running": "cyan",
    "claimed": "cyan",
    "retrying": "yellow",
    "draining": "yellow",
    "up": "green",
}


def state_cell(state: str) -> Span:
    return Span(state, STYLES.get(state, ""))


def _items(seen: Seen, name: str) -> list[Json]:
    found = seen.get(name)
    return list(found if isinstance(found, list) else (found or {}).get("items", ()))
