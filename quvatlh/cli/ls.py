"""`quvatlh ls`: the filters of GET /v1/tasks, as a table or as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from quvatlh.cli.names import completing
from quvatlh.cli.printing import Table, age, count, print_json, shortened, summary, time_text
from quvatlh.cli.session import Session, seconds, speaks_http
from quvatlh.client import Client

PAGE = 1000
"""The most that a node gives at once."""
LIMIT = 100
STATES = ("scheduled", "pending", "claimed", "running", "retrying", "succeeded", "failed", "deleted")
SORTS = ("created_at", "at", "finished_at", "priority")
GROUPS = ("state", "queue", "group", "name", "worker", "key", "error")
NOTHING = "no tasks"
FAILED = "failed"
LIVE = frozenset({"claimed", "running", "stopping"})

Json = dict[str, Any]


class States(click.ParamType[str]):
    """One or more, with commas."""

    name = "state"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        for each in str(value).split(","):
            if each not in STATES:
                self.fail(f"{each!r} is none of {', '.join(STATES)}", param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - as inherited
        before, comma, last = incomplete.rpartition(",")
        return [CompletionItem(f"{before}{comma}{each}") for each in STATES if each.startswith(last)]


def filters(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_FILTERS):
        command = option(command)
    return command


_FILTERS = (
    click.option("--state", type=States(), multiple=True, metavar="S[,S...]", help=f"One of {', '.join(STATES)}."),
    click.option("--queue", metavar="Q", shell_complete=completing("queues"), help="In this queue."),
    click.option("--group", metavar="G", help="Of this group."),
    click.option("--name", metavar="N", help="Of this name."),
    click.option("--worker", metavar="W", shell_complete=completing("workers"), help="Awarded to this worker."),
    click.option("--key", metavar="K", help="Of this flow or tenant."),
    click.option("--tag", metavar="T", help="That ask for this tag."),
    click.option("--kind", type=click.Choice(["job", "service"]), metavar="KIND", help="A job or a service."),
    click.option("--error", metavar="CODE", help="That failed with this code."),
    click.option("--q", "-q", metavar="TEXT", help="With this text in id, name, key, error or work."),
    *(
        click.option(f"--{stem}-{side}", metavar="TIME", help=f"{words} {side} this time, or so long ago.")
        for stem, words in (("created", "Added"), ("at", "Due"), ("finished", "Finished"))
        for side in ("after", "before")
    ),
)


@click.command()
@filters
@click.option(
    "--sort",
    type=click.Choice([f"{sign}{each}" for each in SORTS for sign in ("", "-")]),
    metavar="FIELD",
    help=f"{', '.join(SORTS)}; with - the other way round. [default: -created_at; with --failed: -finished_at]",
)
@click.option("--failed", is_flag=True, help="Those that failed, the last first, and why.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="INT",
    help=f"At most so many; of counts the largest. [default: {LIMIT}; of counts all]",
)
@click.option("--all", "is_all", is_flag=True, help="Every one of them, however many.")
@click.option("--group-by", type=click.Choice(GROUPS), metavar="FIELD", help=f"Count by {', '.join(GROUPS)}.")
@speaks_http
def ls(
    session: Session,
    *,
    sort: str | None,
    limit: int | None,
    is_all: bool,
    group_by: str | None,
    failed: bool,
    **wanted: Any,
) -> None:
    """List tasks, the newest first."""
    query = {name: moment(name, value, session) for name, value in wanted.items() if value}
    if failed:
        if wanted["state"]:
            raise click.UsageError("--failed is --state failed: give one of them")
        query["state"] = FAILED
    sort = sort or ("-finished_at" if failed else "-created_at")
    if group_by is not None:
        answer = session.run(lambda client: client.tasks(**query, group_by=group_by))
        _print_groups(session, answer, group_by, None if is_all else limit)
        return
    listing = _Failures(session) if failed else _Listing(session)

    async def work(client: Client) -> None:
        left: int | None = None if is_all else limit or LIMIT
        cursor: str | None = None
        while True:
            page = await client.tasks(**query, sort=sort, limit=min(left or PAGE, PAGE), cursor=cursor)
            listing.print(page["items"])
            cursor = page["next"]
            left = None if left is None else left - len(page["items"])
            if cursor is None or left == 0:
                listing.end(page["total"], is_more=cursor is not None)
                return

    session.run(work)


def moment(name: str, value: Any, session: Session) -> Any:
    """Of a filter by time: `2h` is two hours ago."""
    if not name.endswith(("_after", "_before")):
        return value
    span_s = seconds(value)
    return value if span_s is None else time_text(session.around.wall_ms() - round(span_s * 1000))


class _Listing:
    """Page by page, so that a million tasks need no more memory than one page. The first page says which columns have
    something to say."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._table: Table | None = None
        self._extra: list[str] = []
        self._shown = 0

    def print(self, tasks: list[Json]) -> None:
        self._shown += len(tasks)
        if self._session.as_json:
            for task in tasks:
                print_json(task)
        elif tasks:
            if self._table is None:
                self._extra = [head for head, cell in _EXTRA.items() if any(map(cell, tasks))]
                self._table = Table(["ID", "STATE", *self._extra, "AGE", "TASK"], self._session.around.columns)
            self._table.print([self._row(task) for task in tasks])

    def end(self, total: int | None, *, is_more: bool) -> None:
        if not self._shown:
            self._session.hint(NOTHING)
        elif is_more:
            of = f" of {total:,}" if total is not None and total > self._shown else ""
            self._session.hint(f"{self._shown:,}{of} shown; --all shows every one")

    def _row(self, task: Json) -> list[object]:
        extra = [_EXTRA[head](task) or ("default" if head == "QUEUE" else "-") for head in self._extra]
        return [
            task["id"],
            task["state"],
            *extra,
            age(task["created_at"], self._session.around.wall_ms()),
            summary(task),
        ]


