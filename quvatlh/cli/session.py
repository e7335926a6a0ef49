"""What every command that speaks HTTP shares: its options, and the way from a coroutine to an exit status."""

from __future__ import annotations

import asyncio
import functools
import re
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import click
import msgspec

from quvatlh.cli import failing
from quvatlh.cli.printing import say
from quvatlh.cli.refusing import say_json
from quvatlh.cli.status import ExitStatus
from quvatlh.cli.surroundings import Surroundings, here
from quvatlh.client import Client, Options, Problem, Token, Unknown, find_token, parse_urls
from quvatlh.client.http import DEADLINE_S
from quvatlh.client.places import DATA_VARIABLE, TOKEN_VARIABLE, URL_DEFAULT, URL_VARIABLE

T = TypeVar("T")
F = Callable[..., Any]

CA_VARIABLE = "QUVATLH_CA"
_UNITS_S = {"ms": 0.001, "s": 1, "": 1, "m": 60, "h": 3600, "d": 86_400}


class Told(Exception):
    """It was said what is wrong; what is left is to end with this status."""

    def __init__(self, status: ExitStatus) -> None:
        super().__init__(status)
        self.status = status


@dataclass(frozen=True, slots=True)
class Session:
    """One call of one command."""

    options: Options
    token: Token
    as_json: bool
    around: Surroundings

    def run(self, work: Callable[[Client], Coroutine[Any, Any, T]], *, only_one: bool = False) -> T:
        """The result; a Problem is told and ends the process with its status."""

        async def inside() -> T:
            async with Client(self.options) as client:
                return await work(client)

        try:
            return asyncio.run(inside())
        except Told as told:
            sys.exit(told.status)
        except Problem as problem:
            self.tell(problem, only_one=only_one)
            sys.exit(failing.status(problem))
        except OSError as error:
            self.fail_locally(error)

    def fail_locally(self, error: OSError) -> NoReturn:
        """A file of this machine: the CA, a backup."""
        if isinstance(error, BrokenPipeError):
            raise error
        where = f"{error.filename}: " if error.filename else ""
        message = f"{where}{(error.strerror or str(error)).lower()}"
        if self.as_json:
            say_json(message)
        else:
            say(f"quvatlh: {message}")
        sys.exit(ExitStatus.REJECTED)

    def tell(self, problem: Problem, *, first: int = 0, only_one: bool = False) -> None:
        if self.as_json:
            say(msgspec.json.encode(failing.document(problem)).decode())
            return
        for line in failing.told(problem, self.token, first=first, only_one=only_one):
            say(line)

    def tell_key(self, problem: Problem, key: str) -> None:
        """How to repeat what may have happened."""
        if isinstance(problem, Unknown) and not self.as_json:
            say(f"  This time it was: --idempotency-key {key}")

    def hint(self, text: str) -> None:
        """For people only: not where a program reads."""
        if self.around.watched and not self.as_json:
            say(text)


def seconds(text: str) -> float | None:
    """Of a duration; None when it is none."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d)?", text, re.ASCII)
    return None if match is None else float(match[1]) * _UNITS_S[match[2] or ""]


class Duration(click.ParamType[float]):
    """500ms 10s 5m 2h 7d, or seconds; as seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = seconds(str(value))
        if found is None:
            self.fail(f"{value!r} is no duration such as 500ms, 10s, 5m, 2h or 7d", param, ctx)
        return found


class Urls(click.ParamType[tuple[str, ...]]):
    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return parse_urls(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


_OPTIONS = (
    click.option(
        "--url",
        "urls",
        type=Urls(),
        metavar="URL[,URL...]",
        envvar=URL_VARIABLE,
        default=URL_DEFAULT,
        help=f"Nodes to ask; the next where one does not answer. [{URL_VARIABLE}; default: {URL_DEFAULT}]",
    ),
    click.option("--token", metavar="T", help=f"Token. [{TOKEN_VARIABLE}; default: that of the data directory]"),
    click.option("--data", metavar="DIR", help=f"Data directory whose token is used. [{DATA_VARIABLE}]"),
    click.option(
        "--ca", metavar="FILE", envvar=CA_VARIABLE, help=f"Authority of the nodes' certificates, PEM. [{CA_VARIABLE}]"
    ),
    click.option(
        "--deadline",
        type=Duration(),
        metavar="D",
        default=f"{DEADLINE_S:g}s",
        help=f"How long to ask around for an answer. [default: {DEADLINE_S:g}s]",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON, one value a line; errors too."),
)


def speaks_http(command: F) -> F:
    """The options, and a Session as first argument instead of them."""

    @functools.wraps(command)
    def with_session(
        *args: Any,
        urls: tuple[str, ...],
        token: str | None,
        data: str | None,
        ca: str | None,
        deadline: float,
        as_json: bool,
        **kwargs: Any,
    ) -> Any:
        around = click.get_current_context().find_object(Surroundings) or here()
        found = find_token(token, around.environ, data, is_root=around.is_root)
        options = Options(urls, found.value, ca, deadline, patient=len(urls) > 1)
        return command(Session(options, found, as_json, around), *args, **kwargs)

    for option in reversed(_OPTIONS):
        with_session = option(with_session)
    return with_session
