"""`quvatlh balance`: evens out a group over its workers, or says what that would take."""

from __future__ import annotations

import click

from quvatlh.cli.printing import Table, count, plain, print_json
from quvatlh.cli.session import Session, speaks_http


@click.command()
@click.argument("group")
@click.option("--dry-run", is_flag=True, help="Only say what would be moved.")
@click.option("--max", "most", type=click.IntRange(min=1), metavar="INT", help="At most so many moves.")
@speaks_http
def balance(session: Session, group: str, *, dry_run: bool, most: int | None) -> None:
    """Even out the tasks of a GROUP over the workers that may run them, by the least moves.

    Each is stopped before it is started elsewhere. Tasks that are not balancable stay.
    """
    found = session.run(lambda client: client.balance(group, dry_run=dry_run, most=most))
    if session.as_json:
        print_json({"moves": found.moves, "index": found.index})
    elif found.moves:
        rows = [[move["task"], move["from"], move["to"]] for move in found.moves]
        Table(["TASK", "FROM", "TO"], session.around.columns).print(rows)
        session.hint(f"{count(len(found.moves), 'move')}{': a plan, nothing was moved' if dry_run else ''}")
    else:
        session.hint(f"{plain(group)} is even already: nothing to move")
