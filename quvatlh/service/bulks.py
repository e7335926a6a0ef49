"""Verbs over more tasks than one entry takes: worked off a thousand at a time, in the background of the node that was asked.

How far it is, that node knows; any other asks it, since a bulk's id names its node. When that node ends before the work
does, what is done is done, the rest is asked for again, and the bulk is known to nobody.
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
from quvatlh.ports import Entropy, Log, LogError, Peers
from quvatlh.service import asks
from quvatlh.service.door import Door, Refusal
from quvatlh.service.pool import Bulk, Call, Json, Rejected, Unavailable
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
"""Ids that were found a moment ago -> the command over them, which is answered by Done or Worked."""


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

    def start(self, call: Call, wanted: TaskFilter, verb: Verb, matched: int = BATCH_MAX + 1) -> Bulk:
        """`matched`: so many at least, as far as is known before they are walked over."""
        bulk_id = f"b{_mark(self._log.node_id)}-{self._entropy.token(ID_BYTES).hex()}"
        progress = self._known[bulk_id] = _Progress(matched)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        self._tree.grow(f"bulk {bulk_id}", lambda: self._work(call, wanted, verb, progress))
        return Bulk(bulk_id)

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
                text = f"node {member.name} works it off, and does not answer; if it has ended, ask for the rest again"
                raise Unavailable("no_master", text) from error
            if answer.known:
                return answer
        raise Rejected("not_found", f"there is no bulk {bulk_id}; if its node was started anew, ask for the rest again")

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
                if isinstance(written.answer, results.Done | results.Worked):
                    progress.done += written.answer.done
                if isinstance(written.answer, results.Deleted):
                    progress.over += written.answer.over
                break
            if cursor is None:
                progress.working = False
                return


def _mark(node_id: str) -> str:
    """Of a node, in the ids of its bulks."""
    return hashlib.blake2b(node_id.encode(), digest_size=NODE_DIGITS // 2).hexdigest()
