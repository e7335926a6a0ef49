"""DESIGN.md section 6: matching and contradicting appends, the commit index, a follower behind the log, stale answers."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from quvatlh.raft.engine import MalformedMessage
from quvatlh.raft.journal import JournalBug
from quvatlh.raft.segment import Base
from quvatlh.raft.settings import Settings
from tests.raft.nodes import Town, engine_of, held, log_of, play
from tests.raft.parts import HeldLane, membership, turns
from tests.raft.rig import Bench, bench, row, rows
from tests.raft.teeth import fails_under

# --- what an append does to the log -----------------------------------------------------------------------------------


@fails_under("cut-shown-at-once", "cut-by-pysyncobj", raises=(JournalBug,))
async def test_an_append_that_matches_cuts_nothing() -> None:
    follower = await bench(log=rows(1, 5))
    seen: list[int] = []
    follower.journal.on_cut = seen.append
    for first, last in ((2, 3), (1, 1), (4, 5), (3, 2)):
        follower.append("b", 1, (first - 1, 1 if first > 1 else 0), *rows(first, last))
        assert follower.held == [(index, 1) for index in range(1, 6)]
    assert seen == []


@fails_under("cut-shown-at-once", "cut-by-pysyncobj", raises=(JournalBug,))
async def test_an_append_that_comes_late_takes_nothing_back_that_was_applied() -> None:
    follower = await bench()
    follower.append("b", 1, (0, 0), *rows(1, 5), commit=5)
    await follower.tick()
    follower.append("b", 1, (0, 0), *rows(1, 2), commit=2)
    await follower.tick()
    assert (len(follower.held), len(follower.applied), follower.engine.last_applied()) == (5, 5, 5)


@fails_under("cut-ignored")
async def test_an_entry_of_another_term_cuts_there_and_for_good() -> None:
    follower = await bench(log=rows(1, 5))
    follower.append("b", 2, (3, 1), row(4, 2))
    await follower.tick()
    now = [(1, 1), (2, 1), (3, 1), (4, 2)]
    assert follower.held == now
    follower.power_fail()
    assert follower.held == now


async def test_an_answer_for_what_replaced_a_cut_waits_until_the_cut_is_synced() -> None:
    lane = HeldLane()
    follower = await bench(log=rows(1, 5), lane=lane)
    follower.append("b", 2, (3, 1), row(4, 2))
    await turns()
    assert follower.said("b", "next") == []
    await lane.let_go()
    assert follower.said("b", "next") == [["next", 2, 5, False, True]]


@fails_under("committed-entries-may-be-cut")
async def test_an_append_that_contradicts_what_is_committed_is_a_bug_and_cuts_nothing() -> None:
    follower = await bench()
    follower.append("b", 1, (0, 0), *rows(1, 5), commit=4)
    await follower.tick()
    with contextlib.suppress(JournalBug):  # the node ends by it
        follower.append("c", 2, (3, 1), row(4, 2))
    assert follower.held == [(index, 1) for index in range(1, 6)]


# --- the commit index -------------------------------------------------------------------------------------------------


@fails_under("commit-index-not-lowered")
async def test_a_stale_tail_is_not_committed_by_an_append_that_does_not_reach_it() -> None:
    """Entries 4 and 5 are of a master that never committed them; the new one has others in their place."""
    follower = await bench(log=rows(1, 5))
    follower.append("b", 2, (3, 1), commit=5)
    await follower.tick()
    assert (follower.engine.commit_index(), len(follower.applied)) == (3, 3)
    follower.append("b", 2, (3, 1), row(4, 2), row(5, 2), commit=5)
    await follower.tick()
    assert [term for _, _, term in follower.applied] == [1, 1, 1, 2, 2]


@fails_under("commit-index-is-what-an-append-proves")
async def test_the_masters_real_commit_index_is_kept_beside() -> None:
    follower = await bench(log=rows(1, 5))
    follower.append("b", 2, (3, 1), commit=5)
    assert (follower.engine.commit_index(), follower.engine.master_commit()) == (3, 5)


async def test_a_commit_index_never_falls() -> None:
    follower = await bench()
    follower.append("b", 1, (0, 0), *rows(1, 5), commit=5)
    follower.append("b", 1, (0, 0), row(1, 1), commit=1)
    await follower.tick()
    assert (follower.engine.commit_index(), follower.engine.master_commit()) == (5, 5)


@pytest.mark.parametrize(
    "entry",
    [
        ["not bytes", 1, 1],
        [b"", 1, 1],
        [b"\x80\x05\x95 a pickle", 1, 1],
        [b"\x02\x80\x05]\x94.", 1, 1],
        [b"\x10", 1, 1],
        [b"\x11" + bytes(16), 1, 1],
        [row(1, 1)[0], 2, 1],
        [row(1, 1)[0], 1],
        [row(1, 1)[0], 1, -1],
        [row(1, 1)[0], 1, 2**64],
        [row(1, 1)[0], True, 1],
        "entry",
    ],
)
async def test_what_is_no_entry_ends_the_link_and_changes_nothing(entry: object) -> None:
    follower = await bench()
    with pytest.raises(MalformedMessage):
        follower.hear("b", "append", 1, 0.0, 0, 0, 0, [entry])
    assert (follower.held, follower.engine.term(), follower.said("b")) == ([], 0, [])


@pytest.mark.parametrize(
    "frame",
    [
        ["append", 1, 0.0, -1, 0, 0, []],
        ["append", -1, 0.0, 0, 0, 0, []],
        ["append", 2**63, 0.0, 0, 0, 0, []],
        ["append", 1, 0.0, 0, 0, -1, []],
        ["campaign", 2**64 - 1, 0, 0, False],
        ["stale", 2**63],
        ["would", 2**63, 1, True],
        ["append", True, 0.0, 0, 0, 0, []],
        ["append", 1],
        ["serialized", 1],
        ["apply_command", b"\x80\x05]\x94."],
        ["campaign", 1, "x", 0, False],
        ["receive"],
        [None],
    ],
)
async def test_what_is_no_message_ends_the_link_and_changes_nothing(frame: list[object]) -> None:
    node = await bench()
    with pytest.raises(MalformedMessage):
        node.hear("b", *frame)
    assert (node.held, node.engine.term(), node.said("b")) == ([], 0, [])


# --- a follower behind the log ----------------------------------------------------------------------------------------


async def master_of_a_short_log() -> Bench:
    """Its log begins after entry 10; c has only five."""
    master = await bench(base=Base(10, 1, 100, membership("a", "b", "c")), log=rows(11, 15))
    await master.lead("b")
    master.said("b")
    master.said("c")
    return master


@fails_under("appends-by-pysyncobj")
async def test_a_follower_behind_the_log_hears_so_and_gets_heartbeats_and_no_entries() -> None:
    master = await master_of_a_short_log()
    master.hear("c", "next", master.engine.term(), 6, True, False)
    master.said("c")
    await master.tick(2 * master.settings.heartbeat_s)
    said = master.said("c")
    assert ["behind", master.engine.term(), 10] in said
    assert [frame[6] for frame in said if frame[0] == "append"] == [[]]


@fails_under("behind-repeated-at-every-answer")
async def test_the_messages_to_a_follower_behind_the_log_are_bounded_by_time_and_not_by_its_answers() -> None:
    master = await master_of_a_short_log()
    messages = 0
    for _ in range(10):
        await master.tick(master.settings.heartbeat_s * 1.01)
        master.echo("b")
        for _ in range(20):
            frames = master.said("c")
            messages += len(frames)
            for frame in frames:
                if frame[0] == "append":
                    master.hear("c", "next", master.engine.term(), 6, True, False)
            assert messages <= 3 * 10


@fails_under("behind-repeated-at-every-answer")
async def test_two_engines_of_which_one_is_behind_the_other_do_not_spin() -> None:
    """Frames go to and fro without time going by: there must come an end."""
    master = await master_of_a_short_log()
    follower = await bench("c", log=rows(1, 5))
    for _ in range(3):
        await master.tick(master.settings.heartbeat_s * 1.01)
        master.echo("b")
        exchanged = 0
        while frames := master.said("c"):
            for frame in frames:
                follower.hear("a", *frame)
            await follower.tick()
            for frame in follower.said("a"):
                master.hear("c", *frame)
            exchanged += len(frames)
            assert exchanged < 10
    assert follower.behind_told[0] == ("a", 10)
    assert (follower.engine.commit_index(), follower.held[-1]) == (0, (5, 1))


def test_a_node_behind_the_log_comes_back_by_a_snapshot_while_writes_go_on() -> None:
    settings = Settings(
        segment_bytes=2048, keep_bytes=2048, cache_bytes=512, checkpoint_bytes=3000, checkpoint_s=1.0, slice_s=0.002
    )

    async def story(town: Town) -> None:
        master = await town.founded()
        late = town.others(master)[0]
        late.crash(power=True)
        values = [f"{number:03}" * 30 for number in range(60)]
        for value in values:
            await town.write(master, value)
        await town.until(lambda: log_of(master).log_span()[0] > 20)
        late.start()
        await town.write(master, "after")
        await town.all_hold(*values, "after")
        assert "snapshot in force" in town.noted(late)

    play(story, settings=settings)


# --- answers ----------------------------------------------------------------------------------------------------------


@fails_under("answers-without-term-or-connection")
async def test_an_answer_of_another_term_counts_for_nothing() -> None:
    master = await bench()
    await master.lead()
    index = master.propose()
    for term in (master.engine.term() - 1, master.engine.term() + 1):
        master.hear("b", "next", term, index + 1, False, True)
    await master.tick()
    assert (master.engine.match_index("b"), master.engine.commit_index()) == (index - 1, index - 1)


@fails_under("answers-without-term-or-connection")
async def test_an_answer_over_a_connection_that_was_replaced_counts_for_nothing() -> None:
    master = await bench()
    await master.lead()
    older = master.links["b"]
    master.connect("b")
    index = master.propose()
    master.hear(older, "next", master.engine.term(), index + 1, False, True)
    await master.tick()
    assert (master.engine.match_index("b"), master.engine.commit_index()) == (index - 1, index - 1)


@fails_under("next-index-rewinds")
async def test_what_is_under_way_on_a_connection_is_not_sent_again_at_each_answer() -> None:
    master = await bench()
    await master.lead()
    master.said("b")
    indexes = [master.propose() for _ in range(100)]
    for index in indexes:
        master.holds("b", index)
    sent = [entry[1] for frame in master.said("b", "append") for entry in frame[6]]
    assert sent == indexes


async def test_what_was_under_way_on_a_lost_connection_is_sent_again_on_the_next() -> None:
    master = await bench()
    await master.lead()
    indexes = [master.propose() for _ in range(5)]
    master.connect("b")
    sent = [entry[1] for frame in master.said("b", "append") for entry in frame[6]]
    assert sent == indexes


@fails_under("stale-reset-believed")
async def test_a_reset_to_before_what_is_matched_is_ignored() -> None:
    master = await bench()
    await master.lead()
    for _ in range(5):
        master.holds("b", master.propose())
    matched, following = master.engine.match_index("b"), master.engine.next_index("b")
    master.said("b")
    master.hear("b", "next", master.engine.term(), 2, True, False)
    assert (master.engine.match_index("b"), master.engine.next_index("b")) == (matched, following)
    assert master.said("b", "append") == []


async def test_an_answer_for_more_than_the_log_holds_ends_the_link() -> None:
    master = await bench()
    await master.lead()
    with pytest.raises(MalformedMessage):
        master.hear("b", "next", master.engine.term(), master.journal.last_index + 2, False, True)


async def test_a_follower_whose_end_is_another_is_asked_back_to_where_the_logs_agree() -> None:
    """It holds three entries of a master that was lost; the logs agree up to entry two."""
    master = await bench(log=[*rows(1, 2), *rows(3, 6, term=3)])
    follower = await bench("c", log=[*rows(1, 2), *rows(3, 5, term=2)])
    await master.lead("b")
    for _ in range(10):
        await master.tick(master.settings.heartbeat_s * 1.01)
        master.answer("b")
        for frame in master.said("c"):
            follower.hear("a", *frame)
        await follower.tick()
        for frame in follower.said("a"):
            master.hear("c", *frame)
    assert follower.held == master.held
    assert master.engine.match_index("c") == master.journal.last_index


# --- sizes ------------------------------------------------------------------------------------------------------------


@fails_under("appends-by-pysyncobj")
async def test_an_entry_larger_than_an_append_goes_whole_in_one_of_its_own() -> None:
    settings = Settings(append_bytes_max=100, append_window_bytes=10_000)
    master = await bench(settings=settings)
    await master.lead()
    master.said("b")
    large = row(2, 1, "x" * 1000)[0]
    index = master.engine.append(large)
    small = [master.propose() for _ in range(3)]
    master.holds("b", index)
    frames = master.said("b", "append")
    assert [[entry[1] for entry in frame[6]] for frame in frames if index in [e[1] for e in frame[6]]] == [[index]]
    assert frames[0][6][0][0] == large
    assert sorted(entry[1] for frame in frames for entry in frame[6]) == [index, *small]


@fails_under("no-window")
async def test_what_is_unanswered_is_bounded_by_the_window() -> None:
    settings = Settings(append_bytes_max=100, append_window_bytes=400)
    master = await bench(settings=settings)
    await master.lead()
    master.said("b")
    for _ in range(100):
        master.propose("x" * 50)
    unanswered = sum(len(entry[0]) for frame in master.said("b", "append") for entry in frame[6])
    assert 0 < unanswered <= 400 + 100


def test_an_entry_of_the_greatest_size_reaches_all() -> None:
    settings = Settings()

    async def story(town: Town) -> None:
        master = await town.founded()
        value = "x" * ((settings.group_bytes_max - 100) // 2)
        await town.write(master, value)
        await town.all_hold(value)

    play(story, settings=settings)


def test_a_backlog_of_many_entries_reaches_a_node_that_was_away() -> None:
    async def story(town: Town) -> None:
        master = await town.founded()
        away = town.others(master)[0]
        away.crash(power=False)
        values = [str(number) for number in range(300)]
        for at in range(0, 300, 10):
            await asyncio.gather(*(town.write(master, value) for value in values[at : at + 10]))
        away.start()
        await town.all_hold(*values)
        assert held(away) == held(master)
        assert engine_of(away).commit_index() == engine_of(master).commit_index()

    play(story)
