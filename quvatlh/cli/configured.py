"""The configuration as a command gets it: loaded and checked, or every fault on a line of its own."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from quvatlh import config as configuration
from quvatlh.cli.refusing import is_json, say_json
from quvatlh.cli.status import ExitStatus

CONFIG_VARIABLE = "QUVATLH_CONFIG"


def loaded(file: str | None, flags: configuration.Flags) -> configuration.Config:
    try:
        return configuration.load(file, environ=os.environ, flags=flags)
    except configuration.ConfigError as error:
        fail_with_faults(error)


def fail_with_faults(error: configuration.ConfigError) -> NoReturn:
    if is_json(click.get_current_context()):
        faults = [
            {"path": fault.path, "message": fault.message + (f" ({fault.source})" if fault.source else "")}
            for fault in error.faults
        ]
        say_json("the configuration cannot be used", faults)
        sys.exit(ExitStatus.USAGE)
    for fault in error.faults:
        line = click.style(fault.path or "configuration", bold=True) + f": {fault.message}"
        if fault.source:
            line += click.style(f" ({fault.source})", dim=True)
        click.echo(line, err=True)
    sys.exit(ExitStatus.USAGE)
