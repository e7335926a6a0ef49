"""The options of `add`: which field of a task each stands for. What a value may be is for the node to judge, but for
what is not even of the right form."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from typing import Any

import click
import msgspec

Task = dict[str, Any]

IN_WORK = ("env", "cwd", "user")

_FIELDS = (
    click.option("--id", "id", metavar="ID", help="Chosen id: adding it again is the same task."),
    click.option("--name", metavar="N", help="Name: what `limit` counts by."),
    click.option("--group", metavar="G", help="Group, the application it belongs to."),
    click.option("--queue", metavar="Q", help="Queue, made on first use."),
    click.option("--kind", type=click.Choice(["job", "service"]), help="job: runs once; service: is kept running."),
    click.option("--priority", type=int, metavar="INT", help="Higher goes first."),
    click.option("--key", metavar="K", help="Flow or tenant."),
    click.option("--tag", "tags", multiple=True, metavar="T", help="Pattern that a tag of the worker must match; again for more."),
    click.option("--at", metavar="TIME", help="Not before this time, as 2030-01-31T08:00:00Z."),
    click.option("--delay", metavar="D", help="Not before so long from now, as 10s, 5m, 2h."),
    click.option("--expires", metavar="TIME|D", help="Fails when not started by then."),
    click.option("--timeout", metavar="D", help="Stopped when it runs longer."),
    click.option("--attempts", type=int, metavar="INT", help="How often it is tried. [default: 25]"),
    click.option("--unique", metavar="WHILE", help="At most one while queued, active or unfinished, or for a duration."),
    click.option("--unique-key", metavar="K", help="Key that --unique compares. [default: group, name, work, payload]"),
    click.option("--limit", type=int, metavar="INT", help="At most so many of its name at once."),
    click.option("--slots", type=int, metavar="INT", help="What it takes of a worker; 0 for the light."),
    click.option("--env", multiple=True, metavar="K=V", help="Environment variable; again for more."),
    click.option("--cwd", metavar="DIR", help="Directory to run in."),
    click.option("--user", metavar="USER", help="User to run as."),
    click.option("--payload", metavar="JSON", help="Payload, as JSON."),
    click.option("--payload-file", metavar="F", help="Payload from a file: JSON when it ends in .json, else bytes."),
)  # fmt: skip


def task_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_FIELDS):
        command = option(command)
    return command


def fields(given: Mapping[str, Any]) -> tuple[Task, Task]:
    """What the options say of the task, and of its work."""
    task: Task = {name: value for name, value in given.items() if name in _PLAIN and value is not None}
    if given["tags"]:
        task["tags"] = list(given["tags"])
    if given["attempts"] is not None:
        task["retry"] = {"attempts": given["attempts"]}
    if given["unique"] is not None or given["unique_key"] is not None:
        pair = {"while": given["unique"], "key": given["unique_key"]}
        task["unique"] = {name: value for name, value in pair.items() if value is not None}
    return task | _payload(given["payload"], given["payload_file"]), _surroundings(given)


_PLAIN = frozenset(
    ("id", "name", "group", "queue", "kind", "priority", "key", "at", "delay", "expires", "timeout", "limit", "slots")
)


def merged(task: Task, extra: Task, around: Task) -> Task:
    """A task of a file under the options, which win."""
    made = task | {name: value for name, value in extra.items() if name != "retry"}
    if "retry" in extra:
        made["retry"] = {**(task.get("retry") or {}), **extra["retry"]}
    if around:
        work = task.get("work")
        if not isinstance(work, dict):
            raise click.UsageError(
                "--env, --cwd and --user need a task whose work is a mapping; write them into its text"
            )
        env = {**(work.get("env") or {}), **around.get("env", {})}
        made["work"] = {**work, **around, **({"env": env} if env else {})}
    return made


def _surroundings(given: Mapping[str, Any]) -> Task:
    around: Task = {}
    if given["env"]:
        around["env"] = dict(_pair(each) for each in given["env"])
    if given["cwd"] is not None:
        around["cwd"] = os.path.abspath(os.path.expanduser(given["cwd"]))
    if given["user"] is not None:
        around["user"] = given["user"]
    return around


def _pair(given: str) -> tuple[str, str]:
    name, sign, value = given.partition("=")
    if not sign or not name:
        raise click.BadParameter(f"{given!r} is not NAME=VALUE", param_hint="--env")
    return name, value


def _payload(text: str | None, file: str | None) -> Task:
    if text is not None and file is not None:
        raise click.UsageError("--payload and --payload-file exclude each other")
    if text is not None:
        return {"payload": _json(text.encode(), "--payload")}
    if file is None:
        return {}
    try:
        with open(file, "rb") as opened:
            data = opened.read()
    except OSError as error:
        raise click.BadParameter(f"{file}: {(error.strerror or '').lower()}", param_hint="--payload-file") from None
    if file.endswith(".json"):
        return {"payload": _json(data, "--payload-file")}
    return {"payload_base64": base64.b64encode(data).decode()}


def _json(data: bytes, option: str) -> object:
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        words = str(error).removeprefix("JSON is malformed: ")
        raise click.BadParameter(f"is no JSON ({words}); text needs quotes of its own", param_hint=option) from None
