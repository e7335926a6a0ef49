"""Claims of pull workers as the master keeps them: each stands in the market with its own room until it is awarded
something or nobody waits for it.

A pull worker has no executor and no connection: its session is its name, opened by its first claim, and every action's
lease is counted for itself, from the renewals that name it (presence.py). So several processes may go by one name, and one
that starts anew finds nothing to take over. What a claim is awarded is one entry under the claim's own name: asked again,
here or of the next master, it is answered the same, and what it brought is renewed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from quvatlh.codec import Values
from quvatlh.core import commands as c
from quvatlh.core import queries
from quvatlh.core.limits import PULL_SESSION
from quvatlh.core.model import WorkerFacts
from quvatlh.core.rejections import Rejection
from quvatlh.core.results import Awarded
from quvatlh.core.rows import LIVE_SELECT, LiveRow, json_list, live_row
from quvatlh.core.views import WorkerView
from quvatlh.ports import Clock, Entropy, Log, LogError, Refused, Role, Unavailable
from quvatlh.service import pulltimes
from quvatlh.service.bids import Bid
from quvatlh.service.door import Door
from quvatlh.service.placing import matches
from quvatlh.service.presence import PULL_SILENT_S, Presence, is_pull
from quvatlh.service.pullasks import Stand, Taken
from quvatlh.service.remembering import first_answer, other_request
from quvatlh.service.state import State

STANDING_MAX: Final = 5000
"""Claims that wait at one master: some kilobytes each."""
LOOKED_AT_MAX: Final = 200
"""Claims of one round of the market, the longest waiting first; the next round begins behind them."""
WORKERS_MAX: Final = 1000
"""Names of pull workers that the table knows: one that was lost for a day is forgotten."""
PROPOSE_S: Final = 2.0
SESSION_BYTES: Final = 9
SECRET_BYTES: Final = 32
DIRECTORY: Final = "pull"
"""In place of a data directory's id: there is none."""

OWNER: Final = "token"
"""Among the worker's facts: the name of the token that claims for it."""
SETTABLE: Final = ("tags", "slots", "queues")
BY_PERSON: Final = "set"
"""Among the worker's facts: which of these a person has set. No claim and no new session changes them any more."""

Key = tuple[str, str, str]


@dataclass(slots=True, eq=False)
class Claim:
    """One that stands, or that is being awarded something."""

    ask: Stand
    session: str
    answer: asyncio.Future[Taken]
    under_way: bool = False
    withdrawn: bool = False
    over: bool = False
    """Its wait was over while it was under way: it stands no more."""
    slots: int = 0
    """Of the awards that are under way."""


@dataclass(slots=True)
class Bound:
    """What is free of the slots that a person has set: one for all claims of the worker."""

    free: int


@dataclass(slots=True)
class ClaimBid(Bid):
    """A claim in a round: room for `most` actions, and as many slots; no more than `bound`, if there is one."""

    claim: Claim | None = None
    most: int = 1
    queues: Sequence[str] = ("*",)
    awards: list[c.Award] = field(default_factory=list)
    bound: Bound | None = None

    def take(self, slots: int, times: int = 1) -> None:
        Bid.take(self, slots, times)
        if self.bound is not None:
            self.bound.free -= slots * times

    def has(self, slots: int) -> bool:
        return (
            not self.is_full and slots <= self.slots - self.taken and (self.bound is None or slots <= self.bound.free)
        )

    def wants(self, queue: str) -> bool:
        return any(matches(queue, pattern) for pattern in self.queues)

    def won(self, award: c.Award) -> None:
        self.awards.append(award)

    def begins_ms(self, run_ms: float) -> float | None:  # noqa: ARG002 - as inherited
        """Nothing is claimed ahead: who claims has a hand free."""
        return None

    def longest_ms(self) -> float:
        return -1.0

    @property
    def is_full(self) -> bool:
        return len(self.awards) >= self.most

    def in_order(self, queues: Iterable[str]) -> list[str]:
        """Those that it wants, one after the other as the claim names them, by name where one pattern names several."""

        def place(name: str) -> tuple[int, str]:
            return next(n for n, pattern in enumerate(self.queues) if matches(name, pattern)), name

        return sorted(filter(self.wants, queues), key=place)


