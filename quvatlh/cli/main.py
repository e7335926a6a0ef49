"""The command line. Each command says what it does and ends with a status of status.py; what it prints goes to standard
output, everything else to standard error.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import NoReturn

import click
from rich.console import Console
from rich.text import Text

from quvatlh import config as configuration
from quvatlh import daemon
from quvatlh.cli.status import ExitStatus

CONFIG_VARIABLE = "QUVATLH_CONFIG"

FLAGS = {
    "data": "node.data",
    "name": "node.name",
    "peer": "peer.listen",
    "peers": "peer.peers",
    "secret_file": "peer.secret_file",
}
"""Flags of `run` that stand for a key of the configuration."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="quvatlh", message="quvatlh %(version)s")
def main() -> None:
    """A scheduler, worker and replica in one daemon."""


@main.command()
@click.option("--config", "file", metavar="F", envvar=CONFIG_VARIABLE, help="YAML file; see config.example.yaml.")
@click.option("--data", metavar="DIR", help="Directory of identity, log and state.")
@click.option("--name", metavar="N", help="What people call this node.")
@click.option("--peer", metavar="H:P", help="Address where other nodes reach this one. [default: 127.0.0.1:7421]")
@click.option("--peers", metavar="H:P,...", help="All founders, the same list on every node.")
@click.option("--secret-file", metavar="F", help="File with the secret that all nodes share.")
def run(file: str | None, **flags: str | None) -> None:
    """Run a node until SIGTERM or SIGINT."""
    given = {path: (f"--{flag.replace('_', '-')}", flags[flag]) for flag, path in FLAGS.items()}
    config = _loaded(file, given)
    try:
        asyncio.run(daemon.run(config))
    except configuration.ConfigError as error:
        _fail_with_faults(error)
    except daemon.StartRefused as error:
        _say(Text(f"quvatlh does not start: {error}", style="red"))
        sys.exit(ExitStatus.REJECTED)


@main.group()
def config() -> None:
    """Look at configurations."""


@config.command()
@click.argument("file", required=False, envvar=CONFIG_VARIABLE)
def check(file: str | None) -> None:
    """Say everything that is wrong with FILE, together with the environment as it is."""
    _loaded(file, {})
    click.echo("the configuration is good")


def _loaded(file: str | None, flags: configuration.Flags) -> configuration.Config:
    try:
        return configuration.load(file, environ=os.environ, flags=flags)
    except configuration.ConfigError as error:
        _fail_with_faults(error)


def _fail_with_faults(error: configuration.ConfigError) -> NoReturn:
    for fault in error.faults:
        line = Text(fault.path or "configuration", style="bold")
        line.append(f": {fault.message}", style="not bold")
        if fault.source:
            line.append(f" ({fault.source})", style="not bold dim")
        _say(line)
    sys.exit(ExitStatus.USAGE)


def _say(text: Text) -> None:
    Console(stderr=True, soft_wrap=True, highlight=False).print(text)
