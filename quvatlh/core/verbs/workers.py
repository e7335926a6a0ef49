"""Sessions and workers: who may own actions, and what a worker says of itself."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from quvatlh.core import limits
from quvatlh.core.commands import EndSession, OpenSession, PatchWorker, Presence, WorkerChanges
from quvatlh.core.model import WorkerFacts
from quvatlh.core.rejections import Rejection
from quvatlh.core.results import Ok, Opened
from quvatlh.core.rows import json_text
from quvatlh.core.unit import Unit
from quvatlh.core.verbs import ending

_FACTS = msgspec.json.Decoder(WorkerFacts)


def open_session(unit: Unit, command: OpenSession) -> Opened | Rejection:
    """A new executor takes the place of the worker's old one, if that is out of the way."""
    facts = json_text(command.facts)
    if facts is None or len(facts) > limits.JSON_BYTES_MAX:
        return Rejection("invalid", "the worker's facts have no form in JSON, or are too long")
    same = unit.db.execute("SELECT worker, ended, floor FROM session WHERE id = ?", (command.session,)).fetchone()
    if same is not None:
        if same[:2] == (command.worker, 0):
            return Opened(same[2])
        return Rejection("conflict", f"session {command.session} was used before")
    worker = unit.db.execute("SELECT session FROM worker WHERE name = ?", (command.worker,)).fetchone()
    if worker is not None and worker[0] is not None:
        refusal = _refusal(unit, command, worker[0])
        if refusal is not None:
            return refusal
        _replace(unit, worker[0], lose=command.ended and _was_isolated(unit, worker[0], command.directory))
    floor = unit.last("token")
    row = (command.session, command.worker, command.secret_hash, command.directory, command.isolated, unit.now, floor)
    unit.db.execute("INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, 0)", row)
    unit.db.execute(
        "INSERT INTO worker VALUES (?, ?, 'up', 0, ?) ON CONFLICT DO UPDATE SET session = excluded.session, "
        "state = 'up', draining = 0, facts = excluded.facts",
        (command.worker, command.session, facts),
    )
    unit.tell("session.opened", command.worker, "up", more={"session": command.session, "token": floor})
    unit.tell("worker.up", command.worker, "up")
    return Opened(floor)


def _refusal(unit: Unit, command: OpenSession, old: str) -> Rejection | None:
    """The old session gives way to its own directory once it is silent; to others once it owns nothing."""
    directory = unit.db.execute("SELECT directory FROM session WHERE id = ?", (old,)).fetchone()[0]
    if not command.silent:
        return Rejection("conflict", f"worker {command.worker} has a session that was heard a moment ago")
    if directory != command.directory and _live(unit, old):
        return Rejection("conflict", f"leases of another session of worker {command.worker} still run")
    return None


def _was_isolated(unit: Unit, session: str, directory: str) -> bool:
    """A PID namespace of the same data directory, which has one executor at a time: nothing of it is left."""
    row = unit.db.execute("SELECT isolated, directory FROM session WHERE id = ?", (session,)).fetchone()
    return bool(row[0]) and row[1] == directory


def _live(unit: Unit, session: str) -> int:
    return int(unit.db.execute("SELECT count(*) FROM live WHERE session = ?", (session,)).fetchone()[0])


def _replace(unit: Unit, session: str, *, lose: bool) -> None:
    """Its actions are lost at once where they surely ended with it, else each at the end of its lease."""
    if lose:
        for action in unit.select_live("WHERE session = ?", session):
            ending.lost(unit, action, unit.tasks([action.task])[action.task], died=True)
    _close(unit, session)


def _close(unit: Unit, session: str) -> None:
    """An ended session stays known while it owns actions, and the last one of its worker."""
    unit.db.execute("UPDATE session SET ended = 1 WHERE id = ?", (session,))
    sql = (
        "DELETE FROM session WHERE ended = 1 AND id <> ? AND worker = (SELECT worker FROM session WHERE id = ?) "
        "AND id NOT IN (SELECT session FROM live)"
    )
    unit.db.execute(sql, (session, session))


def end_session(unit: Unit, command: EndSession) -> Ok | Rejection:
    row = unit.db.execute("SELECT worker, ended FROM session WHERE id = ?", (command.session,)).fetchone()
    if row is None:
        return Rejection("not_found", f"there is no session {command.session}")
    if row[1]:
        return Ok()
    if _live(unit, command.session):
        return Rejection("conflict", "leases of the session still run")
    _close(unit, command.session)
    unit.db.execute("UPDATE worker SET session = NULL, state = 'lost' WHERE name = ?", (row[0],))
    unit.tell("session.ended", row[0], "lost", more={"session": command.session})
    unit.tell("worker.lost", row[0], "lost")
    return Ok()


def patch_worker(unit: Unit, command: PatchWorker) -> Ok | Rejection:
    sql = "SELECT state, draining, facts FROM worker WHERE name = ?"
    row = unit.db.execute(sql, (command.worker,)).fetchone()
    if row is None:
        return Rejection("not_found", f"there is no worker named {command.worker}")
    changes = command.changes
    facts = json_text(_merged(_FACTS.decode(row[2]), changes))
    if facts is None or len(facts) > limits.JSON_BYTES_MAX:
        return Rejection("invalid", "the worker's facts have no form in JSON, or are too long")
    draining = bool(row[1]) if changes.draining is UNSET else changes.draining
    sql = "UPDATE worker SET draining = ?, facts = ? WHERE name = ?"
    unit.db.execute(sql, (draining, facts, command.worker))
    unit.tell("worker.changed", command.worker, _state(row[0], draining=draining))
    if draining != bool(row[1]):
        unit.tell("worker.draining" if draining else "worker.up", command.worker, _state(row[0], draining=draining))
    return Ok()


def _merged(facts: WorkerFacts, changes: WorkerChanges) -> WorkerFacts:
    named = {field: getattr(changes, field) for field in ("tags", "adapters", "slots", "queues", "facts")}
    return msgspec.structs.replace(facts, **{field: value for field, value in named.items() if value is not UNSET})


def presence(unit: Unit, command: Presence) -> Ok | Rejection:
    sql = "SELECT session, state, draining FROM worker WHERE name = ?"
    row = unit.db.execute(sql, (command.worker,)).fetchone()
    if row is None:
        return Rejection("not_found", f"there is no worker named {command.worker}")
    if row[0] != command.session:
        return Rejection("stale_token", f"worker {command.worker} has another session now")
    state = "up" if command.up else "lost"
    if state != row[1]:
        unit.db.execute("UPDATE worker SET state = ? WHERE name = ?", (state, command.worker))
        shown = _state(state, draining=bool(row[2]))
        unit.tell(f"worker.{shown}", command.worker, shown)
    return Ok()


def _state(state: str, *, draining: bool) -> str:
    """As the world sees it: lost outweighs draining."""
    return "draining" if draining and state == "up" else state
