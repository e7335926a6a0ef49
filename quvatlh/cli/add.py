"""`quvatlh add`: a command, or files of tasks. Prints ids as soon as they are promised, one a line."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

import click
import msgspec

from quvatlh.cli import failing, waiting
from quvatlh.cli.calling import call_of, call_options
from quvatlh.cli.printing import count, print_json, say
from quvatlh.cli.progress import progress
from quvatlh.cli.refusing import refuse
from quvatlh.cli.session import Session, Told, speaks_http
from quvatlh.cli.status import ExitStatus
from quvatlh.cli.taskoptions import Task, fields, merged, task_options
from quvatlh.client import Added, Client, Cut, Problem
from quvatlh.client.http import new_key
from quvatlh.client.segments import LineTooLong
from quvatlh.codec.taskfile import read_tasks
from quvatlh.codec.yamltext import BadYaml

EVENT_TASKS_MAX = 1000
EVENT_BYTES_MAX = 3 * 1024 * 1024
"""Below the 4 MiB that a node takes as one event: the frame around the tasks is small."""
COMMAND = "quvatlh.command"

EPILOG = """\b
Examples:
  quvatlh add -- echo hello
  quvatlh add --queue mail --delay 5m --attempts 3 -- ./send.sh you@example.org
  quvatlh add --wait -- make -C /srv/site
  quvatlh add --python shop.mail:send --arg 17 --kwarg urgent=true
  quvatlh add nightly.yaml
  quvatlh add tasks.ndjson

A YAML file holds one task a document, such as `work: {command: [echo, hello]}`
with the fields of the options above; options win over the file."""


class AddCommand(click.Command):
    """What stands behind `--` is a command, word for word; click would forget where it began."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            place = args.index("--")
            ctx.meta[COMMAND] = args[place + 1 :]
            args = args[:place]
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "[OPTIONS] -- CMD [ARG...]")
        formatter.write_usage(ctx.command_path, "[OPTIONS] FILE|-", prefix="       ")


@click.command(cls=AddCommand, epilog=EPILOG)
@click.argument("file", nargs=-1)
@call_options
@task_options
@click.option("--ndjson", is_flag=True, help="FILE has one task a line, as JSON; so has every *.ndjson.")
@click.option("--wait", "is_waited_for", is_flag=True, help="Wait for the end; exit 5 when a task failed.")
@click.option("--idempotency-key", metavar="K", help="Repeating with the same key adds nothing twice.")
@speaks_http
@click.pass_context
def add(
    ctx: click.Context,
    /,
    session: Session,
    file: tuple[str, ...],
    *,
    ndjson: bool,
    is_waited_for: bool,
    idempotency_key: str | None,
    **given: Any,
) -> None:
    """Add a command as a task, or the tasks of a FILE (YAML, or NDJSON of any length; - is standard input).

    Prints the ids, one a line.
    """
    argv: list[str] | None = ctx.meta.get(COMMAND)
    extra, around = fields(given)
    call = call_of(given, around)
    if call is None:
        _check_usage(ctx, argv, file)
    elif argv is not None or file:
        raise click.UsageError("a call stands alone: give no command and no file with --python or --call", ctx)
    key = idempotency_key or new_key()
    if call is not None:
        ids = _add_tasks(session, [{"work": call, **extra}], key)
    elif argv is not None:
        ids = _add_tasks(session, [{"work": {"command": argv, **around}, **extra}], key)
    elif ndjson or file[0].endswith(".ndjson"):
        if extra or around:
            raise click.UsageError("options do not go with NDJSON: each line is a whole task")
        ids = _add_lines(session, file[0], key, keep_ids=is_waited_for)
    else:
        tasks = [merged(task, extra, around) for task in tasks_of(file[0])]
        if len(tasks) > 1 and "id" in extra:
            raise click.UsageError(f"--id names one task, and {file[0]} has {len(tasks)}")
        ids = _add_tasks(session, tasks, key)
    if is_waited_for:
        sys.exit(waiting.until_finished(session, ids, timeout_s=None, out=say))


def _check_usage(ctx: click.Context, argv: list[str] | None, file: Sequence[str]) -> None:
    if argv is not None and not file and argv:
        return
    if argv is None and len(file) == 1:
        return
    if argv is not None and file:
        raise click.UsageError(f"{file[0]!r} stands before --: give a file or a command, not both", ctx)
    if argv is None and file:
        raise click.UsageError(f"to add a command, put -- before it: quvatlh add -- {' '.join(file)}", ctx)
    raise click.UsageError("what is to be added? quvatlh add -- CMD [ARG...], or quvatlh add FILE", ctx)


