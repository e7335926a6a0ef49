"""`quvatlh token`: who may what in the cluster, and which token the other commands use, and where it comes from."""

from __future__ import annotations

import sys
from typing import Any, get_args

import click

from quvatlh.cli.failing import looked
from quvatlh.cli.lazy import NearGroup
from quvatlh.cli.names import completing, hinting
from quvatlh.cli.printing import LABEL, Table, age, plain, print_json, say
from quvatlh.cli.session import Session, speaks_http
from quvatlh.cli.status import ExitStatus
from quvatlh.client import Client
from quvatlh.core.model import Role

Json = dict[str, Any]

EPILOG = """\b
Roles, each with what those before it may; worker stands beside them:
  viewer    sees tasks with their results and logs, queues, workers, schedules
  producer  adds and deletes tasks
  operator  retries, kills, moves and changes them; sets queues, workers,
            schedules, policies
  admin     members of the cluster, backups, tokens
  worker    claims tasks and reports on them, and nothing else

\b
Patterns know * (any text) and ? (one character). A task is in scope if its
queue matches one of the queues, and its group one of the groups."""


class Patterns(click.ParamType[tuple[str, ...]]):
    name = "patterns"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        found = tuple(part.strip() for part in str(value).split(","))
        if not all(found):
            self.fail(f"{value!r} holds an empty pattern", param, ctx)
        return found


@click.group(cls=NearGroup, epilog=EPILOG)
def token() -> None:
    """Tokens: the one that commands use; others made, listed, revoked."""


@token.command(short_help="Print the token that commands use, or tell of another.")
@click.argument("name", metavar="[NAME]", required=False, shell_complete=completing("tokens"))
@speaks_http
def show(session: Session, name: str | None) -> None:
    """Print the token that commands use, and on standard error where it was found: no node is asked. With NAME: the role
    and scope of that one."""
    if name is not None:
        _show(session, name)
        return
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


def _show(session: Session, name: str) -> None:
    async def work(client: Client) -> Json:
        async with hinting(client, "tokens", name):
            return await client.token(name)

    found = session.run(work)
    if session.as_json:
        print_json(found)
        return
    click.echo(plain(found["name"]))
    for label, value in (
        ("role", found["role"]),
        ("queues", _listed(found["queues"])),
        ("groups", _listed(found["groups"])),
        ("made", f"{age(found['created_at'], session.around.wall_ms())} ago"),
        ("expires", _expiry(found, session.around.wall_ms())),
    ):
        click.echo(f"  {label.ljust(LABEL)} {plain(value)}")


@token.command()
@speaks_http
def ls(session: Session) -> None:
    """List tokens. Their secrets are known to nobody but who has them."""
    listed = session.run(lambda client: client.tokens())
    if session.as_json:
        for one in listed:
            print_json(one)
        return
    now_ms = session.around.wall_ms()
    rows = [
        [one["name"], one["role"], age(one["created_at"], now_ms), _expiry(one, now_ms), *map(_listed, _scope(one))]
        for one in listed
    ]
    Table(["TOKEN", "ROLE", "AGE", "EXPIRES", "QUEUES", "GROUPS"], session.around.columns).print(rows)


@token.command(short_help="Make a token, and print its secret.", epilog=EPILOG)
@click.argument("name")
@click.option("--role", type=click.Choice(get_args(Role)), required=True, help="What it may.")
@click.option("--queues", type=Patterns(), metavar="P[,P...]", help="On which queues. [default: all]")
@click.option("--groups", type=Patterns(), metavar="P[,P...]", help="On which groups. [default: all]")
@click.option("--expires", metavar="TIME|D", help="Refused from then on, or after so long. [default: never]")
@speaks_http
def add(
    session: Session,
    name: str,
    *,
    role: str,
    queues: tuple[str, ...] | None,
    groups: tuple[str, ...] | None,
    expires: str | None,
) -> None:
    """Make a token NAME, and print its secret: this once, nobody can tell it again. Give it to who needs it as
    QUVATLH_TOKEN."""
    given = {"name": name, "role": role, "queues": queues, "groups": groups, "expires": expires}
    body = {key: value for key, value in given.items() if value is not None}
    made = session.run(lambda client: client.add_token(body), only_one=True)
    if session.as_json:
        print_json(made)
        return
    click.echo(made["secret"])
    queues_, groups_ = map(_listed, _scope(made))
    until = f", until {made['expires_at']}" if made["expires_at"] else ""
    session.hint(
        f"{plain(name)}: role {role}, {plain(f'queues {queues_}, groups {groups_}')}{until}. It is not shown again."
    )


@token.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=completing("tokens"))
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@speaks_http
def revoke(session: Session, names: tuple[str, ...], *, yes: bool) -> None:
    """Revoke tokens for good. What was begun with them ends within a second, on every node: sessions, streams, claims,
    workers' connections."""
    question = f"Revoke {', '.join(map(plain, names))}? Who uses it is shut out at once."
    if session.around.asks and not yes and not click.confirm(question, err=True):
        say("nothing was changed")
        sys.exit(ExitStatus.REJECTED)

    async def work(client: Client) -> None:
        for name in names:
            async with hinting(client, "tokens", name):
                await client.revoke_token(name)
            if session.as_json:
                print_json({"name": name})
            else:
                click.echo(f"revoked {plain(name)}")

    session.run(work)


def _scope(one: Json) -> tuple[list[str], list[str]]:
    return one["queues"], one["groups"]


def _expiry(one: Json, now_ms: int) -> str:
    """As the node judges it: this machine's clock only says in how long."""
    if one["expires_at"] is None:
        return "never"
    return "expired" if one["expired"] else age(one["expires_at"], now_ms)


def _listed(patterns: list[str]) -> str:
    return ", ".join(patterns)
