"""The one way to change the cluster. Any node takes any wish; the master, one hop away, makes an entry of it.

A wish is kept here and repeated to whoever is master next, under one request id, until it is answered or its deadline is
over. Then it is certainly not done (Unavailable) if no attempt can have had an effect, else Unknown. What is answered is
applied on this node too. Raises the ports' LogErrors and `Refusal`; pool.py's problems are made of them in writes.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

from quvatlh.codec import Values
from quvatlh.core import commands as c
from quvatlh.core.rejections import Rejection
from quvatlh.core.results import Answer, Ok, Outcome
from quvatlh.core.scopes import Scope
from quvatlh.ports import Clock, Entropy, Log, LogError, Member, Peers, Refused, Role, Unavailable, Unknown
from quvatlh.service import asks
from quvatlh.service.stamps import Stamps

T = TypeVar("T")

KIND = "door"
PAUSE_S = 0.02
"""Before asking again where nothing tells of a change. Elections take at least ten times as long."""
OWN = "quvatlh"
"""In place of a token's name, and as a route, where nobody gave an Idempotency-Key."""
INCARNATION_BYTES = 9
HAND_OVER_S = 2.0
"""A master that leaves tries so long in one attempt."""


@dataclass(frozen=True, slots=True)
class Written:
    index: int
    answer: Answer


