"""`quvatlh cron`: tasks by the clock, when they are due, and what became of each time."""

from __future__ import annotations

import os
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

import click

from quvatlh.cli.add import COMMAND, AddCommand, tasks_of
from quvatlh.cli.lazy import NearGroup
from quvatlh.cli.names import completing, hinting
from quvatlh.cli.printing import Table, age, labelled, plain, print_json, say, when, work_words
from quvatlh.cli.session import Session, speaks_http
from quvatlh.cli.status import ExitStatus
from quvatlh.cli.taskoptions import OF_ONE_TASK, fields, merged, schedule_options
from quvatlh.client import Client

Json = dict[str, Any]
EVERY = "@every"
LEDGER_SHOWN = 20
EPILOG = """\b
Examples:
  quvatlh cron add nightly '30 2 * * *' --zone Europe/Berlin -- ./backup.sh
  quvatlh cron add beat '@every 30s' --overlap allow -- curl -s localhost/beat
  quvatlh cron add report @weekly report.yaml

\b
Five fields: minute, hour, day of month, month, day of week; or @hourly, @daily,
@weekly, @monthly, @yearly, or @every with a span such as 30s, 5m, 2h."""

_NAME = click.argument("name", shell_complete=completing("schedules"))


class CronCommand(AddCommand):
    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "[OPTIONS] NAME CRON -- CMD [ARG...]")
        formatter.write_usage(ctx.command_path, "[OPTIONS] NAME CRON FILE|-", prefix="       ")


@click.group(cls=NearGroup)
def cron() -> None:
    """Schedules: tasks by the clock, each time once, whichever node is lost."""


@cron.command()
@speaks_http
def ls(session: Session) -> None:
    """List schedules: when each is due next, and what it runs."""
    listed = session.run(lambda client: client.schedules())
    if session.as_json:
        for one in listed:
            print_json(one)
    elif listed:
        now_ms = session.around.wall_ms()
        heads = ["SCHEDULE", "RULE", "ZONE", "NEXT", "LAST", "WHAT"]
        Table(heads, session.around.columns).print([_row(one, now_ms) for one in listed])
    else:
        session.hint("no schedules")


def _row(one: Json, now_ms: int) -> list[object]:
    due = "paused" if one["paused"] else age(one["next"][0], now_ms) if one["next"] else "-"
    return [one["name"], _rule(one), one["zone"] or "-", due, age(one["last_slot"], now_ms), work_words(_work(one))]


def _rule(one: Json) -> str:
    return one["cron"] or f"{EVERY} {one['every']}"


def _work(one: Json) -> object:
    return one["task"]["work"]


@cron.command("add", cls=CronCommand, epilog=EPILOG)
@click.argument("schedule", metavar="NAME", shell_complete=completing("schedules"))
@click.argument("rule", metavar="CRON")
@click.argument("file", nargs=-1)
@click.option("--zone", metavar="Z", help="Time zone of CRON, as Europe/Berlin. [default: UTC]")
@click.option(
    "--catchup",
    type=click.Choice(["skip", "last", "all"]),
    help="What becomes of times over a minute late: none, the last or all are made up for, one after the other unless "
    "--overlap is allow. [default: last]",
)
@click.option(
    "--overlap",
    type=click.Choice(["allow", "skip", "queue", "replace"]),
    help="When the task before it is not over: run beside it, not at all, after it, instead of it. [default: skip]",
)
@click.option("--jitter", metavar="D", help="Each task starts up to so much later, by chance.")
@click.option("--paused", is_flag=True, help="Not due before it is resumed.")
@schedule_options
@speaks_http
@click.pass_context
def add(
    ctx: click.Context,
    /,
    session: Session,
    schedule: str,
    rule: str,
    file: tuple[str, ...],
    *,
    zone: str | None,
    catchup: str | None,
    overlap: str | None,
    jitter: str | None,
    paused: bool,
    **given: Any,
) -> None:
    """Run a command, or the task in a FILE, at the times that CRON names. What NAME was before is replaced; its
    past stays in the ledger."""
    given_rule: Json = {"task": _task(ctx, file, dict.fromkeys(OF_ONE_TASK) | given)}
    if rule.startswith(EVERY):
        given_rule["every"] = rule.removeprefix(EVERY).strip()
    else:
        given_rule["cron"] = rule
    chosen = {"zone": zone, "catchup": catchup, "overlap": overlap, "jitter": jitter, "paused": paused or None}
    given_rule |= {field: value for field, value in chosen.items() if value is not None}

    async def work(client: Client) -> Json:
        return await client.put_schedule(schedule, given_rule)

    found = session.run(work)
    if session.as_json:
        print_json(found)
        return
    due = "paused" if found["paused"] else f"next {when(found['next'][0], session.around.wall_ms())}"
    click.echo(f"{plain(found['name'])}: {plain(found['text'])}; {due}")


def _task(ctx: click.Context, file: tuple[str, ...], given: Json) -> Json:
    argv: list[str] | None = ctx.meta.get(COMMAND)
    extra, around = fields(given)
    if argv and not file:
        return {"work": {"command": argv, **around}, **extra}
    if argv is None and len(file) == 1 and (file[0] == "-" or os.path.exists(file[0])):
        tasks = tasks_of(file[0])
        if len(tasks) != 1:
            raise click.UsageError(f"{file[0]} holds {len(tasks)} tasks; a schedule adds one")
        return merged(tasks[0], extra, around)
    if len(file) >= 3:
        raise click.UsageError("the five fields of CRON are one word: put them in quotes", ctx)
    if argv is None and file:
        words = f"there is no file {file[0]}" if len(file) == 1 else "one file at a time"
        raise click.UsageError(f"{words}; to run a command, put -- before it: -- {' '.join(file)}", ctx)
    if file:
        raise click.UsageError(f"{file[0]!r} stands before --: give a file or a command, not both", ctx)
    raise click.UsageError("what is to run? quvatlh cron add NAME CRON -- CMD [ARG...]", ctx)


