"""Results that are too large for the record, from any node: a file of the worker that made it, read piece by piece.

The record says only that there is one. Where it is, is not taken from there, since a task may return whatever it likes, but from
whose action it was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from quvatlh.core.limits import FILED_RESULT
from quvatlh.core.views import ActionView, TaskView
from quvatlh.ports import LogError, Peers
from quvatlh.service import asks, records
from quvatlh.service.crew import RESULT, Crew
from quvatlh.service.outputs import ANSWER_S
from quvatlh.service.pool import BrokeOff, LargeResult, Rejected


class LargeResults:
    def __init__(self, crew: Crew, peers: Peers, node_id: str) -> None:
        self._crew = crew
        self._peers = peers
        self._node_id = node_id

    async def open(self, task: TaskView, action: ActionView, owner: str | None) -> LargeResult:
        """`owner`: the node that the worker is on. Rejected(conflict) while that cannot be asked, gone where the file is."""
        words = f"task {task.row.id} succeeded, and its result is a file of worker {action.worker}"
        if owner is None:
            raise Rejected("conflict", f"{words}, which this cluster does not know any more")
        try:
            first = await self._piece(owner, asks.ResultAsk(action.worker, action.id, 0))
        except (LogError, asks.Unreadable):
            raise Rejected("conflict", f"{words}, which cannot be asked now: it is gone, or away") from None
        if first.size is None:
            raise Rejected("gone", f"{words}, which does not keep it any more")
        is_packed = records.is_packed_file(action)
        return LargeResult(first.size, action.worker, self._rest(owner, action, first), is_packed)

    async def _rest(self, owner: str, action: ActionView, first: asks.ResultAnswer) -> AsyncIterator[bytes]:
        piece, sent = first, 0
        while True:
            yield piece.data
            sent += len(piece.data)
            if first.size is None or sent >= first.size:
                return
            try:
                piece = await self._piece(owner, asks.ResultAsk(action.worker, action.id, sent))
            except (LogError, asks.Unreadable) as error:
                raise BrokeOff(str(error)) from error
            if piece.size != first.size or not piece.data:
                raise BrokeOff(f"the result of {action.id} is not what it was")

    async def _piece(self, node_id: str, ask: asks.ResultAsk) -> asks.ResultAnswer:
        if node_id == self._node_id:
            return await self._crew.result(ask)
        body = asks.RESULT_ASK.encode(ask)
        answer: asks.ResultAnswer = asks.RESULT_ANSWER.decode(
            await self._peers.request(node_id, RESULT, body, deadline=ANSWER_S)
        )
        return answer


def found(task: TaskView) -> ActionView | None:
    """The action whose result is a file; None where what the record has is all of it."""
    action = records.succeeded_by(task)
    return action if action is not None and (action.result or b"").startswith(FILED_RESULT) else None
