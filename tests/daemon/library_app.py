"""Tasks that test_library enqueues, and a node's worker runs."""

from __future__ import annotations

import time
from pathlib import Path

from quvatlh import App

app = App()


@app.task
def twice(number: int) -> int:
    return 2 * number


@app.task(retry={"attempts": 2, "first": "100ms"})
def reads(path: str) -> str:
    return Path(path).read_text()


@app.task
def awaits(path: str, number: int) -> int:
    """Ends once there is such a file."""
    while not Path(path).exists():
        time.sleep(0.01)
    return number


@app.task
def gives(value: dict[str, object]) -> object:
    return value


@app.task
def long(length: int) -> str:
    return "x" * length


@app.task
async def spreads(url: str, token: str, count: int) -> list[int]:
    """By an app of its own: a task has no QUVATLH_ variables."""
    inner = App(url, token=token)
    task = inner.task(twice.__wrapped__)
    handles = [task.enqueue_nowait(number) for number in range(count)]
    return [await handle.aresult(timeout=60) for handle in handles]
