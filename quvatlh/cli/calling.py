"""The options of `add` that make a task a call: of a Python function, or of whatever a warm process offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
import msgspec

from quvatlh.cli.taskoptions import Task

_OPTIONS = (
    click.option(
        "--python",
        metavar="PKG.MOD:FN",
        help="Call this Python function, in place of a command; with the options given here, not those of its @app.task.",
    ),
    click.option("--call", metavar="WORD", help="Call this of the warm process of --environment, in place of a command."),
    click.option("--arg", "args", multiple=True, metavar="V", help="Argument of the call: JSON, or else text; again for more."),
    click.option("--kwarg", "kwargs", multiple=True, metavar="K=V", help="Argument by name; again for more."),
    click.option("--environment", metavar="E", help="Environment that it is called in. [default: default]"),
)  # fmt: skip


def call_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def call_of(given: Mapping[str, Any], around: Mapping[str, Any]) -> Task | None:
    """The work that the options describe; None where they describe none."""
    python, call = given["python"], given["call"]
    parts: Task = {}
    if given["args"]:
        parts["args"] = _values(given["args"])
    if given["kwargs"]:
        parts["kwargs"] = dict(_pair(each) for each in given["kwargs"])
    if given["environment"] is not None:
        parts["environment"] = given["environment"]
    if python is not None and call is not None:
        raise click.UsageError("--python and --call exclude each other")
    if python is None and call is None:
        if parts:
            raise click.UsageError("--arg, --kwarg and --environment go with --python or --call")
        return None
    if python is not None:
        return {"python": python, **parts, **around}
    if "environment" not in parts:
        raise click.UsageError("--call needs --environment: which warm process is meant?")
    return {"warm": {"call": call, **parts}, **around}


def _values(given: Sequence[str]) -> list[Any]:
    return [_value(each) for each in given]


def _pair(given: str) -> tuple[str, Any]:
    name, sign, value = given.partition("=")
    if not sign or not name:
        raise click.BadParameter(f"{given!r} is not NAME=VALUE", param_hint="--kwarg")
    return name, _value(value)


def _value(given: str) -> Any:
    """Numbers, true, null, lists, objects and quoted text as JSON says them; anything else is the text that it is."""
    try:
        return msgspec.json.decode(given.encode())
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return given
