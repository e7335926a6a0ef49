"""`quvatlh run`: flags over environment over file, then the daemon."""

from __future__ import annotations

import asyncio
import sys

import click

from quvatlh import config as configuration
from quvatlh import daemon
from quvatlh.cli.configured import CONFIG_VARIABLE, fail_with_faults, loaded
from quvatlh.cli.status import ExitStatus

FLAGS = {
    "data": "node.data",
    "name": "node.name",
    "peer": "peer.listen",
    "peers": "peer.peers",
    "secret_file": "peer.secret_file",
    "http": "http.listen",
    "tags": "worker.tags",
    "slots": "worker.slots",
    "queues": "worker.queues",
    "app": "worker.app",
    "reload": "worker.reload",
    "role": "node.role",
    "server": "node.server",
}
"""Flags of `run` that stand for a key of the configuration."""


@click.command()
@click.option("--config", "file", metavar="F", envvar=CONFIG_VARIABLE, help="YAML file; see config.example.yaml.")
@click.option("--data", metavar="DIR", help="Directory of identity, log and state.")
@click.option("--name", metavar="N", help="What people call this node.")
@click.option("--http", metavar="H:P", help="Address for people and programs. [default: 127.0.0.1:7420]")
@click.option("--peer", metavar="H:P", help="Address where other nodes reach this one. [default: 127.0.0.1:7421]")
@click.option("--peers", metavar="H:P,...", help="All founders, the same list on every node.")
@click.option("--secret-file", metavar="F", help="File with the secret that all nodes share.")
@click.option("--tags", metavar="A,B=C", help="What tasks may ask of this worker.")
@click.option("--slots", metavar="N", help="How many actions run at once. [default: the number of cores]")
@click.option("--queues", metavar="P,Q", help="Patterns of the queues that it takes tasks from. [default: *]")
@click.option("--app", metavar="PKG.MOD", help="Module that Python tasks find loaded; its schedules are put.")
@click.option("--reload", is_flag=True, default=None, help="Load it anew when its files change. For development.")
@click.option("--role", metavar="R", help="node, or worker: without vote and replica, connected to any node.")
@click.option("--server", metavar="URL,...", help="Nodes that a worker connects to.")
def run(file: str | None, **flags: str | bool | None) -> None:
    """Run a node until SIGTERM or SIGINT."""
    given = {path: (f"--{flag.replace('_', '-')}", flags[flag]) for flag, path in FLAGS.items()}
    config = loaded(file, given)
    try:
        asyncio.run(daemon.run(config))
    except configuration.ConfigError as error:
        fail_with_faults(error)
    except daemon.StartRefused as error:
        click.secho(f"quvatlh does not start: {error}", fg="red", err=True)
        sys.exit(ExitStatus.REJECTED)
