"""Groups of commands whose modules are read when they are called: `ls` does not pay for what `run` needs."""

from __future__ import annotations

import contextlib
import difflib
import gc
import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from quvatlh.cli.refusing import is_json, note_json, say_json

INTERRUPTED = 128 + 2
"""As a shell tells of a program that SIGINT ended."""


class NearGroup(click.Group):
    """Says which command is near one that it has not, and where options stand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            words = (
                f"no such option before the command: {error.option_name}; most stand behind it, as in quvatlh ls --json"
            )
            raise click.UsageError(words, ctx) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            raise click.UsageError(f"there is no command {args[0]!r}.{_hint(ctx, args[0], known)}", ctx)
        return super().resolve_command(ctx, args)


def _hint(ctx: click.Context, word: str, known: Sequence[str]) -> str:
    """Lists have commands of their own: `workers` beside `worker`."""
    plural, above = f"{ctx.info_name}s", ctx.parent
    beside = above.command.list_commands(above) if above and isinstance(above.command, click.Group) else ()
    if word in {"ls", "list"} and plural in beside:
        return f" Did you mean {plural}, without {ctx.info_name}?"
    near = difflib.get_close_matches(word, known, n=1)
    return f" Did you mean {near[0]}?" if near else ""


class LazyGroup(NearGroup):
    """`lazily` maps a command's name to `module:attribute` and its one line of help, in the order of the help text."""

    def __init__(self, *args: Any, lazily: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazily = lazily

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as inherited
        return list(self._lazily)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as inherited
        if cmd_name not in self._lazily:
            return None
        module, _, attribute = self._lazily[cmd_name][0].partition(":")
        with _uncollected():
            command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as inherited
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in self._lazily.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        note_json(ctx, args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Ctrl-C is no news to who pressed it. A program that asks for JSON gets it for a wrong option, too."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if not is_json(ctx) or isinstance(error, click.exceptions.NoArgsIsHelpError):
                raise
            say_json(error.format_message())
            ctx.exit(error.exit_code)
        except (KeyboardInterrupt, click.Abort):
            ctx.exit(INTERRUPTED)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """What modules are made of stays: to look through it again and again as it grows is a sixth of the time they take."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
