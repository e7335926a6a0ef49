"""The world of registers: clients write and read through every node, and their histories must be linearizable."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Mapping
from typing import Any

import msgpack

from quvatlh.ports import Unavailable, Unknown
from tests.sim.judge import Violation
from tests.sim.registers.box import RegisterBox
from tests.sim.registers.history import History
from tests.sim.registers.judge import RegisterJudge
from tests.sim.run import SETTLE_S, Run

CLIENTS = 3
REGISTERS = ("r", "s")
SETS = ("t",)


class RegisterRun(Run[RegisterBox]):
    judge: RegisterJudge

    def _prepare(self) -> None:
        self.judge = RegisterJudge()
        self.history = History()
        self.unknown = 0

    def _box(self, name: str) -> RegisterBox:
        rng = random.Random(self.rng.random())
        return RegisterBox(name, self.loop, self.net, rng, self.trace, self.own_settings, self.judge)

    def _clients(self) -> list[Coroutine[Any, Any, None]]:
        return [self._client(number) for number in range(CLIENTS)]

    async def _finish(self) -> None:
        await self._final_reads()
        self.judge.finish(self._members())
        self.history.judge()

    def _figures(self) -> Mapping[str, int]:
        return {"acknowledged": len(self.judge.acked), "refused": len(self.judge.refused), "unknown": self.unknown}

    # --- clients ----------------------------------------------------------------------------------------------------

    async def _client(self, number: int) -> None:
        rng = random.Random(self.rng.random())
        serial = 0
        while not self.at_peace:
            await asyncio.sleep(rng.expovariate(1 / 0.15))
            box = rng.choice(self.boxes)
            if box.dead or box.log is None or box.log.membership is None:
                continue
            serial += 1
            request = f"c{number}-{serial}"
            deadline = rng.choice([0.1, 0.5, 2.0, 5.0])
            if rng.random() < 0.25:
                await self._read(box, number, rng.choice(REGISTERS + SETS), deadline)
                continue
            writes = []
            for part in range(rng.choice([1, 1, 1, 3, 8])):
                verb = self._verb(rng, number * 1_000_000 + serial * 10 + part)
                writes.append(self._write(box, number, f"{request}-{part}", verb, deadline))
            await asyncio.gather(*writes)

    def _verb(self, rng: random.Random, value: int) -> list[Any]:
        fate = rng.random()
        if fate < 0.4:
            return ["write", rng.choice(REGISTERS), value]
        if fate < 0.6:
            return ["cas", rng.choice(REGISTERS), self.history.recent(rng), value]
        return ["add", rng.choice(SETS), value]

    async def _write(self, box: RegisterBox, client: int, request: str, verb: list[Any], deadline: float) -> None:
        item = msgpack.packb([request, *verb])
        op = self.history.invoke(client, verb, self.loop.now_s)
        try:
            _, result = await self.within(box, box.write("write", item, deadline), deadline)
        except Unavailable:
            self.judge.refuse(request)
            self.history.failed(op)
        except Unknown:
            self.unknown += 1
            self.history.unknown(op)
        else:
            self.judge.acknowledge(request, result)
            self.nemesis.acknowledged()
            self.history.done(op, result, self.loop.now_s)

    async def _read(self, box: RegisterBox, client: int, name: str, deadline: float) -> None:
        op = self.history.invoke(client, ["read", name], self.loop.now_s)
        try:
            machine = await self.within(box, box.read(deadline), deadline)
        except (Unavailable, Unknown):
            self.history.failed(op)
            return
        state = machine.state
        value = sorted(state.sets.get(name, [])) if name in SETS else state.registers.get(name)
        self.history.done(op, value, self.loop.now_s)

    async def _final_reads(self) -> None:
        """Every member answers a write and a read, and then all are equal."""
        for number, box in enumerate(self._members()):
            before = len(self.judge.acked)
            await self._write(box, 100 + number, f"final-{box.name}", ["add", SETS[0], -1 - number], 5.0)
            if len(self.judge.acked) == before:
                raise Violation(f"{box.name} did not take a write in peace")
            for name in REGISTERS + SETS:
                await self._read(box, 100 + number, name, 5.0)
        top = self.judge.top
        await self._until(
            lambda: all(b.log is not None and b.log.applied_index >= top for b in self._members()),
            SETTLE_S,
            "a member did not catch up",
        )
