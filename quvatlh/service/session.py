"""The life of this node's executor as the cluster sees it: a session is opened, beats, and is opened anew when it is over.

The lease of every action counts from when the last beat that was answered was *sent*: that is earlier than the master's
count begins, so an action is ended here before it is given away there.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from typing import Final

from quvatlh.core import commands as c
from quvatlh.core.model import WorkerFacts
from quvatlh.core.results import Opened
from quvatlh.ports import Clock, Entropy, Log, LogError, Peers, Role, Unavailable
from quvatlh.service import asks
from quvatlh.service.door import Door, Refusal
from quvatlh.service.presence import BEAT_S, KIND, Presence

SECRET_BYTES: Final = 16
OPEN_S: Final = 5.0
OPEN_AGAIN_S: Final = 0.2
"""A session that was heard a moment ago gives way once it is silent; asked again this often."""


class Session:
    """Held by worker.py, which knows the actions; here is only whose they are, and until when."""

    def __init__(
        self,
        log: Log,
        peers: Peers,
        door: Door,
        presence: Presence,
        clock: Clock,
        entropy: Entropy,
        *,
        worker: str,
        facts: WorkerFacts,
    ) -> None:
        self.worker = worker
        self.id: str | None = None
        """None while there is none."""
        self.floor = 0
        """Tokens up to this one were awarded to earlier sessions."""
        self.facts = facts
        self.on_opened: Callable[[], None] = lambda: None
        self.on_over: Callable[[], None] = lambda: None
        """The session is not this worker's any more: nothing that it held is."""
        self.on_beat: Callable[[], None] = lambda: None
        """Before a beat is sent."""
        self.surplus_slots: Callable[[], int] = lambda: 0
        self._log = log
        self._peers = peers
        self._door = door
        self._presence = presence
        self._clock = clock
        self._entropy = entropy
        self._renewed_at = 0.0
        self._beat_now = asyncio.Event()
        self._closing = False

    @property
    def is_open(self) -> bool:
        return self.id is not None

    def left_s(self, lease_ms: int) -> float:
        """Of a lease of that length, counted from the last answered beat."""
        return self._renewed_at + lease_ms / 1000 - self._clock.boot()

    def role_changed(self, _role: Role) -> None:
        """A new master has not heard this one yet."""
        self._beat_now.set()

    async def run(self) -> None:
        while not self._closing:
            if self.id is None:
                await self._open()
            else:
                await self._beat()
                await self._pause(BEAT_S)

    async def leave(self, deadline_s: float) -> None:
        """Ask for no more awards; the session goes on until it is closed."""
        if self.id is not None:
            with contextlib.suppress(LogError, Refusal):
                await self._door.write(asks.Do(c.PatchWorker(self.worker, c.WorkerChanges(leaving=True))), deadline_s)

    async def close(self, deadline_s: float) -> None:
        """Over in order: nothing may be held any more."""
        self._closing = True
        session, self.id = self.id, None
        if session is not None:
            with contextlib.suppress(LogError, Refusal):  # then it ends by its silence
                await self._door.write(asks.Do(c.EndSession(session)), deadline_s)

    def over(self) -> None:
        if self.id is not None:
            self.id = None
            self.on_over()
            self._beat_now.set()

    async def _open(self) -> None:
        session = self._entropy.token(SECRET_BYTES).hex()
        secret = hashlib.blake2b(self._entropy.token(SECRET_BYTES), digest_size=32).digest()
        wish = asks.Open(self.worker, session, secret, self._log.node_id, self.facts)
        sent = self._clock.boot()
        try:
            written = await self._door.write(wish, OPEN_S, self._door.request_id())
        except (LogError, Refusal):
            await self._pause(OPEN_AGAIN_S)
            return
        if isinstance(written.answer, Opened) and not self._closing:
            self.id, self.floor, self._renewed_at = session, written.answer.token, sent
            self.on_opened()

    async def _beat(self) -> None:
        self.on_beat()
        session = self.id
        if session is None:
            return
        beat = asks.Beat(self.worker, session, self.surplus_slots())
        sent = self._clock.boot()
        try:
            answer = await self._send(beat)
        except (LogError, asks.Unreadable):
            return
        if session != self.id:
            return
        if answer.known:
            self._renewed_at = max(self._renewed_at, sent)
        else:
            self.over()

    async def _send(self, beat: asks.Beat) -> asks.BeatAnswer:
        master = self._log.role.master
        if master == self._log.node_id:
            return self._presence.beat(beat)
        if master is None:
            raise Unavailable("no master is known")
        body = await self._peers.request(master, KIND, asks.BEAT.encode(beat), deadline=BEAT_S)
        answer: asks.BeatAnswer = asks.BEAT_ANSWER.decode(body)
        return answer

    async def _pause(self, at_most_s: float) -> None:
        """A beat that found no master is sent again once there is one."""
        try:
            async with asyncio.timeout(at_most_s):
                await self._beat_now.wait()
        except TimeoutError:
            pass
        self._beat_now.clear()
