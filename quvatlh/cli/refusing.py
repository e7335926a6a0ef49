"""What is refused here, before any node is asked: a word, an option, a file. As JSON where --json stands on the line."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

import click
import msgspec

from quvatlh.cli.printing import say
from quvatlh.cli.status import ExitStatus

AS_JSON = "quvatlh.json"
"""In the context's meta: whether a program reads, known before any option is looked at."""
CODE = "usage"


def note_json(ctx: click.Context, args: Sequence[str]) -> None:
    """What stands behind `--` is a command's own."""
    options = args[: args.index("--")] if "--" in args else args
    ctx.meta[AS_JSON] = "--json" in options


def is_json(ctx: click.Context) -> bool:
    return bool(ctx.meta.get(AS_JSON))


def say_json(message: str, errors: Sequence[Mapping[str, str]] = ()) -> None:
    say(msgspec.json.encode({"kind": "rejected", "code": CODE, "detail": message, "errors": errors}).decode())


def refuse(message: str) -> NoReturn:
    """Of a file: what is wrong with it is all there is to say, so no usage stands above."""
    if is_json(click.get_current_context()):
        say_json(message)
    else:
        say(f"quvatlh: {message}")
    sys.exit(ExitStatus.USAGE)
