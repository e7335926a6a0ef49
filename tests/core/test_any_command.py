"""Whatever decodes is applied without raising, and leaves the tables sound."""

from __future__ import annotations

import tempfile

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quvatlh.core import commands as c
from quvatlh.core.tables_digest import tables_digest
from tests.codec.strategies import of
from tests.core.table import Table
from tests.examples import examples

ITEMS = st.lists(of(c.Item), min_size=1, max_size=5)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(entries=st.lists(st.tuples(ITEMS, st.sampled_from([0, 1, 5000, 90_000_000])), min_size=1, max_size=12))
def test_any_commands_in_any_order_leave_the_tables_sound(entries: list[tuple[list[c.Item], int]]) -> None:
    with tempfile.TemporaryDirectory() as directory, Table(directory) as table:
        table.worker("w1", "s-w1")
        for id_ in ("a", "b", "c"):
            table.running(id_)
        for items, ms in entries:
            table.later(ms)
            table.entry(*items)
            table.check(limits_hold=False)
        digest, log = tables_digest(table.db), table.entries
        with tempfile.TemporaryDirectory() as other, Table(other) as again:
            for entry in log:
                again.replay(entry)
            assert tables_digest(again.db) == digest
