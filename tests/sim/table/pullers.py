"""Pull workers of the world: processes of their own, with a clock each, that claim, renew, finish and fail over answers that
are lost, and end by their own count what they did not renew in time.

A claim is asked again under its key until it is answered, a report until it is answered or its action's lease is over; and
sometimes after that, which must be refused. Who dies comes back under the same name and knows nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from quvatlh.core.work import Work
from quvatlh.ports import ActionSpec
from quvatlh.service.pool import Broken, Call, Json, Problem, Rejected, RequestKey
from quvatlh.service.pullasks import Report, Verb
from quvatlh.service.pullpool import Pulled, Wanted
from tests.sim.clock import SimClock
from tests.sim.judge import Violation
from tests.sim.loop import SimLoop
from tests.sim.process import PAUSED, Process
from tests.sim.table.box import TableBox
from tests.sim.table.clients import SOMEBODY, Cluster, asked, some_box
from tests.sim.table.hands import HURRY_S, PROGRAM, Ground, Running, Script
from tests.sim.table.tasks import PULLED

T = TypeVar("T")
LEASES_MS: Final = (1000, 2500, 6000)
RENEW: Final = 0.3
"""Of a lease: so long after the last one the next renewal is sent."""
PROMISED: Final = 0.99
"""Of a lease: clocks differ in speed."""
TOO_LATE_S: Final = (0.2, 0.5)
"""About when the master, who waits a little longer, takes it for lost."""
STUCK_CHANCE: Final = 0.15
WATCHED_S: Final = 1.0
WATCH_S: Final = 0.001
"""A write that is synced takes longer."""
STEP_S: Final = 0.03
PAUSE_S: Final = 0.1
SLOW: Final = 0.9
"""Of a lease: who asks for the answer again so late has little of it left, if asking does not renew it."""
STALE: Final = "stale_token"
GONE: Final = "gone"
LOST_CHANCES: Final = (0.0, 0.1, 0.4)


@dataclass(slots=True, eq=False)
class Held:
    """An action that the worker takes for its own."""

    running: Running
    script: Script
    attempt: int
    lease_ms: int
    until: float
    """By its own clock: when the lease is over."""
    renewed: float
    """When the last renewal that was answered was sent."""
    due: float
    is_stuck: bool = False
    """Its worker neither renews nor ends it, as one that hangs."""
    timer: asyncio.TimerHandle | None = None

    @property
    def report(self) -> Report:
        return Report(self.running.spec.id, self.running.spec.fence, percent=50)


@dataclass
class Pulls:
    """What became of all that pull workers asked."""

    taken: int = 0
    again: int = 0
    """Claims that were answered more than once."""
    renewed: int = 0
    stale: int = 0
    """Reports that came too late, and were told so."""

    def shown(self) -> dict[str, int]:
        return {"pulled": self.taken, "pulled again": self.again, "renewed": self.renewed, "too late": self.stale}


class Puller:
    def __init__(
        self, cluster: Cluster, loop: SimLoop, ground: Ground, pulls: Pulls, name: str, rng: random.Random
    ) -> None:
        self.name = name
        self.process: Process | None = None
        self._cluster = cluster
        self._loop = loop
        self._ground = ground
        self._pulls = pulls
        self._rng = rng
        self._clock = SimClock(loop, rate=1 + rng.uniform(-1e-3, 1e-3), boot_s=rng.uniform(1, 1000))
        self._most = rng.choice([1, 2, 5])
        self._leases_ms = rng.choice([LEASES_MS, LEASES_MS[:1], LEASES_MS[1:]])
        self._lost_chance = rng.choice(LOST_CHANCES)
        self._held: dict[str, Held] = {}
        self._serial = 0

    # --- life -----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        process = self.process = self._loop.process(self.name)
        held: dict[str, Held] = {}
        self._held = held
        process.on_dead.append(lambda _power: self._die(held))
        process.start(self._main)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def pause(self) -> None:
        if self.process is not None:
            self.process.pause()

    def go_on(self) -> None:
        """Whatever befell it."""
        if self.process is None or not self.process.alive:
            self.start()
        elif self.process.gate & PAUSED:
            self.process.resume()

    def _die(self, held: dict[str, Held]) -> None:
        """What it ran was a part of it."""
        for each in held.values():
            self._ground.end(each.running, well=False)

    async def _main(self) -> None:
        while True:
            if not self._held:
                await self._claim()
            elif len(self._held) < self._most and self._rng.random() < 0.1:
                await self._claim(wait_ms=0)
            await self._work()

    # --- claims ---------------------------------------------------------------------------------------------------------

    async def _claim(self, wait_ms: int | None = None) -> None:
        self._serial += 1
        lease_ms = self._rng.choice(self._leases_ms)
        wait_ms = self._rng.choice([0, 200, lease_ms // 2]) if wait_ms is None else wait_ms
        queues = self._rng.choice([("*",), ("pulled*", "default"), (*PULLED, "default")])
        most = self._most - len(self._held)
        wanted = Wanted(self.name, queues, most, wait_ms, lease_ms, greedy=self._rng.random() < 0.3)
        key = None
        if self._rng.random() < 0.6:
            name = f"{self.name}-{self._serial}-{self._rng.random()}"
            key = RequestKey("somebody", "POST /v1/work/claim", name, repr(wanted).encode()[:16])
        answers = 0
        while True:
            sent = self._clock.boot()
            pulled = await self._ask_claim(wanted, key)
            if pulled is None and key is None:
                break  # nobody knows what it was given: it will be another's in time
            if pulled is not None:
                answers += bool(pulled.actions)
                if key is None or self._rng.random() >= self._lost_chance:
                    self._take(pulled, sent)
                    break
            await asyncio.sleep(self._rng.choice([PAUSE_S, PAUSE_S, lease_ms / 1000 * SLOW]))
        self._pulls.again += answers > 1
        await asyncio.sleep(STEP_S)

    async def _ask_claim(self, wanted: Wanted, key: RequestKey | None) -> Pulled | None:
        """None: no answer, or one that was lost on its way; or it hung up itself."""
        box = some_box(self._cluster, self._rng)
        if box is None or box.node is None:
            return None
        node, fate = box.node, self._rng.random()
        call = Call(SOMEBODY, self._rng.choice([500, 2000]), False, key)

        def job() -> Coroutine[Any, Any, Pulled]:
            return node.pool.claim(call, wanted)

        if fate < self._lost_chance / 3:
            await self._hang_up(box, job)
            return None
        try:
            pulled = await self._ask(box, job, wanted.wait_ms / 1000 + 2.0)
        except Problem:
            return None
        if fate < self._lost_chance / 3 * 2 and box.node is node and not box.dead:
            box.serve(node.pool.give_back(pulled))  # not a byte of the answer went out
            return None
        return None if fate < self._lost_chance else pulled

    async def _hang_up(self, box: TableBox, job: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        task = box.serve(_told(job))
        await asyncio.wait([task], timeout=self._rng.uniform(0.0, 0.3))
        if not box.dead:
            task.cancel()

    def _take(self, pulled: Pulled, sent: float) -> None:
        for action in pulled.actions:
            until = sent + action["lease_ms"] / 1000
            if action["action"] not in self._held and self._clock.boot() < until:
                self._begin(action, sent, until)

    def _begin(self, action: Json, sent: float, until: float) -> None:
        assert self.process is not None
        task = action["task"]
        script = Script.of_command(task["spec"]["work"]["env"][PROGRAM].split())
        spec = ActionSpec(action["action"], task["id"], task["attempts"], action["token"], self.name, Work(((),)))
        run_s = min(script.run_ms / 1000, HURRY_S) if self._ground.in_a_hurry else script.run_ms / 1000
        running = self._ground.begin(spec, self.process)
        self._ground.promise(spec.fence, self._loop.now_s - (self._clock.boot() - sent) + (until - sent) * PROMISED)
        due = self._clock.boot() + run_s
        stuck = not self._ground.in_a_hurry and self._rng.random() < STUCK_CHANCE
        held = self._held[spec.id] = Held(
            running, script, task["attempts"], action["lease_ms"], until, sent, due, stuck
        )
        self._pulls.taken += 1
        self._watch(held)

    def _watch(self, held: Held) -> None:
        """Ends it with its lease, however long an answer takes."""
        left = held.until - self._clock.boot()
        if left > 0:
            held.timer = self._loop.call_later(left / self._clock.rate, lambda: self._watch(held))
        elif held.running.ended_s is None:
            self._ground.end(held.running, well=False)

    # --- what it holds ----------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        now = self._clock.boot()
        over = [each for each in self._held.values() if each.running.ended_s is not None or each.until <= now]
        for each in over:
            await self._let_go(each)
        for each in [each for each in self._held.values() if each.due <= now < each.until and not each.is_stuck]:
            await self._end(each)
        ours = [each for each in self._held.values() if not each.is_stuck]
        stale = [each for each in ours if each.renewed + each.lease_ms / 1000 * RENEW < now]
        if stale:
            await self._renew(stale)
        await asyncio.sleep(STEP_S)

    async def _let_go(self, held: Held) -> None:
        """Its lease is over. Some ask all the same whether it is, or say what became of it; and some just as the master has
        proposed that it is lost, which only this world can see."""
        self._drop(held, well=False)
        if self._rng.random() < 0.4:
            await asyncio.sleep(self._rng.uniform(*TOO_LATE_S))
            await self._renew([held])
        elif self._rng.random() < 0.7 and (box := await self._proposing(held.running.spec.fence)) is not None:
            await self._renew([held], box)
        if self._rng.random() < 0.4:
            codes = await self._report("fail", [held])
            if codes is not None:
                self._check_end(held, codes[0])

    async def _proposing(self, token: int) -> TableBox | None:
        """The node whose loss of this action is under way; None: nobody's was in time."""
        for _ in range(round(WATCHED_S / WATCH_S)):
            for box in self._cluster.boxes:
                if box.node is not None and not box.dead and token in box.node.presence._condemned:
                    return box
            await asyncio.sleep(WATCH_S)
        return None

    async def _end(self, held: Held) -> None:
        """Until it is answered, or its time is over and it is another's."""
        if held.running.ended_s is not None:  # while something else was asked
            return
        well = held.attempt > held.script.fails
        self._drop(held, well=well)
        while self._clock.boot() < held.until or self._rng.random() < 0.5:
            codes = await self._report("finish" if well else "fail", [held])
            if codes is not None:
                self._check_end(held, codes[0])
                if self._rng.random() >= self._lost_chance:
                    return
            await asyncio.sleep(PAUSE_S)

    def _drop(self, held: Held, *, well: bool) -> None:
        self._held.pop(held.running.spec.id, None)
        if held.timer is not None:
            held.timer.cancel()
        self._ground.end(held.running, well=well)

    def _check_end(self, held: Held, code: str) -> None:
        """What is answered ok is so; what is lost is not taken."""
        spec, judge = held.running.spec, self._cluster.judge
        if code not in {"", STALE}:
            raise Violation(f"the end of {spec.task_id} under token {spec.fence} was answered {code}")
        if not code and spec.fence in judge.live:
            raise Violation(f"{spec.task_id} ended under token {spec.fence}, it was told, and is live")
        if not code and spec.fence in self._ground.given_up:
            raise Violation(f"{spec.task_id} is lost under token {spec.fence}, and its end was taken")
        task = judge.by_id[spec.task_id]
        if code and task.succeeded_by == spec.fence and task.keep_ms is None:
            raise Violation(f"{spec.task_id} succeeded under token {spec.fence}, which was called stale")
        self._pulls.stale += bool(code)

    async def _renew(self, held: list[Held], box: TableBox | None = None) -> None:
        sent, sent_s = self._clock.boot(), self._loop.now_s
        verb: Verb = "renew" if self._rng.random() < 0.8 else "progress"
        codes = await self._report(verb, held, box)
        for each, code in zip(held, codes or (), strict=False):
            if not code:
                self._ground.promise(each.running.spec.fence, sent_s + each.lease_ms / 1000 * PROMISED)
        if codes is None or self._rng.random() < self._lost_chance:
            return
        for each, code in zip(held, codes, strict=True):
            if code:
                self._drop(each, well=False)
                if code == GONE:
                    await self._report("fail", [each])
            elif each.running.ended_s is None and self._clock.boot() < each.until:
                each.until = max(each.until, sent + each.lease_ms / 1000)
                each.renewed = sent
                self._pulls.renewed += 1

    async def _report(self, verb: Verb, held: list[Held], box: TableBox | None = None) -> list[str] | None:
        """A code for each; None: nobody knows. Of some node, or this one."""
        box = box or some_box(self._cluster, self._rng)
        if box is None or box.node is None:
            return None
        node, deadline_ms = box.node, self._rng.choice([200, 1000])

        def job() -> Coroutine[Any, Any, Sequence[str]]:
            return node.pool.report(Call(SOMEBODY, deadline_ms), verb, [each.report for each in held])

        try:
            return list(await self._ask(box, job, deadline_ms / 1000))
        except Rejected as error:
            raise Violation(f"{verb} of {self.name} was rejected: {error.detail}") from error
        except Problem:
            return None

    async def _ask(self, box: TableBox, job: Callable[[], Coroutine[Any, Any, T]], deadline_s: float) -> T:
        """Nobody may be left to hear the answer, where the worker dies."""
        answer = await asked(self._cluster, box, _told(job), deadline_s)
        if isinstance(answer, Broken):
            raise Violation(f"{box.name} says that it is broken: {answer.detail}")
        if isinstance(answer, Problem):
            raise answer
        return answer


async def _told(job: Callable[[], Coroutine[Any, Any, T]]) -> T | Problem:
    """A task that is cancelled before its first step runs nothing, and so must not have been given what has to be awaited."""
    try:
        return await job()
    except Problem as error:
        return error
