"""What policies would have said, said by hand: workers' offers as the master hears them."""

from __future__ import annotations

from quvatlh.ports import Word
from quvatlh.service import asks
from quvatlh.service.offers import KIND
from tests.service.stand import Stand

POLICY = {"source": "function(state, task) return true end"}


async def _nothing(_offers: asks.Offers) -> None:
    pass


async def ready(*stands: Stand) -> None:
    """Their workers are there, and say nothing of themselves."""
    for stand in stands:
        stand.node.seats._taken[stand.name].offer = _nothing  # type: ignore[assignment, method-assign]
        await stand.working()


def seq_of(stand: Stand, task: str) -> int:
    row = stand.machine.db.execute("SELECT seq FROM task WHERE id = ?", (task,)).fetchone()
    return int(row[0])


def session_of(stand: Stand, worker: str) -> str:
    row = stand.machine.db.execute("SELECT session FROM worker WHERE name = ?", (worker,)).fetchone()
    return str(row[0])


async def offer(
    master: Stand, worker: str, task: str, score: float | Word, text: str = "", session: str | None = None
) -> None:
    """By the link, as a worker elsewhere does."""
    word: Word = "bid" if isinstance(score, float) else score
    said = asks.Offer(seq_of(master, task), word, score if isinstance(score, float) else 0.0, text)
    body = asks.OFFERS.encode(asks.Offers(worker, session or session_of(master, worker), (said,)))
    await master.peers.answer(worker, KIND, body)


async def owner_of(stand: Stand, task: str) -> str:
    """Once it is claimed."""
    await stand.until(lambda: stand.peek(task) in {"claimed", "running"}, f"{task} is not claimed")
    row = stand.machine.db.execute("SELECT worker FROM live WHERE id = ?", (task,)).fetchone()
    return str(row[0])
