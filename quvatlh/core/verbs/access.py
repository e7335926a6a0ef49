"""Stored policies and tokens. What a token may do is checked where requests come in; here is who it is."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from quvatlh.core.commands import DeletePolicy, PutPolicy, PutToken, RevokeToken
from quvatlh.core.limits import DAY_MS
from quvatlh.core.model import TokenScope
from quvatlh.core.rejections import Rejection
from quvatlh.core.results import Ok, Versioned
from quvatlh.core.unit import Unit

EXPIRED_KEPT_MS: Final = 30 * DAY_MS
"""So long a token that has expired is listed, and its bearer is told so; then it is as if it had been revoked: a node that is
started with it makes no admin of it. Swept when another is made."""


def put_policy(unit: Unit, command: PutPolicy) -> Versioned:
    """The same source again is the same version."""
    digest = hashlib.blake2b(command.source.encode(), digest_size=16).digest()
    row = unit.db.execute("SELECT version, digest FROM policy WHERE name = ?", (command.name,)).fetchone()
    if row is not None and row[1] == digest:
        return Versioned(row[0])
    version = unit.take("policy")
    values = (command.name, version, digest, command.source, unit.now)
    unit.db.execute("INSERT OR REPLACE INTO policy VALUES (?, ?, ?, ?, ?)", values)
    unit.tell("policy.changed", command.name, more={"version": version})
    return Versioned(version)


def delete_policy(unit: Unit, command: DeletePolicy) -> Ok | Rejection:
    """Not while a task in the table or a schedule names it: that one could never be placed, or not announce itself."""
    sql = "SELECT 1 FROM shape WHERE body ->> '$.policy.name' = ?1 OR body ->> '$.announce' = ?1 LIMIT 1"
    planned = (
        "SELECT name FROM schedule WHERE spec ->> '$.task.policy.name' = ?1 OR spec ->> '$.task.announce.name' = ?1 "
        "ORDER BY name LIMIT 1"
    )
    unit.flush_tasks()
    if unit.db.execute("SELECT 1 FROM policy WHERE name = ?", (command.name,)).fetchone() is None:
        return Rejection("not_found", f"there is no policy named {command.name}")
    if unit.db.execute(sql, (command.name,)).fetchone() is not None:
        return Rejection("not_empty", f"tasks name policy {command.name}")
    schedule = unit.db.execute(planned, (command.name,)).fetchone()
    if schedule is not None:
        return Rejection("not_empty", f"schedule {schedule[0]} names policy {command.name}")
    unit.db.execute("DELETE FROM policy WHERE name = ?", (command.name,))
    unit.tell("policy.changed", command.name, "deleted")
    return Ok()


def put_token(unit: Unit, command: PutToken) -> Ok | Rejection:
    if unit.db.execute("SELECT 1 FROM revoked WHERE hash = ?", (command.hash,)).fetchone() is not None:
        return Rejection("conflict", "this token was revoked, and stays so")
    other = unit.db.execute("SELECT name FROM token WHERE hash = ?", (command.hash,)).fetchone()
    if other is not None and other[0] != command.name:
        return Rejection("conflict", f"this token is known as {other[0]}")
    old = unit.db.execute("SELECT hash, scope FROM token WHERE name = ?", (command.name,)).fetchone()
    if old is not None and old[0] != command.hash:
        expires_at = msgspec.json.decode(old[1], type=TokenScope).expires_at
        if expires_at is None or expires_at > unit.now:
            return Rejection("conflict", f"there is another token named {command.name}: revoke it first")
        _revoke(unit, command.name, old[0])
    sql = "SELECT name, hash FROM token WHERE scope ->> '$.expires_at' < ? AND hash <> ?"
    for name, digest in unit.db.execute(sql, (unit.now - EXPIRED_KEPT_MS, command.hash)).fetchall():
        _revoke(unit, name, digest)
    scope = msgspec.json.encode(command.scope).decode()
    values = (command.name, command.hash, scope, unit.now)
    unit.db.execute("INSERT OR REPLACE INTO token VALUES (?, ?, ?, ?)", values)
    unit.tell("token.changed", command.name)
    return Ok()


def revoke_token(unit: Unit, command: RevokeToken) -> Ok | Rejection:
    row = unit.db.execute("SELECT hash, scope FROM token WHERE name = ?", (command.name,)).fetchone()
    if row is None:
        return Rejection("not_found", f"there is no token named {command.name}")
    if command.spare_last and _stays_admin(row[1]):
        others = unit.db.execute("SELECT scope FROM token WHERE name <> ?", (command.name,))
        if not any(_stays_admin(scope) for (scope,) in others):
            words = f"{command.name} is the last token of role admin that does not expire: make another one first"
            return Rejection("conflict", words)
    _revoke(unit, command.name, row[0])
    unit.tell("token.changed", command.name, "revoked")
    return Ok()


def _stays_admin(scope: str) -> bool:
    found = msgspec.json.decode(scope, type=TokenScope)
    return found.role == "admin" and found.expires_at is None


def _revoke(unit: Unit, name: str, digest: bytes) -> None:
    unit.db.execute("DELETE FROM token WHERE name = ?", (name,))
    unit.db.execute("INSERT OR REPLACE INTO revoked VALUES (?, ?, ?)", (digest, name, unit.now))
