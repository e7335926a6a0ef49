"""Sessions and workers: who may own actions, and what a worker says of itself."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from quvatlh.core import limits
from quvatlh.core.commands import EndSession, ForgetWorkers, OpenSession, PatchWorker, Presence, WorkerChanges
from quvatlh.core.model import WorkerFacts
from quvatlh.core.rejections import Rejection
from quvatlh.core.results import Ok, Opened, Worked
from quvatlh.core.rows import json_text
from quvatlh.core.unit import Unit
from quvatlh.core.verbs import deaths, ending

_FACTS = msgspec.json.Decoder(WorkerFacts)
BY_PERSON, BY_DAEMON = 1, 2
"""Bits of `draining`: who wishes that the worker takes nothing new. A person's wish outlives sessions."""
LOST_FACT = "lost/"
"""Before a worker's name: the fact that says since when it is lost."""


def open_session(unit: Unit, command: OpenSession) -> Opened | Rejection:
    """A new executor takes the place of the worker's old one, if that is out of the way."""
    facts = json_text(command.facts)
    if facts is None or len(facts) > limits.JSON_BYTES_MAX:
        return Rejection("invalid", "the worker's facts have no form in JSON, or are too long")
    same = unit.db.execute("SELECT worker, ended, floor FROM session WHERE id = ?", (command.session,)).fetchone()
    if same is not None:
        if same[:2] == (command.worker, 0):
            _stays(unit, command.worker)
            return Opened(same[2])
        return Rejection("conflict", f"session {command.session} was used before")
    worker = unit.db.execute("SELECT session, facts FROM worker WHERE name = ?", (command.worker,)).fetchone()
    refusal = _misnamed(command, worker) or (_refusal(unit, command, worker[0]) if worker and worker[0] else None)
    if refusal is not None:
        return refusal
    if worker is not None and worker[0] is not None:
        _replace(unit, worker[0], lose=command.ended and _was_isolated(unit, worker[0], command.directory))
    if command.outlived is not None:
        deaths.forgive(unit, command.worker, command.outlived)
    deaths.clear(unit, command.worker)
    floor = unit.last("token")
    row = (command.session, command.worker, command.secret_hash, command.directory, command.isolated, unit.now, floor)
    unit.db.execute("INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, 0)", row)
    unit.db.execute(
        "INSERT INTO worker VALUES (?1, ?2, 'up', 0, ?3) ON CONFLICT DO UPDATE SET session = excluded.session, "
        "state = 'up', draining = draining & ?4, facts = excluded.facts",
        (command.worker, command.session, facts, BY_PERSON),
    )
    _found(unit, command.worker)
    unit.tell("session.opened", command.worker, "up", more={"session": command.session, "token": floor})
    draining = unit.db.execute("SELECT draining FROM worker WHERE name = ?", (command.worker,)).fetchone()[0]
    shown = _state("up", draining=bool(draining))
    unit.tell(f"worker.{shown}", command.worker, shown)
    return Opened(floor)


def _stays(unit: Unit, worker: str) -> None:
    """The same executor under another daemon: the one that was leaving is gone."""
    row = unit.db.execute("SELECT state, draining FROM worker WHERE name = ?", (worker,)).fetchone()
    if row is not None and row[1] & BY_DAEMON:
        _drain(unit, worker, row[0], row[1], row[1] & ~BY_DAEMON)


def _drain(unit: Unit, worker: str, state: str, before: int, after: int) -> None:
    unit.db.execute("UPDATE worker SET draining = ? WHERE name = ?", (after, worker))
    if bool(before) == bool(after):
        return
    unit.tell("worker.draining" if after else "worker.up", worker, _state(state, draining=bool(after)))
    if after:
        _move_services(unit, worker)


def _move_services(unit: Unit, worker: str) -> None:
    """A job may finish here; a service never does."""
    for action in unit.select_live("WHERE worker = ? AND service = 1", worker):
        task = unit.tasks([action.task])[action.task]
        if not task.finished:
            ending.stop(unit, task, [action], "relocate")


def _lose(unit: Unit, worker: str) -> None:
    unit.db.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (LOST_FACT + worker, str(unit.now)))


def _found(unit: Unit, worker: str) -> None:
    unit.db.execute("DELETE FROM fact WHERE name = ?", (LOST_FACT + worker,))


def _misnamed(command: OpenSession, known: tuple[str | None, str] | None) -> Rejection | None:
    """Whether a session has an executor is told by its id; and a worker that had one keeps its name."""
    pulls = command.facts.role == "pull"
    if command.session.startswith(limits.PULL_SESSION) != pulls:
        return Rejection("invalid", f"a session of role {command.facts.role} is not to be named {command.session}")
    if pulls and known is not None and _FACTS.decode(known[1]).role != "pull":
        return Rejection("conflict", f"{command.worker} is the name of a worker that has an executor")
    return None


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
        actions = unit.select_live("WHERE session = ?", session)
        suspects = deaths.suspects(actions, _slots(unit, session))
        for action in actions:
            died = action.token in suspects
            ending.lost(unit, action, unit.tasks([action.task])[action.task], died=died)
    _close(unit, session)


def _slots(unit: Unit, session: str) -> int:
    sql = "SELECT facts FROM worker WHERE name = (SELECT worker FROM session WHERE id = ?)"
    return _FACTS.decode(unit.db.execute(sql, (session,)).fetchone()[0]).slots


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
    if unit.db.execute("SELECT 1 FROM fact WHERE name = ?", (LOST_FACT + row[0],)).fetchone() is None:
        _lose(unit, row[0])
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
    draining = row[1]
    for bit, wish in ((BY_PERSON, changes.draining), (BY_DAEMON, changes.leaving)):
        if wish is not UNSET:
            draining = draining | bit if wish else draining & ~bit
    unit.db.execute("UPDATE worker SET facts = ? WHERE name = ?", (facts, command.worker))
    unit.tell("worker.changed", command.worker, _state(row[0], draining=bool(draining)))
    _drain(unit, command.worker, row[0], row[1], draining)
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
    if command.heard:
        deaths.forgive(unit, command.worker, command.session)
    state = "up" if command.up else "lost"
    if state != row[1]:
        unit.db.execute("UPDATE worker SET state = ? WHERE name = ?", (state, command.worker))
        if command.up:
            _found(unit, command.worker)
        else:
            _lose(unit, command.worker)
        shown = _state(state, draining=bool(row[2]))
        unit.tell(f"worker.{shown}", command.worker, shown)
    return Ok()


def forget_workers(unit: Unit, command: ForgetWorkers) -> Worked:
    """Lost for a day, without a session and without anything live: it is not expected back."""
    sql = (
        "SELECT worker.name FROM fact JOIN worker ON fact.name = ?1 || worker.name "
        "WHERE CAST(value AS INTEGER) <= ?2 AND session IS NULL "
        "AND worker.name NOT IN (SELECT worker FROM live) ORDER BY worker.name LIMIT ?3"
    )
    gone = [row[0] for row in unit.db.execute(sql, (LOST_FACT, unit.now - limits.LOST_MS, command.limit))]
    for name in gone:
        _found(unit, name)
        deaths.clear(unit, name)
        unit.db.execute("DELETE FROM session WHERE worker = ?", (name,))
        unit.db.execute("DELETE FROM worker WHERE name = ?", (name,))
        unit.tell("worker.forgotten", name, "lost")
    return Worked(len(gone), len(gone) == command.limit)


def _state(state: str, *, draining: bool) -> str:
    """As the world sees it: lost outweighs draining."""
    return "draining" if draining and state == "up" else state
