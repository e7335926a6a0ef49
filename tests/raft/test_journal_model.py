"""The log of a node does what a list does, whatever is asked of it and whenever it is opened anew."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from quvatlh.raft.journal import Journal
from tests.examples import examples
from tests.raft.parts import (
    NO_OP,
    SMALL,
    PoweredMachine,
    item,
    new_log,
    open_log,
    rows,
    synced,
)

Row = tuple[bytes, int, int]


def row(index: int, term: int = 1) -> Row:
    return (item(term, index * 10, f"e{index}"), index, term)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 6)),
        st.tuples(st.just("cut"), st.integers(1, 30)),
        st.tuples(st.just("again"), st.integers(1, 30)),
        st.tuples(st.just("sync"), st.just(0)),
        st.tuples(st.just("kick"), st.just(0)),
        st.tuples(st.just("compact"), st.integers(0, 12)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("power"), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=examples(150))
@given(seed=st.integers(0, 1000), steps=STEPS)
def test_it_does_what_a_list_does(seed: int, steps: list[tuple[str, int]]) -> None:
    asyncio.run(walk(seed, steps))


async def walk(seed: int, steps: list[tuple[str, int]]) -> None:
    machine = PoweredMachine(seed)
    new_log(machine.view)
    journal = open_log(machine.view, settings=SMALL)
    log: list[Row] = []
    term = 1
    applied = 0
    for step, number in steps:
        last = len(log)
        if step == "add":
            for index in range(last + 1, last + 1 + number):
                log.append(row(index, term))
                journal.add(*log[-1])
        elif step == "cut" and applied < last:
            term += 1
            index = applied + 1 + number % (last - applied)
            log = [*log[: index - 1], row(index, term)]
            journal.add(*log[-1])
        elif step == "again" and log[journal.first_index :]:
            journal.add(*log[journal.first_index + number % (last - journal.first_index)])
        elif step == "sync":
            await synced(journal)
        elif step == "kick":
            journal.kick()
            await asyncio.sleep(0)
        elif step == "compact":
            applied = max(applied, journal.durable_index - number)
            journal.compact(applied)
        elif step in ("restart", "power"):
            await journal.close() if step == "restart" else await synced(journal)
            disk = machine.restart() if step == "restart" else machine.power_fail()
            journal = open_log(disk, settings=SMALL, applied_index=applied)
            assert journal.recovered == []
        same_as_list(journal, log)
    await journal.close()


def same_as_list(journal: Journal, log: list[Row]) -> None:
    first = journal.first_index
    assert rows(journal) == log[first:]
    assert (len(journal), journal.last_index) == (len(log) - first + 1, len(log))
    assert [journal.term_at(index) for index in range(first + 1, len(log) + 1)] == [r[2] for r in log[first:]]
    assert journal[0] == (NO_OP, first, log[first - 1][2] if first else 0)
    assert journal.last_time_ms == len(log) * 10
    assert journal.durable_index <= journal.last_index
