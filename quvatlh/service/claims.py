"""What the table knows of a session's actions, as the claims that its worker is told of."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import structs

from quvatlh.core.model import Code, TaskSpec, Work
from quvatlh.core.queries import task_views
from quvatlh.core.rows import decode_spec, json_list
from quvatlh.core.verbs import telling
from quvatlh.service import policytask
from quvatlh.service.seat import Claim
from quvatlh.service.webrequests import AS_END

_SELECT: Final = """
SELECT live.token, live.task, live.id, live.attempt, live.slots, live.lease_ms, live.grp, live.name, live.queue,
    live.service, live.state, live.started_at, task.once, coalesce(task.spec, body.spec), body.payload,
    body.payload_json
FROM live JOIN task ON task.seq = live.task LEFT JOIN body ON body.task = live.task"""
"""What a claim says and nothing else, read at once: every award of the node's own worker goes this way."""


def of_tokens(db: sqlite3.Connection, session: str, tokens: Sequence[int]) -> list[Claim]:
    """Those of them that are live and the session's, by token."""
    sql = f"{_SELECT} WHERE live.token IN (SELECT value FROM json_each(?)) AND live.session = ? ORDER BY live.token"  # noqa: S608 - text of our own
    return _claims(db, db.execute(sql, (json_list(tokens), session)).fetchall())


def of_session(db: sqlite3.Connection, session: str) -> list[Claim]:
    return _claims(db, db.execute(f"{_SELECT} WHERE live.session = ? ORDER BY live.token", (session,)).fetchall())


def _claims(db: sqlite3.Connection, rows: Iterable[tuple[Any, ...]]) -> list[Claim]:
    specs: dict[str, TaskSpec] = {}
    """Tasks that are added together often say the same."""
    found: list[Claim] = []
    for (
        token, seq, task_id, attempt, slots, lease_ms, group, name, queue, service, state, started_at, once, text, payload, is_json
    ) in rows:  # fmt: skip
        spec = specs.get(text)
        if spec is None:
            spec = specs[text] = decode_spec(text)
        stop = spec.stop
        claim = Claim(
            token, seq, task_id, attempt, slots, lease_ms, _work(db, seq, task_id, spec.work), group,
            name or spec.name or task_id, queue, payload,
            spec.timeout_ms, stop.signal, stop.grace_ms, service == 1, once == 1, state == "stopping",
            started_at is not None, payload_json=is_json == 1,
        )  # fmt: skip
        found.append(claim if spec.announce is None else _announced(db, claim, spec.announce))
    return found


def _announced(db: sqlite3.Connection, claim: Claim, code: Code) -> Claim:
    source = policytask.source_of(db, code)
    if source is None:
        return claim
    return structs.replace(claim, announce=source, task=policytask.of_view(db, task_views(db, (claim.seq,))[0]))


def _work(db: sqlite3.Connection, seq: int, task_id: str, work: Work) -> Work:
    """The request of a notice is signed as one. Its id says that it is, where nobody has chosen it: the ids that are made for
    other tasks never begin so."""
    if work.http is None or not task_id.startswith(telling.ID_PREFIX):
        return work
    (chosen,) = db.execute("SELECT chosen FROM task WHERE seq = ?", (seq,)).fetchone()
    return work if chosen else structs.replace(work, http={**work.http, "sign": AS_END})
