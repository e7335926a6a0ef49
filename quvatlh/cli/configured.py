"""The configuration as a command gets it: loaded and checked, or every fault on a line of its own."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from quvatlh import config as configuration
from quvatlh.cli.status import ExitStatus

CONFIG_VARIABLE = "QUVATLH_CONFIG"


def loaded(file: str | None, flags: configuration.Flags) -> configuration.Config:
    try:
        return configuration.load(file, environ=os.environ, flags=flags)
    except configuration.ConfigError as error:
        fail_with_faults(error)


def fail_with_faults(error: configuration.ConfigError) -> NoReturn:
    for fault in error.faults:
        line = click.style(fault.path or "configuration", bold=True) + f": {fault.message}"
        if fault.source:
            line += click.style(f" ({fault.source})", dim=True)
        click.echo(line, err=True)
    sys.exit(ExitStatus.USAGE)
