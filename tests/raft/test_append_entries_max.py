"""Many small entries for a follower that is behind: what is packed in one turn of the loop is bounded by their number."""

from __future__ import annotations

from dataclasses import replace

from quvatlh.raft.settings import Settings
from tests.raft.rig import bench

FEW = replace(Settings(), append_entries_max=5, append_window_messages=3)


async def test_small_entries_go_in_bounded_messages_and_a_bounded_number_of_them() -> None:
    master = await bench(settings=FEW)
    await master.lead()
    master.said("b")
    for _ in range(100):
        master.propose()
    master.said("b")
    master.holds("b", 10)
    frames = [frame[6] for frame in master.said("b", "append") if frame[6]]
    assert frames
    assert all(len(rows) <= FEW.append_entries_max for rows in frames)
    assert len(frames) <= FEW.append_window_messages


async def test_what_the_bounds_hold_back_goes_as_answers_come() -> None:
    master = await bench(settings=FEW)
    await master.lead()
    last = 0
    for _ in range(100):
        last = master.propose()
    reached = 0
    for _ in range(last):
        for frame in master.said("b", "append"):
            reached = max([reached, *(row[1] for row in frame[6])])
        if reached == last:
            break
        master.holds("b", reached)
    assert reached == last
