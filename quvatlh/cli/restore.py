"""`quvatlh cluster restore`: a backup into an empty data directory, on this machine, without any daemon.

What it takes to make one is the daemon's to know; here are the words.
"""

from __future__ import annotations

import os
import sys

import click

from quvatlh import daemon
from quvatlh.cli.configured import CONFIG_VARIABLE, loaded
from quvatlh.cli.printing import print_json, say
from quvatlh.cli.refusing import say_json
from quvatlh.cli.status import ExitStatus


@click.command(short_help="Make a new cluster of one node from a backup.")
@click.argument("file", metavar="FILE")
@click.option("--config", "config_file", metavar="F", envvar=CONFIG_VARIABLE, help="Configuration of the node to be.")
@click.option("--data", metavar="DIR", help="Its data directory, which must be empty.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def restore(file: str, config_file: str | None, data: str | None, *, as_json: bool) -> None:
    """Make a new cluster of one node from a backup, here, with no daemon running on the directory.

    Start it with `quvatlh run` on the same directory; add other nodes with `quvatlh cluster add`.
    """
    config = loaded(config_file, {"node.data": ("--data", data)})
    try:
        index = daemon.restore(config, os.path.abspath(file))
    except daemon.StartRefused as error:
        if as_json:
            say_json(f"not restored: {error}")
        else:
            say(f"quvatlh: not restored: {error}")
        sys.exit(ExitStatus.REJECTED)
    if as_json:
        print_json({"data": config.node.data, "index": index})
    else:
        click.echo(f"restored up to log index {index:,} into {config.node.data}")
        click.echo(f"start it with: quvatlh run --data {config.node.data}")
