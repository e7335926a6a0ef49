"""Peer links without a network: nodes that share a `Switchboard` reach each other, unless it cuts them off."""

from __future__ import annotations

import asyncio

from quvatlh.ports import RequestHandler, Unavailable, Unknown


class Switchboard:
    def __init__(self) -> None:
        self._nodes: dict[str, FakePeers] = {}
        self._cut: set[str] = set()
        self._mute: set[str] = set()

    def join(self, node_id: str) -> FakePeers:
        self._nodes[node_id] = FakePeers(node_id, self)
        return self._nodes[node_id]

    def cut(self, node_id: str) -> None:
        """Nobody reaches the node, and it reaches nobody: requests are certainly not delivered."""
        self._cut.add(node_id)

    def mute(self, node_id: str) -> None:
        """Requests reach the node; its answers are lost."""
        self._mute.add(node_id)

    def heal(self) -> None:
        self._cut.clear()
        self._mute.clear()

    async def carry(self, asker: str, to: str, kind: str, body: bytes) -> bytes:
        if to not in self._nodes or {asker, to} & self._cut:
            raise Unavailable(f"node {to} is not connected")
        try:
            answer = await self._nodes[to].answer(asker, kind, body)
        except Exception as error:
            raise Unknown(f"node {to} gave no answer") from error
        if to in self._mute:
            raise Unknown(f"the answer of node {to} was lost")
        return answer


class FakePeers:
    """ports.Peers of one node."""

    def __init__(self, node_id: str, switchboard: Switchboard) -> None:
        self._node_id = node_id
        self._switchboard = switchboard
        self._handlers: dict[str, RequestHandler] = {}

    async def request(self, node_id: str, kind: str, body: bytes, *, deadline: float) -> bytes:
        try:
            async with asyncio.timeout(deadline):
                return await self._switchboard.carry(self._node_id, node_id, kind, body)
        except TimeoutError:
            raise Unknown(f"node {node_id} did not answer in time") from None

    def handle(self, kind: str, handler: RequestHandler) -> None:
        self._handlers[kind] = handler

    async def answer(self, asker: str, kind: str, body: bytes) -> bytes:
        return await self._handlers[kind](asker, body)
