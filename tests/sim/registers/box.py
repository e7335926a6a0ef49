"""A node of the world of registers: the log, a machine of registers and sets, and a small door."""

from __future__ import annotations

import asyncio
from typing import Any

import msgpack

from quvatlh.ports import MachineFactory, Unavailable, Unknown
from quvatlh.raft.log import RaftLog
from tests.sim.box import Box
from tests.sim.disk import DiskView
from tests.sim.registers.machine import SimMachine, Wals

AGAIN_S = 0.02
"""A door that was refused asks again after this."""


class RegisterBox(Box[SimMachine, Wals]):
    def _no_images(self) -> Wals:
        return Wals()

    def _machines(self, disk: DiskView) -> MachineFactory:
        def machines(directory: str) -> SimMachine:
            self.machine = SimMachine(disk, directory, self.images)
            return self.machine

        return machines

    def _prepare(self, log: RaftLog) -> None:
        log.handle("door", self._door)

    # --- a small door: one hop to the master, repeated until the deadline ---------------------------------------------

    async def _door(self, _asker: str, body: bytes) -> bytes:
        kind, item, deadline = msgpack.unpackb(body)
        return bytes(msgpack.packb(await self._here(kind, item, deadline)))

    async def _here(self, kind: str, item: bytes, deadline: float) -> list[Any]:
        log = self.log
        if log is None:
            raise Unavailable("starting")
        if kind == "read":
            return [await log.barrier(deadline=deadline), None]
        applied = await log.propose(item, deadline=deadline)
        return [applied.index, applied.result]

    async def write(self, kind: str, item: bytes, deadline: float) -> list[Any]:
        """(index, result). Unavailable when no attempt can have had an effect, else Unknown."""
        ends = self._loop.time() + deadline
        sure = True
        while True:
            left = ends - self._loop.time()
            if left <= 0:
                raise Unavailable("deadline") if sure else Unknown("deadline")
            try:
                log = self.log
                if log is None:
                    raise Unavailable("starting")
                if log.acts():
                    return await self._here(kind, item, left)
                master = log.role.master
                if master is None or master == log.node_id:
                    raise Unavailable("no master")
                body = msgpack.packb([kind, item, left])
                return list(msgpack.unpackb(await log.request(master, "door", body, deadline=left)))
            except Unavailable:
                await asyncio.sleep(AGAIN_S)
            except Unknown:
                sure = False
                await asyncio.sleep(AGAIN_S)

    async def read(self, deadline: float) -> SimMachine:
        """The machine as it is after a barrier."""
        index = (await self.write("read", b"", deadline))[0]
        assert self.log is not None
        await self.log.wait_applied(index, deadline=deadline)
        assert self.machine is not None
        return self.machine
