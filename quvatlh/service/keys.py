"""pool.Pool's tokens: listed, made and revoked. The secret is made here, told once, and only its hash goes on."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from quvatlh.core import commands as c
from quvatlh.core import queries
from quvatlh.core.model import Role, TokenScope
from quvatlh.core.scopes import Scope
from quvatlh.ports import Entropy
from quvatlh.service import asks, records
from quvatlh.service.pool import Call, Json, Rejected
from quvatlh.service.reads import Reads
from quvatlh.service.tokens import ADMIN, TOKEN_BYTES, hash_of
from quvatlh.service.writes import Writes


class Keys:
    def __init__(self, reads: Reads, writes: Writes, entropy: Entropy) -> None:
        self._reads = reads
        self._writes = writes
        self._entropy = entropy

    async def tokens(self, call: Call) -> Sequence[Json]:
        return [records.token(view) for view in await self._reads.read(call, lambda db: list(queries.tokens(db)))]

    async def token(self, call: Call, name: str) -> Json:
        for each in await self.tokens(call):
            if each["name"] == name:
                return each
        raise Rejected("not_found", f"there is no token named {name}")

    async def add_token(self, call: Call, name: str, role: Role, scope: Scope) -> Json:
        secret = base64.urlsafe_b64encode(self._entropy.token(TOKEN_BYTES)).decode()
        put = c.PutToken(name, hash_of(secret), TokenScope(role, scope.queues, scope.groups))
        await self._writes.write(call, asks.Do(put))
        return {**await self.token(call, name), "secret": secret}

    async def revoke_token(self, call: Call, name: str) -> None:
        """Not the last one that could make another."""
        known = {each["name"]: each["role"] for each in await self.tokens(call)}
        if known.get(name) == ADMIN and list(known.values()).count(ADMIN) == 1:
            raise Rejected("conflict", f"{name} is the last token of role {ADMIN}: make another one first")
        await self._writes.write(call, asks.Do(c.RevokeToken(name)))
