"""How far each node is and what it keeps on its disk, by its own word, asked when somebody wants to see it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from quvatlh.ports import Log, LogError, Peers, Unavailable
from quvatlh.service.asks import Form, Unreadable
from quvatlh.service.pool import Json
from quvatlh.service.state import State

KIND: Final = "sizes"
ASK_S: Final = 0.2
"""Who looks at the cluster waits no longer for a node that does not answer."""
FILES: Final = ("", "-wal")
"""Of the state: the file, and what is not checkpointed into it yet."""


class Own(Struct, frozen=True, array_like=True):
    term: int
    index: int
    """Applied."""
    log_bytes: int
    snapshot_bytes: int
    """Of its state file, which is what a snapshot would be a copy of."""


_FORM: Final = Form(Own)


class Sizes:
    def __init__(self, log: Log, peers: Peers, state: State, log_bytes: Callable[[], int]) -> None:
        self._log = log
        self._peers = peers
        self._state = state
        self._log_bytes = log_bytes
        peers.handle(KIND, self._asked)

    async def told(self, nodes: Sequence[str]) -> Mapping[str, Json]:
        """By node; of one that does not answer all is None."""
        answers = await asyncio.gather(*(self._of(node) for node in nodes))
        nothing = dict.fromkeys(Own.__struct_fields__)
        return {
            node: nothing if answer is None else msgspec.structs.asdict(answer)
            for node, answer in zip(nodes, answers, strict=True)
        }

    async def _of(self, node: str) -> Own | None:
        if node == self._log.node_id:
            return self._own()
        with contextlib.suppress(LogError, Unreadable):
            answer: Own = _FORM.decode(await self._peers.request(node, KIND, b"", deadline=ASK_S))
            return answer
        return None

    def _own(self) -> Own:
        return Own(self._log.role.term, self._log.applied_index, self._log_bytes(), self._state_bytes())

    def _state_bytes(self) -> int:
        found = 0
        with contextlib.suppress(OSError, Unavailable):  # it is being replaced, or has just been
            path = self._state.path
            for end in FILES:
                if os.path.exists(path + end):
                    found += os.path.getsize(path + end)
        return found

    async def _asked(self, _asker: str, _body: bytes) -> bytes:
        return _FORM.encode(self._own())
