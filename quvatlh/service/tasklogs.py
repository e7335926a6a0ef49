"""What a task wrote, for who follows it: its last action's output, or a named one's, from wherever that is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from quvatlh import ports
from quvatlh.core import queries
from quvatlh.core.views import ActionView, TaskView
from quvatlh.service import asks, tails
from quvatlh.service.feed import Feed
from quvatlh.service.outputs import WAIT_S, Outputs, is_beyond_gap, onwards
from quvatlh.service.pool import BrokeOff, Call, LogOutput, Output, Rejected
from quvatlh.service.reads import Reads

LOOK_S: Final = 1.0
"""Between looks at whether a task has ended, or is another's, where nothing tells."""


class TaskLogs:
    def __init__(self, reads: Reads, feed: Feed, outputs: Outputs) -> None:
        self._reads = reads
        self._feed = feed
        self._outputs = outputs

    async def log(
        self, call: Call, task_id: str, output: Output, action: str | None, *, follow: bool, offset: int = 0
    ) -> LogOutput:
        found = await self._action(call, task_id, action, follow=follow)
        if found is None:
            return LogOutput(_pieces([]), tail_only=False)
        kept = tails.unpack(found.output_tail)
        ended = found.finished_at is not None
        bytes_all = kept.bytes_all(output) if ended and found.state != "lost" else None
        rest = None if bytes_all is None else kept.since(output, offset)
        if rest is not None:
            return LogOutput(_pieces([rest]), tail_only=False, action=found.id, offset=offset, bytes_all=bytes_all)
        owner, first = await self._reads.owner(found.worker), None
        if owner is not None:
            ask = asks.OutputAsk(found.id, output == "stderr", offset, 0.0, found.worker)
            first = await self._piece(owner, ask)
            if first is not None and (first.data or not ended):
                is_on = follow and not ended
                chunks = self._followed(task_id, owner, ask, first) if is_on else self._outputs.rest(owner, ask, first)
                if follow and call.principal.scope is not None:
                    chunks = self._while_seen(call, task_id, chunks)
                start = first.next_offset - len(first.data)
                return LogOutput(chunks, tail_only=False, action=found.id, offset=start, bytes_all=bytes_all)
        if first is not None and offset and not kept.of(output):  # of a lost one no more is known than its worker has
            return LogOutput(_pieces([]), tail_only=False, action=found.id, offset=offset)
        return LogOutput(
            _pieces([kept.of(output)]),
            tail_only=True,
            action=found.id,
            offset=kept.start(output),
            is_there=first is not None,
            bytes_all=bytes_all,
        )

    async def _piece(self, owner: str, ask: asks.OutputAsk) -> asks.OutputAnswer | None:
        """None where the owner cannot be asked."""
        try:
            return await self._outputs.piece(owner, ask)
        except (ports.LogError, asks.Unreadable):
            return None

    async def _followed(
        self, task_id: str, first_owner: str, ask: asks.OutputAsk, first: asks.OutputAnswer
    ) -> AsyncIterator[bytes]:
        """From the first piece until the action is over by the table, or something is not kept. Who has it may be out of
        touch meanwhile, and comes back to it: then it is asked again. What was in no file while it ran comes with the finish,
        or is in one since."""
        watch = self._feed.watch(task_id)
        owner: str | None = first_owner
        piece: asks.OutputAnswer | None = first
        found: ActionView | None = None
        try:
            while True:
                if piece is not None:
                    if piece.data:
                        yield piece.data
                    ask = onwards(ask, piece.next_offset, WAIT_S)
                if piece is None or piece.ended:
                    found = await self._reads.read(None, lambda db: _find(queries.get_task(db, task_id), ask.action))  # noqa: B023 - read at once
                    if found is None or found.finished_at is not None:
                        break
                    await watch.wait(LOOK_S)
                    owner = await self._reads.owner(ask.worker)
                piece = None if owner is None else await self._piece(owner, ask)
                if piece is not None and is_beyond_gap(ask, piece):
                    return
        finally:
            watch.close()
        if found is not None:
            async for chunk in self._last_of(found, onwards(ask, ask.offset)):
                yield chunk

    async def _last_of(self, action: ActionView, ask: asks.OutputAsk) -> AsyncIterator[bytes]:
        """Of one that is over."""
        tail = tails.unpack(action.output_tail) if action.state != "lost" else None
        rest = None if tail is None else tail.since("stderr" if ask.stderr else "stdout", ask.offset)
        if rest:
            yield rest
        if rest is not None:
            return
        owner = await self._reads.owner(ask.worker)
        first = None if owner is None else await self._piece(owner, ask)
        if owner is None or first is None:
            raise BrokeOff("its worker cannot be asked for the rest")
        if is_beyond_gap(ask, first):
            return
        async for chunk in self._outputs.rest(owner, ask, first):
            yield chunk

    async def _while_seen(self, call: Call, task_id: str, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Until the task is moved out of the token's scope: what it writes from then on is not for it, and there is no such
        task. What had been read before is not told of either."""
        watch = self._feed.watch(task_id)
        coming: asyncio.Future[bytes | None] | None = None
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(chunks, None))
                happened = asyncio.ensure_future(watch.wait(LOOK_S))
                either: set[asyncio.Future[Any]] = {coming, happened}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                happened.cancel()
                await self._reads.find(call, task_id)
                if coming.done():
                    chunk, coming = coming.result(), None
                    if chunk is None:
                        return
                    yield chunk
        finally:
            watch.close()
            if coming is not None:
                coming.cancel()

    async def _action(self, call: Call, task_id: str, action: str | None, *, follow: bool) -> ActionView | None:
        """The named one, or the last; to follow a task without one is to wait for it."""
        watch = self._feed.watch(task_id)
        try:
            while True:
                view, _ = await self._reads.find(call, task_id)
                found = _find(view, action)
                if found is None and action is not None:
                    actions = await self._reads.read(call, lambda db: queries.list_actions(db, view.row))  # noqa: B023 - read at once
                    found = next((each for each in actions if each.id == action), None)
                    if found is None:
                        raise Rejected("not_found", f"task {task_id} has no action {action}")
                if found is not None or not follow or view.row.finished:
                    return found
                await watch.wait(60.0)
        finally:
            watch.close()


def _find(view: TaskView | None, action: str | None) -> ActionView | None:
    if view is None or not view.actions:
        return None
    if action is None:
        return view.actions[-1]
    return next((each for each in view.actions if each.id == action), None)


async def _pieces(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        if piece:
            yield piece
        await asyncio.sleep(0)
