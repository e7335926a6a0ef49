"""`quvatlh logs`: what a task wrote, stdout to stdout and stderr to stderr, byte for byte; or both as JSON."""

from __future__ import annotations

import asyncio
import sys
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Literal, cast

import click

from quvatlh.cli.printing import count, print_json, say
from quvatlh.cli.session import Session, speaks_http
from quvatlh.cli.waiting import FINISHED
from quvatlh.client import Client, Log, OutputLost

Stream = Literal["stdout", "stderr"]
STREAMS: tuple[Stream, ...] = ("stdout", "stderr")
KEPT = "16 MiB"
"""Of a stream, the first half and what came last: runner/settings.py."""
LINE_BYTES_MAX = 64 * 1024
"""Of one value: a longer line is in several."""
Json = dict[str, Any]


@click.command()
@click.argument("task_id", metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Go on until the task has finished, over its retries too.")
@click.option("--stream", type=click.Choice(STREAMS), help="Only this one.")
@click.option("--action", metavar="ID", help="Of this run. [default: the last]")
@speaks_http
def logs(session: Session, task_id: str, *, follow: bool, stream: str | None, action: str | None) -> None:
    """Print what a task wrote: its stdout to stdout, its stderr to stderr. With --json both to stdout, line by line."""
    wanted = STREAMS if stream is None else (cast("Stream", stream),)
    reader = _Reader(session, task_id, wanted)
    if follow and action is None:
        session.run(reader.follow)
    else:
        session.run(lambda client: reader.once(client, action, follow=follow))


class _Reader:
    def __init__(self, session: Session, task_id: str, streams: Sequence[Stream]) -> None:
        self._session = session
        self._task_id = task_id
        self._streams = streams
        self._is_cut = False
        """What stands on stderr does not end with its line."""

    async def once(self, client: Client, action: str | None, *, follow: bool = False) -> None:
        if action is None:
            task = await client.task(self._task_id)
            action = _last(task)
            if action is None:
                self._session.hint(f"{self._task_id} is {task['state']}: nothing has run yet")
        copies = (self._copy(client, each, action, follow=follow) for each in self._streams)
        logs: list[Log] = []
        for copied in await asyncio.gather(*copies, return_exceptions=True):
            if isinstance(copied, BaseException):
                raise copied
            logs.append(copied)
        if any(log.tail_only for log in logs):
            there = all(log.is_worker_there for log in logs)
            why = "its worker does not keep the rest" if there else "its worker cannot be asked"
            self._session.hint(f"{why}: this is the end of the output, as it came with the report")
        elif any(log.begins for log in logs):
            lost = ", ".join(
                f"{count(log.begins, 'byte')} of {stream}"
                for stream, log in zip(self._streams, logs, strict=True)
                if log.begins
            )
            self._session.hint(f"the first {lost} are no longer kept")

    async def follow(self, client: Client) -> None:
        """Run after run. What happens is watched from before the first look, so that nothing falls between."""
        since = str((await client.cluster())["index"])
        happened = client.events(since, id=self._task_id)
        seen: str | None = None
        while True:
            task = await client.task(self._task_id)
            action = _last(task)
            if action not in {None, seen}:
                seen = action
                try:
                    await self.once(client, action, follow=True)
                except OutputLost as lost:  # another run may follow
                    say(f"quvatlh: {lost.detail}")
            elif task["state"] in FINISHED:
                return
            else:
                if seen is None:
                    self._session.hint(f"{self._task_id} is {task['state']}: waiting for it to start")
                await anext(happened)

    async def _copy(self, client: Client, stream: Stream, action: str | None, *, follow: bool) -> Log:
        log = client.log(self._task_id, stream, action=action, follow=follow)
        if self._session.as_json:
            await _print_lines(log, stream)
            return log
        to = (sys.stdout if stream == "stdout" else sys.stderr).buffer
        told = 0
        async for chunk in log:
            for begin, end in log.gaps[told:]:  # told where it is, which is seen where both streams go to one place
                what = count(end - begin, "byte")
                cut = "\n" if self._is_cut else ""
                say(f"{cut}quvatlh: {what} in the middle of {stream} are not kept (at most {KEPT} of a stream are)")
                self._is_cut = False
            told = len(log.gaps)
            if stream == "stderr":
                self._is_cut = not chunk.endswith(b"\n")
            to.write(chunk)
            to.flush()
        return log


async def _print_lines(log: Log, stream: Stream) -> None:
    """Line by line as JSON, with the offset of each in all that was written; what is no text as base64. A gap is a value, too."""
    rest, told, at = b"", 0, 0

    def put(data: bytes) -> None:
        nonlocal at
        try:
            value = {"text": data.decode()}
        except UnicodeDecodeError:
            value = {"base64": b64encode(data).decode()}
        print_json({"action": log.action, "stream": stream, "offset": at, **value})
        at += len(data)

    async for chunk in log:
        at = at or log.begins
        for begin, end in log.gaps[told:]:
            if rest:
                put(rest)
            print_json({"action": log.action, "stream": stream, "offset": begin, "not_kept_bytes": end - begin})
            rest, at = b"", end
        told = len(log.gaps)
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            put(line + b"\n")
        while len(rest) > LINE_BYTES_MAX:
            put(rest[:LINE_BYTES_MAX])
            rest = rest[LINE_BYTES_MAX:]
        sys.stdout.flush()
    if rest:
        put(rest)


def _last(task: Json) -> str | None:
    actions = task.get("actions")
    return actions[-1]["id"] if actions else None
