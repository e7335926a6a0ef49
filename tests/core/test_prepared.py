"""An entry that is carried out before it counts: seen by nobody, taken where it comes, and gone without a trace where it does not."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core.machine import Machine
from quvatlh.core.model import TaskSpec
from quvatlh.core.results import Added, Outcome
from quvatlh.core.rules import TableRules
from quvatlh.core.tables_digest import tables_digest
from quvatlh.ports import Entry
from tests.core.table import CODEC, WORK, Table
from tests.core.test_disorder import Chaos


def adding(table: Table, task_id: str, **changes: Any) -> Entry:
    """As the next entry."""
    item = CODEC.encode_item(c.Item(c.Add((c.NewTask(task_id, TaskSpec(WORK)),))))
    entry = Entry(table.machine.applied_index + 1, 1, table.now, (item,))
    return replace(entry, **changes)


def others_see(table: Table) -> list[str]:
    """Through a connection of their own."""
    db = sqlite3.connect(table.path)
    try:
        return [name for (name,) in db.execute("SELECT id FROM task ORDER BY id")]
    finally:
        db.close()


def own_sees(table: Table) -> list[str]:
    return [name for (name,) in table.db.execute("SELECT id FROM task ORDER BY id")]


def test_what_is_prepared_is_seen_by_nobody_until_it_is_applied_and_committed(table: Table) -> None:
    before = table.machine.applied_index, table.machine.time_ms, table.machine.digest
    entry = adding(table, "a")
    table.machine.prepare(entry)
    assert others_see(table) == []
    assert (table.machine.applied_index, table.machine.time_ms, table.machine.digest) == before
    table.machine.begin()
    (outcome,) = table.machine.apply(entry)
    assert isinstance(outcome, Outcome)
    assert isinstance(outcome.result, Added)
    assert outcome.result.ids == ("a",)
    assert own_sees(table) == ["a"]  # who is told of it finds it
    assert others_see(table) == []
    table.machine.commit()
    assert others_see(table) == ["a"]
    table.check()


def test_it_is_not_made_twice(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    real = TableRules.apply

    def noted(rules: TableRules, db: sqlite3.Connection, given: Entry) -> Any:
        made.append(given.index)
        return real(rules, db, given)

    monkeypatch.setattr(TableRules, "apply", noted)
    entry = adding(table, "a")
    table.machine.prepare(entry)
    table.machine.prepare(entry)
    table.replay(entry)
    assert made == [entry.index]


def test_who_looks_finds_what_is_certain_and_the_entry_is_made_when_it_comes(table: Table) -> None:
    entry = adding(table, "a")
    table.machine.prepare(entry)
    assert own_sees(table) == []
    assert not table.machine.is_prepared
    table.check()
    table.replay(entry)
    assert own_sees(table) == ["a"]
    table.check()


@pytest.mark.parametrize("changes", [{"term": 2}, {"time_ms": 2_000_000_000_000}, {"items": ()}])
def test_another_entry_at_its_place_counts_alone(changes: dict[str, Any], tmp_path: Path) -> None:
    digests = set()
    for prepares in (False, True):
        (tmp_path / str(prepares)).mkdir()
        with Table(tmp_path / str(prepares)) as table:
            entry = adding(table, "a")
            if prepares:
                table.machine.prepare(entry)
            table.replay(replace(entry, **changes))
            table.replay(adding(table, "b", term=3, time_ms=2_000_000_000_001))
            table.check()
            digests.add((tables_digest(table.db), table.machine.digest))
    assert len(digests) == 1


def test_one_that_is_in_already_changes_nothing_though_the_next_is_prepared(table: Table) -> None:
    first = adding(table, "a")
    table.replay(first)
    table.machine.prepare(adding(table, "b"))
    assert table.replay(first) == []
    assert own_sees(table) == others_see(table) == ["a"]
    table.check()


def test_one_that_is_not_the_next_is_not_prepared(table: Table) -> None:
    table.machine.prepare(adding(table, "a", index=table.machine.applied_index + 2))
    table.machine.prepare(adding(table, "a", index=table.machine.applied_index))
    assert not table.machine.is_prepared


def test_what_is_prepared_is_gone_when_the_file_is_closed(table: Table) -> None:
    table.machine.prepare(adding(table, "a"))
    table.reopen()
    assert own_sees(table) == []


def test_what_raises_is_raised_when_it_counts(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    entry = adding(table, "a")
    with monkeypatch.context() as patched:
        patched.setattr(TableRules, "apply", fails)
        table.machine.prepare(entry)
        assert not table.machine.is_prepared
        table.machine.begin()
        with pytest.raises(ZeroDivisionError):
            table.machine.apply(entry)
    table.reopen()
    table.replay(entry)
    table.check()


def test_an_index_that_was_copied_meanwhile_is_the_last_certain_one(table: Table, tmp_path: Path) -> None:
    table.add("a")
    table.machine.prepare(adding(table, "b"))
    index = table.machine.copy_to(str(tmp_path / "copy"))
    assert index == table.machine.applied_index
    assert table.machine.checkpoint() == index
    copy = Machine(str(tmp_path / "copy"), TableRules(CODEC))
    assert [name for (name,) in copy.db.execute("SELECT id FROM task")] == ["a"]
    copy.close()


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_prepared_the_log_makes_the_same_tables(seed: int, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with Table(tmp_path / "plain") as plain:
        chaos = Chaos(plain, seed)
        for _ in range(200):
            plain.later(chaos.chance.choice([0, 1, 100, 1500]))
            plain.entry(*(c.Item(chaos.command()) for _ in range(chaos.chance.randint(1, 3))))
        digest, entries = tables_digest(plain.db), plain.entries
        rolling = plain.machine.digest
    chance = Random(seed)
    with Table(tmp_path) as table:
        for number, entry in enumerate(entries):
            for _ in range(chance.choice([0, 1, 1, 2])):
                guess = entry if chance.random() < 0.6 else replace(chance.choice(entries), index=entry.index)
                if guess.time_ms >= table.machine.time_ms:
                    table.machine.prepare(guess)
                if chance.random() < 0.3:
                    table.check(limits_hold=False)
            table.replay(entry)
            if number % 10 == 0:
                table.check(limits_hold=False)
        assert (tables_digest(table.db), table.machine.digest) == (digest, rolling)