class Pulls:
    """A Hearer. Called on the master alone, but for what it hears."""

    def __init__(
        self, log: Log, door: Door, state: State, presence: Presence, clock: Clock, entropy: Entropy, codec: Values
    ) -> None:
        self.on_news: Callable[[], None] = lambda: None
        self._log = log
        self._door = door
        self._state = state
        self._presence = presence
        self._clock = clock
        self._entropy = entropy
        self._codec = codec
        self._claims: dict[Key, Claim] = {}
        self._opening: dict[str, asyncio.Task[None]] = {}
        self._returning: set[asyncio.Task[None]] = set()

    # --- from nodes ---

    async def stand(self, ask: Stand) -> Taken:
        """What it was awarded; nothing once its wait is over."""
        arrived = self._clock.boot()
        self._check_acting()
        known = self._remembered(ask.request)
        if known is not None:
            tokens = self._renewed(known, arrived)
            return Taken(self._log.applied_index, tokens, is_over=not tokens)
        key = _key(ask.request)
        if key not in self._claims:
            view = await self._worker(ask)
            self._presence.pulled(view)
            self._put(key, ask, view.session or "")
        claim = self._claims[key]
        claim.withdrawn = False
        try:
            async with asyncio.timeout(ask.wait_s):
                return await asyncio.shield(claim.answer)
        except TimeoutError:
            if claim.under_way:
                claim.over = True
                return await asyncio.shield(claim.answer)
            return claim.answer.result() if claim.answer.done() else Taken(self._log.applied_index)
        finally:
            if not claim.under_way and self._claims.get(key) is claim:
                del self._claims[key]

    def _put(self, key: Key, ask: Stand, session: str) -> None:
        if key in self._claims:  # it came twice
            return
        if len(self._claims) >= STANDING_MAX:
            raise Unavailable(f"{STANDING_MAX} claims wait already", "busy")
        answer: asyncio.Future[Taken] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody waits
        self._claims[key] = Claim(ask, session, answer)
        self.on_news()

    async def withdraw(self, request: c.Request, *, give_back: bool) -> None:
        claim = self._claims.get(_key(request))
        if claim is not None and claim.under_way:
            claim.withdrawn = give_back
        elif claim is not None:
            self._drop(claim)
        elif give_back:
            self._check_acting()
            known = self._remembered(request)
            if known is not None:
                await self.give_back([row.token for row in known])

    async def give_back(self, tokens: Sequence[int]) -> None:
        """Of pull workers, and not begun: their tasks are awarded again at once."""
        sessions: dict[str, list[int]] = {}
        for row in self.live(tokens):
            if is_pull(row.session) and row.started_at is None:
                sessions.setdefault(row.session, []).append(row.token)
        for session, its in sessions.items():
            await self._door.propose(c.GiveBack(session, tuple(its)), PROPOSE_S)

    def live(self, tokens: Sequence[int]) -> list[LiveRow]:
        sql = f"{LIVE_SELECT} WHERE token IN (SELECT value FROM json_each(?)) ORDER BY token"  # noqa: S608 - text of our own
        return [live_row(row) for row in self._state.db.execute(sql, (json_list(tokens),))]

    # --- in the market ---

    def bids(self) -> list[ClaimBid]:
        """Those that stand, some of them where there are many."""
        found: list[ClaimBid] = []
        bounds: dict[str, Bound | None] = {}
        for key, claim in list(self._claims.items()):
            if claim.under_way or claim.answer.done():
                continue
            if len(found) == LOOKED_AT_MAX:
                break
            view = self._presence.workers().get(claim.ask.worker)
            if view is None or view.session != claim.session:
                claim.answer.set_exception(Unavailable("the worker's session has ended meanwhile"))
            elif view.state == "up" and not _takes_nothing(view.facts):
                if view.name not in bounds:
                    bounds[view.name] = self._bound(view)
                found.append(_bid(view, claim, bounds[view.name]))
            if len(self._claims) > LOOKED_AT_MAX:
                self._claims[key] = self._claims.pop(key)
        return found

    def _bound(self, view: WorkerView) -> Bound | None:
        if not _is_set(view.facts, "slots"):
            return None
        sql = "SELECT coalesce(sum(slots), 0) FROM live WHERE worker = ?"
        live = self._state.db.execute(sql, (view.name,)).fetchone()[0]
        proposed = sum(claim.slots for claim in self._claims.values() if claim.ask.worker == view.name)
        return Bound(view.facts.slots - live - proposed)

    def offered(self, queue: str) -> dict[str, int]:
        """By worker, the most that one of its claims would take of the queue."""
        room: dict[str, int] = {}
        for claim in self._claims.values():
            ask, view = claim.ask, self._known(claim.ask.worker)
            if not claim.under_way and any(matches(queue, pattern) for pattern in ask.queues):
                bound = None if view is None else self._bound(view)
                most = ask.most if bound is None else max(0, min(ask.most, bound.free))
                room[ask.worker] = max(most, room.get(ask.worker, 0))
        return room

    def stand_any(self) -> bool:
        return bool(self._claims)

    def is_more(self) -> bool:
        """Whether a round sees not all of them."""
        return len(self._claims) > LOOKED_AT_MAX

    def proposed(self, bids: Sequence[ClaimBid]) -> None:
        for bid in bids:
            if bid.claim is not None:
                bid.claim.under_way, bid.claim.slots = True, bid.taken

    def decided(self, bid: ClaimBid, index: int, answer: Awarded | LogError) -> None:
        """What became of its awards: all refused, it stands as before; unknown, it is asked again."""
        claim = bid.claim
        assert claim is not None
        claim.under_way, claim.slots = False, 0
        tokens = () if isinstance(answer, LogError) else tuple(token for token in answer.tokens if token)
        if isinstance(answer, LogError):
            if not claim.answer.done() and not (isinstance(answer, Unavailable) and self._log.acts()):
                claim.answer.set_exception(answer)
        elif tokens and claim.withdrawn:
            self._return(tokens)
        elif (tokens or claim.over) and not claim.answer.done():
            claim.answer.set_result(Taken(index, tokens))
        is_over = claim.answer.done() or claim.withdrawn
        if is_over:
            self._drop(claim)
        if bid.bound is not None or not (tokens or is_over):
            self.on_news()

    def _drop(self, claim: Claim) -> None:
        key = _key(claim.ask.request)
        if self._claims.get(key) is claim:
            del self._claims[key]
        if not claim.answer.done():
            claim.answer.set_result(Taken(self._log.applied_index))

    def _return(self, tokens: Sequence[int]) -> None:
        """What is not given back in time ends with its lease."""

        async def run() -> None:
            with contextlib.suppress(LogError):
                await self.give_back(tokens)

        task = asyncio.get_running_loop().create_task(run())
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    # --- a Hearer ---

    def heard(self, _index: int, _events: object) -> None:
        pass

    def role_changed(self, role: Role) -> None:
        """Who waits asks the next master."""
        if not role.acting:
            self._send_away(Unavailable("this node is not master any more"))

    def _send_away(self, why: Unavailable) -> None:
        for claim in self._claims.values():
            if not claim.answer.done():
                claim.answer.set_exception(why)
        self._claims.clear()

    def reset(self, _index: int) -> None:
        pass

    def stop(self) -> None:
        """Who waits here asks another node."""
        self._send_away(Unavailable("the node is stopping", "stopping"))
        for task in (*self._returning, *self._opening.values()):
            task.cancel()

    # --- how ---

    def _check_acting(self) -> None:
        if not self._log.acts() or not self._state.is_open:
            raise Unavailable("this node is not master")

    def _renewed(self, rows: Sequence[LiveRow], arrived: float) -> tuple[int, ...]:
        """Who claims counts the lease from this asking, not from the first: so it is renewed, or not told of any more."""
        late = self.overran(rows)
        may = (row for row in rows if row.state != "stopping" and row.token not in late)
        return tuple(row.token for row in may if self._presence.renew(row, arrived))

    def overran(self, rows: Sequence[LiveRow]) -> dict[int, int]:
        """What has had its time, by token: how long that was."""
        return pulltimes.overran(self._state.db, rows, self._log.time_ms)

    def _remembered(self, request: c.Request) -> list[LiveRow] | None:
        """What it was awarded before, as far as that is still live."""
        answer = first_answer(self._state, self._codec, self._clock, request)
        if answer is None:
            return None
        if not isinstance(answer, Awarded):
            raise other_request(request)
        return self.live([token for token in answer.tokens if token])

    async def _worker(self, ask: Stand) -> WorkerView:
        """The worker, with a session and as its claim describes it."""
        view = self._known(ask.worker)
        if view is None or view.session is None:
            opening = self._opening.get(ask.worker)
            if opening is None:
                opening = self._opening[ask.worker] = asyncio.get_running_loop().create_task(self._open(ask))
                opening.add_done_callback(lambda done: self._opened(ask.worker, done))
            await asyncio.shield(opening)
            view = self._known(ask.worker)
        if view is None or view.session is None:
            raise Unavailable("the worker's session has ended meanwhile")
        if not is_pull(view.session):
            raise Refused(f"{ask.worker} is the name of a worker that has an executor", "conflict")
        self._check_owner(view, ask)
        changes = _changes(view.facts, ask)
        if changes is not None:
            await self._told(c.PatchWorker(ask.worker, changes))
            view = self._known(ask.worker) or view
        return view

    def _check_owner(self, view: WorkerView, ask: Stand) -> None:
        """A name is one token's as long as its worker is heard of, and the token holds. Tokens are told apart by name: the
        one that replaces another of the same name goes on with its workers."""
        owner = view.facts.facts.get(OWNER)
        if owner in {None, ask.token} or not ask.token or self._is_silent(view):
            return
        now = max(self._clock.wall_ms(), self._state.time_ms)
        if any(each.name == owner and each.holds_at(now) for each in queries.tokens(self._state.db)):
            words = (
                f"{ask.worker} is the name of a pull worker that another token claims for: give this one another name"
            )
            raise Refused(words, "conflict")

    def _is_silent(self, view: WorkerView) -> bool:
        return self._presence.silence_s(view.session or "") > PULL_SILENT_S

    def _known(self, worker: str) -> WorkerView | None:
        return self._presence.workers().get(worker)

    async def _open(self, ask: Stand) -> None:
        pulling = sum(view.facts.role == "pull" for view in self._presence.workers().values())
        if self._known(ask.worker) is None and pulling >= WORKERS_MAX:
            raise Unavailable(f"{pulling} pull workers are known; use their names again", "busy")
        session = PULL_SESSION + self._entropy.token(SESSION_BYTES).hex()
        told = {OWNER: ask.token} if ask.token else {}
        facts = WorkerFacts(ask.worker, "pull", ask.tags or (), ("pull",), ask.most, facts=told)
        known = self._known(ask.worker)
        if known is not None:
            facts = _as_set(facts, known.facts)
        # Nobody is told its secret: no beat is taken of it.
        opened = c.OpenSession(ask.worker, session, self._entropy.token(SECRET_BYTES), DIRECTORY, facts, silent=True)
        await self._told(opened)

    def _opened(self, worker: str, done: asyncio.Task[None]) -> None:
        self._opening.pop(worker, None)
        if not done.cancelled():
            done.exception()

    async def _told(self, command: c.AnyCommand) -> None:
        written = await self._door.propose(command, PROPOSE_S)
        if isinstance(written.answer, Rejection):
            raise Refused(written.answer.detail, written.answer.code)


