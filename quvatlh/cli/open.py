"""`quvatlh open`: the way into the dashboard, by a link that works once."""

from __future__ import annotations

import os
import webbrowser

import click

from quvatlh.cli.printing import print_json
from quvatlh.cli.session import Session, speaks_http


@click.command("open")
@click.option("--print", "only_print", is_flag=True, help="Print the link, and start no browser.")
@speaks_http
def open_(session: Session, *, only_print: bool) -> None:
    """Print a link that logs a browser into the dashboard, once, within ten minutes; start a browser where there is one.

    A browser is started only where a person watches and a screen is there: not over ssh, not in a pipe.
    """
    link = session.run(lambda client: client.link())
    if session.as_json:
        print_json({"url": link})
        return
    click.echo(link)
    around = session.around
    seen = "DISPLAY" in around.environ or "WAYLAND_DISPLAY" in around.environ or os.name == "nt"
    if around.watched and seen and not only_print and not webbrowser.open(link):
        session.hint("no browser could be started: open the link by hand")
