"""The options of `add`: which field of a task each stands for. What a value may be is for the node to judge, but for
what is not even of the right form."""

from __future__ import annotations

import base64
import os
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any

import click
import msgspec

from quvatlh.cli.names import completing

Task = dict[str, Any]

PARTS = frozenset({"retry", "stop"})
"""What an option names a part of."""

OF_ONE_TASK = ("id", "at", "delay")

_FIELDS = (
    click.option("--id", "id", metavar="ID", help="Chosen id: adding it again is the same task."),
    click.option("--name", metavar="N", help="Name: what `limit` counts by."),
    click.option("--group", metavar="G", help="Group, the application it belongs to."),
    click.option("--queue", metavar="Q", shell_complete=completing("queues"), help="Queue, made on first use."),
    click.option("--kind", type=click.Choice(["job", "service"]), help="job: runs once; service: is kept running."),
    click.option("--priority", type=int, metavar="INT", help="Higher goes first."),
    click.option("--key", metavar="K", help="Flow or tenant."),
    click.option("--tag", "tags", multiple=True, metavar="T", help="Pattern that a tag of the worker must match; again for more."),
    click.option("--at", metavar="TIME", help="Not before this time, as 2030-01-31T08:00:00Z."),
    click.option("--delay", metavar="D", help="Not before so long from now, as 10s, 5m, 2h."),
    click.option("--expires", metavar="TIME|D", help="Fails when not started by then."),
    click.option("--timeout", metavar="D", help="Stopped when it runs longer."),
    click.option("--attempts", type=int, metavar="INT", help="How often it is tried. [default: 25]"),
    click.option("--backoff", metavar="HOW", help="Until the next try: exponential, linear, constant, or waits as 10s,1m,10m."),
    click.option("--permanent-exit", metavar="N,N", help="Exit statuses after which it is not tried again."),
    click.option("--unique", metavar="WHILE", help="At most one while queued, active or unfinished, or for a duration."),
    click.option("--unique-key", metavar="K", help="Key that --unique compares. [default: group, name, work, payload]"),
    click.option("--limit", type=int, metavar="INT", help="At most so many of its name at once."),
    click.option("--slots", type=int, metavar="INT", help="What it takes of a worker; 0 for the light."),
    click.option("--queue-limit", type=int, metavar="INT", help="Limit of its queue from now on."),
    click.option("--cost", type=int, metavar="INT", help="What it counts for its flow in a fair queue. [default: 1]"),
    click.option("--policy", metavar="LUA|FILE|NAME", shell_complete=completing("policies"),
                 help="Which workers may have it: Lua function(state, task), its file, or a stored name."),
    click.option("--announce", metavar="LUA|FILE|NAME", help="What its runs announce: Lua function(state, task, action)."),
    click.option("--no-balance", is_flag=True, help="Never moved by `balance`."),
    click.option("--delivery", metavar="HOW", type=click.Choice(["at-least-once", "at-most-once"]),
                 help="at-least-once, or at-most-once: never begun twice."),
    click.option("--lease", metavar="D", help="How long its worker may be out of touch. [default: 2s]"),
    click.option("--stop", metavar="SIG,D", help="How it is stopped: signal, and time until KILL. [default: TERM,10s]"),
    click.option("--keep", metavar="D", help="How long it is listed once finished. [default: its queue's]"),
    click.option("--notify", metavar="URL|CMD", help="Told when it has ended: a URL, or a command in quotes."),
    click.option("--notify-on", metavar="S[,S...]", help="Ends that are told: succeeded, failed, deleted. [default: succeeded,failed]"),
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


def schedule_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Those of the task of a schedule, which gives each its id and its time."""
    command = task_options(command)
    params: list[click.Parameter] = vars(command)["__click_params__"]
    params[:] = [each for each in params if each.name not in OF_ONE_TASK]
    return command


def fields(given: Mapping[str, Any]) -> tuple[Task, Task]:
    """What the options say of the task, and of its work."""
    task: Task = {name: value for name, value in given.items() if name in _PLAIN and value is not None}
    if given["tags"]:
        task["tags"] = list(given["tags"])
    retry = {"attempts": given["attempts"], "backoff": backoff(given["backoff"])}
    retry["permanent_exit_codes"] = exit_codes(given["permanent_exit"], "--permanent-exit")
    if any(value is not None for value in retry.values()):
        task["retry"] = {name: value for name, value in retry.items() if value is not None}
    if given["unique"] is not None or given["unique_key"] is not None:
        pair = {"while": given["unique"], "key": given["unique_key"]}
        task["unique"] = {name: value for name, value in pair.items() if value is not None}
    task |= {name: _code(given[name], f"--{name}") for name in ("policy", "announce") if given[name] is not None}
    task |= {"balancable": False} if given["no_balance"] else {}
    task |= {"stop": _stop(given["stop"])} if given["stop"] is not None else {}
    task |= _notify(given["notify"], given["notify_on"])
    return task | _payload(given["payload"], given["payload_file"]), _surroundings(given)


def backoff(given: str | None) -> str | list[str] | None:
    """A word, or waits with commas."""
    return given.split(",") if given is not None and given[:1].isdigit() else given


def exit_codes(given: str | None, option: str, words: str = "exit statuses, such as 2 or 64,65") -> list[int] | None:
    if given is None:
        return None
    if not re.fullmatch(r"-?\d{1,9}(,-?\d{1,9})*", given, re.ASCII):
        raise click.BadParameter(f"{given!r} is not {words}", param_hint=option)
    return [int(code) for code in given.split(",")]


_PLAIN = frozenset(
    ("id", "name", "group", "queue", "kind", "priority", "key", "at", "delay", "expires", "timeout", "limit", "slots",
     "queue_limit", "cost", "delivery", "lease", "keep")
)  # fmt: skip
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.ASCII | re.IGNORECASE)
"""Of whatever scheme: the node says which it takes."""
_POLICY_NAME = re.compile(r"[\w.:-]{1,256}", re.ASCII)


def _code(given: str, option: str) -> object:
    """A file if there is one, else the name of a stored function if it looks like one, else the source itself."""
    if os.path.isfile(given):
        try:
            return _file(given, option).decode()
        except UnicodeDecodeError:
            raise click.BadParameter(f"{given} is not UTF-8", param_hint=option) from None
    if given.endswith(".lua"):
        raise click.BadParameter(f"there is no file {given}", param_hint=option)
    return {"name": given} if _POLICY_NAME.fullmatch(given) else given


def _stop(given: str) -> Task:
    """`INT,30s`, or one of the two."""
    stop: Task = {}
    for word in given.split(","):
        field = "grace" if word[:1].isdigit() else "signal"
        if field in stop:
            raise click.BadParameter(f"{given!r} is not a signal and a time, such as INT,30s", param_hint="--stop")
        stop[field] = word if field == "grace" else word.upper().removeprefix("SIG")
    return stop


def _notify(given: str | None, on: str | None) -> Task:
    if given is None:
        if on is not None:
            raise click.UsageError("--notify-on needs --notify")
        return {}
    try:
        notify: Task = {"url": given} if _URL.match(given) else {"command": shlex.split(given)}
    except ValueError as error:
        raise click.BadParameter(f"{given!r}: {str(error).lower()}", param_hint="--notify") from None
    return {"notify": notify | ({"on": on.split(",")} if on else {})}


def _file(path: str, option: str) -> bytes:
    try:
        with open(path, "rb") as opened:
            return opened.read()
    except OSError as error:
        raise click.BadParameter(f"{path}: {(error.strerror or '').lower()}", param_hint=option) from None


def merged(task: Task, extra: Task, around: Task) -> Task:
    """A task of a file under the options, which win."""
    made = task | {name: value for name, value in extra.items() if name not in PARTS}
    for part in PARTS & extra.keys():
        made[part] = {**(task.get(part) or {}), **extra[part]}
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
    data = _file(file, "--payload-file")
    if file.endswith(".json"):
        return {"payload": _json(data, "--payload-file")}
    return {"payload_base64": base64.b64encode(data).decode()}


def _json(data: bytes, option: str) -> object:
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        words = str(error).removeprefix("JSON is malformed: ")
        raise click.BadParameter(f"is no JSON ({words}); text needs quotes of its own", param_hint=option) from None
