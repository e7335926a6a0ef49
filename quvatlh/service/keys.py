"""pool.Pool's tokens: listed, made and revoked. The secret is made here, told once, and only its hash goes on."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence

from quvatlh.core import commands as c
from quvatlh.core import queries
from quvatlh.core.limits import TIME_MS_MAX
from quvatlh.core.model import Role, TokenScope
from quvatlh.core.rejections import FieldError
from quvatlh.core.scopes import Scope
from quvatlh.ports import Entropy
from quvatlh.service import asks, records
from quvatlh.service.pool import NEVER, Call, Json, Rejected, Until
from quvatlh.service.reads import Reads
from quvatlh.service.tokens import TOKEN_BYTES, hash_of
from quvatlh.service.writes import Writes


class Keys:
    def __init__(self, reads: Reads, writes: Writes, entropy: Entropy, now_ms: Callable[[], int]) -> None:
        """`now_ms`: what tokens expire by."""
        self._reads = reads
        self._writes = writes
        self._entropy = entropy
        self._now_ms = now_ms

    async def tokens(self, call: Call) -> Sequence[Json]:
        views = await self._reads.read(call, lambda db: list(queries.tokens(db)))
        now_ms = self._now_ms()
        return [records.token(view, now_ms) for view in views]

    async def token(self, call: Call, name: str) -> Json:
        for each in await self.tokens(call):
            if each["name"] == name:
                return each
        raise Rejected("not_found", f"there is no token named {name}")

    async def add_token(self, call: Call, name: str, role: Role, scope: Scope, until: Until = NEVER) -> Json:
        expires_at = self._expiry(until)
        secret = base64.urlsafe_b64encode(self._entropy.token(TOKEN_BYTES)).decode()
        put = c.PutToken(name, hash_of(secret), TokenScope(role, scope.queues, scope.groups, expires_at))
        await self._writes.write(call, asks.Do(put))
        return {**await self.token(call, name), "secret": secret}

    def _expiry(self, until: Until) -> int | None:
        now_ms = self._now_ms()
        expires_at = until.at_ms if until.in_ms is None else min(now_ms + until.in_ms, TIME_MS_MAX)
        if expires_at is not None and expires_at <= now_ms:
            raise Rejected("invalid", "expires is over already", [FieldError("expires", "must be later than now")])
        return expires_at

    async def revoke_token(self, call: Call, name: str) -> None:
        await self._writes.write(call, asks.Do(c.RevokeToken(name, spare_last=True)))