class _Failures(_Listing):
    """Of tasks that failed: when, after how many attempts, and why."""

    _WHAT_CHARS = 32

    def print(self, tasks: list[Json]) -> None:
        if self._session.as_json or not tasks:
            super().print(tasks)
            return
        self._shown += len(tasks)
        columns = self._session.around.columns
        if self._table is None:
            self._table = Table(["ID", "QUEUE", "FAILED", "TRIES", "TASK", "WHY"], columns)
        self._table.print([self._failed_row(task, short=columns is not None) for task in tasks])

    def end(self, total: int | None, *, is_more: bool) -> None:
        super().end(total, is_more=is_more)
        if self._shown:
            self._session.hint("run them again: quvatlh retry ID..., or --failed; counted: --group-by error")

    def _failed_row(self, task: Json, *, short: bool) -> list[object]:
        error = task.get("error") or {}
        what = summary(task)
        return [
            task["id"],
            task["queue"],
            age(task["finished_at"], self._session.around.wall_ms()),
            task["attempts"],
            shortened(what, self._WHAT_CHARS) if short else what,
            error.get("text") or error.get("code") or "-",
        ]


def _queue(task: Json) -> str:
    return "" if task["queue"] == "default" else str(task["queue"])


def _worker(task: Json) -> str:
    """Of what is live."""
    if task["state"] not in {"claimed", "running"}:
        return ""
    names = [one["worker"] for one in task.get("actions") or () if one["state"] in LIVE]
    return ",".join(dict.fromkeys(names))


def _error(task: Json) -> str:
    return str((task.get("error") or {}).get("code", ""))


_EXTRA: dict[str, Callable[[Json], str]] = {"QUEUE": _queue, "WORKER": _worker, "ERROR": _error}
"""Columns that stand only where a task has something there."""


def _print_groups(session: Session, answer: Json, by: str, limit: int | None) -> None:
    groups, hidden = answer["groups"], 0
    if limit is not None and limit < len(groups):
        groups = sorted(groups, key=lambda group: -group["count"])
        groups, hidden = groups[:limit], len(groups) - limit
    if session.as_json:
        for group in groups:
            print_json(group)
    elif groups:
        Table(["COUNT", by.upper()], session.around.columns).print(
            [[f"{group['count']:,}", "-" if group["value"] is None else group["value"]] for group in groups]
        )
        shown = count(sum(group["count"] for group in groups), "task")
        session.hint(f"{shown}; {hidden:,} more not shown" if hidden else shown)
    else:
        session.hint(NOTHING)