class Refusal(Exception):
    """The core refused it; nothing was changed."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.detail)
        self.rejection = rejection


class Door:
    def __init__(
        self,
        log: Log,
        peers: Peers,
        codec: Values,
        clock: Clock,
        entropy: Entropy,
        *,
        log_time_ms: Callable[[], int],
        may_add: Callable[[], bool] = lambda: True,
    ) -> None:
        self.is_silent: Callable[[str], bool] = lambda _worker: True
        """The master's own knowledge, as `may_add`: whose worker has not beaten, and whether the disks have room."""
        self.is_ended_with: Callable[[asks.Open], bool] = lambda _wish: False
        """And whether the actions of an old session surely ended with it."""
        self.at_once: Callable[[Sequence[c.NewTask]], AbstractContextManager[tuple[c.Award, ...]]] = _nothing_at_once
        """And what of an ADD is given away by its own entry."""
        self.stamp: Callable[[c.AnyCommand], c.AnyCommand] = lambda command: command
        self.run_now: Callable[[str], c.AnyCommand] = _no_schedule
        """What the master's calendar adds to a command; the task of a schedule that is run by hand."""
        self._log = log
        self._peers = peers
        self._codec = codec
        self._stamps = Stamps(clock, entropy)
        self._log_time_ms = log_time_ms
        self._may_add = may_add
        self._incarnation = entropy.token(INCARNATION_BYTES).hex()
        self._serial = 0
        self._moved = asyncio.Event()
        self._stopping = False
        peers.handle(KIND, self._asked)

    # --- for whoever wants something ---

    async def write(
        self, wish: asks.Wish, deadline_s: float, request: c.Request | None = None, scope: Scope | None = None
    ) -> Written:
        """Done, and applied here; what a Refusal is about can be seen here too. A LogError, or Refusal."""
        ends = _now() + deadline_s
        written = await self._at_master(wish, ends, request, scope)
        if self._log.applied_index < written.index and not self._leaves(
            wish
        ):  # who does is told nothing more of the log
            try:
                await self._log.wait_applied(written.index, deadline=max(0.0, ends - _now()))
            except Unavailable as error:
                raise Unknown(f"it was answered at index {written.index}, and not seen here in time") from error
        if isinstance(written.answer, Rejection):
            raise Refusal(written.answer)
        return written

    def request_id(self) -> c.Request:
        """A name of our own, under which repeats count once."""
        self._serial += 1
        return c.Request(OWN, OWN, f"{self._incarnation}-{self._serial}")

    async def barrier(self, deadline_s: float) -> int:
        """This node has applied all that was answered anywhere before this call."""
        ends = _now() + deadline_s
        written = await self._at_master(asks.Barrier(), ends, None)
        await self._log.wait_applied(written.index, deadline=max(0.0, ends - _now()))
        return written.index

    async def propose(self, command: c.AnyCommand, deadline_s: float, request: c.Request | None = None) -> Written:
        """For the duties of the master: once, here, without a hop."""
        return await self._propose(c.Item(command, request), deadline_s)

    def role_changed(self, _role: Role) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    def stop(self) -> None:
        """What waits for a master is answered."""
        self._stopping = True
        self._moved.set()

    # --- to the master, again and again ---

    async def _at_master(
        self, wish: asks.Wish, ends: float, request: c.Request | None, scope: Scope | None = None
    ) -> Written:
        doubt: Unknown | None = None
        while True:
            left_s = ends - _now()
            moved = self._moved
            try:
                if self._stopping:
                    raise Unavailable("the node is stopping", "stopping")
                if left_s <= 0:
                    raise Unavailable("no master has answered in time")
                return await self._try(asks.Ask(wish, request, left_s, scope))
            except Unavailable as error:
                if left_s <= 0 or self._stopping or error.code in {"disk_full", "busy"}:
                    raise doubt or error from None
            except Unknown as error:
                doubt = error
            except Refused as error:
                raise doubt or error from None  # an attempt before this one may be why
            await _until(moved, min(PAUSE_S, max(0.0, left_s)))

    async def _try(self, ask: asks.Ask) -> Written:
        if self._log.acts():
            return await self._done(ask)
        master = self._log.role.master
        if master is None or master == self._log.node_id:
            raise Unavailable("no master is known")
        # Who leaves has no master from the moment that he hears of it, which may be before the answer.
        moved = asyncio.Event() if self._leaves(ask.wish) else self._moved
        reply = asks.REPLY.decode(
            await hop(self._peers, master, KIND, _encoded(asks.ASK.encode, ask), ask.deadline_s, moved)
        )
        if isinstance(reply, asks.No):
            raise error_of(reply)
        return Written(reply.index, reply.answer)

    def _leaves(self, wish: asks.Wish) -> bool:
        return wish == asks.RemoveMember(self._log.node_id)

    async def _asked(self, _asker: str, body: bytes) -> bytes:
        """The hop arrives: this node acts, or says that it does not."""
        try:
            ask = asks.ASK.decode(body)
            if not self._log.acts():
                raise Unavailable("this node is not master")
            done = await self._done(ask)
        except LogError as error:
            return asks.REPLY.encode(no_of(error))
        except asks.Unreadable as error:
            return asks.REPLY.encode(asks.No("refused", "bad_request", str(error)))
        return asks.REPLY.encode(asks.Told(done.index, done.answer))

    # --- on the master ---

    async def _done(self, ask: asks.Ask) -> Written:
        wish, deadline_s, log = ask.wish, ask.deadline_s, self._log
        if isinstance(wish, asks.Barrier):
            return Written(await log.barrier(deadline=deadline_s), Ok())
        if isinstance(wish, asks.AddMember):
            member = Member(wish.id, wish.name, wish.peer, wish.http)
            return await self._membership(log.add_member(member, deadline=deadline_s))
        if isinstance(wish, asks.RemoveMember):
            await self._hand_over_if_leaving(wish.id, deadline_s)
            return await self._membership(log.remove_member(wish.id, deadline=deadline_s))
        if isinstance(wish, asks.AddTasks):
            tasks = self._new_tasks(wish)
            with self.at_once(tasks) as awards:
                return await self._propose(c.Item(c.Add(tasks, awards), ask.request, ask.scope), deadline_s)
        return await self._propose(c.Item(self._command(wish), ask.request, ask.scope), deadline_s)

    def _command(self, wish: asks.Open | asks.Do | asks.RunSchedule) -> c.AnyCommand:
        """With all that chance, a clock or the master's own knowledge decides."""
        if isinstance(wish, asks.Do):
            return self.stamp(wish.command)
        if isinstance(wish, asks.RunSchedule):
            self._check_room()
            return self.run_now(wish.name)
        return c.OpenSession(
            wish.worker,
            wish.session,
            wish.secret_hash,
            wish.directory,
            wish.facts,
            wish.isolated,
            silent=self.is_silent(wish.worker),
            ended=self.is_ended_with(wish),
            outlived=wish.outlived,
        )

    def _new_tasks(self, wish: asks.AddTasks) -> tuple[c.NewTask, ...]:
        self._check_room()
        return self._stamps.new_tasks(wish.tasks, self._log_time_ms())

    def _check_room(self) -> None:
        if not self._may_add():
            raise Unavailable(
                "the disk of the master, or too many others, is full; finishes and deletes still go", "disk_full"
            )

    async def _hand_over_if_leaving(self, node_id: str, deadline_s: float) -> None:
        """The next master removes this one, asked by who wishes it as after any loss of a master."""
        membership = self._log.membership
        if node_id != self._log.node_id or membership is None or len(membership.voters) == 1:
            return
        try:
            heir = await self._log.transfer(deadline=min(HAND_OVER_S, deadline_s))
        except Refused as error:
            raise Refused(
                f"node {node_id} is the master and has to hand over before it leaves, but {error.detail}: "
                "see that another voter is up, and ask again"
            ) from error
        raise Unavailable(f"node {heir} is the master now, and can remove {node_id}")

    async def _membership(self, change: Awaitable[object]) -> Written:
        await change
        return Written(self._log.applied_index, Ok())

    async def _propose(self, item: c.Item, deadline_s: float) -> Written:
        applied = await self._log.propose(_encoded(self._codec.encode_item, item), deadline=deadline_s)
        assert isinstance(applied.result, Outcome)  # this machine's rules give nothing else
        return Written(applied.index, applied.result.result)


