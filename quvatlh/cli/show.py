"""`quvatlh show`: one task as people want to see it: what it is, how it stands, what its runs came to."""

from __future__ import annotations

import shlex
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import click

from quvatlh.cli.printing import (
    Table,
    age,
    between,
    count,
    labelled,
    plain,
    plain_lines,
    print_json,
    styled,
    value_words,
    when,
    work_words,
)
from quvatlh.cli.session import Session, speaks_http
from quvatlh.codec.urls import without_secrets

Json = dict[str, Any]

DEFAULTS = {
    "group": "default",
    "kind": "job",
    "queue": "default",
    "balancable": True,
    "priority": 0,
    "cost": 1,
    "slots": 1,
    "delivery": "at-least-once",
    "lease": "2s",
}
"""Not shown when they are as usual."""
FIELDS = ("kind", "group", "queue", "priority", "key", "tags", "limit", "queue_limit", "slots", "cost", "delivery",
          "lease", "timeout", "balancable")  # fmt: skip
ATTEMPTS_DEFAULT = 25
STOP = {"signal": "TERM", "grace": "10s"}
_DUE = {"scheduled": "due", "retrying": "tried again"}
"""What a task waits for a time for; a service whose instance ended rests."""
WAITING = frozenset({"pending", "scheduled", "retrying"})
TAIL_LINES = 10


@click.command()
@click.argument("task_id", metavar="ID")
@speaks_http
def show(session: Session, task_id: str) -> None:
    """Show one task, with its runs."""
    task = session.run(lambda client: client.task(task_id))
    if session.as_json:
        print_json(task)
        return
    now_ms = session.around.wall_ms()
    click.echo(f"{click.style(plain(task['id']), bold=True)}  {styled(task['state'])}")
    for label, value in pairs(task, now_ms):
        click.echo(labelled(label, value))
    _print_actions(session, task.get("actions") or [])
    if task["state"] in WAITING:
        session.hint(f"why it waits: quvatlh explain {plain(task['id'])}")


def pairs(task: Json, now_ms: int) -> Iterator[tuple[str, str]]:
    """Labels and what stands behind them, plain but for colours."""
    name = task.get("name")
    if name and name != task["id"]:
        yield "name", plain(name)
    yield "work", plain(work_words(task.get("work")))
    yield from _surroundings(task.get("work"))
    for field in FIELDS:
        value = task.get(field)
        if value not in (None, [], DEFAULTS.get(field)):
            yield field.replace("_", " "), _field_words(value)
    unique = task.get("unique")
    if unique:
        yield "unique", plain(f"while {unique.get('while')}" + (f", key {unique['key']}" if unique.get("key") else ""))
    yield from _rules(task)
    yield from _payload(task)
    yield from _times(task, now_ms)
    yield from _outcome(task)


def _surroundings(work: object) -> Iterator[tuple[str, str]]:
    if isinstance(work, dict):
        for field in ("cwd", "user"):
            if work.get(field):
                yield field, plain(work[field])
        if work.get("env"):
            yield "env", plain(", ".join(work["env"]))


def _field_words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return plain(", ".join(value) if isinstance(value, list) else value)


def _rules(task: Json) -> Iterator[tuple[str, str]]:
    for field in ("policy", "announce"):
        code = task.get(field)
        if code:
            lines = count(len(str(code).splitlines()), "line")
            yield field, plain(code["name"]) if isinstance(code, dict) else f"Lua, {lines}"
    stop = task.get("stop") or STOP
    if stop != STOP:
        yield "stop", plain(f"{stop.get('signal')}, KILL after {stop.get('grace')}")
    notify = task.get("notify")
    if notify:
        url = notify.get("url")
        who = without_secrets(url) if url else shlex.join(notify["command"])
        yield "notify", plain(f"{who} when {', '.join(notify['on'])}")
    if task.get("keep"):
        yield "keep", plain(task["keep"])


def _payload(task: Json) -> Iterator[tuple[str, str]]:
    if "payload_base64" in task:
        yield "payload", f"{count(len(b64decode(task['payload_base64'])), 'byte')}"
    elif task.get("payload") is not None:
        yield "payload", value_words(task["payload"])


def _times(task: Json, now_ms: int) -> Iterator[tuple[str, str]]:
    yield "created", when(task.get("created_at"), now_ms)
    due = task.get("due_at") or (task.get("at") if task["state"] == "scheduled" else None)
    if due:
        yield _DUE.get(task["state"], "next run"), when(due, now_ms)
    end = "deleted" if task["state"] == "deleted" else "finished"
    for label, field in (("expires", "expires"), ("started", "started_at"), (end, "finished_at")):
        if task.get(field):
            took = between(task.get("started_at"), task["finished_at"]) if label == "finished" else ""
            yield label, when(task[field], now_ms) + (f", after {took}" if took else "")


def _outcome(task: Json) -> Iterator[tuple[str, str]]:
    most = (task.get("retry") or {}).get("attempts")
    if task.get("attempts") or most not in {None, ATTEMPTS_DEFAULT}:
        yield "attempts", _attempts_words(task, most)
    progress = (task.get("actions") or [{}])[-1].get("progress")
    if progress:
        percent, text = progress.get("percent"), progress.get("text") or ""
        yield "progress", plain(text if percent is None else f"{percent:g} % {text}".strip())
    error = task.get("error")
    if error:
        yield "error", click.style(plain(error.get("text") or error.get("code")), fg="red")
    if task.get("result") is not None:
        yield "result", value_words(task["result"])
    elif task.get("result_msgpack"):
        yield "result", f"{len(b64decode(task['result_msgpack']))} bytes of msgpack"
    elif task.get("result_base64"):
        yield "result", f"{len(b64decode(task['result_base64']))} bytes"


def _attempts_words(task: Json, most: int | None) -> str:
    """Lost ones, and those before a `retry`, are among those made; the most is of neither. What may be begun once alone is not
    tried again, whatever its rule says."""
    made = task.get("attempts", 0)
    if task.get("delivery") == "at-most-once":
        return f"{made}, never retried by itself"
    if most is None or task.get("kind") == "service":
        return f"{made}"
    return f"{made} of {most}" if made <= most else f"{made}, with those lost or before a retry; {most} allowed"


def _print_actions(session: Session, actions: list[Json]) -> None:
    if not actions:
        return
    click.echo()
    Table(["RUN", "STATE", "TOOK", "EXIT", "WORKER"], session.around.columns).print(
        [_row(one, session) for one in actions]
    )
    for action in actions:
        if action.get("announcement") is not None:
            click.echo(f"\nRun {action.get('attempt', '-')} announces {value_words(action['announcement'])}")
    tail = plain_lines(actions[-1].get("output_tail") or "")
    if tail:
        more = f", the last {TAIL_LINES} lines" if len(tail) > TAIL_LINES else ""
        click.echo(f"\nOutput{more} (what is kept: quvatlh logs {plain(actions[-1].get('task', 'ID'))}):")
        for line in tail[-TAIL_LINES:]:
            click.echo(f"  | {line}")


def _row(action: Json, session: Session) -> list[object]:
    code, signal = action.get("exit_code"), action.get("signal")
    ended = f"signal {signal}" if signal is not None else "-" if code is None else code
    took = between(action.get("started_at"), action.get("finished_at")) or "-"
    if action.get("started_at") and not action.get("finished_at"):
        took = f"{age(action['started_at'], session.around.wall_ms())} so far"
    return [action.get("attempt", "-"), action.get("state", "-"), took, ended, action.get("worker") or "-"]
