"""What stands on the screen of `quvatlh top`, from what was seen and what was chosen: as many lines as it has. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import click

from quvatlh.cli import show
from quvatlh.cli.printing import age, plain, plain_lines, span, summary
from quvatlh.cli.queuewords import HEADS as QUEUE_HEADS
from quvatlh.cli.queuewords import pairs as queue_pairs
from quvatlh.cli.queuewords import row as queue_row
from quvatlh.cli.topkeys import VIEWS, State, place, tasks_shown
from quvatlh.cli.toplines import GROW_MIN, Column, Line, Row, Span, bars, cut, ends, fit_line, table, width, wrapped
from quvatlh.cli.topoverview import load, overview, slots, state_cell, why
from quvatlh.cli.topread import Seen

OLD_MS: Final = 10_000
"""Data of this age is no longer called live."""
SPARK: Final = 16
NARROW: Final = 64
"""Columns below which words at the edges are left out."""
LABEL: Final = 14
WRAPPED_MAX: Final = 6
"""Lines of one value."""
KEYS: Final = "1-4 o u t w view"

Json = dict[str, Any]


def frame(seen: Seen, state: State, size: tuple[int, int], now_ms: int) -> list[Line]:
    columns, rows = size
    made = [_title(seen, state, columns, now_ms), *_notes(seen, state, now_ms)]
    room = max(rows - len(made) - 1, 0)
    body = _body(seen, state, columns, room, now_ms)[:room]
    made += [*body, *([[]] * (room - len(body)))]
    return [fit_line(line, columns) for line in [*made[: rows - 1], _foot(state, columns)]]


def row_keys(seen: Seen, state: State) -> list[str]:
    """Of the rows of the view, from the top, by which they are known."""
    match state.view:
        case "queues":
            return [queue["name"] for queue in _queues(seen, state)]
        case "tasks":
            return [task["id"] for task in (seen.get("tasks") or {}).get("items", ())]
        case "workers":
            return [worker["name"] for worker in _workers(seen, state)]
    return []


# --- edges ---


def _title(seen: Seen, state: State, columns: int, now_ms: int) -> Line:
    tabs: Line = []
    for number, view in enumerate(VIEWS, 1):
        is_here = view == state.view
        name = view if columns >= NARROW or is_here else view[:1]
        tabs.append(Span(f"[{number} {name}]" if is_here else f" {number} {name} ", "reverse" if is_here else ""))
    return ends(tabs, [_pulse(seen, state, now_ms)], columns)


def _pulse(seen: Seen, state: State, now_ms: int) -> Span:
    """How old what is seen is."""
    old_ms = max(now_ms - seen.heard_ms, 0)
    if seen.gone_ms is not None:
        return Span(f"gone {span((now_ms - seen.gone_ms) // 1000)}", "bold red")
    if state.paused:
        return Span(f"paused, {span(old_ms // 1000)} old", "bold yellow")
    if not seen.heard_ms:
        return Span("connecting", "dim")
    return Span("live", "green") if old_ms < OLD_MS else Span(f"{span(old_ms // 1000)} old", "yellow")


def _notes(seen: Seen, state: State, now_ms: int) -> list[Line]:
    """One line, empty where all is well."""
    if seen.gone_ms is not None:
        since = span(max(now_ms - seen.heard_ms, 0) // 1000)
        return [[Span(f"No answer, asking again; this is {since} old. {plain(seen.gone)}", "red")]]
    if seen.refused:
        return [[Span(f"Not so: {plain(seen.refused)}", "yellow")]]
    if state.view == "tasks" and state.opened is None and (state.filter or state.typing is not None):
        return [[Span("filter ", "dim"), Span(plain(state.filter) or "none")]]
    return [[]]


def _foot(state: State, columns: int) -> Line:
    if state.typing is not None:
        hint = [Span(" queue:emails state:failed text", "dim")] if columns >= NARROW else []
        room = max(columns - 4 - sum(len(each.text) for each in hint), 8)
        return ends([Span("/ ", "bold"), Span(plain(state.typing)[-room:]), Span("▏")], hint, columns)
    if state.opened is not None:
        words = ["↑↓ j k scroll", "p pause", KEYS, "q Esc back"]
    elif state.view == "overview":
        words = [KEYS, "/ filter tasks", "p pause", "q quit"]
    else:
        order = f"s show: {tasks_shown(state)}" if state.view == "tasks" else f"s sort: {state.sort}"
        words = ["↑↓ move", "Enter open", order, "/ filter", "p pause", "1-4 view", "q quit"]
    while len(words) > 1 and width(" · ".join(words)) > columns:
        del words[-2]  # how to leave stays
    return [Span(cut(" · ".join(words), columns), "dim")]


# --- bodies ---


def _body(seen: Seen, state: State, columns: int, rows: int, now_ms: int) -> list[Line]:
    if seen.refused and not row_keys(seen, state):
        return []
    if state.opened is not None:
        lines = _opened(seen, state.opened, columns, now_ms)
        return lines[max(min(state.scroll, len(lines) - rows), 0) :]
    match state.view:
        case "queues":
            return _queue_list(seen, state, columns, rows, now_ms)
        case "tasks":
            return _task_list(seen, state, columns, rows, now_ms)
        case "workers":
            return _worker_list(seen, state, columns, rows)
    return overview(seen, columns, rows, now_ms) if seen.answers else [[Span("asking ...", "dim")]]


def _queues(seen: Seen, state: State) -> list[Json]:
    orders = {"name": (), "running": ("running", "claimed"), "failed": ("failed",)}
    most = orders.get(state.sort, ("pending",))

    def order(queue: Json) -> tuple[int, str]:
        return -sum(queue["counts"][each] for each in most), queue["name"]

    return sorted((seen.get("listed") or {}).get("items", ()), key=order)


def _queue_list(seen: Seen, state: State, columns: int, rows: int, now_ms: int) -> list[Line]:
    heads = [
        Column(head, right=head not in {"QUEUE", "SETTINGS"}, grows=head == "QUEUE", spare=i > 4)
        for i, head in enumerate(QUEUE_HEADS)
    ]
    items = _queues(seen, state)
    cells = [[str(cell) for cell in queue_row(queue, now_ms)] for queue in items]
    for row, queue in zip(cells, items, strict=True):
        row[0] += " (paused)" if queue["paused"] else ""
    more = (seen.get("listed") or {}).get("next") is not None
    empty = "A queue is made by the first task that names it." if seen.get("listed") else "asking ..."
    return _list(heads, cells, row_keys(seen, state), state, columns, rows, empty, more=more)


def _task_list(seen: Seen, state: State, columns: int, rows: int, now_ms: int) -> list[Line]:
    page = seen.get("tasks")
    items = (page or {}).get("items", ())
    heads = [
        Column("STATE"),
        Column("AGE", right=True),
        Column("TASK", grows=True),
        Column("QUEUE"),
        Column("TRIES", right=True, spare=True),
        Column("ID", spare=True),
    ]
    failed = any(task["state"] == "failed" for task in items)
    heads.insert(4, Column("WHY", spare=True)) if failed else None
    cells = []
    for task in items:
        row: list[str | Span] = [state_cell(task["state"]), age(_since(task), now_ms), summary(task), task["queue"]]
        row += [Span(cut(plain(why(task)), 40), "red")] if failed else []
        cells.append([*row, str(task["attempts"]), task["id"]])
    empty = "asking ..." if page is None else "No task fits." if state.filter or state.sort != "newest" else "No tasks."
    total = (page or {}).get("total")
    keys = row_keys(seen, state)
    return _list(
        heads, cells, keys, state, columns, rows, empty, total=total, more=(page or {}).get("next") is not None
    )


def _since(task: Json) -> str | None:
    """Of the state that it is in, as far as it is known."""
    running = task["started_at"] if task["state"] == "running" else None
    found: str | None = task["finished_at"] or running or task["created_at"]
    return found


def _workers(seen: Seen, state: State) -> list[Json]:
    by_name = state.sort == "name"
    return sorted(seen.get("workers") or (), key=lambda each: (0 if by_name else -load(each), each["name"]))


def _worker_list(seen: Seen, state: State, columns: int, rows: int) -> list[Line]:
    heads = [
        Column("WORKER", grows=True),
        Column("STATE"),
        Column("SLOTS"),
        Column("TAKEN", right=True),
        Column("CPU", right=True),
        Column("MEM", right=True),
        Column("LAST HOUR", spare=True),
        Column("QUEUES", spare=True),
        Column("ROLE", spare=True),
    ]
    live = (seen.get("history") or {}).get("live", {})
    cells: list[list[str | Span]] = []
    for one in _workers(seen, state):
        queues = cut(plain(",".join(one["queues"])), 20) or "-"
        hour = bars(_thinned(live.get(one["name"], ())), SPARK)
        cells.append([one["name"], state_cell(one["state"]), *slots(one), *_machine(one), hour, queues, one["role"]])
    empty = "No worker: nothing starts." if seen.get("workers") is not None else "asking ..."
    return _list(heads, cells, row_keys(seen, state), state, columns, rows, empty)


def _machine(worker: Json) -> tuple[str, str]:
    load = worker.get("load")
    if load is None:
        return "-", "-"
    return f"{load['cpu_load']:.0%}", f"{1 - load['memory_free_bytes'] / max(1, load['memory_total_bytes']):.0%}"


def _thinned(values: list[float | None]) -> list[float | None]:
    """The hour in SPARK steps: the most of each."""
    step = max(-(-len(values) // SPARK), 1)
    parts = [[each for each in values[i : i + step] if each is not None] for i in range(0, len(values), step)]
    return [max(part) if part else None for part in parts]


def _list(
    heads: list[Column],
    cells: list[Any],
    keys: list[str],
    state: State,
    columns: int,
    rows: int,
    empty: str,
    *,
    total: int | None = None,
    more: bool = False,
) -> list[Line]:
    """A window over the rows, with the marked one in it; below it, how many there are."""
    if not cells:
        return [[Span(f"  {empty}", "dim")]]
    marked, shown = place(state, keys), max(rows - 2, 1)
    first = max(min(marked - shown // 2, len(cells) - shown), 0)
    window = [Row(row, first + i == marked) for i, row in enumerate(cells[first : first + shown])]
    of = f" of {total:,}" if total is not None and total > len(cells) else " and more" if more else ""
    where = f"  {marked + 1:,} of {len(cells):,} shown{of}" if of else f"  {marked + 1:,} of {len(cells):,}"
    return [*table(heads, window, columns), [Span(where, "dim")]]


# --- one thing ---


def _opened(seen: Seen, opened: tuple[str, str], columns: int, now_ms: int) -> list[Line]:
    found = seen.get("opened")
    if found is None:
        return [[Span(f"{opened[0]} {plain(opened[1])}", "bold")]]
    return _queue(found, columns, now_ms) if opened[0] == "queue" else _task(found, columns, now_ms)


def _queue(found: Json, columns: int, now_ms: int) -> list[Line]:
    queue, tasks = found["queue"], found["tasks"]
    made: list[Line] = [
        [Span(f"queue {plain(queue['name'])}", "bold")],
        *_labelled(queue_pairs(queue, now_ms), columns),
    ]
    if tasks:
        heads = [Column("STATE"), Column("AGE", right=True), Column("TASK", grows=True)]
        rows = [Row([state_cell(task["state"]), age(_since(task), now_ms), summary(task)]) for task in tasks]
        made += [[], *table(heads, rows, columns)]
    return made


def _task(found: Json, columns: int, now_ms: int) -> list[Line]:
    task, told = found["task"], found["explain"]
    made: list[Line] = [[Span(f"{task['id']}  ", "bold"), state_cell(task["state"])]]
    made += _labelled(show.pairs(task, now_ms), columns)
    if told is not None:
        place_words = [] if told["position"] is None else [("position", f"{told['position']:,}")]
        made += _labelled([("why", told["text"]), *place_words], columns)
    actions = task.get("actions") or ()
    if actions:
        heads = [Column("RUN"), Column("STATE"), Column("BEGAN", right=True), Column("WORKER", grows=True)]
        made += [[], *table(heads, [Row(_run(one, now_ms)) for one in actions], columns)]
        tail = plain_lines(actions[-1].get("output_tail") or "")[-show.TAIL_LINES :]
        made += [[], *([Span("  | ", "dim"), Span(line)] for line in tail)] if tail else []
    return made


def _run(action: Json, now_ms: int) -> list[str | Span]:
    attempt, began = str(action.get("attempt", "-")), age(action["started_at"], now_ms)
    return [attempt, state_cell(action["state"]), began, action["worker"] or "-"]


def _labelled(pairs: Iterable[tuple[str, str]], columns: int) -> list[Line]:
    made: list[Line] = []
    for label, value in pairs:
        lines = wrapped(plain(click.unstyle(value)), max(columns - LABEL, GROW_MIN))[:WRAPPED_MAX]
        for i, line in enumerate(lines):
            made.append([Span(f"  {label if i == 0 else '':<{LABEL - 2}}", "dim"), Span(line)])
    return made
