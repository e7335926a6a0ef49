"""Workers of role `worker`, connected to this node: each gets a seat here, and is one of the node's crew.

A connection speaks for a worker once it has opened a session or beaten with its secret; until then it hears nothing. Of two
that can, the later one has the seat. Reports are taken of that session alone.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, structs

from quvatlh.config import address
from quvatlh.core import commands as c
from quvatlh.core.model import WorkerFacts
from quvatlh.core.queries import get_session, workers
from quvatlh.core.scopes import matches_any, narrowed
from quvatlh.ports import Log, LogError, Refused
from quvatlh.service import asks
from quvatlh.service.crew import Crew
from quvatlh.service.depths import is_deeper
from quvatlh.service.door import Door, Refusal
from quvatlh.service.outputs import ANSWER_S
from quvatlh.service.pool import Call, Rejected, Unavailable
from quvatlh.service.seat import Claim, Look, Standing
from quvatlh.service.seats import NodeSeat, Seats
from quvatlh.service.state import State
from quvatlh.service.wire import CLAIMS_BYTES, Hello, Line, Link, Welcome

CONNECTED_MAX: Final = 1000
HELLO_S: Final = 5.0
NEWS_S: Final = 5.0
"""So often the list of nodes is looked at."""
JUDGE_S: Final = 1.0
PATCH_S: Final = 5.0
REPORT_S: Final = 5.0
"""So long a report may take; the worker waits a little longer."""
LEVELS_MAX: Final = 64
"""Of facts and announcements, as of all JSON that comes in."""
BOUNDS: Final = "token_queues"
"""Among a worker's facts: the queues of the token that it connected with, where those are not all."""
MAY_WORK: Final = frozenset({"admin", "worker"})


class Reception:
    def __init__(self, log: Log, door: Door, state: State, seats: Seats, crew: Crew, node: str) -> None:
        self.node = node
        self.log = log
        self.door = door
        self.state = state
        self.seats = seats
        self.crew = crew
        self._open: set[Guest] = set()
        self._closed = False

    async def connect(self, call: Call, line: Line) -> None:
        """As long as the worker stays."""
        check_work(call)
        if self._closed:
            raise Unavailable("stopping", "the node is stopping")
        if len(self._open) >= CONNECTED_MAX:
            raise Unavailable("rate_limited", f"{CONNECTED_MAX} workers are connected to this node")
        guest = Guest(self, line, call.principal.queues)
        self._open.add(guest)
        try:
            await guest.stay()
        finally:
            self._open.discard(guest)

    def close(self) -> None:
        """They go to other nodes."""
        self._closed = True
        for guest in list(self._open):
            guest.link.hang_up()

    def servers(self) -> tuple[str, ...]:
        """Where else a worker may turn. One that listens everywhere and does not say where it is reached, is reached where
        the worker has found it."""
        membership = self.log.membership
        voters = () if membership is None else membership.voters
        return tuple(each.http for each in voters if each.http and not _is_everywhere(each.http))


def _is_everywhere(http: str) -> bool:
    try:
        return address.is_wildcard(address.parse(http).host)
    except ValueError:
        return False