def _changes(facts: WorkerFacts, ask: Stand) -> c.WorkerChanges | None:
    """What the table should know of the worker: whose it is, tags when they are told, and the most that it ever claimed at
    once. What a person has set stays."""
    changes: dict[str, Any] = {}
    if ask.tags is not None and set(ask.tags) != set(facts.tags) and not _is_set(facts, "tags"):
        changes["tags"] = ask.tags
    if ask.most > facts.slots and not _is_set(facts, "slots"):
        changes["slots"] = ask.most
    if ask.token and facts.facts.get(OWNER) != ask.token:
        changes["facts"] = {**facts.facts, OWNER: ask.token}
    return c.WorkerChanges(**changes) if changes else None


def set_by_person(facts: WorkerFacts, fields: Collection[str]) -> dict[str, Any]:
    """Its facts once a person has set these as well."""
    return {**facts.facts, BY_PERSON: [each for each in SETTABLE if each in fields or _is_set(facts, each)]}


def _is_set(facts: WorkerFacts, name: str) -> bool:
    return name in facts.facts.get(BY_PERSON, ())


def _as_set(facts: WorkerFacts, before: WorkerFacts) -> WorkerFacts:
    """With what a person had set."""
    kept = {name: getattr(before, name) for name in SETTABLE if _is_set(before, name)}
    if not kept:
        return facts
    return msgspec.structs.replace(facts, **kept, facts={**facts.facts, BY_PERSON: list(kept)})


def _takes_nothing(facts: WorkerFacts) -> bool:
    """By a person's word; else a pull worker has the room that it asks to be filled."""
    return facts.slots == 0 and _is_set(facts, "slots")


def _bid(view: WorkerView, claim: Claim, bound: Bound | None) -> ClaimBid:
    ask = claim.ask
    bid = ClaimBid(view, claim.session, ask.most, 0, claim=claim, most=ask.most, queues=ask.queues, bound=bound)
    bid.lease_ms = ask.lease_ms
    return bid


def _key(request: c.Request) -> Key:
    return request.token, request.route, request.id
