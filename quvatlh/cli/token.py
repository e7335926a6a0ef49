"""`quvatlh token`: which token the other commands use, and where it comes from."""

from __future__ import annotations

import sys

import click

from quvatlh.cli.failing import looked
from quvatlh.cli.lazy import NearGroup
from quvatlh.cli.printing import print_json, say
from quvatlh.cli.session import Session, speaks_http
from quvatlh.cli.status import ExitStatus


@click.group(cls=NearGroup)
def token() -> None:
    """The token that commands use."""


@token.command()
@speaks_http
def show(session: Session) -> None:
    """Print the token, and on standard error where it was found. No node is asked."""
    found = session.token
    if session.as_json:
        print_json(
            {"token": found.value, "source": found.source or None, "looked": [list(one) for one in found.looked]}
        )
    elif found.value is not None:
        click.echo(found.value)
        session.hint(f"from {found.source}")
    if found.value is None:
        say("quvatlh: there is no token. Looked at, in this order:")
        for line in looked(found):
            say(line)
        say("  A node writes it into its data directory at its first start: quvatlh run")
        sys.exit(ExitStatus.REJECTED)
