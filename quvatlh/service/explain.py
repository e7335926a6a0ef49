"""Why a task does not run yet, worker by worker: what the tables know, and what the master alone has heard.

The tables are read here; verdicts of policies are asked of the master, once. Without an answer they are missing, and
everything else is told all the same. No policy is asked by explaining.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import structs

from quvatlh.core import market, queries
from quvatlh.core.model import WAITING
from quvatlh.core.rows import json_list
from quvatlh.core.scopes import Scope, condition
from quvatlh.core.views import ExplainFacts, WorkerView
from quvatlh.ports import Clock, Log, LogError, Peers, Unavailable
from quvatlh.service import asks, changes
from quvatlh.service.forecast import FORETOLD, Standing, at_once
from quvatlh.service.offers import Book
from quvatlh.service.placing import is_large_enough, unfit
from quvatlh.service.pool import Call, Json
from quvatlh.service.presence import Presence
from quvatlh.service.reads import Reads, is_seen
from quvatlh.service.state import State

KIND: Final = "heard"
ASK_S: Final = 1.0
EXPECTED_ASK_S: Final = 0.2
"""Where an estimate goes with something else that is asked for."""
UNNAMED: Final = "a task out of your scope"
"""In place of its id, which no id can be."""
NAMED_MAX: Final = 5
"""Holders that the text names; the list has more."""
LASTING: Final = "paused"
"""Of what holds tasks of its queue, the one that no time and no end of another task lifts."""
_NOBODY: Final = frozenset({"no_worker", "unplaceable"})
"""No limit that frees and no time that comes brings it to a worker."""
_BIDDING: Final = frozenset({"slots", "limit", "would_run"})
"""What comes after the policy: it has bid."""
_FURTHER: Final = ("queue", "adapter", "tags", "policy", "slots")
"""What a worker is asked, in order: who says the last of these would need the least to change."""
_WORDS: Final = {"no_bid": "does not want it", "failed": "failed", "overran": "overran", "marked": "is not asked"}

TEXTS: Final[Mapping[str, str]] = {
    "paused": "its queue {queue} is paused",
    "rate": "the rate of queue {queue} allows the next start {until}",
    "queue_limit": "queue {queue} has as many live actions as its limit of {queue_limit} allows: {holders}",
    "key_limit": "queue {queue} has as many live actions of its key as are allowed: {holders}",
    "head": "queue {queue} has a limit of 1, and its head {holders} holds up the rest until it has run",
    "class": "class {klass} has as much as it may: it waits until something of it ends, or its rate allows the next start",
    "limit": "as many of its group and name are live as the smallest limit allows: {holders}",
    "unique": "its unique key is held by {holders}",
    "schedule": "it waits for its time, {until}",
    "retry": "its try {attempts} failed, and the next one begins {until}",
    "rest": "its last instance ended; the next one starts {until}",
}


class Said(NamedTuple):
    """Of one worker."""

    name: str
    verdict: str
    detail: str
    score: float | None = None
    """Of its policy's bid, where that stands."""


class Seen(NamedTuple):
    """What the tables say."""

    facts: ExplainFacts
    workers: Sequence[WorkerView]
    busy: Mapping[str, int]
    """Live actions of the task's queue, by worker."""
    small: frozenset[str]
    """Workers that have not slots enough for it, free or not."""
    head: ExplainFacts | None
    """Of the task that holds up the rest of its queue."""