class Guest:
    """One connection. A seat.Occupant that passes on what it hears, and a crew.Member."""

    def __init__(self, reception: Reception, line: Line, bounds: tuple[str, ...]) -> None:
        self._reception = reception
        self._bounds = bounds
        """Of its token: it takes tasks of these queues and no others, whatever it or a person says."""
        self.link = Link(line, self._do, lambda _kind, _value: None, self._greeted)
        self._hello: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()
        self._worker = ""
        self._session = ""
        """Proved; empty: not yet."""
        self._wanted = ""
        """To be followed, once it is proved."""
        self._seat: NodeSeat | None = None
        self._patching: asyncio.Task[None] | None = None
        self._verbs: dict[str, Callable[[NodeSeat, Any], Awaitable[Any]]] = {
            "open": self._opened,
            "beat": self._beaten,
            "follow": self._followed,
            "report": self._reported,
            "offer": self._offered,
            "look": self._looked,
            "listed": self._listed,
        }

    async def stay(self) -> None:
        running = asyncio.get_running_loop().create_task(self.link.run())
        try:
            either: set[asyncio.Future[Any]] = {running, self._hello}
            async with asyncio.timeout(HELLO_S):
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            servers: tuple[str, ...] | None = None
            while not running.done():
                if servers != self._reception.servers():
                    servers = self._reception.servers()
                    self.link.put(Welcome(self._reception.node, servers))
                await asyncio.wait({running}, timeout=NEWS_S)
        except TimeoutError:
            pass
        finally:
            self.link.hang_up()
            await running
            self._leave()

    def _greeted(self, greeting: Hello | Welcome) -> None:
        if isinstance(greeting, Hello) and not self._hello.done():
            self._worker = greeting.worker
            self._seat = self._reception.seats.make(greeting.worker)
            self._seat.sit(self)
            self._hello.set_result(greeting)

    def _leave(self) -> None:
        if self._patching is not None:
            self._patching.cancel()
        if self._seat is not None:
            self._reception.seats.leave(self._seat)
            self._reception.crew.leave(self._worker, self)

    # --- what the worker asks ---

    async def _do(self, kind: str, value: Any) -> Any:
        seat = self._seat
        if seat is None:
            raise Refused("the first frame must say who this is", "bad_request")
        carried_out = self._verbs.get(kind)
        if carried_out is None:
            raise Refused(f"{kind} is not for nodes", "bad_request")
        return await carried_out(seat, value)

    async def _followed(self, seat: NodeSeat, session: str) -> None:
        self._wanted = session
        self._follow(seat)

    async def _reported(self, seat: NodeSeat, report: Any) -> None:
        if isinstance(report, c.PatchWorker):
            own = report.worker == self._worker and bool(self._session) and not _widens(report.changes)
        else:
            own = report.session == self._session
        if not own:
            raise _not_proved()
        if any(is_deeper(table, LEVELS_MAX) for table in _tables(report)):
            raise Refused(f"what is announced is nested deeper than {LEVELS_MAX} levels", "invalid")
        await seat.report(report, REPORT_S)

    async def _offered(self, seat: NodeSeat, offers: asks.Offers) -> None:
        if (offers.worker, offers.session) != (self._worker, self._session):
            raise _not_proved()
        await seat.offer(offers)

    async def _looked(self, seat: NodeSeat, _nothing: None) -> Look:
        """A look holds payloads, of the queues of whoever has this name; and how much waits where, of all queues."""
        if not self._session:
            raise _not_proved()
        look = await seat.look()
        waiting = {queue: n for queue, n in look.queues.items() if matches_any(queue, self._bounds)}
        return structs.replace(look, queues=waiting)

    async def _listed(self, seat: NodeSeat, tokens: Sequence[int]) -> tuple[int, ...]:
        if not self._session:
            raise _not_proved()
        return tuple(await seat.listed(tokens))

    async def _opened(self, seat: NodeSeat, wish: asks.Open) -> int:
        if wish.worker != self._worker:
            raise _not_proved()
        if not wish.worker.isprintable() or "/" in wish.worker:  # it stands in addresses, headers and lines of logs
            raise Refused("a worker's name must hold neither control characters nor '/'", "invalid")
        if self._is_of_a_node(wish.worker):
            raise Refused(f"{wish.worker} is the name of a node's own worker", "conflict")
        if is_deeper(wish.facts.facts, LEVELS_MAX):
            raise Refused(f"a worker's facts must not be nested deeper than {LEVELS_MAX} levels", "invalid")
        queues = narrowed(wish.facts.queues, self._bounds)
        if not queues:
            raise Refused(f"its token is for tasks of {', '.join(self._bounds) or 'no queue'}", "forbidden")
        facts = structs.replace(wish.facts, role="worker", queues=queues, facts=self._told_of(wish.facts))
        floor = await seat.open(structs.replace(wish, facts=facts))
        found = get_session(self._reception.state.db, wish.session)
        if found is None or not hmac.compare_digest(found.secret_hash, wish.secret_hash):
            raise _not_proved()  # it was opened before, by who has its secret
        self._prove(seat, wish.session)
        return floor

    def _is_of_a_node(self, name: str) -> bool:
        """A node that is away must find its worker's name free when it comes back."""
        state, membership = self._reception.state, self._reception.log.membership
        found = workers(state.db, name) if state.is_open else []
        if not found or membership is None or found[0].facts.role != "node":
            return False
        return membership.get(str(found[0].facts.facts.get("node_id"))) is not None

    async def _beaten(self, seat: NodeSeat, beat: asks.Beat) -> asks.BeatAnswer:
        if beat.worker != self._worker:
            raise _not_proved()
        answer = await seat.beat(beat)
        if answer.known:
            self._prove(seat, beat.session)
        return answer

    def _prove(self, seat: NodeSeat, session: str) -> None:
        if self._session == session:
            return
        self._session = session
        self._reception.seats.put(seat)
        self._reception.crew.join(self._worker, self)
        self._follow(seat)
        self._patching = asyncio.get_running_loop().create_task(self._tell_node())

    def _follow(self, seat: NodeSeat) -> None:
        if self._session and self._wanted == self._session:
            seat.follow(self._session)

    def _told_of(self, facts: WorkerFacts) -> dict[str, Any]:
        """Where it is, and what its token bounds it to."""
        told = {**facts.facts, "node_id": self._reception.log.node_id}
        told.pop(BOUNDS, None)
        return told if "*" in self._bounds else {**told, BOUNDS: list(self._bounds)}

    async def _tell_node(self) -> None:
        """The cluster finds the worker's outputs at this node from now on; and another token may bound it otherwise."""
        state = self._reception.state
        found = workers(state.db, self._worker) if state.is_open else []
        if not found:
            return
        facts = found[0].facts
        told, queues = self._told_of(facts), narrowed(facts.queues, self._bounds)
        if (told, queues) == (facts.facts, facts.queues):
            return
        changes = c.WorkerChanges(facts=told, queues=queues)
        try:
            await self._reception.door.write(asks.Do(c.PatchWorker(self._worker, changes)), PATCH_S)
        except (LogError, Refusal):
            self.link.hang_up()  # and the next connection says it again

    # --- a seat.Occupant ---

    def claimed(self, claims: Sequence[Claim]) -> None:
        some: list[Claim] = []
        size = 0
        for claim in claims:
            some.append(claim)
            size += len(claim.payload or b"") + len(msgspec.msgpack.encode(claim.work))
            if size >= CLAIMS_BYTES:
                self.link.tell("claimed", tuple(some))
                some, size = [], 0
        if some:
            self.link.tell("claimed", tuple(some))

    def stop_actions(self, tokens: Sequence[int]) -> None:
        self.link.tell("stop_actions", tuple(tokens))

    def not_ours(self, tokens: Sequence[int]) -> None:
        self.link.tell("not_ours", tuple(tokens))

    def over(self, session: str) -> None:
        self.link.tell("over", session)

    def moved(self) -> None:
        self.link.tell("moved", None)

    def stands(self, standing: Standing) -> None:
        self.link.tell("stands", standing)

    def news(self) -> None:
        self.link.tell("news", None)

    def decided(self, tasks: Sequence[int]) -> None:
        self.link.tell("decided", tuple(tasks))

    # --- a crew.Member ---

    async def output(self, ask: asks.OutputAsk) -> asks.OutputAnswer:
        answer: asks.OutputAnswer = await self._ask("output", ask, ask.wait_s + ANSWER_S)
        return answer

    async def result(self, ask: asks.ResultAsk) -> asks.ResultAnswer:
        answer: asks.ResultAnswer = await self._ask("result", ask, ANSWER_S)
        return answer

    async def judge(self, ask: asks.JudgeAsk) -> asks.JudgeAnswer:
        answer: asks.JudgeAnswer = await self._ask("judge", ask, JUDGE_S)
        return answer

    async def reload(self, ask: asks.ReloadAsk) -> asks.ReloadAnswer:
        answer: asks.ReloadAnswer = await self._ask("reload", ask, ANSWER_S)
        return answer

    async def _ask(self, kind: str, ask: object, deadline_s: float) -> Any:
        """Whatever a worker answers that is no answer, it has none."""
        try:
            return await self.link.call(kind, ask, deadline_s)
        except (Refusal, asks.Unreadable) as error:
            raise Refused(f"worker {self._worker} answered to {kind}: {error}") from None


def check_work(call: Call) -> None:
    """Workers are told apart by queues, so a token of some groups could not be kept to them."""
    who = call.principal
    if who.role not in MAY_WORK:
        raise Rejected("forbidden", f"token {who.name} is not for workers: its role is {who.role}")
    if "*" not in who.groups:
        raise Rejected("forbidden", f"token {who.name} is for some groups only, and workers are for queues")


def _widens(changes: c.WorkerChanges) -> bool:
    """What a worker may have from its token, a person or its start alone."""
    return changes.queues is not UNSET or changes.facts is not UNSET


def _tables(report: Any) -> Iterator[object]:
    """What is kept as it was said."""
    if isinstance(report, c.Start):
        yield from (each.announcement for each in report.reports)
    elif isinstance(report, c.Announce):
        yield report.table


def _not_proved() -> Refused:
    return Refused("it is not this connection's to say", "forbidden")
