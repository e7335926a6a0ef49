"""Verbs over more tasks than one entry takes: worked off a thousand at a time, in the background of the node that was asked.

How far it is, that node knows. When it ends before the work does, what is done is done, and the rest is asked again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from quvatlh.core import commands as c
from quvatlh.core import results
from quvatlh.core.filters import TaskFilter
from quvatlh.core.limits import BATCH_MAX
from quvatlh.ports import Entropy, LogError
from quvatlh.service import asks
from quvatlh.service.door import Door, Refusal
from quvatlh.service.pool import Bulk, Call, Json, Rejected
from quvatlh.service.reads import Reads
from quvatlh.service.tree import Tree

KNOWN_MAX: Final = 1000
STEP_S: Final = 10.0
AGAIN_S: Final = 0.5
ID_BYTES: Final = 8


@dataclass(slots=True)
class _Progress:
    matched: int
    done: int = 0
    working: bool = True


class Bulks:
    def __init__(self, door: Door, reads: Reads, tree: Tree, entropy: Entropy) -> None:
        self._door = door
        self._reads = reads
        self._tree = tree
        self._entropy = entropy
        self._known: OrderedDict[str, _Progress] = OrderedDict()

    def start(self, call: Call, wanted: TaskFilter) -> Bulk:
        bulk_id = f"b{self._entropy.token(ID_BYTES).hex()}"
        progress = self._known[bulk_id] = _Progress(BATCH_MAX + 1)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        self._tree.grow(f"bulk {bulk_id}", lambda: self._work(call, wanted, progress))
        return Bulk(bulk_id)

    def state(self, bulk_id: str) -> Json:
        progress = self._known.get(bulk_id)
        if progress is None:
            raise Rejected("not_found", f"this node knows no bulk {bulk_id}")
        state = "working" if progress.working else "done"
        return {"id": bulk_id, "matched": max(progress.matched, progress.done), "done": progress.done, "state": state}

    async def _work(self, call: Call, wanted: TaskFilter, progress: _Progress) -> None:
        """Deleted tasks may match again (a filter need not name a state), so a cursor walks over them once."""
        cursor: str | None = None
        while True:
            ids, cursor = await self._reads.matching_page(call, wanted, BATCH_MAX, cursor)
            while ids:
                try:
                    written = await self._door.write(asks.Do(c.Delete(tuple(ids), strict=False)), STEP_S)
                except Refusal:
                    break
                except LogError as error:
                    if error.code == "stopping":
                        return
                    await asyncio.sleep(AGAIN_S)
                    continue
                if isinstance(written.answer, results.Done):
                    progress.done += written.answer.done
                break
            if cursor is None:
                progress.working = False
                return
