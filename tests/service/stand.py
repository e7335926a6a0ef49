"""One node's services on fakes: the real core behind a log in memory, an executor without processes, a clock that stands."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from quvatlh.codec import Values
from quvatlh.core import commands as c
from quvatlh.core.invariants import check_invariants, check_memory
from quvatlh.core.results import Awarded
from quvatlh.ports import Entry, Member, Membership, Role, Sender
from quvatlh.service.node import Node, Options, World
from quvatlh.service.pool import Added, Call, NewTask, Principal, RequestKey, Unavailable
from quvatlh.service.state import State
from quvatlh.service.status import LogFacts
from tests.fakes.clock import FakeClock
from tests.fakes.entropy import FakeEntropy
from tests.fakes.executor import FakeHost
from tests.fakes.executorprocess import FakeProcess
from tests.fakes.judge import FakeJudge
from tests.fakes.log import FakeLog
from tests.fakes.peers import Switchboard

PATIENCE_S = 60.0
"""Of a loop that waits for nothing."""
CODEC = Values()
ANN = Principal("ann", "admin")
WORK = {"command": ["true"]}
ROOMY = (10 * 2**30, 20 * 2**30)
FULL = (100 * 2**20, 20 * 2**30)


class Stand:
    """Of one node."""

    def __init__(
        self,
        directory: Path,
        name: str,
        switchboard: Switchboard,
        *,
        slots: int,
        seed: int,
        isolated: bool = False,
        works: bool | None = None,
        sender: Sender | None = None,
        **options: Any,
    ) -> None:
        """Without `works`: with slots it has an executor, without slots nothing can start one, so it has no worker."""
        directory.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.clock = FakeClock()
        self.state = State(CODEC)
        self.machine = self.state.open(str(directory))
        self.log = FakeLog(self.machine, clock=self.clock, node=_member(name), acting=False)
        self.entropy = FakeEntropy(seed)
        self.host = FakeHost(self.clock, self.entropy, isolated=isolated)
        if not (slots > 0 if works is None else works):
            self.host.broken = OSError("this stand has no worker")
        self.judge = FakeJudge(self.clock)
        self.sender = sender
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.room = ROOMY
        self.load: dict[str, Any] = {}
        """Of its machine."""
        self.fatal: list[BaseException] = []
        self.mirrors: list[Mirror] = []
        self.committed = 0
        """What this node has heard of."""
        self.peers = switchboard.join(name)
        self.options = Options(name, str(directory), slots, token="the admin token", drain_s=0.0, **options)
        self._make()

    def _make(self) -> None:
        """A daemon."""
        self.executor = self.host.executor(self.name)
        world = World(
            self.log,
            self.peers,
            self.executor,
            self.judge,
            self.clock,
            self.entropy,
            lambda: self.room,
            LogFacts(lambda: self.committed, clocks_ms=lambda: self.clock.wall_ms() + self.log.ahead_ms),
            load=lambda: self.load,
            note=lambda text, **fields: self.notes.append((text, fields)),
            sender=self.sender,
        )
        self.node = Node(self.options, world, self.state, CODEC, on_fatal=self.fatal.append)
        self.pool = self.node.pool

    async def crash(self) -> None:
        """The daemon is killed; what its executor does is the executor's business."""
        await self.node.stop()
        self.log._listeners.remove(self.node.feed)

    def begin(self) -> None:
        """Another daemon on the same data directory."""
        self._make()
        self.node.start()

    @property
    def process(self) -> FakeProcess:
        """The living executor."""
        assert self.host.process is not None
        return self.host.process

    def running(self) -> list[str]:
        """Actions that are processes now."""
        return [] if self.host.process is None else self.host.process.running()

    def end(self, name: str, exit_code: int = 0) -> None:
        self.process.end(name, exit_code)

    async def add(self, *, call: Call | None = None, id: str | None = None, **spec: Any) -> str:  # noqa: A002
        return (await self.added(call=call, id=id, **spec)).ids[0]

    def principal(self, token: str) -> Principal | None:
        """As soon as this node can say whose it is."""
        try:
            return self.pool.authenticate(token)
        except Unavailable:
            return None

    async def added(self, *, call: Call | None = None, id: str | None = None, **spec: Any) -> Added:  # noqa: A002
        beside = {
            name: spec.pop(name)
            for name in ("at_ms", "delay_ms", "expires_in_ms", "payload", "payload_json")
            if name in spec
        }
        task: NewTask = {"spec": {"work": WORK} | spec, **beside}  # type: ignore[typeddict-item]
        if id is not None:
            task["id"] = id
        return await self.pool.add(call or asked(), [task])

    async def many(self, count: int, **spec: Any) -> Added:
        """Alike, in one event."""
        task: NewTask = {"spec": {"work": WORK} | spec}
        return await self.pool.add(asked(), [task] * count)

    async def state_of(self, task_id: str) -> str:
        return str((await self.pool.task(asked(), task_id))["state"])

    async def until(self, holds: Callable[[], object], what: str = "it did not come about") -> None:
        ends = asyncio.get_running_loop().time() + PATIENCE_S
        while not holds():
            assert asyncio.get_running_loop().time() < ends, what
            await asyncio.sleep(0.002)

    async def until_state(self, task_id: str, state: str) -> None:
        await self.until(lambda: self.peek(task_id) == state, f"{task_id} is not {state}")

    def peek(self, task_id: str) -> str | None:
        row = self.machine.db.execute("SELECT state FROM task WHERE id = ?", (task_id,)).fetchone()
        return None if row is None else str(row[0])

    async def working(self) -> None:
        """Its worker has a session."""
        await self.until(lambda: self.node.session.is_confirmed, "there is no session")

    async def claim(self, task: str, to: Stand | None = None) -> int:
        """Award it here or to another's worker, whatever is free; the token."""
        (seq,) = self.machine.db.execute("SELECT seq FROM task WHERE id = ?", (task,)).fetchone()
        owner = to or self
        award = c.Award(seq, owner.name, owner.node.session.id or "")
        written = await self.node.door.propose(c.Awards((award,)), 1)
        assert isinstance(written.answer, Awarded)
        assert not written.answer.refused, written.answer
        return written.answer.tokens[0]

    def live(self) -> list[tuple[Any, ...]]:
        return self.machine.db.execute("SELECT token, worker FROM live ORDER BY token").fetchall()

    def check(self) -> None:
        assert self.fatal == []
        assert check_invariants(self.machine.db) == []
        assert check_memory(self.state.memory) == []


