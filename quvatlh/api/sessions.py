"""Sessions of browsers: begun by a link that works once, or by a token; carried by a cookie; over in a month at the latest.

A session stands for the token that it was begun with, known by that token's hash: when the token is revoked, its sessions
are over too. Cookies and links are long and random, and only their hashes are kept; sessions in a file, if there is a place
for one, so that a restart of the node asks nobody to log in again. Links are kept in memory alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

SECRET_BYTES: Final = 24
SESSION_S: Final = 30 * 86_400
SESSIONS_MAX: Final = 256
"""Where another would be too many, the oldest ends of the token that has most: none can log out all others."""
LINK_S: Final = 600
FIRST_LINK_S: Final = 3600
"""The link that a starting node prints may be found a little later."""
LINKS_MAX: Final = 256
COOKIE: Final = "quvatlh"


class Entry(NamedTuple):
    digest: bytes
    """Of the token."""
    until: float


class Sessions:
    def __init__(self, path: str | None = None, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now = now
        self._links: OrderedDict[str, Entry] = OrderedDict()
        self._sessions: OrderedDict[str, Entry] = OrderedDict(_read(path))
        self.cookie = COOKIE
        self.secure = False

    def placed(self, port: int, *, secure: bool) -> None:
        """Cookies are common to all ports of a host, so a node's is named after its own."""
        self.cookie = f"{'__Host-' if secure else ''}{COOKIE}-{port}"
        self.secure = secure

    # --- links ---

    def link(self, digest: bytes, lives_s: float = LINK_S) -> str:
        """The path that begins a session of this token, once."""
        once = secrets.token_urlsafe(SECRET_BYTES)
        self._links[_hash(once)] = Entry(digest, self._now() + lives_s)
        while len(self._links) > LINKS_MAX:
            _drop_one(self._links)
        return f"/login?once={once}"

    def redeem(self, once: str) -> bytes | None:
        """Whose link it was; None when it was used, or is too old."""
        entry = self._links.pop(_hash(once), None)
        return entry.digest if entry is not None and entry.until > self._now() else None

    # --- sessions ---

    def begin(self, digest: bytes) -> str:
        """The secret for the cookie."""
        secret = secrets.token_urlsafe(SECRET_BYTES)
        now = self._now()
        for key in [key for key, entry in self._sessions.items() if entry.until <= now]:
            del self._sessions[key]
        while len(self._sessions) >= SESSIONS_MAX:
            _drop_one(self._sessions)
        self._sessions[_hash(secret)] = Entry(digest, now + SESSION_S)
        self._write()
        return secret

    def find(self, secret: str) -> Entry | None:
        entry = self._sessions.get(_hash(secret))
        return entry if entry is not None and entry.until > self._now() else None

    def end(self, secret: str) -> None:
        if self._sessions.pop(_hash(secret), None) is not None:
            self._write()

    def _write(self) -> None:
        """Whole or not at all; without sync, since all that a crash can cost is to log in again."""
        if self._path is None:
            return
        rows = [(key, entry.digest.hex(), entry.until) for key, entry in self._sessions.items()]
        new = f"{self._path}.new"
        with contextlib.suppress(OSError):  # a full disk keeps nobody out
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(msgspec.json.encode(rows))
            os.rename(new, self._path)


def _drop_one(entries: OrderedDict[str, Entry]) -> None:
    """The oldest of whose token there are most."""
    most = Counter(entry.digest for entry in entries.values()).most_common(1)[0][0]
    del entries[next(key for key, entry in entries.items() if entry.digest == most)]


def _read(path: str | None) -> list[tuple[str, Entry]]:
    """What cannot be read is no session."""
    if path is None:
        return []
    try:
        with open(path, "rb") as file:
            rows = msgspec.json.decode(file.read(), type=list[tuple[str, str, float]])
        return [(key, Entry(bytes.fromhex(digest), until)) for key, digest, until in rows[-SESSIONS_MAX:]]
    except (OSError, ValueError, msgspec.MsgspecError):
        return []


def _hash(secret: str) -> str:
    return hashlib.blake2b(secret.encode(), digest_size=32, person=b"quvatlh session").hexdigest()
