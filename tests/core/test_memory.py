"""What the state machine knows from entry to entry is what stands in its tables; test_disorder.py has it for all verbs at once,
and `Table.check` asks after whatever test."""

from __future__ import annotations

from pathlib import Path

import pytest

from quvatlh.core import commands as c
from quvatlh.core import memory
from quvatlh.core.commands import QueueChanges
from quvatlh.core.tables_digest import tables_digest
from tests.core.table import Table


def test_places_that_are_set_are_known_of_the_first_of_a_line_too(table: Table) -> None:
    table.do(c.PatchQueue("default", QueueChanges(limit_per_key=1)))
    for name in ("a", "b"):
        table.add(name, key="k")
    table.do(c.SetRanks("default", (c.Rank(table.seq("a"), 7),)))
    table.check()


def test_a_tag_that_was_swept_is_given_back_as_one_that_was_not(tmp_path: Path) -> None:
    """Whether a node still knows it hangs on when it was started."""
    digests = set()
    for forgets in (False, True):
        (tmp_path / str(forgets)).mkdir()
        with Table(tmp_path / str(forgets)) as table:
            table.worker()
            table.do(c.PatchQueue("default", QueueChanges(discipline="sfq")))
            table.add("first", key="a")
            table.add("second", key="a")
            for n in range(5):
                table.add(f"b{n}", key="b")
            table.award("first")
            token = table.award("second")
            for n in range(5):
                table.award(f"b{n}")
            table.do(c.Sweep(100))
            assert table.db.execute("SELECT flow FROM turn WHERE scope LIKE 'flows/%'").fetchall() == [("b",)]
            if forgets:
                table.reopen()
            table.do(c.GiveBack("s-w1", (token,)))
            table.check()
            digests.add(tables_digest(table.db))
    assert len(digests) == 1


def test_how_much_is_known_is_bounded(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "KNOWN_MAX", 50)
    table.do(c.PatchQueue("default", QueueChanges(limit_per_key=5, discipline="sfq")))
    for n in range(200):
        table.award(table.add(key=f"k{n}", name=f"n{n}", limit=3, queue=("default", f"q{n}")[n % 2]))
        known = table.memory
        kinds = (known.tally, known.names, known.queues, known.shapes, known.turns)
        assert max(len(known.firsts), *(kind.known for kind in kinds)) <= 50
