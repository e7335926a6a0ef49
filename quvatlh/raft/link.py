"""One link to one node: the current connection between the two, and the small talk that keeps it.

Here are ping, pong, bye, and what ask and answer look like from the link; all other messages are the owner's. When a
link comes, goes or is replaced is decided in links.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from quvatlh.ports import Clock
from quvatlh.raft.asks import Asks, sendable
from quvatlh.raft.newest import Key
from quvatlh.raft.settings import Settings
from quvatlh.raft.wire import Channel, End, How, Message, WireError

KIND_CHARS_MAX = 32
"""Of a message's first element."""
BYE_CHARS_MAX = 1000
"""Of the reason that the other side gives; more is cut."""
TICK_MIN_S = 0.001
"""The loop's clock and the boot clock differ by their rounding; a timer that fires early is set again, not at once."""


@dataclass(frozen=True, slots=True)
class Down:
    """How a link went down."""

    how: Literal["reset", "bye", "silence", "replaced", "closed", "error"]
    reason: str

    @property
    def reset(self) -> bool:
        """The current connection was cut by the other side's system, without a goodbye: its process is gone."""
        return self.how == "reset"


class Link:
    """`alive` until it is closed by either side. on_down is never called inside a call of the owner, but soon after."""

    def __init__(
        self, *, serial: int, address: str, key: Key, channel: Channel, asks: Asks, settings: Settings, clock: Clock
    ) -> None:
        self.serial = serial
        """Greater than that of every earlier link of this process."""
        self.node_id: str = channel.peer_doc["id"]
        self.doc = channel.peer_doc
        """The hello document it came with."""
        self.address = address
        """Dialled, or announced by the node that dialled us."""
        self.key = key
        self.alive = True
        self.rtt_s: float | None = None
        """Of the last ping that was answered."""
        self.asks = asks
        self.down: Down | None = None
        """Set as soon as it is not alive."""
        self.on_message: Callable[[Link, Message], None] = lambda _link, _message: None
        self.on_closed: Callable[[Link], None] = lambda _link: None
        """Called once, in a turn of its own, after `close`."""
        self._channel = channel
        self._settings = settings
        self._clock = clock
        self._pings = 0
        self._pinged_s = 0.0
        self._due_s = clock.boot()
        self._timer: asyncio.TimerHandle | None = None
        self._own: dict[str, Callable[[Message], None]] = {
            "ping": self._on_ping,
            "pong": self._on_pong,
            "bye": self._on_bye,
            "ask": asks.on_ask,
            "answer": asks.on_answer,
        }

    def send(self, message: Message) -> bool:
        """Send a list whose first element is its kind. False: not sent, the link is down or about to be."""
        sent = self.alive and self._channel.send(message)
        if self.alive and not sent:
            self._ended(Down("closed", self._channel.end.reason if self._channel.end else "closed"))
        return sent

    def pending(self) -> int:
        """Bytes not yet taken by the network."""
        return self._channel.pending()

    def close(self, reason: str) -> None:
        self.leave(Down("closed", reason))

    def leave(self, down: Down) -> None:
        """Say goodbye and close; nothing more is delivered."""
        if self.alive:
            self._ended(down)
            self._channel.leave(["bye", sendable(down.reason)], down.reason)
            asyncio.get_running_loop().call_soon(self.on_closed, self)

    async def run(self) -> Down:
        """Deliver messages until the end of the link. What remains of the connection is for `linger`."""
        self._tick()
        try:
            end = await self._channel.run(self._on_frame)
        finally:
            self._stop_timer()
        if self.down is None:
            self._ended(_down_of(end))
        assert self.down is not None
        return self.down

    async def linger(self) -> None:
        """After `run`: when it was a bad frame that ended it, say why and wait for the other side to close."""
        if self._channel.end is None and self.down is not None:
            self._channel.leave(["bye", sendable(self.down.reason)], self.down.reason)
            await self._channel.run(self._on_frame)

    def drop(self) -> None:
        """Whatever state it is in: over."""
        if self.down is None:
            self._ended(Down("error", "a fault in this node"))
        self._channel.close("over")

    def _ended(self, down: Down) -> None:
        self.alive = False
        self.down = down
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_frame(self, message: Message) -> None:
        kind = message[0] if message else None
        if type(kind) is not str or len(kind) > KIND_CHARS_MAX:
            raise WireError("a message without a kind")
        own = self._own.get(kind)
        if not self.alive:
            if kind == "bye":
                self._channel.close("both sides have left")
        elif own is not None:
            own(message)
        else:
            self.on_message(self, message)

    def _on_ping(self, message: Message) -> None:
        self._channel.send(["pong", _number(message)])

    def _on_pong(self, message: Message) -> None:
        if _number(message) == self._pings:
            self.rtt_s = self._clock.boot() - self._pinged_s

    def _on_bye(self, message: Message) -> None:
        if len(message) != 2 or type(message[1]) is not str:
            raise WireError("a bye of the wrong shape")
        self._ended(Down("bye", message[1][:BYE_CHARS_MAX]))
        self._channel.close("the other side has left")

    def _tick(self) -> None:
        """Ping when nothing was sent for ping_s, end the link when nothing came for silence_s."""
        now = self._clock.boot()
        late_s = now - self._due_s
        if late_s > self._settings.ping_s:
            # This process was held up (stopped, or busy): what it did not hear then is not the other's silence.
            self._channel.heard_s += late_s
        silent_s = now - self._channel.heard_s
        if silent_s >= self._settings.silence_s:
            self.leave(Down("silence", f"nothing was heard for {silent_s:.1f} s"))
            return
        if now - self._channel.sent_s >= self._settings.ping_s:
            self._pings += 1
            self._pinged_s = now
            self.send(["ping", self._pings])
        if self.alive:
            self._due_s = min(
                self._channel.sent_s + self._settings.ping_s, self._channel.heard_s + self._settings.silence_s
            )
            self._timer = asyncio.get_running_loop().call_later(max(self._due_s - now, TICK_MIN_S), self._tick)


def _number(message: Message) -> int:
    number = message[1] if len(message) == 2 else None
    if type(number) is not int:
        raise WireError(f"a {message[0]} of the wrong shape")
    return number


def _down_of(end: End) -> Down:
    if end.how in {How.EOF, How.RESET}:
        return Down("reset", end.reason)
    return Down("error" if end.how is How.ERROR else "closed", end.reason)
