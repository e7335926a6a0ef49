"""`quvatlh bench`: what the cluster that answers does in a second, and how soon one task is done, in a queue of its own."""

from __future__ import annotations

import asyncio
import io
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import click
import msgspec

from quvatlh.cli.printing import count, labelled, plain, print_json, say
from quvatlh.cli.progress import Report, progress
from quvatlh.cli.session import Duration, Session, Told, speaks_http
from quvatlh.cli.status import ExitStatus
from quvatlh.client import Client
from quvatlh.client.http import new_key

TASKS: Final = 2000
ALONE: Final = 50
LOOK_S: Final = 0.05
"""Between two looks at how far it is: a look costs the node little beside the work, and 2,000 tasks take longer."""
WITHIN: Final = "1m"
WAITING: Final = ("scheduled", "pending", "claimed", "running", "retrying")
WORKS: Final[dict[str, dict[str, Any]]] = {
    "command": {"command": ["true"]},
    "python": {"python": "linecache:clearcache"},
}


@dataclass(slots=True)
class Figures:
    added_s: list[float] = field(default_factory=list)
    """One at a time: until the ADD was answered, and until the task was known to be done."""
    done_s: list[float] = field(default_factory=list)
    bulk_s: float = 0.0
    """All at once: the same two times."""
    all_s: float = 0.0
    failed: int = 0


@click.command()
@click.option("--tasks", type=click.IntRange(1, 1_000_000), default=TASKS, metavar="INT", help=f"[default: {TASKS:,}]")
@click.option(
    "--alone", type=click.IntRange(1, 10_000), default=ALONE, metavar="INT",
    help=f"Tasks that are sent one at a time, before those. [default: {ALONE}]",
)  # fmt: skip
@click.option(
    "--what", type=click.Choice(sorted(WORKS)), default="command",
    help="Run `true`, or a Python function that does nothing. [default: command]",
)  # fmt: skip
@click.option("--within", type=Duration(), default=WITHIN, metavar="D", help=f"Give up after this. [default: {WITHIN}]")
@speaks_http
def bench(session: Session, *, tasks: int, alone: int, what: str, within: float) -> None:
    """Measure this cluster: tasks that do nothing, one at a time and then all at once.

    They go through a queue of their own, beside whatever else the cluster does; it is deleted afterwards.
    Times are those of this command, from sending to knowing.
    """
    queue = f"bench-{new_key()[:8]}"
    task = {"work": WORKS[what], "queue": queue, "retry": {"attempts": 1}}
    figures = Figures()

    async def work(client: Client) -> None:
        try:
            with progress("bench", session.around, is_wanted=not session.as_json) as report:
                async with asyncio.timeout(within):
                    await _one_by_one(client, task, alone, figures, report)
                    await _at_once(client, task, tasks, figures, report)
        except TimeoutError:
            await _say_why(client, queue, within)
            raise Told(ExitStatus.UNAVAILABLE) from None
        finally:
            await _tidy(client, queue)

    session.run(work)
    _tell(session, figures, tasks, what)


async def _one_by_one(client: Client, task: dict[str, Any], times: int, figures: Figures, report: Report) -> None:
    """The first begins what is begun once: a worker's environment, a connection."""
    for number in range(times + 1):
        began = time.perf_counter()
        (task_id,) = (await client.add([task])).ids
        added = time.perf_counter()
        while (await client.task(task_id, wait_s=1.0))["state"] in WAITING:
            pass
        if number:
            figures.added_s.append(added - began)
            figures.done_s.append(time.perf_counter() - began)
        report(number, times)


async def _at_once(client: Client, task: dict[str, Any], times: int, figures: Figures, report: Report) -> None:
    began = time.perf_counter()
    text = io.BytesIO((msgspec.json.encode(task) + b"\n") * times)
    async for cut in client.add_lines(text.read):
        if cut.problem is not None:
            raise cut.problem
    figures.bulk_s = time.perf_counter() - began
    while (left := _left(counts := await _counts(client, task["queue"]))) > 0:
        report(times - left, times)
        await asyncio.sleep(LOOK_S)
    figures.all_s = time.perf_counter() - began
    figures.failed = counts["failed"]


async def _counts(client: Client, queue: str) -> dict[str, int]:
    counts: dict[str, int] = (await client.queue(queue))["counts"]
    return counts


def _left(counts: dict[str, int]) -> int:
    return sum(counts[state] for state in WAITING)


async def _say_why(client: Client, queue: str, within: float) -> None:
    waiting = (await client.tasks(queue=queue, state="pending", limit=1))["items"]
    why = f": {plain((await client.explain(waiting[0]['id']))['text'])}" if waiting else ""
    left = _left(await _counts(client, queue))
    say(f"quvatlh: {count(left, 'task')} not done within {within:g} s{why}")


async def _tidy(client: Client, queue: str) -> None:
    """What waits is deleted, then all of it leaves the list; a task that still runs keeps its queue."""
    await client.purge_queue(queue)
    await client.purge_queue(queue, ("succeeded", "failed", "deleted"))
    if not _left(await _counts(client, queue)):
        await client.delete_queue(queue)


def _tell(session: Session, figures: Figures, tasks: int, what: str) -> None:
    added, done = _times(figures.added_s), _times(figures.done_s)
    added_per_s, done_per_s = tasks / figures.bulk_s, tasks / figures.all_s
    if session.as_json:
        print_json(
            {
                "what": what, "tasks": tasks, "alone": len(figures.done_s), "answered_ms": added, "done_ms": done,
                "added_per_s": round(added_per_s, 1), "done_per_s": round(done_per_s, 1), "failed": figures.failed,
            }
        )  # fmt: skip
    else:
        alone = count(len(figures.done_s), "task")
        rows = [
            ("answered", f"{_words(added)}: an ADD of one task, {alone} one after the other"),
            ("done", f"{_words(done)}: the same, until it was known to be done"),
            ("added", f"{added_per_s:,.0f}/s: {count(tasks, 'task')} at once"),
            ("run", f"{done_per_s:,.0f}/s: the same, until the last was done"),
        ]
        if figures.failed:
            rows.append(("failed", f"{figures.failed:,} of them"))
        for row in rows:
            click.echo(labelled(*row))
    if figures.failed:
        raise SystemExit(ExitStatus.TASK_FAILED)


_PARTS: Final[dict[str, Callable[[Sequence[float]], float]]] = {
    "p50": statistics.median,
    "p99": lambda all_s: sorted(all_s)[int(len(all_s) * 0.99)],
}


def _times(all_s: Sequence[float]) -> dict[str, float]:
    """Milliseconds."""
    return {name: round(of(all_s) * 1000, 2) for name, of in _PARTS.items()}


def _words(times: dict[str, float]) -> str:
    return ", ".join(f"{name} {ms:.3g}ms" for name, ms in times.items())
