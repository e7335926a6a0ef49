"""Verbs over more tasks than one entry takes: worked off a thousand at a time, in the background of the node that was asked.

How far it is, that node knows; any other asks it, since a bulk's id names its node. When that node ends before the work
does, what is done is done, the rest is asked for again, and the bulk is known to nobody. Asked under an Idempotency-Key, an
entry says first that this bulk is the answer: who asks again, anywhere, is told of it, and begins no second one.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from quvatlh.core import commands as c
from quvatlh.core import results
from quvatlh.core.filters import TaskFilter
from quvatlh.core.limits import BATCH_MAX
from quvatlh.ports import Entropy, Log, LogError, Peers, Refused, Unknown
from quvatlh.service import asks
from quvatlh.service.answers import outcome
from quvatlh.service.door import Door, Refusal
from quvatlh.service.pool import Bulk, Call, Done, Json, Rejected, Unavailable
from quvatlh.service.reads import Reads
from quvatlh.service.tree import Tree

KIND: Final = "bulk"
KNOWN_MAX: Final = 1000
STEP_S: Final = 10.0
AGAIN_S: Final = 0.5
ASK_S: Final = 2.0
ID_BYTES: Final = 8
NODE_DIGITS: Final = 8

Verb = Callable[[Sequence[str]], c.AnyCommand]
"""Ids that were found a moment ago -> the command over them, which is answered by Done."""


@dataclass(slots=True)
class _Progress:
    matched: int
    done: int = 0
    over: int = 0
    working: bool = True


class Bulks:
    def __init__(self, log: Log, peers: Peers, door: Door, reads: Reads, tree: Tree, entropy: Entropy) -> None:
        self._log = log
        self._peers = peers
        self._door = door
        self._reads = reads
        self._tree = tree
        self._entropy = entropy
        self._known: OrderedDict[str, _Progress] = OrderedDict()
        peers.handle(KIND, self._asked)

    async def start(
        self, call: Call, wanted: TaskFilter, verb: Verb, matched: int, request: c.Request | None
    ) -> Done | Bulk:
        """`matched`: so many at least, as far as is known before they are walked over. `request`: of who gave a key; then
        what was answered first is the answer. A LogError, or Refusal."""
        bulk_id = f"b{_mark(self._log.node_id)}-{self._entropy.token(ID_BYTES).hex()}"
        if request is None:
            progress = self._know(bulk_id, matched)
            self._tree.grow(f"bulk {bulk_id}", lambda: self._work(call, wanted, verb, progress))
            return Bulk(bulk_id)
        first: asyncio.Future[Done | Bulk] = asyncio.get_running_loop().create_future()
        first.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody waits any more

        async def begin() -> None:
            if await self._is_first(call, bulk_id, request, first):
                progress = self._know(bulk_id, matched)
                _settle(first, Bulk(bulk_id))
                await self._work(call, wanted, verb, progress)

        self._tree.grow(f"bulk {bulk_id}", begin)
        return await asyncio.shield(first)

    def _know(self, bulk_id: str, matched: int) -> _Progress:
        progress = self._known[bulk_id] = _Progress(matched)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return progress

    async def _is_first(self, call: Call, bulk_id: str, request: c.Request, first: asyncio.Future[Done | Bulk]) -> bool:
        """Whether this bulk is the answer to the request. What may have become so is asked until that is certain, whether
        or not anybody waits for it: a bulk that is told of is also worked off."""
        deadline_s, doubt = call.deadline_ms / 1000, False
        while True:
            try:
                wish = asks.Do(c.BeginBulk(bulk_id))
                written = await self._door.write(wish, deadline_s, request, call.principal.scope)
            except (LogError, Refusal) as error:
                _settle(first, error)
                doubt = doubt or isinstance(error, Unknown)
                if not doubt or isinstance(error, Refused | Refusal) or error.code == "stopping":
                    return False
                deadline_s = STEP_S
                await asyncio.sleep(AGAIN_S)
                continue
            except asyncio.CancelledError:
                _settle(first, Unknown("the node is stopping"))
                raise
            told = outcome(written.answer, written.index)
            if told == Bulk(bulk_id):
                return True
            _settle(first, told)
            return False

    async def state(self, bulk_id: str) -> Json:
        progress = self._known.get(bulk_id)
        if progress is None:
            answer = await self._ask(bulk_id)
        else:
            answer = self._answer(progress)
        state = "working" if answer.working else "done"
        told = {"id": bulk_id, "matched": max(answer.matched, answer.done), "done": answer.done, "state": state}
        return told | ({"over": answer.over} if answer.over else {})

    async def _ask(self, bulk_id: str) -> asks.BulkAnswer:
        """The node that was asked for it."""
        membership = self._log.membership
        members = () if membership is None else (*membership.voters, *membership.learners)
        mark = bulk_id[1:].partition("-")[0]
        for member in members:
            if _mark(member.id) != mark or member.id == self._log.node_id:
                continue
            try:
                body = await self._peers.request(
                    member.id, KIND, asks.BULK_ASK.encode(asks.BulkAsk(bulk_id)), deadline=ASK_S
                )
                answer: asks.BulkAnswer = asks.BULK_ANSWER.decode(body)
            except (LogError, asks.Unreadable) as error:
                text = f"node {member.name} works it off, and does not answer; if it has ended, ask for the rest again, as a new request"
                raise Unavailable("no_master", text) from error
            if answer.known:
                return answer
        again = "if its node was started anew, ask for the rest again, as a new request"
        raise Rejected("not_found", f"there is no bulk {bulk_id}; {again}")

    async def _asked(self, _asker: str, body: bytes) -> bytes:
        progress = self._known.get(asks.BULK_ASK.decode(body).id)
        return asks.BULK_ANSWER.encode(asks.BulkAnswer(known=False) if progress is None else self._answer(progress))

    def _answer(self, progress: _Progress) -> asks.BulkAnswer:
        matched, done, over = progress.matched, progress.done, progress.over
        return asks.BulkAnswer(known=True, matched=matched, done=done, working=progress.working, over=over)

    async def _work(self, call: Call, wanted: TaskFilter, verb: Verb, progress: _Progress) -> None:
        """What was done may match again (a filter need not name a state), so a cursor walks over them once."""
        cursor: str | None = None
        seen = 0
        while True:
            try:
                ids, cursor = await self._reads.matching_page(call, wanted, BATCH_MAX, cursor)
            except Unavailable:  # the state of this node is being replaced
                await asyncio.sleep(AGAIN_S)
                continue
            seen += len(ids)
            progress.matched = seen if cursor is None else max(progress.matched, seen)
            while ids:
                try:
                    written = await self._door.write(
                        asks.Do(verb(ids)), STEP_S, self._door.request_id(), call.principal.scope
                    )
                except Refusal:
                    break
                except LogError as error:
                    if error.code == "stopping":
                        return
                    await asyncio.sleep(AGAIN_S)
                    continue
                if isinstance(written.answer, results.Done):
                    progress.done += written.answer.done
                if isinstance(written.answer, results.Deleted):
                    progress.over += written.answer.over
                break
            if cursor is None:
                progress.working = False
                return


def _settle(first: asyncio.Future[Done | Bulk], answer: Done | Bulk | Exception) -> None:
    if first.done():
        return
    if isinstance(answer, Exception):
        first.set_exception(answer)
    else:
        first.set_result(answer)


def _mark(node_id: str) -> str:
    """Of a node, in the ids of its bulks."""
    return hashlib.blake2b(node_id.encode(), digest_size=NODE_DIGITS // 2).hexdigest()
