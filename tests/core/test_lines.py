"""Lines: what a limit holds up is looked at by nobody, and fair queueing in the tables is what its definition says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core import market, queries
from quvatlh.core.commands import QueueChanges
from quvatlh.core.disciplines.htb import ASSURED, Full
from quvatlh.core.disciplines.sfq import PARTS, TAG_MAX, Fair
from quvatlh.core.model import HtbClass, WorkerFacts
from quvatlh.core.rejections import Rejection
from quvatlh.core.results import Ok
from quvatlh.core.turns import Turns, lent_by
from tests.core.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    with Table(tmp_path) as made:
        made.worker()
        yield made


def seen(table: Table, queue: str = "default") -> list[str]:
    """The ready order, over all shapes, as the market looks at it."""
    rows = [
        row
        for lane in market.ready(table.db)
        if lane.queue == queue
        for row in market.ready_tasks(table.db, queue, lane.shape, limit=100)
    ]
    return [row.id for row in sorted(rows, key=lambda row: (row.rank, row.seq))]


def fair(table: Table, **changes: Any) -> None:
    table.do(c.PatchQueue("default", QueueChanges(discipline="sfq", **changes)))


# --- limits ---


def test_of_a_limited_name_one_is_seen_and_none_while_it_is_full(table: Table) -> None:
    for id_ in "abc":
        table.add(id_, name="one", limit=1)
    table.add("other")
    assert seen(table) == ["a", "other"]
    token = table.award("a")
    assert seen(table) == ["other"]
    assert market.ready(table.db)[0].tasks == 1
    table.finish(token)
    assert seen(table) == ["b", "other"]
    table.check()


def test_a_key_that_was_full_within_an_entry_has_its_place_anew(table: Table, tmp_path: Path) -> None:
    """As it has where that took two entries: nodes of all versions come to the same tables."""
    (tmp_path / "two").mkdir()
    with Table(tmp_path / "two") as other:
        other.worker()
        for each in (table, other):
            fair(each, limit_per_key=1)
            each.add("a", key="k")
            each.add("b", key="k", tags=("x",))
        award, end = c.Awards((c.Award(1, "w1", "s-w1"),)), c.Finish("s-w1", (c.End(1, 1, 0, 0, None),))
        table.entry(c.Item(award), c.Item(end))
        other.do(award)
        other.do(end)
        assert table.state("a") == other.state("a") == "succeeded"
        assert table.value("b", "rank") == other.value("b", "rank") > 0
    table.check()


def test_a_name_holds_up_its_tasks_in_every_queue_and_of_every_limit(table: Table) -> None:
    table.add("a", name="one", limit=1, queue="q1")
    table.add("b", name="one", limit=2, queue="q2")
    table.add("c", name="one", limit=5, queue="q2", tags=["gpu"])
    assert seen(table, "q2") == ["b", "c"]
    token = table.award("a")
    assert seen(table, "q2") == []
    table.finish(token)
    assert seen(table, "q2") == ["b", "c"]
    table.check()


def test_of_a_key_at_its_limit_none_is_seen(table: Table) -> None:
    table.do(c.PatchQueue("default", QueueChanges(limit_per_key=2)))
    for n, key in enumerate(["x", "x", "x", "x", "y", None]):
        table.add(f"t{n}", key=key)
    assert seen(table) == ["t0", "t4", "t5"]
    first = table.award("t0")
    assert seen(table) == ["t1", "t4", "t5"]
    table.award("t1")
    assert seen(table) == ["t4", "t5"]
    assert table.award("t2") == 0
    assert table.refused == "key_limit"
    table.finish(first)
    assert seen(table) == ["t2", "t4", "t5"]
    table.check()


def test_who_may_not_be_placed_holds_up_only_those_who_ask_the_same(table: Table) -> None:
    table.do(c.PatchQueue("default", QueueChanges(limit_per_key=1)))
    table.add("gpu", key="x", tags=["gpu"])
    table.add("gpu2", key="x", tags=["gpu"])
    table.add("plain", key="x")
    assert seen(table) == ["gpu", "plain"]
    token = table.award("plain")
    assert seen(table) == []
    table.finish(token)
    assert seen(table) == ["gpu"]


def test_one_of_a_higher_priority_comes_to_the_front_of_its_line(table: Table) -> None:
    table.do(c.PatchQueue("default", QueueChanges(limit_per_key=1)))
    table.add("low", key="x")
    table.add("high", key="x", priority=5)
    assert seen(table) == ["high"]
    table.do(c.Update(("low",), c.TaskChanges(priority=9)))
    assert seen(table) == ["low"]
    table.do(c.Delete(("low",)))
    assert seen(table) == ["high"]
    table.check()


def test_one_that_comes_back_is_first_again(table: Table) -> None:
    table.do(c.PatchQueue("default", QueueChanges(limit_per_key=2)))
    for id_ in "abc":
        table.add(id_, key="x")
    token = table.award("a")
    assert seen(table) == ["b"]
    table.do(c.GiveBack("s-w1", (token,)))
    assert seen(table) == ["a"]
    table.do(c.Lost((c.Loss(table.award("a")),)))
    assert seen(table) == ["a"]
    table.check()


def test_a_change_of_limits_rearranges_what_waits(table: Table) -> None:
    for n in range(6):
        table.add(f"t{n}", key="x")
    assert len(seen(table)) == 6
    changes: list[tuple[dict[str, Any], list[str]]] = [
        ({"limit_per_key": 1}, ["t0"]),
        ({"limit_per_key": 0}, []),
        ({"limit_per_key": 3}, ["t0"]),
        ({"limit_per_key": None}, [f"t{n}" for n in range(6)]),
        ({"discipline": "sfq"}, ["t0"]),
    ]
    for change, expected in changes:
        table.do(c.PatchQueue("default", QueueChanges(**change)))
        while table.do(c.Rerank("default", 2)).more:
            pass
        assert seen(table) == expected, change
        table.check()


def test_in_a_queue_of_limit_1_the_first_of_a_line_is_always_seen(table: Table) -> None:
    table.do(c.PatchQueue("elsewhere", QueueChanges()))
    table.award(table.add("holder", name="one", limit=1, queue="elsewhere"))
    table.add("held", name="one", limit=1)
    table.add("held2", name="one", limit=1)
    table.add("free")
    assert seen(table) == ["free"]
    for limit, expected in ((1, ["held", "free"]), (2, ["free"])):
        table.add(f"changes-{limit}", queue="default", queue_limit=limit, tags=["none"])
        while table.do(c.Rerank("default")).more:
            pass
        assert [id_ for id_ in seen(table) if not id_.startswith("changes")] == expected
        table.check()


def test_the_age_of_the_oldest_counts_what_is_held_up(table: Table) -> None:
    table.do(c.PatchQueue("default", QueueChanges(limit_per_key=1)))
    table.award(table.add("live", key="x"))
    table.add("old", key="x")
    oldest = table.now
    table.later(1000)
    table.add("young", key="y")
    assert seen(table) == ["young"]
    assert queries.queues(table.db, table.now, "default")[0].oldest_pending_at == oldest


def test_purging_and_listing_find_what_stands_in_lines(table: Table) -> None:
    fair(table)
    for n in range(7):
        table.add(f"t{n}", key="x")
    assert table.do(c.PurgeQueue("default", ("pending",), 5)).done == 5
    assert table.do(c.PurgeQueue("default", ("pending",), 5)).done == 2
    assert seen(table) == []
    table.check()


# --- fair queueing ---


def test_tags_in_the_tables_are_those_of_the_definition(tmp_path: Path) -> None:
    """Random histories of adding, starting, ending and limits by key, chosen by the order of the tables each time."""
    for seed in range(25):
        chance = random.Random(seed)
        (tmp_path / str(seed)).mkdir()
        with Table(tmp_path / str(seed)) as table:
            table.worker()
            weights = {key: chance.randint(1, 4) for key in "abc"}
            limit = chance.choice([None, 1, 2])
            fair(table, key_weights=weights, limit_per_key=limit)
            walk(table, chance, weights, limit)


def walk(table: Table, chance: random.Random, weights: dict[str, int], limit: int | None) -> None:
    plain = Fair()
    waiting: dict[str, list[tuple[int, str, int]]] = {key: [] for key in weights}
    live: dict[str, list[int]] = {key: [] for key in weights}
    for step in range(80):
        what = chance.choice(["add", "add", "start", "start", "end"])
        if what == "add":
            key, cost = chance.choice("abc"), chance.randint(1, 5)
            table.add(f"t{step}", key=key, cost=cost)
            waiting[key].append((step, f"t{step}", cost))
        elif what == "end" and any(live.values()):
            key = chance.choice([each for each, tokens in live.items() if tokens])
            table.finish(live[key].pop(chance.randrange(len(live[key]))))
        able = [key for key in weights if waiting[key] and (limit is None or len(live[key]) < limit)]
        assert sorted(seen(table)) == sorted(waiting[key][0][1] for key in able)
        if what == "start" and able:
            least = min(plain.start_tag(key) for key in able)
            best = {waiting[key][0][1]: key for key in able if plain.start_tag(key) == least}
            chosen = seen(table)[0]
            assert chosen in best, (chosen, best)
            key = best[chosen]
            _, _, cost = waiting[key].pop(0)
            plain.serve(key, cost, weights[key])
            live[key].append(table.award(chosen))
    table.check()


def test_a_claim_that_is_given_back_has_not_been_served(table: Table) -> None:
    fair(table)
    for n in range(4):
        table.add(f"t{n}", key="ab"[n % 2])
    before = seen(table)
    table.do(c.GiveBack("s-w1", (table.award("t0"),)))
    assert seen(table) == before
    table.check()


def test_a_late_flow_goes_next_and_no_further_ahead(table: Table) -> None:
    fair(table)
    for n in range(10):
        table.add(f"a{n}", key="a")
    for n in range(5):
        table.award(f"a{n}")
    for n in range(3):
        table.add(f"b{n}", key="b")
    order = []
    for _ in range(4):
        order.append(seen(table)[0])
        table.award(order[-1])
    assert order == ["b0", "a5", "b1", "a6"]


def test_tags_that_have_grown_too_far_start_over_in_the_same_order(table: Table) -> None:
    fair(table)
    for n in range(4):
        table.add(f"a{n}", key="a")
        table.add(f"b{n}", key="b")
    table.award("a0")
    order = seen(table)
    with table.db:
        table.db.execute("UPDATE virtual SET tag = tag + ?", (TAG_MAX,))
        table.db.execute("UPDATE turn SET finish = finish + ?", (TAG_MAX,))
        table.db.execute("UPDATE task SET rank = rank + ? WHERE ready = 1", (TAG_MAX,))
    table.reopen()
    assert seen(table) == order
    table.add("a9", key="a")  # and so the first of its line is known, though it is not touched by the next award
    table.award("b0")
    table.check()
    assert table.db.execute("SELECT max(tag) FROM virtual").fetchone()[0] < PARTS
    assert table.db.execute("SELECT max(finish) FROM turn").fetchone()[0] < TAG_MAX // 2
    following = []
    for _ in range(4):
        following.append(seen(table)[0])
        table.award(following[-1])
    assert following == ["a1", "b1", "a2", "b2"]
    table.check()


def test_a_million_waiting_tenants_leave_no_tags_behind(table: Table) -> None:
    fair(table)
    for n in range(40):
        table.finish(table.award(table.add(f"t{n}", key=f"k{n}")))
    table.award(table.add("last", key="k0"))
    table.award(table.add("very-last", key="k0"))
    table.do(c.Sweep())
    assert table.db.execute("SELECT count(*) FROM turn").fetchone()[0] <= 2


# --- explain ---


def positions(table: Table, ids: list[str]) -> list[int | None]:
    found = []
    for id_ in ids:
        facts = market.explain_facts(table.db, id_, table.now)
        assert facts is not None
        found.append(facts.position)
    return found


def test_the_place_of_a_task_is_how_many_start_before_it(tmp_path: Path) -> None:
    """Exact by priority, and for flows that cost the same."""
    for seed in range(12):
        chance = random.Random(seed)
        (tmp_path / str(seed)).mkdir()
        with Table(tmp_path / str(seed)) as table:
            table.worker()
            discipline = chance.choice(["priority", "fifo", "sfq"])
            weights = {key: chance.randint(1, 3) for key in "abc"}
            table.do(c.PatchQueue("default", QueueChanges(discipline=discipline, key_weights=weights)))
            ids = [
                table.add(
                    f"t{n}", key=chance.choice("abc"), priority=0 if discipline == "sfq" else chance.randint(0, 2)
                )
                for n in range(25)
            ]
            for _ in range(5):
                table.award(seen(table)[0])
            waiting = [id_ for id_ in ids if table.state(id_) == "pending"]
            told = dict(zip(waiting, positions(table, waiting), strict=True))
            order: list[str] = []
            while names := seen(table):
                order.append(names[0])
                table.award(names[0])
            off = {id_: abs((told[id_] or 0) - n) for n, id_ in enumerate(order)}
            assert max(off.values()) == 0, (seed, off)


def test_those_in_one_line_are_behind_each_other(table: Table) -> None:
    table.do(c.PatchQueue("default", QueueChanges(limit_per_key=1)))
    ids = [table.add(f"t{n}", key="x") for n in range(4)]
    assert positions(table, ids) == [0, 1, 2, 3]
    table.award("t0")
    assert positions(table, ids[1:]) == [0, 1, 2]


def test_the_head_and_the_full_class_are_named(table: Table) -> None:
    table.do(c.PatchQueue("default", QueueChanges(limit=1)))
    table.add("head", tags=["gpu"])
    table.add("second")
    facts = market.explain_facts(table.db, "second", table.now)
    assert facts is not None
    assert (facts.held_by, facts.holders) == (("head",), ("head",))
    table.do(c.PutClass("root", HtbClass(None, 1000)))
    table.do(c.PatchQueue("classed", QueueChanges(class_="root")))
    table.award(table.add("first", queue="classed"))
    table.add("later", queue="classed")
    facts = market.explain_facts(table.db, "later", table.now)
    assert facts is not None
    assert (facts.held_by, facts.full) == (("class",), Full("root", ("rate",), None))


# --- plug-ins ---


def node(table: Table, name: str, **disciplines: str) -> None:
    facts = WorkerFacts(name, facts={"disciplines": disciplines})
    session = f"s-{name}-{table.machine.applied_index}"
    table.do(c.OpenSession(f"w-{name}", session, b"x" * 32, f"d-{name}", facts, silent=True))


def test_a_discipline_is_built_in_or_every_node_has_the_same(tmp_path: Path) -> None:
    with Table(tmp_path) as table:

        def fault(discipline: str) -> str | None:
            told = table.do(c.PatchQueue("default", QueueChanges(discipline=discipline)))
            return None if not isinstance(told, Rejection) else f"{told.errors[0].path}: {told.errors[0].message}"

        assert [fault(name) for name in ("fifo", "priority", "sfq")] == [None] * 3
        assert fault("edf") == "discipline: edf is none of fifo, priority, sfq, and no node has a plug-in of that name"
        node(table, "n1", edf="1.0")
        assert fault("edf") is None
        table.do(c.PatchQueue("default", QueueChanges(discipline="fifo")))
        node(table, "n2")
        assert fault("edf") == "discipline: the plug-in edf is missing on n2"
        node(table, "n2", edf="1.1")
        told = "discipline: the nodes have different versions of the plug-in edf: 1.0 on n1, 1.1 on n2"
        assert fault("edf") == told
        assert table.do(c.PatchQueue("default", QueueChanges(discipline="edf", weight=2))) != Ok()
        assert table.db.execute("SELECT settings FROM queue").fetchone() == ('{"discipline":"fifo"}',)
        node(table, "n2", edf="1.0")
        assert fault("edf") is None


# --- classes ---


def test_a_class_refuses_beyond_its_ceiling_and_lends_what_siblings_leave(table: Table) -> None:
    table.do(c.PutClass("root", HtbClass(None, 3000)))
    table.do(c.PutClass("a", HtbClass("root", 1000, 2000)))
    table.do(c.PutClass("b", HtbClass("root", 2000)))
    for name in "ab":
        table.do(c.PatchQueue(name, QueueChanges(class_=name)))
    for n in range(4):
        table.add(f"a{n}", queue="a")
        table.add(f"b{n}", queue="b")
    tokens = [table.award(f"a{n}") for n in range(2)]
    assert all(tokens)
    assert (table.award("a2"), table.refused) == (0, "class")
    assert table.award("b0")
    assert (table.award("b1"), table.refused) == (0, "class")
    table.finish(tokens[0])
    assert table.award("b1")
    assert table.award("a3") == 0
    table.check()


def test_a_class_whose_claims_are_given_back_loses_no_share(table: Table) -> None:
    table.do(c.PutClass("root", HtbClass(None, 3000)))
    for name in ("a", "b"):
        table.do(c.PutClass(name, HtbClass("root", 1000, 2000)))
        table.do(c.PatchQueue(name, QueueChanges(class_=name)))
        for n in range(3):
            table.add(f"{name}{n}", queue=name)

    def tags() -> list[int]:
        """Of what it is assured, and of what it borrows."""
        turns = Turns(table.db)
        return [turns.of(lent_by(scope)).finish("a") for scope in (ASSURED, "root")]

    before = tags()
    first = table.award("a0")
    assured = tags()
    second = table.award("a1")
    assert before[0] < assured[0]
    assert assured[1] < tags()[1]
    table.do(c.GiveBack("s-w1", (second,)))
    assert tags() == assured
    table.do(c.GiveBack("s-w1", (first,)))
    assert tags() == before


def test_a_class_of_starts_waits_for_its_bucket_and_a_give_back_fills_it(table: Table) -> None:
    table.do(c.PutClass("slow", HtbClass(None, 2000, burst=1, of="starts")))
    table.do(c.PatchQueue("default", QueueChanges(class_="slow")))
    for id_ in "abc":
        table.add(id_)
    token = table.award("a")
    assert token
    assert (table.award("b"), table.refused) == (0, "class")
    table.do(c.GiveBack("s-w1", (token,)))
    assert table.award("b")
    table.later(499)
    assert table.award("c") == 0
    table.later(1)
    assert table.award("c")
