"""pullpool.Pull on any node: one hop to the master, to the next one where that has gone, until the wait is over.

A claim stands with the master for a short while at a time, so that one whose node is gone falls out of the market soon. What
it was awarded is read here. Nobody is told of an action twice: what a client that went away was awarded goes back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final

from quvatlh.core import commands as c
from quvatlh.core.queries import action_id, task_views
from quvatlh.core.rejections import FieldError
from quvatlh.core.rows import LIVE_SELECT, LiveRow, json_list, live_row
from quvatlh.core.scopes import narrowed
from quvatlh.ports import Log, LogError, Peers, Role, Unavailable, Unknown
from quvatlh.service import asks, pool, records, scoping
from quvatlh.service.answers import problem
from quvatlh.service.door import Door, error_of, hop, no_of
from quvatlh.service.pool import Call, Json
from quvatlh.service.pullasks import (
    ANSWER,
    ASK,
    Answer,
    Ask,
    Heard,
    Report,
    Reports,
    Return,
    Stand,
    Taken,
    Verb,
    Withdraw,
)
from quvatlh.service.pullpool import ANSWER_BYTES_MAX, Pulled, Wanted
from quvatlh.service.pullreports import PullReports
from quvatlh.service.pulls import Pulls
from quvatlh.service.reception import check_work
from quvatlh.service.state import State

KIND: Final = "pull"
STAND_S: Final = 2.0
"""Of one hop of a claim that waits: so long it may be awarded something after its node is gone."""
GLANCE_S: Final = 0.05
"""However short its wait, a claim stands until the market has looked at it."""
ANSWER_S: Final = 3.0
"""So much longer the master may take: what is under way is waited for."""
PAUSE_S: Final = 0.02
GIVE_BACK_S: Final = 5.0
CLAIMS_MAX: Final = 2000
"""Under way at this node."""
SLICE: Final = 50
"""Actions read between two turns of the loop: a few milliseconds."""


class Pulling:
    """A feed.Hearer for its role_changed, and pullpool.Pull."""

    def __init__(self, log: Log, peers: Peers, door: Door, state: State, pulls: Pulls, reports: PullReports) -> None:
        self._log = log
        self._peers = peers
        self._door = door
        self._state = state
        self._pulls = pulls
        self._reports = reports
        self._moved = asyncio.Event()
        self._claims = 0
        self._stopping = False
        self._behind: set[asyncio.Task[Any]] = set()
        """What goes on though its client does not wait."""
        peers.handle(KIND, self._asked)

    # --- pullpool.Pull ---

    async def claim(self, call: Call, wanted: Wanted) -> Pulled:
        check_work(call)
        wanted = replace(wanted, queues=_in_scope(call, wanted.queues))
        if self._claims >= CLAIMS_MAX:
            raise pool.Unavailable("rate_limited", f"{CLAIMS_MAX} claims wait at this node already")
        key = call.key
        request = self._door.request_id() if key is None else c.Request(key.token, key.route, key.id, key.digest)
        self._claims += 1
        taking = self._go_on(self._taken(call, wanted, request, again=key is not None))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.cancel()
            self._go_on(self._withdraw(taking, Withdraw(request, give_back=key is None)))
            raise
        except LogError as error:
            raise problem(error) from error
        finally:
            self._claims -= 1

    async def give_back(self, pulled: Pulled) -> None:
        if not pulled.again:  # else its client asks again
            self._return([each["token"] for each in pulled.actions])

    async def report(self, call: Call, verb: Verb, reports: Sequence[Report]) -> Sequence[str]:
        check_work(call)
        queues = call.principal.queues
        ends = _now() + call.deadline_ms / 1000
        try:
            heard = await self._at_master(lambda left_s: Reports(verb, tuple(reports), left_s, queues), ends)
            assert isinstance(heard, Heard)
            if verb != "renew":
                await self._wait_applied(heard.index, ends)
        except LogError as error:
            raise problem(error) from error
        return list(heard.codes)

    # --- a claim ---

    async def _taken(self, call: Call, wanted: Wanted, request: c.Request, *, again: bool) -> Pulled:
        waits_until = _now() + wanted.wait_ms / 1000
        ends = waits_until + call.deadline_ms / 1000
        while True:
            taken = await self._at_master(lambda _: _stand(call, wanted, request, waits_until), ends)
            assert isinstance(taken, Taken)
            if taken.tokens or taken.is_over or _now() >= waits_until:
                break
        if not taken.tokens:
            return Pulled((), again)
        await self._wait_applied(taken.index, _now() + call.deadline_ms / 1000)
        actions, rest = await self._read(taken.tokens)
        if rest:
            self._return(rest)
        return Pulled(actions, again)

    async def _read(self, tokens: Sequence[int]) -> tuple[list[Json], list[int]]:
        """The actions as their worker is told of them, and those for whose payloads the answer has no room."""
        found: list[Json] = []
        size = 0
        for n in range(0, len(tokens), SLICE):
            for action in self._actions(tokens[n : n + SLICE]):
                size += len(action["payload"] or b"")
                if found and size > ANSWER_BYTES_MAX:
                    told = {each["token"] for each in found}
                    return found, [token for token in tokens if token not in told]
                found.append(action)
            await asyncio.sleep(0)
        return found, []

    def _actions(self, tokens: Sequence[int]) -> list[Json]:
        if not self._state.is_open:
            raise Unavailable("this node's state is being replaced")
        db = self._state.db
        sql = f"{LIVE_SELECT} WHERE token IN (SELECT value FROM json_each(?)) ORDER BY token"  # noqa: S608 - text of our own
        rows = [live_row(row) for row in db.execute(sql, (json_list(tokens),))]
        seqs = sorted({row.task for row in rows})
        views = {view.row.seq: view for view in task_views(db, seqs)}
        sql = "SELECT task, payload, payload_json FROM body WHERE task IN (SELECT value FROM json_each(?))"
        payloads = {seq: (payload, bool(is_json)) for seq, payload, is_json in db.execute(sql, (json_list(seqs),))}
        return [
            _action(row, records.task(views[row.task]), *payloads.get(row.task, (None, True)))
            for row in rows
            if row.task in views
        ]

    async def _withdraw(self, taking: asyncio.Task[Pulled], ask: Withdraw) -> None:
        """By its own word, so that it is done before the claim's next wait would be over."""
        await asyncio.wait({taking})
        await self._try_at_master(ask)

    def _return(self, tokens: Sequence[int]) -> None:
        self._go_on(self._try_at_master(Return(tuple(tokens))))

    async def _try_at_master(self, ask: Ask) -> None:
        """What cannot be said ends with the leases."""
        with contextlib.suppress(LogError):
            await self._at_master(lambda _: ask, _now() + GIVE_BACK_S)

    def _go_on(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._behind.add(task)
        task.add_done_callback(self._gone)
        return task

    def _gone(self, task: asyncio.Task[Any]) -> None:
        self._behind.discard(task)
        if not task.cancelled():
            task.exception()  # told by who waits for it

    # --- to the master ---

    async def _at_master(self, make: Any, ends: float) -> Any:
        """Its answer. Each attempt may be repeated: claims have a name, reports are ok again."""
        doubt: LogError | None = None
        while True:
            moved = self._moved
            try:
                if self._stopping:
                    raise Unavailable("the node is stopping", "stopping")
                return await self._try(make(max(0.0, ends - _now())), moved)
            except (Unavailable, Unknown) as error:
                doubt = error if isinstance(error, Unknown) else doubt
                if _now() >= ends or self._stopping or error.code == "busy":
                    raise doubt or error from None
            await _until(moved, PAUSE_S)

    async def _try(self, ask: Ask, moved: asyncio.Event) -> Taken | Heard:
        if self._log.acts():
            return await self._do(ask)
        master = self._log.role.master
        if master is None or master == self._log.node_id:
            raise Unavailable("no master is known")
        answer = ANSWER.decode(await hop(self._peers, master, KIND, ASK.encode(ask), _patience_s(ask), moved))
        if isinstance(answer, asks.No):
            raise error_of(answer)
        assert isinstance(answer, Taken | Heard)
        return answer

    async def _wait_applied(self, index: int, ends: float) -> None:
        if self._log.applied_index < index:
            try:
                await self._log.wait_applied(index, deadline=max(0.0, ends - _now()))
            except Unavailable as error:
                raise Unknown(f"it was answered at index {index}, and not seen here in time") from error

    # --- on the master ---

    async def _do(self, ask: Ask) -> Taken | Heard:
        if isinstance(ask, Stand):
            return await self._pulls.stand(ask)
        if isinstance(ask, Reports):
            return await self._reports.take(ask)
        if isinstance(ask, Withdraw):
            await self._pulls.withdraw(ask.request, give_back=ask.give_back)
        else:
            await self._pulls.give_back(ask.tokens)
        return Taken()

    async def _asked(self, _asker: str, body: bytes) -> bytes:
        answer: Answer
        try:
            answer = await self._do(ASK.decode(body))
        except LogError as error:
            answer = no_of(error)
        except asks.Unreadable as error:
            answer = asks.No("refused", "bad_request", str(error))
        return ANSWER.encode(answer)

    # --- a Hearer ---

    def heard(self, _index: int, _events: object) -> None:
        pass

    def role_changed(self, _role: Role) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    def reset(self, _index: int) -> None:
        pass

    def stop(self) -> None:
        """Claims that wait are answered."""
        self._stopping = True
        self._moved.set()
        self._pulls.stop()
        self._reports.stop()

    async def end(self) -> None:
        """Nothing goes on after this."""
        for task in list(self._behind):
            task.cancel()
        await asyncio.gather(*self._behind, return_exceptions=True)


def _in_scope(call: Call, queues: tuple[str, ...]) -> tuple[str, ...]:
    """A claim asks for what its token may have, and no more."""
    found = narrowed(queues, call.principal.queues)
    if not found:
        text = f"none of these is of this token's queues, {scoping.listed(call.principal.queues)}"
        raise scoping.refused(call.principal, [FieldError("queues", text)])
    return found


def _stand(call: Call, wanted: Wanted, request: c.Request, until: float) -> Stand:
    wait_s = max(GLANCE_S, min(STAND_S, until - _now()))
    return Stand(
        request, wanted.worker, wanted.queues, wanted.most, wanted.lease_ms, wait_s, wanted.greedy, wanted.tags,
        call.principal.name,
    )  # fmt: skip


def _patience_s(ask: Ask) -> float:
    if isinstance(ask, Stand):
        return ask.wait_s + ANSWER_S
    return max(0.01, ask.deadline_s) if isinstance(ask, Reports) else ANSWER_S


def _action(row: LiveRow, task: Json, payload: bytes | None, is_json: bool) -> Json:  # noqa: FBT001 - a column
    return {
        "action": action_id(row.token),
        "token": row.token,
        "lease_ms": row.lease_ms,
        "task": task,
        "payload": payload,
        "payload_json": is_json,
    }


async def _until(moved: asyncio.Event, at_most_s: float) -> None:
    try:
        async with asyncio.timeout(at_most_s):
            await moved.wait()
    except TimeoutError:
        pass


def _now() -> float:
    return asyncio.get_running_loop().time()
