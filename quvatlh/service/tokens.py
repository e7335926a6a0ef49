"""Who a bearer is: the replicated table of hashed tokens, in memory as long as nothing in it changes; and the first token.

Tokens are long and random, so a plain hash of one is as good as any; comparing happens inside a dictionary of hashes,
which tells a near miss nothing.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence

from quvatlh.core import commands as c
from quvatlh.core.events import Event
from quvatlh.core.model import TokenScope
from quvatlh.core.moments import rfc3339
from quvatlh.core.queries import token_by_hash, tokens, was_revoked
from quvatlh.ports import Entropy, LogError, Role
from quvatlh.service import asks
from quvatlh.service.door import Door, Refusal
from quvatlh.service.pool import Principal, Rejected, Unavailable
from quvatlh.service.state import State

TOKEN_FILE = "token"  # noqa: S105 - a name
TOKEN_VARIABLE = "QUVATLH_TOKEN"  # noqa: S105 - a name
TOKEN_BYTES = 24
ADMIN = "admin"
DEADLINE_S = 5.0
PAUSE_S = 0.1
_NAME_DIGITS = 8


_USABLE = re.compile(r"[A-Za-z0-9._~+/=-]{16,1024}", re.ASCII)


class TokenUnusable(Exception):
    """What stands in the variable or the file can be no bearer token, or is too easily guessed."""

    def __init__(self, place: str) -> None:
        super().__init__(f"the token in {place} must be 16 to 1024 of A-Z a-z 0-9 . _ ~ + / = -")


class TokenMissing(TokenUnusable):
    """Nobody has given one."""

    def __init__(self, path: str) -> None:
        Exception.__init__(self, f"there is no token: give one of the cluster's in {TOKEN_VARIABLE}, or in {path}")


class Tokens:
    """A Hearer."""

    def __init__(
        self, state: State, behind: Callable[[], str] = lambda: "", now_ms: Callable[[], int] = lambda: 0
    ) -> None:
        """`behind`: why the table may hold more than is seen here; empty: it does not. `now_ms`: what tokens expire by."""
        self._state = state
        self._behind = behind
        self._now_ms = now_ms
        self._known: dict[bytes, Principal] | None = None

    def authenticate(self, bearer: str) -> Principal | None:
        return self.recall(hash_of(bearer))

    def recall(self, digest: bytes) -> Principal | None:
        """Whose token has this hash. Rejected(unauthorized) where it has expired."""
        if self._known is None and self._state.is_open:
            self._known = {
                view.hash: Principal(
                    view.name,
                    view.scope.role,
                    view.scope.queues,
                    view.scope.groups,
                    view.hash.hex()[: _NAME_DIGITS * 2],
                    view.scope.expires_at,
                )
                for view in tokens(self._state.db)
            }
        found = None if self._known is None else self._known.get(digest)
        if found is None:
            self._doubt(digest)
        elif found.expires_at_ms is not None and found.expires_at_ms <= self._now_ms():
            raise Rejected("unauthorized", f"token {found.name} expired at {rfc3339(found.expires_at_ms)}")
        return found

    def _doubt(self, digest: bytes) -> None:
        """A stranger is told so only by who can know: a node that is behind may have missed the token's arrival."""
        behind = self._behind()
        if behind and not (self._state.is_open and was_revoked(self._state.db, digest)):
            raise Unavailable("no_master", f"whether this token is known cannot be said yet: {behind}")

    def heard(self, _index: int, events: Sequence[Event]) -> None:
        if any(event.kind == "token.changed" for event in events):
            self._known = None

    def role_changed(self, role: Role) -> None:
        pass

    def reset(self, _index: int) -> None:
        self._known = None


def hash_of(token: str) -> bytes:
    return hashlib.blake2b(token.encode(), digest_size=32, person=b"quvatlh token").digest()


def own_token(directory: str, environ: Mapping[str, str], entropy: Entropy) -> tuple[str, str]:
    """The admin token of this node, and where a person finds it. Made at the first start, readable by its owner alone."""
    try:
        return given_token(directory, environ)
    except TokenMissing:
        pass
    path = os.path.join(directory, TOKEN_FILE)
    token = base64.urlsafe_b64encode(entropy.token(TOKEN_BYTES)).decode()
    _write(path, token)
    return token, path


def given_token(directory: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """A token that a person gave, and where it was found; TokenMissing where there is none."""
    given = environ.get(TOKEN_VARIABLE, "").strip()
    if given:
        return _usable(given, TOKEN_VARIABLE), TOKEN_VARIABLE
    path = os.path.join(directory, TOKEN_FILE)
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            kept = file.read().strip()
    except FileNotFoundError:
        kept = ""
    if not kept:
        raise TokenMissing(path)
    return _usable(kept, path), path


def _usable(token: str, place: str) -> str:
    if _USABLE.fullmatch(token) is None:
        raise TokenUnusable(place)
    return token


def _write(path: str, token: str) -> None:
    """Whole or not at all."""
    new = f"{path}.new"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        os.fchmod(descriptor, 0o600)
        file.write(token + "\n")
        file.flush()
        os.fsync(descriptor)
    os.rename(new, path)


async def introduce(door: Door, state: State, token: str, node: str) -> None:
    """The hash joins the replicated table when the node joins; one that was revoked stays revoked."""
    digest = hash_of(token)
    while True:
        try:
            await door.barrier(DEADLINE_S)
            if token_by_hash(state.db, digest) is not None or was_revoked(state.db, digest):
                return
            name = f"{ADMIN}-{node}"[:200]
            for each in (name, f"{name}-{digest.hex()[:_NAME_DIGITS]}"):
                if await _put(door, each, digest):
                    return
            return
        except LogError as error:
            if error.code == "stopping":
                return
            await asyncio.sleep(PAUSE_S)


async def _put(door: Door, name: str, digest: bytes) -> bool:
    """False: the name is another token's."""
    try:
        await door.write(asks.Do(c.PutToken(name, digest, TokenScope("admin"))), DEADLINE_S)
    except Refusal:
        return False
    return True
