"""Waiting for the end of tasks: many at once, each by long questions to whichever node answers.

An attempt that failed is told on standard error as soon as a question finds it, terminal or not: a task that is tried
again for hours must not look like one that works, neither to a person nor in the mail of cron. Where a
terminal watches, the bar of one task is what it says of its progress itself, and that of many how many have finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from quvatlh.cli.printing import between, plain, plain_lines, print_json, say, styled
from quvatlh.cli.progress import Tell, progress, told_by_itself
from quvatlh.cli.session import Session
from quvatlh.cli.status import ExitStatus
from quvatlh.client import Client

WAIT_S = 2.0
"""Of one question: an attempt that failed is told that late."""
WATCHED_S = 0.5
"""Of one about a task whose progress a person watches."""
AT_ONCE = 64
"""Questions at once: all tasks must finish anyway, so that the others lose nothing by waiting their turn."""
FINISHED = frozenset({"succeeded", "failed", "deleted"})
TAIL_LINES = 5

Json = dict[str, Any]


def until_finished(
    session: Session, ids: Sequence[str], *, timeout_s: float | None, out: Callable[[str], None]
) -> ExitStatus:
    """Tells of each task in the order given when all are done, and what came of them together."""
    if not ids:
        return ExitStatus.DONE

    async def work(client: Client) -> list[Json]:
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        gate = asyncio.Semaphore(AT_ONCE)
        finished = 0

        async def one(task_id: str) -> Json:
            nonlocal finished
            async with gate:
                task = await _await_one(session, client, task_id, deadline)
            finished += is_finished(task)
            report(finished, len(ids))
            return task

        if len(ids) == 1:
            with told_by_itself("waiting", session.around) as tell:
                return [await _await_one(session, client, ids[0], deadline, tell)]
        with progress("waiting", session.around) as report:
            report(0, len(ids))
            return await asyncio.gather(*map(one, ids))

    ends = session.run(work)
    for task in ends:
        _tell(session, task, out)
    return _status(ends)


def is_finished(task: Json) -> bool:
    return task["state"] in FINISHED or (task.get("kind") == "service" and task["state"] == "running")


async def _await_one(
    session: Session, client: Client, task_id: str, deadline: float | None, tell: Tell | None = None
) -> Json:
    """`tell`: what the task says of itself, as often as somebody sees it."""
    loop = asyncio.get_running_loop()
    wait_s = WATCHED_S if tell is not None and session.around.bars else WAIT_S
    told = 0
    while True:
        left_s = wait_s if deadline is None else deadline - loop.time()
        task = await client.task(task_id, wait_s=max(min(left_s, wait_s), 0.0))
        if is_finished(task) or left_s <= 0:
            return task
        if tell is not None:
            tell(*_progress_of(task))
        if not session.as_json:
            for action in _failed_since(task, told):
                told = action["attempt"]
                _tell_attempt(task, action)


def _progress_of(task: Json) -> tuple[float | None, str]:
    """Of its last attempt."""
    said = (task.get("actions") or [{}])[-1].get("progress") or {}
    return said.get("percent"), said.get("text") or ""


def _failed_since(task: Json, told: int) -> Iterator[Json]:
    """Attempts after number `told` that failed or were lost, the oldest first."""
    for action in task.get("actions") or []:
        if action["state"] in {"failed", "lost"} and action["attempt"] > told:
            yield action


def _tell_attempt(task: Json, action: Json) -> None:
    error = action.get("error") or {}
    why = error.get("text") or error.get("code") or ("its worker was lost" if action["state"] == "lost" else "failed")
    most = (task.get("retry") or {}).get("attempts")
    number = f"{action['attempt']}" + (f" of {most}" if most and task.get("kind") != "service" else "")
    say(f"{task['id']} attempt {number}: {plain(why)}; it is tried again")
    for line in plain_lines(action.get("output_tail") or "")[-TAIL_LINES:]:
        say(f"  | {line}")


def _status(ends: Sequence[Json]) -> ExitStatus:
    if any(task["state"] in {"failed", "deleted"} for task in ends):
        return ExitStatus.TASK_FAILED
    return ExitStatus.DONE if all(map(is_finished, ends)) else ExitStatus.UNAVAILABLE


def _tell(session: Session, task: Json, out: Callable[[str], None]) -> None:
    if session.as_json:
        print_json(task)
        return
    line = f"{task['id']} {styled(task['state'])}"
    took = between(task.get("started_at"), task.get("finished_at"))
    error = task.get("error") or {}
    if error:
        line += f": {plain(error.get('text') or error.get('code', ''))}"
    elif not is_finished(task):
        line += ": not finished yet"
    elif took:
        line += f" in {took}"
    out(line)
    if task["state"] == "failed":
        for tail in plain_lines(_tail(task))[-TAIL_LINES:]:
            out(f"  | {tail}")


def _tail(task: Json) -> str:
    actions = task.get("actions") or [{}]
    return actions[-1].get("output_tail") or ""
