"""Schedules that stand in an app's code, and the cluster's table brought to the same.

A schedule's name is `OWNER:NAME`, the owner being the module that was told to a worker (`quvatlh run --app`). What stands in the
table under an owner and in its app no more is deleted; schedules of others are not touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict

from quvatlh.client.taskoptions import Duration, Json, span

OWN = ("id", "at", "delay")
"""Of a task's options, what is for its schedule to say."""


class Rule(TypedDict, total=False):
    """Besides the time: as PUT /v1/schedules takes it."""

    zone: str
    """IANA's name; without one, UTC."""
    catchup: Literal["skip", "last", "all"]
    overlap: Literal["allow", "skip", "queue", "replace"]
    jitter: Duration
    paused: bool
    """Without it, what a person has paused stays so."""


@dataclass(frozen=True, slots=True)
class Changes:
    put: Sequence[str]
    gone: Sequence[str]
    refused: Mapping[str, str]
    """By name, why."""


class Table(Protocol):
    """Of Client, what is needed here."""

    async def schedules(self) -> Sequence[Json]: ...

    async def put_schedule(self, name: str, schedule: Mapping[str, Any], /) -> Json: ...

    async def delete_schedule(self, name: str, /) -> None: ...


def rule(cron: str | None, every: Duration | None, more: Rule) -> Json:
    """TypeError and ValueError say what is wrong; cron and zone are judged by the nodes."""
    if (cron is None) == (every is None):
        raise ValueError("a schedule has either the five fields of cron, or every=")
    unknown = more.keys() - Rule.__annotations__.keys()
    if unknown:
        raise TypeError(f"{min(unknown)}: there is no such option; there are {', '.join(Rule.__annotations__)}")
    said: Json = {**more}
    if "jitter" in more:
        said["jitter"] = span("jitter", more["jitter"])
    return said | ({"cron": cron} if every is None else {"every": span("every", every)})


async def bring(table: Table, owner: str, wanted: Mapping[str, Json], refusals: tuple[type[Exception], ...]) -> Changes:
    """The table to what the app says now. Saying the same again changes nothing."""
    prefix = f"{owner}:"
    known = {str(each["name"]): each for each in await table.schedules()}
    put: list[str] = []
    refused: dict[str, str] = {}
    for short, schedule in wanted.items():
        name = prefix + short
        kept = {"paused": True} if known.get(name, {}).get("paused") else {}
        version = known.get(name, {}).get("version")
        try:
            found = await table.put_schedule(name, kept | schedule)
        except refusals as problem:
            refused[name] = str(problem)
        else:
            if found["version"] != version:
                put.append(name)
    gone = [name for name in known if name.startswith(prefix) and name.removeprefix(prefix) not in wanted]
    for name in gone:
        await table.delete_schedule(name)
    return Changes(put, gone, refused)