@cron.command()
@_NAME
@speaks_http
def show(session: Session, name: str) -> None:
    """Show a schedule in plain words, with its next ten times."""
    found = _ask(session, "schedule", name)
    if session.as_json:
        print_json(found)
        return
    now_ms = session.around.wall_ms()
    click.echo(f"{click.style(plain(found['name']), bold=True)}  {plain(found['text'])}")
    for label, value in _pairs(found, now_ms):
        click.echo(labelled(label, value))
    for number, each in enumerate(found["next"]):
        click.echo(labelled("" if number else "next", f"{_local(each, found['zone'])} ({age(each, now_ms)})"))


def _local(text: str, zone: str | None) -> str:
    """As the clock shows it where the rule counts; a zone that is not known here is told in UTC."""
    moment = datetime.fromisoformat(text)
    try:
        moment = moment.astimezone(zoneinfo.ZoneInfo(zone or "UTC"))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        moment = moment.astimezone(UTC)
    return f"{moment:%a %Y-%m-%d %H:%M:%S}{moment:%z}".replace("+0000", "Z")


def _pairs(found: Json, now_ms: int) -> Iterator[tuple[str, str]]:
    yield "rule", plain(_rule(found)) + (f" in {plain(found['zone'])}" if found["zone"] else "")
    yield "runs", work_words(_work(found))
    task = found["task"]
    for name in ("queue", "group", "name"):
        if task.get(name) not in {None, "default"}:
            yield name, plain(task[name])
    yield "overlap", plain(found["overlap"])
    yield "catchup", plain(found["catchup"])
    if found["jitter"] != "0s":
        yield "jitter", plain(found["jitter"])
    if found["last_slot"]:
        yield (
            "last",
            when(found["last_slot"], now_ms) + (f"  {plain(found['last_task'])}" if found["last_task"] else ""),
        )
    if found["paused"]:
        yield "next", f"it is paused; quvatlh cron resume {plain(found['name'])}"


@cron.command()
@_NAME
@click.option("--limit", type=click.IntRange(1, 1000), default=LEDGER_SHOWN, show_default=True, help="Rows.")
@speaks_http
def ledger(session: Session, name: str, *, limit: int) -> None:
    """Say what became of each time, the latest first: the task that ran, or why none did."""

    async def work(client: Client) -> Json:
        async with hinting(client, "schedules", name):
            return await client.ledger(name, limit=limit)

    page = session.run(work)
    if session.as_json:
        for one in page["items"]:
            print_json(one)
    elif page["items"]:
        now_ms = session.around.wall_ms()
        rows = [[when(one["slot"], now_ms), _late(one), _outcome(one)] for one in page["items"]]
        Table(["SLOT", "LATE", "OUTCOME"], session.around.columns).print(rows)
        if page["next"] is not None:
            session.hint("there is more: --limit")
    else:
        session.hint("it has not been due yet")


def _late(one: Json) -> str:
    return age(one["slot"], _ms(one["at"]))


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def _outcome(one: Json) -> str:
    told = f"ran {one['task']}" if one["task"] else f"skipped: {one['why']}"
    return told + (", by hand" if one["manual"] else "")


@cron.command()
@_NAME
@speaks_http
def run(session: Session, name: str) -> None:
    """Add the task of a schedule now, beside its times; prints the id."""
    found = _ask(session, "run_schedule", name)
    if session.as_json:
        print_json(found)
    elif found["task"]:
        click.echo(found["task"])
    if not found["task"]:
        if not session.as_json:
            say(f"quvatlh: no task was added: {plain(found['why'])}")
        raise SystemExit(ExitStatus.REJECTED)


@cron.command()
@_NAME
@speaks_http
def pause(session: Session, name: str) -> None:
    """Let a schedule rest. Times that come meanwhile are not made up for."""
    _print_change(session, _ask(session, "pause_schedule", name))


@cron.command()
@_NAME
@speaks_http
def resume(session: Session, name: str) -> None:
    """Let a schedule go on, from now."""
    _print_change(session, _ask(session, "resume_schedule", name))


@cron.command()
@_NAME
@speaks_http
def rm(session: Session, name: str) -> None:
    """Delete a schedule and its ledger. Tasks that it has added stay."""
    _ask(session, "delete_schedule", name)
    if session.as_json:
        print_json({"name": name})
    else:
        click.echo(f"deleted {plain(name)}")


def _print_change(session: Session, found: Json) -> None:
    if session.as_json:
        print_json(found)
    elif found["paused"]:
        click.echo(f"{plain(found['name'])} is paused")
    else:
        click.echo(f"{plain(found['name'])} goes on; next {when(found['next'][0], session.around.wall_ms())}")


Verb = Literal["schedule", "run_schedule", "pause_schedule", "resume_schedule", "delete_schedule"]


def _ask(session: Session, verb: Verb, name: str) -> Any:
    async def work(client: Client) -> Any:
        async with hinting(client, "schedules", name):
            return await getattr(client, verb)(name)

    return session.run(work)


cron.add_command(add, "set")
cron.add_command(rm, "delete")
