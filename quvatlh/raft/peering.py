"""A node among its peers: what it tells them, what it hears, and how it comes into a cluster."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quvatlh.ports import Membership, RequestHandler, Unavailable
from quvatlh.raft import entries, founding
from quvatlh.raft.engine import Engine, MalformedMessage
from quvatlh.raft.keeping import Keeping
from quvatlh.raft.links import Links

if TYPE_CHECKING:
    from quvatlh.raft.link import Down, Link


class Peering(Keeping):
    """Owner of the links."""

    async def _start_links(self) -> str:
        options = self._options
        if not options.secret or not options.listen:
            return ""
        links = self._links = Links(
            self._world.network,
            self._world.clock,
            self._world.entropy,
            self._settings,
            options.secret,
            self._own.id,
            self._describe,
            lambda hello: founding.refuses(self._cluster(), hello),
            lambda event, facts: self._note(event.replace("_", " "), **facts),
        )
        links.on_up, links.on_down, links.on_message = self._link_up, self._link_down, self._received
        links.on_snapshot = self._serve_snapshot
        links.on_hello = self._hello
        for kind, handler in self._handlers.items():
            links.handle(kind, handler)
        bound = await links.start(options.listen)
        if not options.advertise:
            self._own = replace(self._own, peer=bound)
        return bound

    def _describe(self) -> dict[str, Any]:
        membership = self._last_membership
        return {
            "id": self._own.id,
            "name": self._own.name,
            "peer": self._own.peer,
            "http": self._own.http,
            "cluster": self._cluster(),
            "membership": entries.pack_membership(membership) if membership is not None else b"",
            "founders": list(self._founders()),
        }

    @property
    def waiting_for(self) -> str:
        """Why this node is in no cluster, or not any more; empty when it is."""
        if self._engine is None:
            return self._waiting_why
        if not self._engine.is_excluded():
            return ""
        return (
            "this node was removed from its cluster: end it, or have it taken back: on one of the cluster's nodes run "
            f"`quvatlh cluster add {self._own.id} {self._own.peer}`"
        )

    def _of_members(self, handler: RequestHandler) -> RequestHandler:
        """Whoever was removed, and may not know, is no worker of this cluster, nor a door to it."""

        async def handle(asker: str, body: bytes) -> bytes:
            engine = self._engine
            if engine is not None and engine.membership.get(asker) is None:
                raise Unavailable(f"node {asker} is no member of this cluster")
            return await handler(asker, body)

        return handle

    def _cluster(self) -> str | None:
        return self._last_membership.cluster if self._last_membership is not None else None

    # --- links come and go ------------------------------------------------------------------------------------------

    def _link_up(self, link: Link) -> None:
        incarnation = str(link.doc["incarnation"])
        known = self._incarnations.get(link.node_id, incarnation)
        self._incarnations[link.node_id] = incarnation
        if self._engine is not None:
            if known != incarnation:
                self._engine.gone(link.node_id)
            self._engine.link_up(link)
            self._tell_stranger(link, self._engine)
        else:
            self._consider_founding()
        self.wake()

    def _tell_stranger(self, link: Link, engine: Engine) -> None:
        """One that was removed while it was away does not know."""
        if engine.membership.get(link.node_id) is None and not engine.membership_pending():
            packed = entries.pack_membership(engine.membership)
            link.send(["members", engine.membership_index(), packed])

    def _link_down(self, link: Link, how: Down) -> None:
        engine = self._engine
        if engine is not None:
            engine.link_down(link)
            if how.reset and engine.leader_id() == link.node_id:
                self._spawn(lambda: self._look_after(link))
        self.wake()

    async def _look_after(self, link: Link) -> None:
        """The master's connection was reset. Where its process ended, nothing listens any more; then nobody need wait for
        its lease. A connection that was merely cut on the way must not count as an end."""
        for pause_s in self._settings.look_after_s:
            await asyncio.sleep(pause_s)
            if self._engine is None or self.link(link.node_id) is not None:
                return
            try:
                async with asyncio.timeout(self._settings.dial_s):
                    _, writer = await self._world.network.dial(str(link.doc["peer"]))
            except ConnectionRefusedError:
                self._engine.gone(link.node_id)
                return
            except (OSError, TimeoutError):
                return
            writer.abort()

    # --- what is heard ----------------------------------------------------------------------------------------------

    def _received(self, link: Link, message: list[Any]) -> None:
        if self._dead is not None:
            return
        if message[0] == "members":
            self._hear_membership(link, message)
            return
        engine = self._engine
        if engine is None:
            return
        try:
            engine.receive(link, message)
        except MalformedMessage:
            raise
        except Exception as error:  # noqa: BLE001  # as in _tick
            self._broken(error)

    def _hear_membership(self, link: Link, message: list[Any]) -> None:
        match message:
            case [_, int(index), bytes(packed)]:
                try:
                    membership = entries.unpack_membership(packed)
                except entries.BadEntry:
                    raise MalformedMessage("members") from None
            case _:
                raise MalformedMessage("members")
        link.doc["membership"] = packed
        link.doc["cluster"] = membership.cluster
        if self._engine is None:
            self._consider_founding()
        elif membership.get(self._own.id) is None and self._engine.excluded(index):
            self._note("removed from the cluster", cluster=membership.cluster, index=index, why=self.waiting_for)
            self.wake()

    def _hello(self, hello: dict[str, Any], address: str) -> None:
        """One of the peers' addresses may lead back here: that is how the others know this node."""
        if (
            hello["id"] == self._own.id
            and self._engine is None
            and address != self._own.peer
            and self._links is not None
        ):
            self._note("own address found in the peer list", address=address)
            self._own = replace(self._own, peer=address)
            for link in self._links.all:
                link.close("the own address is known now")

    def _consider_founding(self) -> None:
        if self._engine is not None or self._links is None or self._fetching:
            return
        verdict = founding.decide(self._own, self._founders(), [link.doc for link in self._links.all])
        if isinstance(verdict, Membership):
            self._fetching = True
            self._spawn(lambda: self._found(verdict))
        elif verdict.why != self._waiting_why:
            self._waiting_why = verdict.why
            self._note("not in a cluster yet", why=verdict.why)

    async def _found(self, membership: Membership) -> None:
        try:
            await self._begin(membership)
        finally:
            self._fetching = False