async def hop(peers: Peers, master: str, kind: str, body: bytes, left_s: float, moved: asyncio.Event) -> bytes:
    """A master that is none any more is not waited for: stopped or cut off, it answers nobody."""
    asked = asyncio.ensure_future(peers.request(master, kind, body, deadline=left_s))
    elsewhere = asyncio.ensure_future(moved.wait())
    try:
        await asyncio.wait({asked, elsewhere}, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            raise Unknown(f"{master} was asked, and is not the master any more")
        return asked.result()
    finally:
        elsewhere.cancel()
        asked.cancel()


def _nothing_at_once(_tasks: Sequence[c.NewTask]) -> AbstractContextManager[tuple[c.Award, ...]]:
    return nullcontext(())


def _no_schedule(name: str) -> c.AnyCommand:
    raise Refused(f"there is no schedule named {name}", "not_found")


def _encoded(encode: Callable[[T], bytes], value: T) -> bytes:
    """What the log cannot carry is refused, wherever it came in: bad input never stops a node."""
    try:
        return encode(value)
    except (OverflowError, UnicodeEncodeError, RecursionError) as error:
        raise Refused(f"it cannot be written into the log: {error}", "bad_request") from error


def no_of(error: LogError) -> asks.No:
    kind = "unavailable" if isinstance(error, Unavailable) else "refused" if isinstance(error, Refused) else "unknown"
    return asks.No(kind, error.code, error.detail)


def error_of(no: asks.No) -> LogError:
    if no.kind == "unavailable":
        return Unavailable(no.detail, no.code)
    return Refused(no.detail, no.code) if no.kind == "refused" else Unknown(no.detail)


async def _until(moved: asyncio.Event, at_most_s: float) -> None:
    try:
        async with asyncio.timeout(at_most_s):
            await moved.wait()
    except TimeoutError:
        pass


def _now() -> float:
    return asyncio.get_running_loop().time()