def tasks_of(path: str) -> list[Task]:
    try:
        with _opened(path) as file:
            tasks = read_tasks(file.read())
    except BadYaml as error:
        refuse(f"{_shown(path)}: {error}")
    if not tasks:
        refuse(f"{_shown(path)}: holds no task")
    return tasks


def _add_tasks(session: Session, tasks: Sequence[Task], key: str) -> list[str]:
    """All or nothing as far as one event goes, which is far above what people write by hand."""
    ids: list[str] = []

    async def work(client: Client) -> None:
        for number, batch in enumerate(_batches(tasks)):
            try:
                added = await client.add(batch, key=key if number == 0 else f"{key}-{number}")
            except Problem as problem:
                session.tell(problem, first=len(ids), only_one=len(tasks) == 1)
                session.tell_key(problem, key)
                if ids:
                    say(f"quvatlh: {count(len(ids), 'task')} before that were added")
                raise Told(failing.status(problem)) from None
            _print_added(session, added)
            ids.extend(added.ids)

    session.run(work)
    return ids


def _batches(tasks: Sequence[Task]) -> Iterator[list[Task]]:
    batch: list[Task] = []
    size = 0
    for task in tasks:
        length = len(msgspec.json.encode(task))
        if batch and (len(batch) == EVENT_TASKS_MAX or size + length > EVENT_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(task)
        size += length
    yield batch


def _print_added(session: Session, added: Added | Cut) -> None:
    if session.as_json:
        existing = {str(position): how for position, how in added.existing.items()}
        print_json({"ids": added.ids, "index": added.index, "existing": existing})
        return
    click.echo("".join(f"{each}\n" for each in added.ids), nl=False)
    first = added.first if isinstance(added, Cut) else 0
    for position, how in added.existing.items():
        why = "the same id" if how == "id" else "the same unique key"
        say(f"quvatlh: {added.ids[position - first]} is there already: {why}; it was not changed")


def _add_lines(session: Session, path: str, key: str, *, keep_ids: bool) -> list[str]:
    ids: list[str] = []
    counts = {"added": 0, "refused": 0}

    def take(cut: Cut) -> None:
        if cut.problem is None:
            _print_added(session, cut)
            counts["added"] += cut.end - cut.first
            ids.extend(cut.ids if keep_ids else ())
        else:
            counts["refused"] += cut.end - cut.first
            session.tell(cut.problem)

    is_bar_wanted = session.around.columns is None  # between ids that scroll by it would be neither
    bar = progress("adding", session.around, is_wanted=is_bar_wanted, in_bytes=True)
    with _opened(path) as file, bar as report:
        size = os.fstat(file.fileno()).st_size if path != "-" else None
        read, position = _reading(file)

        async def work(client: Client) -> None:
            try:
                async for cut in client.add_lines(read, key=key):
                    take(cut)
                    report(position(), size)
            except Problem as problem:
                session.tell(problem)
                session.tell_key(problem, key)
                _say_counts(session, counts)
                raise Told(failing.status(problem)) from None
            except LineTooLong as error:
                say(f"quvatlh: {_shown(path)}: {error}")
                _say_counts(session, counts)
                raise Told(ExitStatus.REJECTED) from None

        session.run(work)
    if counts["refused"]:
        _say_counts(session, counts)
        sys.exit(ExitStatus.REJECTED)
    return ids


def _say_counts(session: Session, counts: dict[str, int]) -> None:
    """A program counts what it was told, cut by cut."""
    if session.as_json:
        return
    refused = f"; {counts['refused']:,} refused, in cuts of 1,000 all or nothing" if counts["refused"] else ""
    say(f"quvatlh: {count(counts['added'], 'task')} added{refused}")


def _reading(file: BinaryIO) -> tuple[Callable[[int], bytes], Callable[[], int]]:
    """Past any buffer, so that a pipe that gives nothing can be left; and how far it has come."""
    done = 0
    source: Callable[[int], bytes] = file.read
    with contextlib.suppress(OSError):  # not a file of the system, as under test
        source = functools.partial(os.read, file.fileno())

    def read(size: int) -> bytes:
        nonlocal done
        data = source(size)
        done += len(data)
        return data

    return read, lambda: done


def _opened(path: str) -> BinaryIO:
    if path == "-":
        return sys.stdin.buffer
    try:
        return open(path, "rb")
    except FileNotFoundError:
        refuse(f"there is no file {path}; to add a command, put -- before it: quvatlh add -- {path}")
    except OSError as error:
        refuse(f"{path}: {(error.strerror or '').lower()}")


def _shown(path: str) -> str:
    return "standard input" if path == "-" else path
