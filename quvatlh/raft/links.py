"""The connections between nodes: who is dialled, who is let in, and which connection to a node is the current one.

At most one link to a node is current, and both ends agree which (newest.py says how). The owner hears of links by
callbacks, on the loop, in order: for each link one on_up, then messages, then one on_down; for one node on_down of the
old link comes before on_up of the next. What messages mean is the owner's; requests between nodes (ports.Peers) go over
the links too. Nothing a stranger sends costs more than a bounded piece of memory, a closed connection and a notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from quvatlh.ports import Clock, Entropy, RequestHandler, Unavailable
from quvatlh.raft import handshake
from quvatlh.raft.asks import Asks, sendable
from quvatlh.raft.dialer import Dialer, Dialled
from quvatlh.raft.handshake import LINK, NONCE_BYTES, NOT_ADMITTED, OWN, SNAPSHOT, STALE, Doc, Ours, Refusal
from quvatlh.raft.link import Down, Link
from quvatlh.raft.network import Listener, Network, Writer
from quvatlh.raft.newest import Key, Numbers, key_of, takes_over
from quvatlh.raft.notices import Note, Notices
from quvatlh.raft.settings import Settings
from quvatlh.raft.wire import Channel, Message, WireError

INCARNATION_BYTES = 16

Admit = Callable[[Doc], str | None]
"""The reason to refuse a peer with this document; None when it is welcome."""


@dataclass(frozen=True, slots=True)
class _Greeting:
    """What came of dialling: a proved channel to an admitted peer, or a fault, or neither (our own, or stale)."""

    channel: Channel | None = None
    node_id: str | None = None
    seq: int = 0
    """The number that we gave the connection."""
    fault: str | None = None


async def _no_snapshot(channel: Channel) -> None:
    channel.close("snapshots are not taken")


class Links:
    """All links of this node. Implements ports.Peers. Callbacks must be quick and total, on_message excepted: it may
    raise WireError for a message that makes no sense, which closes that link.
    """

    def __init__(
        self,
        network: Network,
        clock: Clock,
        entropy: Entropy,
        settings: Settings,
        secret: bytes,
        own_id: str,
        describe: Callable[[], Doc],
        admit: Admit,
        note: Note,
    ) -> None:
        if not secret:
            raise ValueError("the cluster secret is empty")
        self.own_id = own_id
        self.incarnation = entropy.token(INCARNATION_BYTES).hex()
        """Of this process: made anew at each start."""
        self.on_up: Callable[[Link], None] = lambda _link: None
        self.on_down: Callable[[Link, Down], None] = lambda _link, _down: None
        self.on_message: Callable[[Link, Message], None] = lambda _link, _message: None
        self.on_snapshot: Callable[[Channel], Awaitable[None]] = _no_snapshot
        """An accepted channel of kind snapshot; it is closed when this returns."""
        self.on_hello: Callable[[Doc, str], None] = lambda _doc, _address: None
        """Every document of a proved peer, wanted or not, our own too when we dialled ourselves; before `admit` is
        asked. The address is the one dialled, or the one that the dialer announces as `peer`, empty when it
        announces none."""
        self._network = network
        self._clock = clock
        self._entropy = entropy
        self._settings = settings
        self._secret = secret
        self._describe = describe
        self._admit = admit
        self._notices = Notices(note, clock)
        self._current: dict[str, Link] = {}
        self._serials = 0
        self._numbers = Numbers(clock)
        self._handlers: dict[str, RequestHandler] = {}
        self._dialer = Dialer(
            own_id=own_id,
            clock=clock,
            entropy=entropy,
            settings=settings,
            is_linked=self._has_link,
            dial=self._dial,
            note=self._notices,
        )
        self._listener: Listener | None = None
        self._unproved = 0
        self._stopping = False
        self._tasks: dict[asyncio.Task[Any], None] = {}
        """All that run here but the dialer's. A dict, since the order of a set would not replay."""
        self._channels: dict[Channel, None] = {}
        """Open connections that are not links: in their handshake, or of kind snapshot."""

    # Life.

    async def start(self, listen_address: str) -> str:
        """Listen and begin to dial; the address that was bound."""
        self._listener = await self._network.listen(listen_address, self._accepted)
        self._dialer.start()
        return self._listener.address

    async def stop(self) -> None:
        """Say goodbye to all, and end all that runs here, within about ping_s."""
        self._stopping = True
        if self._listener is not None:
            await self._listener.close()
        await self._dialer.stop()
        for link in list(self._current.values()):
            link.close("the node stops")
        for channel in list(self._channels):
            channel.close("the node stops")
        # The dict, not a set of it: the order in which tasks are cancelled must replay.
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=self._settings.ping_s)
        ending = list(self._tasks)
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)
        self._notices.close()

    def set_addresses(self, addresses: Iterable[str]) -> None:
        """Whom to dial from now on. Links that are up stay, whatever their address."""
        self._dialer.set_addresses(addresses)

    # Links.

    def get(self, node_id: str) -> Link | None:
        """The current link to that node."""
        link = self._current.get(node_id)
        return link if link is not None and link.alive else None

    @property
    def all(self) -> tuple[Link, ...]:
        """The current links."""
        return tuple(link for link in self._current.values() if link.alive)

    async def open_snapshot(self, address: str) -> Channel:
        """A channel of kind snapshot to the node at `address`; closing it is the caller's. Unavailable when there is
        none to be had.
        """
        greeting = await self._greet(address, SNAPSHOT, None)
        if greeting.channel is None:
            raise Unavailable(f"no snapshot channel to {address}: {greeting.fault or 'it is this node'}")
        return greeting.channel

    # Requests between nodes.

    async def request(self, node_id: str, kind: str, body: bytes, *, deadline: float) -> bytes:
        link = self.get(node_id)
        if link is None:
            raise Unavailable(f"not connected to {node_id}")
        return await link.asks.ask(kind, body, deadline)

    def handle(self, kind: str, handler: RequestHandler) -> None:
        self._handlers[kind] = handler

    # Dialling.

    async def _dial(self, address: str, expected: str | None) -> Dialled:
        """One attempt to make a link; see Dialer."""
        greeting = await self._greet(address, LINK, expected)
        channel = greeting.channel
        if channel is not None:
            doc = channel.peer_doc
            key = key_of(greeting.seq, self.own_id, doc["id"])
            current = self.get(doc["id"])
            if current is None or takes_over(key, doc, current.key, current.doc):
                self._up(channel, key, address)
            else:
                self._dismiss(channel, "a newer connection came meanwhile")
        return Dialled(greeting.node_id, greeting.fault)

    async def _greet(self, address: str, kind: str, expected: str | None) -> _Greeting:
        """Connect, prove the secret, and ask whether the peer is admitted."""
        try:
            async with asyncio.timeout(self._settings.dial_s):
                reader, writer = await self._network.dial(address)
        except OSError as error:
            return _Greeting(fault=str(error) or f"no connection within {self._settings.dial_s:g} s")
        channel = Channel(reader, writer, self._settings, self._clock)
        self._channels[channel] = None
        seq = 0

        def describe() -> Doc:
            nonlocal seq
            seq = self._numbers.next(expected)
            return self._document(seq, expected or "")

        ours = Ours(self._secret, self._entropy.token(NONCE_BYTES), describe)
        done = False
        try:
            async with asyncio.timeout(self._settings.handshake_s):
                doc, refusal = await handshake.dial(channel, ours, kind, self._settings)
            done = refusal is None
        except WireError as error:
            return _Greeting(fault=error.reason)
        except TimeoutError:
            return _Greeting(fault=f"no handshake within {self._settings.handshake_s:g} s")
        finally:
            del self._channels[channel]
            if not done:
                channel.close("the handshake failed")
        return self._greeted(channel, doc, refusal, address, seq)

    def _greeted(self, channel: Channel, doc: Doc, refusal: Refusal | None, address: str, seq: int) -> _Greeting:
        """Weigh what a proved acceptor said."""
        self.on_hello(doc, address)
        node_id: str = doc["id"]
        if node_id == self.own_id:
            channel.close("it is this node")
            if doc["incarnation"] == self.incarnation:
                return _Greeting(node_id=node_id)
            return _Greeting(fault="another process has the id of this node")
        if refusal is not None:
            self._numbers.saw(node_id, refusal.seq)
            stale = refusal.code == STALE
            return _Greeting(node_id=node_id, fault=None if stale else f"refused there: {refusal.reason}")
        reason = self._admit(doc)
        if reason is not None:
            self._dismiss(channel, reason)
            return _Greeting(node_id=node_id, fault=f"refused here: {reason}")
        return _Greeting(channel, node_id, seq)

    def _document(self, seq: int, to: str) -> Doc:
        """Our hello document. `to` is whom we believe to dial; empty when we do not know."""
        return {**self._describe(), "id": self.own_id, "incarnation": self.incarnation, "seq": seq, "to": to}

    def _dismiss(self, channel: Channel, reason: str) -> None:
        """Close a proved channel that will not be a link, so that the other side does not take it for our death."""
        channel.leave(["bye", sendable(reason)], reason)
        self._spawn(self._wait_for_end(channel))

    async def _wait_for_end(self, channel: Channel) -> None:
        try:
            await channel.run(lambda _message: None)
        finally:
            channel.close("dismissed")

    # Being dialled.

    async def _accepted(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        if self._stopping or self._unproved >= self._settings.handshakes_max:
            writer.abort()
            self._refused("full", writer.peername(), f"{self._unproved} connections have yet to prove the secret")
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = None
        channel = Channel(reader, writer, self._settings, self._clock)
        self._channels[channel] = None
        try:
            if await self._answer(channel):
                # Nothing has run since it was judged.
                if channel.kind == LINK:
                    self._up_accepted(channel)
                else:
                    await self._serve_snapshot(channel)
        finally:
            self._channels.pop(channel, None)
            del self._tasks[task]

    async def _answer(self, channel: Channel) -> bool:
        """Run the handshake with a stranger; True when it is proved and wanted, else it is closed."""
        ours = Ours(self._secret, self._entropy.token(NONCE_BYTES), lambda: self._document(0, ""))
        wanted = False
        self._unproved += 1
        try:
            async with asyncio.timeout(self._settings.handshake_s):
                _, refusal = await handshake.accept(channel, ours, self._judge, self._settings)
            wanted = refusal is None
            if refusal is not None and refusal.code == NOT_ADMITTED:
                self._refused(refusal.code, channel.address, refusal.reason)
        except WireError as error:
            self._refused(error.code, channel.address, error.reason)
        except TimeoutError:
            reason = f"the secret was not proved within {self._settings.handshake_s:g} s"
            self._refused("timeout", channel.address, reason)
        finally:
            self._unproved -= 1
            if not wanted:
                channel.close("refused")
        return wanted

    def _judge(self, kind: str, doc: Doc) -> Refusal | None:
        """Whether we take the connection of a proved dialer."""
        node_id: str = doc["id"]
        if node_id == self.own_id:
            return Refusal(OWN, "a node does not talk to itself")
        self.on_hello(doc, handshake.peer_of(doc) or "")
        reason = self._admit(doc)
        if reason is not None:
            return Refusal(NOT_ADMITTED, reason)
        if kind == SNAPSHOT:
            return None
        self._numbers.saw(node_id, doc["seq"])
        current = self.get(node_id)
        if current is None:
            return None
        key = key_of(doc["seq"], node_id, self.own_id)
        knows_us = doc.get("to") == self.own_id
        if takes_over(key, doc, current.key, current.doc, knows_us=knows_us):
            return None
        return Refusal(STALE, "stale connection: there is a newer one", self._numbers.highest(node_id))

    def _up_accepted(self, channel: Channel) -> None:
        doc = channel.peer_doc
        self._channels.pop(channel)
        self._up(channel, key_of(doc["seq"], doc["id"], self.own_id), handshake.peer_of(doc) or channel.address)

    async def _serve_snapshot(self, channel: Channel) -> None:
        try:
            await self.on_snapshot(channel)
        finally:
            channel.close("done")

    def _refused(self, code: str, address: str, reason: str) -> None:
        if not self._stopping:
            self._notices(f"refused_{code}", {"address": address, "reason": reason})

    # Links coming and going.

    def _has_link(self, node_id: str) -> bool:
        return node_id == self.own_id or self.get(node_id) is not None

    def _up(self, channel: Channel, key: Key, address: str) -> None:
        """Make this connection the current one of its node, in place of the one that was."""
        node_id: str = channel.peer_doc["id"]
        old = self._current.get(node_id)
        if old is not None:
            old.leave(Down("replaced", "replaced by a newer connection"))
            self._down(old)
        self._serials += 1
        asks = Asks(
            node_id,
            send=channel.send,
            spawn=self._spawn,
            handlers=self._handlers,
            settings=self._settings,
            note=self._notices,
        )
        link = Link(
            serial=self._serials,
            address=address,
            key=key,
            channel=channel,
            asks=asks,
            settings=self._settings,
            clock=self._clock,
        )
        link.on_message = self.on_message
        link.on_closed = self._down
        self._current[node_id] = link
        self._spawn(self._run(link))
        self.on_up(link)
        self._dialer.linked(address, node_id)

    async def _run(self, link: Link) -> None:
        try:
            await link.run()
            self._down(link)
            await link.linger()
        finally:
            link.drop()
            self._down(link)

    def _down(self, link: Link) -> None:
        """Tell of the end of a link, once."""
        if self._current.get(link.node_id) is not link or link.down is None:
            return
        del self._current[link.node_id]
        link.asks.lost(link.down.reason)
        if link.down.how == "error":
            self._notices("link_error", {"node": link.node_id, "address": link.address, "reason": link.down.reason})
        self.on_down(link, link.down)
        self._dialer.changed()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        # What it raises stays with the task, for the loop to tell: only a bug does.
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