class Explain:
    def __init__(
        self,
        log: Log,
        peers: Peers,
        state: State,
        reads: Reads,
        presence: Presence,
        book: Book,
        clock: Clock,
    ) -> None:
        self._log = log
        self._peers = peers
        self._state = state
        self._reads = reads
        self._presence = presence
        self._book = book
        self._clock = clock
        self.claims: Callable[[str], dict[str, int]] = lambda _queue: {}
        """The master's own: room of the claims of pull workers that wait for something of a queue."""
        peers.handle(KIND, self._asked)
        reads.expected = self.expected

    async def explain(self, call: Call, task_id: str) -> Json:
        now_ms = self._now_ms()
        scope = call.principal.scope
        seen = await self._reads.read(call, lambda db: _read(db, task_id, now_ms, scope))
        if seen is None or not is_seen(call, seen.facts.task):
            raise await self._reads.unknown(call, task_id)
        facts, row = seen.facts, seen.facts.task.row
        said = await (self._said if _waits(facts) else self._kept)(seen, ASK_S)
        reason = _reason(facts, said, seen.small) if _waits(facts) else row.state
        return {
            "state": row.state,
            "reason": reason,
            "text": _text(seen, reason, said, now_ms),
            "change": changes.change(reason, _wanted(seen, said)),
            "position": facts.position,
            "holders": [each for each in facts.holders if _waits(facts) and each != UNNAMED],
            "workers": [each._asdict() for each in said],
            "eta": self._eta(seen, said, now_ms),
        }

    async def expected(self, task_id: str) -> Json | None:
        """When it may start, as `explain` says it."""
        now_ms = self._now_ms()
        seen = await self._reads.read(None, lambda db: _read(db, task_id, now_ms, None))
        if seen is None or not _waits(seen.facts):
            return None
        return self._eta(seen, await self._said(seen, EXPECTED_ASK_S), now_ms)

    def _eta(self, seen: Seen, said: Sequence[Said], now_ms: int) -> Json | None:
        """By the slots of who may run it; None where nobody can know."""
        facts, workers = seen.facts, seen.workers
        able = _able(said, seen.small)
        if not able or not _is_foretold(facts) or (seen.head is not None and not _will_start(seen.head, workers)):
            return None
        ready = {each.name for each in said if each.verdict == "would_run"}
        slots, most = facts.task.row.slots, facts.queue.settings.limit_per_worker
        free = sum(
            1 if each.facts.role == "pull" else at_once(each, slots, most, seen.busy.get(each.name, 0))
            for each in workers
            if each.name in ready
        )
        return self._reads.forecast.eta(facts.task.row, Standing(facts.queue, free), facts.position, now_ms)

    async def _said(self, seen: Seen, patience_s: float) -> list[Said]:
        row = seen.facts.task.row
        heard = await self._heard(row.seq, row.queue, patience_s)
        return _workers(seen.facts, seen.workers, seen.busy, heard)

    async def _kept(self, seen: Seen, patience_s: float) -> list[Said]:
        """What policies said before it was awarded, while the master remembers that."""
        task = seen.facts.task
        if task.shape.policy is None:
            return []
        heard = await self._heard(task.row.seq, task.row.queue, patience_s)
        said = ((name, _by_policy(offer, pulls=False), offer) for name, offer in sorted(heard.weighed.items()))
        return [
            Said(name, *(refusal or ("bid", "")), None if refusal else offer.score) for name, refusal, offer in said
        ]

    def _now_ms(self) -> int:
        return max(self._clock.wall_ms(), self._state.time_ms)

    # --- the master's part ---

    async def _heard(self, task: int, queue: str, patience_s: float) -> asks.HeardAnswer:
        ask = asks.HeardAsk(task, queue)
        master = self._log.role.master
        try:
            if master is None:
                raise Unavailable("no master is known")
            if master == self._log.node_id:
                return self._tell(ask)
            body = await self._peers.request(master, KIND, asks.HEARD_ASK.encode(ask), deadline=patience_s)
            answer: asks.HeardAnswer = asks.HEARD_ANSWER.decode(body)
        except (LogError, asks.Unreadable):
            return asks.HeardAnswer({})
        return answer

    def _tell(self, ask: asks.HeardAsk) -> asks.HeardAnswer:
        silent = [name for name in self._presence.workers() if self._presence.is_silent(name)]
        verdicts = dict(self._book.verdicts(ask.task))
        weighed = dict(self._book.weighed(ask.task))
        return asks.HeardAnswer(verdicts, tuple(silent), self.claims(ask.queue), weighed)

    async def _asked(self, _asker: str, body: bytes) -> bytes:
        return asks.HEARD_ANSWER.encode(self._tell(asks.HEARD_ASK.decode(body)))


def _read(db: sqlite3.Connection, task_id: str, now_ms: int, scope: Scope | None) -> Seen | None:
    """Holders out of scope have no names."""
    facts = market.explain_facts(db, task_id, now_ms)
    if facts is None:
        return None
    head = market.explain_facts(db, facts.holders[0], now_ms) if "head" in facts.held_by else None
    if scope is not None and facts.holders:
        where, values = condition(scope)
        sql = f"SELECT id FROM task WHERE id IN (SELECT value FROM json_each(?)) AND {where}"  # noqa: S608 - text of our own
        seen = {row[0] for row in db.execute(sql, (json_list(facts.holders), *values))}
        facts = structs.replace(facts, holders=tuple(each if each in seen else UNNAMED for each in facts.holders))
    busy = queries.busy(db, facts.task.row.queue)
    workers = queries.workers(db)
    return Seen(facts, workers, busy, _too_small(workers, facts.task.row.slots), head)


def _waits(facts: ExplainFacts) -> bool:
    return bool(facts.task.row.ready) or facts.task.row.due_at is not None