def _member(name: str) -> Member:
    return Member(name, name, f"{name}:7421", f"{name}:7420")


class Mirror:
    """Entries of the master's log, applied on a follower in the same turn of the loop."""

    def __init__(self, follower: Stand) -> None:
        self._follower = follower
        self._late: list[Entry] | None = None

    def hold(self) -> None:
        """The follower falls behind."""
        self._late = []

    def release(self, first: int | None = None) -> None:
        """It has caught up, or has so many entries more."""
        late = self._late or []
        self._late = None if first is None else late[first:]
        for entry in late[:first]:
            self._follower.log._apply(entry)

    def applied(self, entry: Entry, results: Sequence[object]) -> None:
        if self._late is None:
            self._follower.log._apply(entry)
        else:
            self._late.append(entry)

    def role_changed(self, role: Role) -> None:
        pass

    def reset(self, index: int) -> None:
        pass


def asked(deadline_ms: int = 5000, *, consistent: bool = False, key: str | None = None, digest: bytes = b"d") -> Call:
    return Call(
        ANN, deadline_ms, consistent, None if key is None else RequestKey("ann", "POST /v1/events", key, digest)
    )


@contextlib.asynccontextmanager
async def one(
    directory: Path, *, slots: int = 2, elect: bool = True, isolated: bool = False, **options: Any
) -> AsyncIterator[Stand]:
    """A cluster of one."""
    stand = Stand(directory, "n1", Switchboard(), slots=slots, seed=1, isolated=isolated, **options)
    stand.node.start()
    if elect:
        stand.log.elect()
    try:
        yield stand
    finally:
        await stand.node.stop()
    stand.check()


@contextlib.asynccontextmanager
async def two(directory: Path, *, slots: int = 2, **options: Any) -> AsyncIterator[tuple[Stand, Stand, Switchboard]]:
    """A master and a follower."""
    async with several(directory, 2, slots=slots, **options) as (stands, switchboard):
        master, follower = stands
        yield master, follower, switchboard


@contextlib.asynccontextmanager
async def several(
    directory: Path, names: int | Sequence[str], *, slots: int = 2, **options: Any
) -> AsyncIterator[tuple[list[Stand], Switchboard]]:
    """A cluster, of so many or of these; the first is its master."""
    switchboard = Switchboard()
    if isinstance(names, int):
        names = [f"n{n + 1}" for n in range(names)]
    stands = [
        Stand(directory / name, name, switchboard, slots=slots, seed=seed, **options)
        for seed, name in enumerate(names, 1)
    ]
    master, *followers = stands
    members = Membership("cluster1", tuple(_member(stand.name) for stand in stands))
    for stand in stands:
        stand.log.join(members)
    for stand in reversed(stands):
        stand.node.start()
    lead(master, followers)
    try:
        yield stands, switchboard
    finally:
        for stand in reversed(stands):
            await stand.node.stop()
    for stand in stands:
        stand.check()


def lead(master: Stand, followers: Sequence[Stand]) -> None:
    """From now on it is the master of these: what it applies, they apply."""
    for follower in followers:
        mirror = Mirror(follower)
        master.mirrors.append(mirror)
        master.log.listen(mirror)
    master.log.elect()
    for follower in followers:
        follower.log.depose(master.name)


async def text(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])
