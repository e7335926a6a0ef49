"""`quvatlh config`: what can be said of a configuration without starting anything."""

from __future__ import annotations

import os
import sys

import click

from quvatlh import config as configuration
from quvatlh.cli.configured import CONFIG_VARIABLE, loaded
from quvatlh.cli.lazy import NearGroup
from quvatlh.cli.printing import print_json
from quvatlh.cli.status import ExitStatus


@click.group(cls=NearGroup)
def config() -> None:
    """Look at configurations."""


@config.command()
@click.argument("file", required=False, envvar=CONFIG_VARIABLE)
@click.option("--json", "as_json", is_flag=True, help="Print the faults as JSON.")
def check(file: str | None, *, as_json: bool) -> None:
    """Say everything that is wrong with FILE, together with the environment as it is."""
    if not as_json:
        loaded(file, {})
        click.echo("the configuration is good")
        return
    try:
        configuration.load(file, environ=os.environ, flags={})
    except configuration.ConfigError as error:
        faults = [{"path": one.path, "message": one.message, "source": one.source} for one in error.faults]
        print_json({"faults": faults})
        sys.exit(ExitStatus.USAGE)
    print_json({"faults": []})