def _is_foretold(facts: ExplainFacts) -> bool:
    settings = facts.queue.settings
    is_shut = settings.limit == 0 or (settings.limit_per_key == 0 and facts.task.row.key is not None)
    return FORETOLD.issuperset(facts.held_by) and not is_shut


def _able(said: Sequence[Said], small: Collection[str]) -> set[str]:
    """Who may run it, now or when slots free."""
    return {each.name for each in said if each.verdict in _BIDDING and each.name not in small}


def _will_start(head: ExplainFacts, workers: Sequence[WorkerView]) -> bool:
    """The head that holds up the rest waits for nothing but what comes. What workers bid for it is not known here."""
    said = _workers(head, workers, {}, asks.HeardAnswer({}))
    return _is_foretold(head) and bool(_able(said, _too_small(workers, head.task.row.slots)))


def _workers(
    facts: ExplainFacts, workers: Sequence[WorkerView], busy: Mapping[str, int], heard: asks.HeardAnswer
) -> list[Said]:
    up = frozenset(view.name for view in workers if view.state == "up")
    said = [Said(view.name, *_verdict(facts, view, up, busy.get(view.name, 0), heard)) for view in workers]
    if facts.task.shape.policy is None:
        return said
    return [each._replace(score=heard.verdicts[each.name].score) if each.verdict in _BIDDING else each for each in said]


def _too_small(workers: Sequence[WorkerView], needs: int) -> frozenset[str]:
    return frozenset(view.name for view in workers if not is_large_enough(view, needs))


def _verdict(
    facts: ExplainFacts, worker: WorkerView, up: frozenset[str], busy: int, heard: asks.HeardAnswer
) -> tuple[str, str]:
    """The first that applies."""
    if worker.state == "lost" or worker.name in heard.silent:
        return "lost", "has not been heard of lately"
    if worker.state == "draining":
        return "draining", "takes nothing new"
    shape, settings = facts.task.shape, facts.queue.settings
    found = unfit(worker, shape, facts.task.row.queue, settings.workers, up)
    if found is not None:
        return found.verdict, found.detail
    pulls = worker.facts.role == "pull"
    refusal = None if shape.policy is None else _by_policy(heard.verdicts.get(worker.name), pulls=pulls)
    if refusal is not None:
        return refusal
    return _offered(facts, heard.claims.get(worker.name, 0)) if pulls else _room(facts, worker, busy)


def _by_policy(said: asks.Offer | None, *, pulls: bool) -> tuple[str, str] | None:
    if pulls:
        return "policy", "pull workers run no policies"
    if said is None:
        return "not_asked", "its policy has not said anything yet"
    if said.word != "bid":
        return "policy", f"its policy {_WORDS.get(said.word, said.word)}{': ' if said.text else ''}{said.text}"
    return None


def _offered(facts: ExplainFacts, room: int) -> tuple[str, str]:
    """A pull worker has the room that it asks to be filled, and else none."""
    needs = facts.task.row.slots
    if room == 0:
        return "slots", "no claim of it waits"
    return ("slots", f"needs {needs}, its claim that waits is for {room}") if needs > room else ("would_run", "")


def _room(facts: ExplainFacts, worker: WorkerView, busy: int) -> tuple[str, str]:
    needs, settings = facts.task.row.slots, facts.queue.settings
    free = worker.facts.slots - worker.slots_taken
    if worker.facts.slots == 0:
        return "slots", "it has no slots, so that it takes nothing"
    if needs > worker.facts.slots:
        return "slots", f"needs {needs} slots, it has {worker.facts.slots}"
    if needs > max(0, free):
        return "slots", f"needs {needs}, of {worker.facts.slots} are {max(0, free)} free"
    if settings.limit_per_worker is not None and busy >= settings.limit_per_worker:
        return "limit", f"queue {facts.queue.name} has {busy} here, as many as a worker may have"
    return "would_run", ""


def _reason(facts: ExplainFacts, said: Sequence[Said], small: Collection[str]) -> str:
    """What holds it, in one word: first what stays until somebody does something, then what goes away by itself."""
    held = [each.partition(" ")[0] for each in facts.held_by]
    if LASTING in held:
        return LASTING
    placed = _placed(said, small)
    return held[0] if held and placed not in _NOBODY else placed


def _placed(said: Sequence[Said], small: Collection[str]) -> str:
    """What the workers say to it, taken together; of those that are too small, no slot that frees is enough."""
    verdicts = Counter(each.verdict for each in said if each.verdict != "slots" or each.name not in small)
    if not any(each.verdict not in {"lost", "draining"} for each in said):
        return "no_worker"
    for word in ("would_run", "slots", "limit", "not_asked", "policy"):
        if verdicts[word]:
            return {"would_run": "next", "limit": "worker_limit"}.get(word, word)
    return "unplaceable"


