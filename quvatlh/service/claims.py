"""What the table knows of a session's actions, as the claims that its worker is told of."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from quvatlh.core.queries import live_actions, task_views
from quvatlh.core.rows import LIVE_SELECT, LiveRow, json_list, live_row
from quvatlh.core.views import TaskView
from quvatlh.service import policytask
from quvatlh.service.seat import Claim


def of_tokens(db: sqlite3.Connection, session: str, tokens: Sequence[int]) -> list[Claim]:
    """Those of them that are live and the session's, by token."""
    sql = f"{LIVE_SELECT} WHERE token IN (SELECT value FROM json_each(?)) AND session = ? ORDER BY token"  # noqa: S608 - text of our own
    return _claims(db, [live_row(row) for row in db.execute(sql, (json_list(tokens), session))])


def of_session(db: sqlite3.Connection, session: str) -> list[Claim]:
    return _claims(db, live_actions(db, session=session))


def _claims(db: sqlite3.Connection, rows: Sequence[LiveRow]) -> list[Claim]:
    seqs = sorted({row.task for row in rows})
    if not seqs:
        return []
    views = {view.row.seq: view for view in task_views(db, seqs)}
    sql = "SELECT task, payload FROM body WHERE task IN (SELECT value FROM json_each(?)) AND payload IS NOT NULL"
    payloads: dict[int, bytes] = dict(db.execute(sql, (json_list(seqs),)).fetchall())
    return [_claim(db, row, views[row.task], payloads.get(row.task)) for row in rows if row.task in views]


def _claim(db: sqlite3.Connection, row: LiveRow, view: TaskView, payload: bytes | None) -> Claim:
    spec = view.spec
    announce = policytask.source_of(db, spec.announce)
    return Claim(
        row.token,
        row.task,
        row.id,
        row.attempt,
        row.slots,
        row.lease_ms,
        spec.work,
        row.grp,
        row.name or spec.name or row.id,
        row.queue,
        payload,
        spec.timeout_ms,
        spec.stop.signal,
        spec.stop.grace_ms,
        service=bool(row.service),
        once=bool(view.row.once),
        stopping=row.state == "stopping",
        begun=row.started_at is not None,
        announce=announce,
        task=None if announce is None else policytask.of_view(db, view),
    )
