"""Frames of `quvatlh top` from given data, one text file a frame. `python -m tests.cli.frames` writes anew what it draws
now: read the diff before you keep it.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from quvatlh.cli.topframe import frame
from quvatlh.cli.topkeys import State
from quvatlh.cli.toplines import line_width, text_of
from quvatlh.cli.topread import Seen

HERE = Path(__file__).parent / "frames"
NOW_MS = round(datetime.fromisoformat("2026-03-01T12:00:00Z").timestamp() * 1000)
WIDE, USUAL, NARROW = (120, 40), (80, 24), (40, 12)
EVIL = "report \x1b[2J\x1b]0;mine\x07\r\n\u202e\u200b end"
"""What a producer might write, were it let."""


def at(age_s: float) -> str:
    return datetime.fromtimestamp(NOW_MS / 1000 - age_s).astimezone().isoformat(timespec="milliseconds")


def queue(name: str, pending: int = 0, running: int = 0, oldest_s: float | None = None, **more: Any) -> dict[str, Any]:
    counts = {"scheduled": 1, "pending": pending, "claimed": 0, "running": running, "retrying": 0, "failed": 2}
    rates = {"in": 12.5, "out": 11.0, "failed": 0.0, "retried": 0.0, "wait": {"p50": "5ms", "p95": "20ms"}, "run": None}
    usual = {"discipline": "priority", "weight": 1, "limit": None, "limit_per_key": None, "limit_per_worker": None}
    usual |= {"rate": None, "burst": None, "paused": False, "unique": None, "retry": None, "lease": None}
    usual |= {"keep": {"age": "1d", "count": 100_000}, "keep_failed": {"age": "30d", "count": 1_000_000}}
    usual |= {"workers": ["*"], "class": None, "key_weights": {}}
    oldest = None if oldest_s is None else at(oldest_s)
    times = {"counts": counts, "oldest_pending_at": oldest, "rates": rates | {"span": "5m"}}
    return {"name": name} | usual | times | more


def worker(name: str, free: int, state: str = "up") -> dict[str, Any]:
    memory = {"memory_free_bytes": 6 << 30, "memory_total_bytes": 8 << 30}
    load = None if state == "lost" else {"cpu_load": (8 - free) / 16, **memory, "disk_free_bytes": 20 << 30}
    usual = {"role": "node", "state": state, "slots": 8, "free": free, "queues": ["*"]}
    return {"name": name, "node": name, "load": load} | usual


def task(n: int, state: str, age_s: float, **more: Any) -> dict[str, Any]:
    name = f"01a1efa2-948b-70f6-b7b8-{n:012}"
    usual: dict[str, Any] = {"id": name, "name": name, "state": state, "queue": "default", "attempts": 1}
    usual |= {"work": {"command": ["make", f"page-{n}.html"]}, "created_at": at(age_s), "started_at": at(age_s - 1)}
    ended = at(age_s - 2) if state in {"succeeded", "failed"} else None
    return usual | {"finished_at": ended, "error": None, "actions": []} | more


TASKS = [
    task(9, "running", 5),
    task(8, "failed", 40, error={"code": "exit", "text": "exit status 3"}, attempts=25),
    task(7, "succeeded", 90, name=EVIL, queue="emails"),
    task(6, "pending", 100, name="日本語の報告書を作る", queue="emails", attempts=0),
    *(task(5 - n, "succeeded", 200 + n) for n in range(5)),
]
HISTORY = {
    "step": "5s",
    "from": at(3600),
    "counts": {
        "added": [None, *range(0, 500, 4), 0],
        "succeeded": [None, *(n % 40 for n in range(125)), 0],
        "failed": [None, *[0] * 120, 1, 0, 2, 0, 0, 0],
    },
    "waits": {"wait_p95_ms": [None, *(n * 3 for n in range(125)), None]},
    "tasks": {name: [None, *(n % 9 for n in range(125)), 0] for name in ("running", "claimed", "pending")},
    "live": {"ant": [None, *(n % 9 for n in range(125)), 0]},
}
CLUSTER = {
    "master": "ant",
    "term": 7,
    "index": 1234,
    "node": "ant",
    "nodes": [{"name": "ant", "state": "up"}, {"name": "bee", "state": "lost"}, {"name": "cat", "state": "up"}],
}
QUEUES = [
    queue("default", 12_345, 9, 125),
    queue("emails", 3, 0, 700, paused=True, limit=5),
    *(queue(f"tenant-{n}", n) for n in range(30)),
]
OPENED = task(
    6,
    "pending",
    100,
    work={"shell": "make " + "very " * 40 + "long"},
    actions=[
        {"attempt": 1, "state": "failed", "started_at": at(50), "worker": "ant", "output_tail": f"one\n{EVIL}\ntwo"},
    ],
)


def seen(**more: Any) -> Seen:
    answers = {
        "cluster": CLUSTER,
        "history": HISTORY,
        "states": {"groups": [{"value": "running", "count": 9}, {"value": "failed", "count": 1234}]},
        "queues": {"items": QUEUES, "next": None},
        "listed": {"items": QUEUES, "next": None},
        "workers": [worker("ant", 2), worker("bee", 0, "lost"), worker("cat", 8, "draining")],
        "failures": {"items": [TASKS[1]]},
        "tasks": {"items": TASKS, "next": "more", "total": 54_321},
        "opened": {"task": OPENED, "explain": {"text": "no worker has its tag", "position": 3}},
    }
    return Seen(answers=answers | more, heard_ms=NOW_MS - 1000)


EMPTY = {"states": {"groups": []}, "queues": {"items": [], "next": None}, "failures": {"items": []}}
WELL = {"cluster": CLUSTER | {"nodes": [{"name": "ant", "state": "up"}]}, "workers": [worker("ant", 8)]}


def gone() -> Seen:
    lost = seen()
    lost.gone_ms, lost.gone, lost.heard_ms = NOW_MS - 5000, "nobody listens at http://127.0.0.1:7420", NOW_MS - 7000
    return lost


FRAMES: dict[str, tuple[Seen, State, tuple[int, int]]] = {
    "overview": (seen(), State(), USUAL),
    "overview-wide": (seen(), State(), WIDE),
    "overview-narrow": (seen(), State(), NARROW),
    "fresh": (seen(**EMPTY, **WELL), State(), USUAL),
    "connecting": (Seen(), State(), USUAL),
    "gone": (gone(), State(view="workers"), USUAL),
    "queues": (seen(), State(view="queues", marks={"queues": ("tenant-20", 9)}), USUAL),
    "queues-wide": (seen(), State(view="queues", sorts={"queues": "name"}), WIDE),
    "queue": (
        seen(opened={"queue": QUEUES[1], "tasks": TASKS}),
        State(view="queues", opened=("queue", "emails")),
        USUAL,
    ),
    "tasks": (seen(), State(view="tasks", marks={"tasks": (TASKS[2]["id"], 2)}), USUAL),
    "tasks-wide": (seen(), State(view="tasks", filter="queue:emails"), WIDE),
    "tasks-narrow": (seen(), State(view="tasks", typing="state:failed"), NARROW),
    "task": (seen(), State(view="tasks", opened=("task", OPENED["id"])), USUAL),
    "workers": (seen(), State(view="workers", paused=True), USUAL),
}


def drawn(name: str) -> str:
    about, state, size = FRAMES[name]
    lines = frame(about, state, size, NOW_MS)
    assert [line_width(line) for line in lines] == [size[0]] * size[1], name
    return "".join(f"{text_of(line)}\n" for line in lines)


def main() -> None:
    HERE.mkdir(exist_ok=True)
    for name in FRAMES:
        (HERE / f"{name}.txt").write_text(drawn(name))


if __name__ == "__main__":
    main()