def _text(seen: Seen, reason: str, said: Sequence[Said], now_ms: int) -> str:
    facts = seen.facts
    row = facts.task.row
    settings = facts.queue.settings
    if reason == "class" and facts.full is not None and facts.full.most is not None:
        return f"class {facts.full.name} may have {facts.full.most} slots at most, and it takes {row.slots}: others go before it"
    if reason == "queue_limit" and settings.limit == 0:
        return f"the limit of queue {facts.queue.name} is 0: nothing of it starts until that is raised"
    if reason == "key_limit" and settings.limit_per_key == 0:
        return f"queue {facts.queue.name} allows 0 actions a key: none with a key starts until that is raised"
    if reason in TEXTS:
        holders = ", ".join(facts.holders[:NAMED_MAX])
        more = len(facts.holders) - NAMED_MAX
        return TEXTS[reason].format(
            queue=facts.queue.name,
            queue_limit=facts.queue.settings.limit,
            holders=f"{holders} and {more} more" if more > 0 else holders or "nobody any more",
            until="now" if facts.until is None else _in(facts.until - now_ms),
            attempts=row.ended,
            klass="" if facts.full is None else facts.full.name,
        )
    if reason == row.state:
        return _over(facts)
    return _unplaced(reason, said, seen)


def _over(facts: ExplainFacts) -> str:
    row = facts.task.row
    if row.state in {"claimed", "running"}:
        where = ", ".join(sorted({each.worker for each in facts.task.actions if each.finished_at is None}))
        return f"it is {row.state}{' on ' if where else ''}{where}"
    if row.state in WAITING:  # of a service
        where = ", ".join(sorted({each.worker for each in facts.task.actions if each.finished_at is None}))
        return f"it was given to {where}, and has not begun" if where else f"it is {row.state}"
    return (
        f"it has {row.state}{f': {row.error_text}' if row.error_text else ''}"
        if row.state != "deleted"
        else "it was deleted"
    )


_UNPLACED: Final = {
    "slots": "all workers that may have it are full",
    "not_asked": "the policies of the workers that may have it have not answered yet",
    "policy": "no worker's policy wants it",
    "worker_limit": "all workers that may have it have as many of queue {queue} as one may",
}


def _unplaced(reason: str, said: Sequence[Said], seen: Seen) -> str:
    facts = seen.facts
    if reason == "no_worker":
        return "there is no worker that takes tasks" if said else "there is no worker"
    if reason == "next":
        before = "" if not facts.position else f", after {facts.position} others of its queue"
        return f"it starts as soon as it is its turn{before}"
    if reason == "slots" and facts.task.shape.adapter == "pull":
        return "no program asks for it now: pull workers are given a task as they claim one"
    pin = facts.task.shape.pin
    pinned = next((each for each in said if each.name == pin), None)
    if pinned is not None and reason in {"policy", "unplaceable"}:
        return f"it is pinned to worker {pin}: {pinned.detail or pinned.verdict}"
    if reason in _UNPLACED:
        return _UNPLACED[reason].format(queue=facts.queue.name)
    return _nobody(said, seen)


def _nobody(said: Sequence[Said], seen: Seen) -> str:
    """May have it."""
    away = changes.away(seen.facts, seen.workers)
    if away is not None:
        return f"worker {away.name} may have it, and takes nothing now: it is {away.state}"
    nearest = _nearest(said)
    return "no worker may have it" if nearest is None else f"no worker may have it; {nearest.name}: {nearest.detail}"


def _nearest(said: Sequence[Said]) -> Said | None:
    """Who speaks for all."""
    speaking = [each for each in said if each.verdict in _FURTHER]
    return max(speaking, key=lambda each: _FURTHER.index(each.verdict), default=None)


def _wanted(seen: Seen, said: Sequence[Said]) -> changes.Wanted:
    facts, nearest = seen.facts, _nearest(said)
    worker = next((each for each in seen.workers if nearest is not None and each.name == nearest.name), None)
    holder = next((each for each in facts.holders if each != UNNAMED), None)
    verdict = "" if nearest is None else nearest.verdict
    return changes.Wanted(facts, holder, worker, verdict, seen.workers)


def _in(ms: int) -> str:
    if ms <= 0:
        return "now"
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
        if ms >= size:
            return f"in {ms / size:.{3 if ms < 1000 * size else 6}g} {unit}"
    return f"in {ms / 1000:.3g} s"
