"""`quvatlh wait`."""

from __future__ import annotations

import sys

import click

from quvatlh.cli import waiting
from quvatlh.cli.session import Duration, Session, speaks_http


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--timeout", type=Duration(), metavar="D", help="Wait at most so long, as 10s, 5m, 2h.")
@speaks_http
def wait(session: Session, ids: tuple[str, ...], *, timeout: float | None) -> None:
    """Wait until every task has finished (a service: runs).

    Exit status 5 when one failed or was deleted, 3 when the timeout came first.
    """
    sys.exit(waiting.until_finished(session, ids, timeout_s=timeout, out=click.echo))
