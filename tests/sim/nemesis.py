"""What befalls a simulated cluster: kills, power failures, pauses, partitions, slow disks and links, clocks that are
set, disks that fail or are replaced, changes of membership and of the master. Each at a time that the seed chooses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from quvatlh.ports import Member
from tests.sim.box import AnyBox
from tests.sim.loop import SimLoop
from tests.sim.net import Link, NetWorld

ADMIN_S = 4.0
"""Deadline of what an operator asks for."""


class Nemesis:
    def __init__(
        self, loop: SimLoop, net: NetWorld, rng: random.Random, boxes: Sequence[AnyBox], founders: int
    ) -> None:
        self._loop = loop
        self._net = net
        self._rng = rng
        self._boxes = boxes
        self._founders = founders
        self._replaced: tuple[AnyBox, str] | None = None
        """A box whose disk was replaced, and the id that went with it, until the operator has seen to it."""
        self._left: set[str] = set()
        self._strike_at_ack: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._strike_at_follower = False
        self._at_peace = False
        self._strikes: set[asyncio.Task[None]] = set()
        self.counts: dict[str, int] = {}
        # A run has its own temper: some faults often, others never.
        self._weights = [(rng.choice([0, 1, 1, 3]) * weight, act) for weight, act in self._acts()]
        self._pause_s = rng.choice([0.3, 1.0, 2.5])

    def _acts(self) -> list[tuple[float, Callable[[], Coroutine[Any, Any, None]]]]:
        return [
            (3, self._kill),
            (3, self._kill_master),
            (3, self._power),
            (2, self._crash_in_steps),
            (2, self._crash_at_write),
            (1, self._all_power),
            (1, self._all_kill),
            (2, self._pause),
            (2, self._pause_master),
            (2, self._partition),
            (2, self._isolate_master),
            (1, self._one_way),
            (2, self._cut),
            (1, self._slow_link),
            (1, self._slow_disk),
            (1, self._clock),
            (1, self._disk_error),
            (1, self._replace_disk),
            (1, self._operator),
            (2, self._transfer),
            (2, self._long_down),
            (3, self._at_next_ack),
            (2, self._isolate_follower),
            (2, self._at_next_follower),
            (1, self._bounce),
        ]

    async def rage(self, seconds: float) -> None:
        ends = self._loop.now_s + seconds
        weights = [w for w, _ in self._weights]
        if not any(weights):
            weights = [1.0 for _ in weights]
        while self._loop.now_s < ends:
            await asyncio.sleep(self._rng.expovariate(1 / self._pause_s))
            for _ in range(self._rng.choice([1, 1, 1, 2, 4])):
                _, act = self._rng.choices(self._weights, weights)[0]
                self._count(act.__name__.removeprefix("_"))
                await act()
                await asyncio.sleep(self._rng.random() * 0.1)

    def acknowledged(self) -> None:
        """A client has its answer: the worst moment for what was waiting for it."""
        if self._strike_at_ack is not None:
            self._spawn(self._strike_at_ack())
            self._strike_at_ack = None

    async def _at_next_ack(self) -> None:
        self._strike_at_ack = self._rng.choice([self._all_power, self._power, self._kill_master, self._power_majority])

    async def _at_next_follower(self) -> None:
        """A follower applies: what if nobody else keeps what it has seen committed?"""
        self._strike_at_follower = True

    def follower_applied(self, box: AnyBox) -> None:
        master = self._master() if self._strike_at_follower else None
        if master is None or master is box:
            return
        self._strike_at_follower = False

        async def strike() -> None:
            await self._crash(master, power=True, longest=0.3)
            self._net.partition([box.name], [n for n in self._names() if n != box.name])
            self._later(2.5, self._net.heal)

        self._spawn(strike())

    async def _bounce(self) -> None:
        """Leadership goes away from a master that a minority still answered, and comes back to it without them."""
        master = self._master()
        others = [b for b in self._boxes[: self._founders] if b is not master and b.running]
        if master is None or self._founders < 4 or not others:
            return
        follower = self._rng.choice(others)
        names = self._names()
        self._net.partition([master.name, follower.name], [n for n in names if n not in {master.name, follower.name}])
        await asyncio.sleep(self._rng.uniform(0.6, 1.5))
        self._net.heal()
        self._net.partition([follower.name], [n for n in names if n != follower.name])
        await asyncio.sleep(self._rng.uniform(0.1, 0.6))
        now = self._master()
        if now is not None and now is not master and master.log is not None:
            node_id = master.log.node_id
            await self._ask(now, lambda log: log.transfer(node_id, deadline=ADMIN_S))
        self._heal_later()

    def _spawn(self, job: Coroutine[Any, Any, None]) -> None:
        """In nobody's process: who gave the occasion may be the next to die."""
        strike = self._loop.world.spawn(job)
        self._strikes.add(strike)
        strike.add_done_callback(self._strikes.discard)

    async def _power_majority(self) -> None:
        """With the master among them."""
        boxes = [b for b in self._boxes if b is not self._master()]
        self._rng.shuffle(boxes)
        master = self._master()
        for box in ([master] if master else []) + boxes[: len(self._boxes) // 2]:
            await self._crash(box, power=True)

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    def _say(self, text: str) -> None:
        self._boxes[0].say(f"nemesis: {text}")

    def _later(self, seconds: float, job: Callable[[], None]) -> None:
        self._loop.call_later(seconds, job)

    def _any(self) -> AnyBox | None:
        alive = [b for b in self._boxes if b.running]
        return self._rng.choice(alive) if alive else None

    def _master(self) -> AnyBox | None:
        return next((b for b in self._boxes if b.running and b.log is not None and b.log.acts()), None)

    def _back(self, box: AnyBox, longest: float = 3.0) -> None:
        def start() -> None:
            if box.dead:
                box.start()

        self._later(self._rng.uniform(0.01, longest), start)

    # --- processes --------------------------------------------------------------------------------------------------

    async def _crash(self, box: AnyBox | None, *, power: bool, longest: float = 3.0) -> None:
        if box is not None:
            box.crash(power=power)
            self._back(box, longest)

    async def _kill(self) -> None:
        await self._crash(self._any(), power=False)

    async def _kill_master(self) -> None:
        await self._crash(self._master(), power=self._rng.random() < 0.5)

    async def _power(self) -> None:
        await self._crash(self._any(), power=True)

    async def _long_down(self) -> None:
        await self._crash(self._any(), power=self._rng.random() < 0.5, longest=15.0)

    async def _crash_in_steps(self) -> None:
        box = self._any()
        if box is not None and box.process is not None:
            box.process.crash_after_steps(self._rng.randint(1, 300))
            self._watch_for_end(box)

    async def _crash_at_write(self) -> None:
        box = self._any()
        if box is not None:
            box.disk.crash_at_op(self._rng.randint(1, 40))
            self._watch_for_end(box)

    def _watch_for_end(self, box: AnyBox, within_s: float = 10.0) -> None:
        def look() -> None:
            if box.dead:
                self._back(box)
            elif self._loop.now_s < until:
                self._later(0.2, look)

        until = self._loop.now_s + within_s
        self._later(0.2, look)

    async def _all_power(self) -> None:
        for box in self._boxes:
            await self._crash(box, power=True)

    async def _all_kill(self) -> None:
        for box in self._boxes:
            await self._crash(box, power=False)

    async def _stop_for(self, box: AnyBox | None, seconds: float) -> None:
        if box is not None and box.process is not None:
            process = box.process
            box.say(f"paused for {seconds:.2f} s")
            process.pause()
            self._later(seconds, process.resume)

    async def _pause(self) -> None:
        await self._stop_for(self._any(), self._rng.choice([0.1, 0.3, 1.0, 4.0]))

    async def _pause_master(self) -> None:
        await self._stop_for(self._master(), self._rng.choice([0.2, 0.5, 1.0, 4.0]))

    # --- network ----------------------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        return [b.name for b in self._boxes]

    def _heal_later(self) -> None:
        self._later(self._rng.choice([0.2, 0.7, 2.0, 6.0]), self._net.heal)

    async def _partition(self) -> None:
        names = self._names()
        self._rng.shuffle(names)
        cut = self._rng.randint(0, len(names))
        self._say(f"partition {names[:cut]} from {names[cut:]}")
        self._net.partition(names[:cut], names[cut:])
        self._heal_later()

    async def _isolate_master(self) -> None:
        master = self._master()
        if master is not None:
            self._say(f"isolate {master.name}")
            self._net.partition([master.name], [n for n in self._names() if n != master.name])
            self._heal_later()

    async def _isolate_follower(self) -> None:
        others = [b for b in self._boxes if b.running and b is not self._master()]
        if others:
            name = self._rng.choice(others).name
            self._say(f"isolate {name}")
            self._net.partition([name], [n for n in self._names() if n != name])
            self._heal_later()

    async def _one_way(self) -> None:
        a, b = self._rng.choice(self._names()), self._rng.choice(self._names())
        if a != b:
            self._say(f"nothing from {a} to {b}")
            self._net.block(a, b)
            self._heal_later()

    async def _cut(self) -> None:
        a, b = self._rng.choice(self._names()), self._rng.choice(self._names())
        if a != b:
            self._say(f"cut {a} {b}")
            self._net.cut(a, b)

    async def _slow_link(self) -> None:
        a, b = self._rng.choice(self._names()), self._rng.choice(self._names())
        slow = Link(latency_s=(0.02, 0.2))
        self._net.set_link(a, b, slow)
        self._later(self._rng.uniform(0.5, 5), lambda: self._net.set_link(a, b, None))

    # --- disks and clocks -------------------------------------------------------------------------------------------

    async def _slow_disk(self) -> None:
        box = self._rng.choice(self._boxes)
        pace = box.disk.pace
        pace.stall_chance = 0.3
        self._later(self._rng.uniform(0.5, 5), lambda: setattr(pace, "stall_chance", 0.0))

    async def _clock(self) -> None:
        box = self._rng.choice(self._boxes)
        delta = self._rng.choice([-3_600_000, -1000, 500, 60_000, 86_400_000])
        box.say(f"wall clock set by {delta} ms")
        box.clock.jump_ms(delta)

    async def _disk_error(self) -> None:
        """The process may end by it, and a sync that failed counts as a power failure for what it was to sync."""
        box = self._any()
        if box is None or box.process is None:
            return
        box.say("disk errors")
        box.process.ends_with = (OSError,)
        box.broken_disk = True
        box.disk.fail(self._rng.choice(["write", "sync", "sync", "sync", "create", "rename"]))
        process = box.process

        def ended() -> None:
            box.disk.mend()
            box.broken_disk = False
            if not process.alive and box.process is process:
                box.forget()
                if self._rng.random() < 0.5:
                    box.disk.power_fail()
                    box.images.power_fail(self._rng)
                else:
                    # The page cache lives on, and with it what the failed sync never wrote.
                    self._later(self._rng.uniform(1, 4), lambda: None if self._at_peace else box.crash(power=True))
                    self._watch_for_end(box)
                self._back(box, 0.5)

        self._later(self._rng.uniform(0.5, 3), ended)

    # --- operators --------------------------------------------------------------------------------------------------

    async def _ask(self, box: AnyBox, job: Callable[[Any], Any]) -> bool:
        """As an operator at this box; False also where its process dies meanwhile."""
        assert box.process is not None
        task = box.process.spawn(box.administer(job))
        done, _ = await asyncio.wait([task], timeout=ADMIN_S + 2)
        return bool(done) and task.result()

    async def _transfer(self) -> None:
        master = self._master()
        if master is not None:
            await self._ask(master, lambda log: log.transfer(deadline=ADMIN_S))

    async def _replace_disk(self) -> None:
        """A node loses its disk for good. Only with three or more, and one at a time: beyond that data is lost by right."""
        box = self._rng.choice(self._boxes[: self._founders])
        if self._founders < 3 or self._replaced is not None or box.log is None or box.log.membership is None:
            return
        self._replaced = (box, box.log.node_id)
        box.crash(power=False)
        box.wipe()
        self._back(box)

    async def _operator(self) -> None:
        """Sees to a replaced node, or admits and removes a spare one; often twice at once, as operators do."""
        if self._replaced is not None and self._rng.random() < 0.5:
            await self._see_to_replaced()
            return
        await asyncio.gather(self._see_to_replaced(), self._see_to_spare())

    async def _see_to_spare(self) -> None:
        spares = self._boxes[self._founders :]
        master = self._master()
        if not spares or master is None or spares[0].log is None:
            return
        spare = spares[0]
        assert spare.log is not None and master.log is not None and master.log.membership is not None  # noqa: PT018
        member = Member(spare.log.node_id, spare.name, spare.address)
        if master.log.membership.get(member.id) is None:
            if member.id not in self._left:
                await self._ask(master, lambda log: log.add_member(member, deadline=ADMIN_S))
        elif (
            self._rng.random() < 0.3
            and spare is not master
            and await self._ask(master, lambda log: log.remove_member(member.id, deadline=ADMIN_S))
        ):
            self._left.add(member.id)

    async def _see_to_replaced(self) -> None:
        if self._replaced is None:
            return
        box, old_id = self._replaced
        master = self._master()
        if master is None or box.log is None or master.log is None or box.log.node_id == old_id:
            return
        membership = master.log.membership
        assert membership is not None
        new = Member(box.log.node_id, box.name, box.address)
        if membership.get(old_id) is not None:
            await self._ask(master, lambda log: log.remove_member(old_id, deadline=ADMIN_S))
        elif not membership.is_voter(new.id):
            await self._ask(master, lambda log: log.add_member(new, deadline=ADMIN_S))
        else:
            self._replaced = None

    # --- peace ------------------------------------------------------------------------------------------------------

    async def heal(self) -> None:
        """Everything works again, and the operators finish what they began."""
        self._say("peace")
        self._at_peace = True
        self._strike_at_ack = None
        self._strike_at_follower = False
        await asyncio.gather(*self._strikes)
        self._net.heal()
        for box in self._boxes:
            box.disk.mend()
            box.disk.crash_at_op(0)
            box.disk.pace.stall_chance = 0.0
            if box.process is not None:
                box.process.crash_after_steps(0)
                box.process.resume()
        await asyncio.sleep(3.5)
        for box in self._boxes:
            if box.dead:
                box.start()

    @property
    def unfinished(self) -> bool:
        return self._replaced is not None

    async def finish(self) -> None:
        """The operators do what they still have to."""
        while self._replaced is not None:
            await asyncio.sleep(0.5)
            await self._see_to_replaced()
