"""`quvatlh explain`: why a task is not running yet, worker by worker, and when it may."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from quvatlh.cli.printing import Table, labelled, plain, print_json, styled, when
from quvatlh.cli.session import Session, speaks_http

Json = dict[str, Any]

VERDICTS = {
    "would_run": "would run it",
    "lost": "is out of touch",
    "draining": "is draining",
    "queue": "does not take from its queue",
    "adapter": "cannot run its kind of work",
    "tags": "lacks a tag it asks for",
    "policy": "its policy does not bid here",
    "slots": "has not enough free slots",
    "limit": "has as many of its queue as a worker may",
    "bid": "bid for it",
    "not_asked": "its policy has not been asked here yet",
}
HOLDERS_SHOWN = 10


@click.command()
@click.argument("task_id", metavar="ID")
@speaks_http
def explain(session: Session, task_id: str) -> None:
    """Say why a task is not running yet: what holds it up, what each worker would say to it, and when it may start."""
    told = session.run(lambda client: client.explain(task_id))
    if session.as_json:
        print_json(told)
        return
    click.echo(f"{click.style(plain(task_id), bold=True)}  {styled(told['state'])}")
    for label, value in _pairs(told, session.around.wall_ms()):
        click.echo(labelled(label, value))
    if told["workers"]:
        click.echo()
        is_past = told["reason"] == told["state"]
        Table(["WORKER", "ITS POLICY, WHEN IT WAS GIVEN AWAY" if is_past else "ANSWER"], session.around.columns).print(
            [[one["name"], _words(one)] for one in told["workers"]]
        )


def _pairs(told: Json, now_ms: int) -> Iterator[tuple[str, str]]:
    yield "why", plain(told["text"])
    if told.get("change"):
        yield "change", plain(told["change"])
    if told["position"] is not None:
        yield "position", f"{told['position']:,}"
    holders = told["holders"]
    if holders:
        more = f" and {len(holders) - HOLDERS_SHOWN:,} more" if len(holders) > HOLDERS_SHOWN else ""
        yield "held by", plain(", ".join(holders[:HOLDERS_SHOWN])) + more
    eta = told["eta"]
    if eta and eta.get("at"):
        yield "expected", when(eta["at"], now_ms)
        for label, side in (("earliest", "low"), ("latest", "high")):
            if eta.get(side):
                yield label, when(eta[side], now_ms)


def _words(one: Json) -> str:
    words = VERDICTS.get(one["verdict"], str(one["verdict"]))
    if one.get("score") is not None:
        words += f", with {one['score']:g}" if one["verdict"] == "bid" else f", bids {one['score']:g}"
    return f"{words}: {one['detail']}" if one.get("detail") else words
