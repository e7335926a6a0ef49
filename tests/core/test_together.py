"""Many at once leave the tables as each alone does: what is read narrowly, counted in groups and written by one statement."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import pytest
from msgspec.structs import replace

from quvatlh.core import commands as c
from quvatlh.core import schema
from quvatlh.core.events import Event
from quvatlh.core.model import Notify, Rate, Retry, TaskSpec, Unique
from quvatlh.core.results import Outcome
from quvatlh.core.tables_digest import tables_digest
from quvatlh.core.turns import Run, Turns
from tests.core.table import WORK, Table

SEEDS = range(4)
STEPS = 12
QUEUES = ("plain", "keyed", "fair", "narrow", "slow")
WORKERS = ("w1", "w2", "w3")


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Table, Table]]:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with Table(tmp_path / "a") as one, Table(tmp_path / "b") as other:
        for table in (one, other):
            for worker in WORKERS:
                table.worker(worker)
            table.do(c.PatchQueue("keyed", c.QueueChanges(limit_per_key=2)))
            table.do(c.PatchQueue("fair", c.QueueChanges(discipline="sfq", weight=3)))
            table.do(c.PatchQueue("narrow", c.QueueChanges(limit=9, limit_per_worker=5)))
            table.do(c.PatchQueue("slow", c.QueueChanges(rate=Rate(20, 1000))))
        yield one, other


@pytest.mark.parametrize("seed", SEEDS)
def test_awards_of_one_command_are_what_they_are_one_by_one(two: tuple[Table, Table], seed: int) -> None:
    together, alone = two
    rng = random.Random(seed)
    for step in range(STEPS):
        both(two, c.Add(tuple(new_tasks(rng, step))))
        awards = some_awards(rng, together)
        one = together.entry(c.Item(c.Awards(awards)))
        several = alone.entry(*(c.Item(c.Awards((each,))) for each in awards))
        assert told(one) == told(several)
        assert one[0].result.tokens == tuple(each.result.tokens[0] for each in several)  # type: ignore[union-attr]
        both(two, *some_ends(rng, together))
        agree(two)


@pytest.mark.parametrize("seed", SEEDS)
def test_ends_of_one_command_are_what_they_are_one_by_one(two: tuple[Table, Table], seed: int) -> None:
    together, alone = two
    rng = random.Random(seed)
    for step in range(STEPS):
        both(two, c.Add(tuple(new_tasks(rng, step))), c.Awards(some_awards(rng, together)))
        both(two, c.Awards(some_awards(rng, together)))
        for command in some_ends(rng, together):
            together.entry(c.Item(command))
            alone.entry(*(c.Item(c.Finish(command.session, (end,))) for end in command.ends))
        agree(two)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_an_add_gives_away_stands_as_if_it_had_been_given_right_after_it(
    two: tuple[Table, Table], seed: int
) -> None:
    at_once, after = two
    rng = random.Random(seed)
    for step in range(STEPS):
        tasks = tuple(replace(each, payload=some_payload(rng)) for each in new_tasks(rng, step, rng.choice((1, 3, 40))))
        places = [rng.randrange(len(tasks)) for _ in range(rng.choice((1, 3, 30)))]
        chosen = [(place, rng.choice(WORKERS), rng.choice(("s", "s", "s", "stale"))) for place in places]
        awards = tuple(c.Award(place, worker, f"{s}-{worker}") for place, worker, s in chosen)
        added = at_once.entry(c.Item(c.Add(tasks, awards)))[0].result
        new = {n: at_once.seq(task.id) for n, task in enumerate(tasks) if n not in added.existing}  # type: ignore[union-attr]
        awards = tuple(c.Award(new[place], worker, f"{s}-{worker}") for place, worker, s in chosen if place in new)
        assert after.entry(c.Item(c.Add(tasks)), c.Item(c.Awards(awards)))[0].result == added
        rows = [table.db.execute("SELECT * FROM task ORDER BY seq").fetchall() for table in two]
        assert rows[0] == rows[1]
        both(two, *some_ends(rng, at_once))
        agree(two)


@pytest.mark.parametrize("count", [1, schema.ROWS_TOGETHER - 1, schema.ROWS_TOGETHER, 2 * schema.ROWS_TOGETHER + 3])
def test_tasks_of_one_command_stand_as_they_do_one_by_one(two: tuple[Table, Table], count: int) -> None:
    tasks = list(chain.from_iterable(new_tasks(random.Random(count), step, count) for step in range(3)))
    together, alone = two
    together.entry(c.Item(c.Add(tuple(tasks))))
    for task in tasks:
        alone.entry(c.Item(c.Add((task,))))
    sql = "SELECT * FROM task ORDER BY seq"
    assert together.db.execute(sql).fetchall() == alone.db.execute(sql).fetchall()
    together.check()


@pytest.mark.parametrize("least", [1, 10**6])
def test_how_many_go_together_is_seen_by_nobody(
    two: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    one, other = two
    rng = random.Random(least)
    for step in range(STEPS):
        both(two, c.Add(tuple(new_tasks(rng, step))))
        several: list[c.AnyCommand] = [c.Awards(some_awards(rng, one)), *some_ends(rng, one)]
        for command in several:
            first = one.entry(c.Item(command))
            with monkeypatch.context() as patched:
                patched.setattr(schema, "TOGETHER_MIN", least)
                assert other.entry(c.Item(command)) == first
        agree(two)


@pytest.mark.parametrize("order", [1, -1])
def test_who_bears_anothers_name_by_its_id_counts_within_a_command(two: tuple[Table, Table], order: int) -> None:
    table = two[0]
    ids = [table.add("namesake"), table.add("named", name="namesake", limit=1)][::order]
    awarded = table.do(c.Awards(tuple(c.Award(table.seq(id_), "w1", "s-w1") for id_ in ids)))
    assert (awarded.tokens[0] > 0, awarded.tokens[1], awarded.refused) == (True, 0, {1: "limit"})


def test_turns_in_a_row_are_those_one_by_one(two: tuple[Table, Table]) -> None:
    row, single = Turns(two[0].db), Turns(two[1].db)
    for flow, cost, weight, times in (("a", 1, 3, 5), ("b", 2, 1, 1), ("a", 7, 3, 2), ("c", 1, 1, 4)):
        row.serve_in_row("scope", flow, cost, weight, times)
        for _ in range(times):
            single.serve("scope", flow, cost, weight)
        assert row.ahead("scope") == single.ahead("scope")


def test_a_run_is_repeated_where_all_stands_as_it_stood_then(two: tuple[Table, Table]) -> None:
    first, again = Turns(two[0].db).of("scope"), Turns(two[1].db).of("scope")
    weights = {"b": 2}
    for tags in (first, again):
        tags.serve("a", 5, 1)
        tags.serve("idle", 1, 1)
    before, virtual = {flow: first.finish(flow) for flow in ("a", "b")}, first.virtual
    for flow, cost in (("b", 1), ("a", 2), ("b", 3)):
        first.serve(flow, cost, weights.get(flow, 1))
    run = Run(weights, virtual, before, first.virtual, {flow: first.finish(flow) for flow in before})

    assert again.repeat(run, dict(weights))
    assert (again.virtual, again.ahead(), sorted(again.served)) == (first.virtual, first.ahead(), ["a", "b", "idle"])


@pytest.mark.parametrize("moved", ["virtual", "flow", "weights"])
def test_a_run_is_not_repeated_where_anything_has_moved(two: tuple[Table, Table], moved: str) -> None:
    tags = Turns(two[0].db).of("scope")
    tags.serve("a", 5, 1)
    tags.serve("b", 1, 1)
    run = Run({}, tags.virtual, {"a": tags.finish("a"), "c": 0}, tags.virtual + 1, {"a": tags.finish("a") + 1, "c": 9})
    if moved == "virtual":
        tags.virtual += 1
    elif moved == "flow":
        tags.refund("a", 1, 1)
    stood = (tags.virtual, tags.ahead())
    assert not tags.repeat(run, {"c": 2} if moved == "weights" else {})
    assert (tags.virtual, tags.ahead()) == stood


def test_an_action_that_goes_the_short_way_says_which_attempt_it_is(two: tuple[Table, Table]) -> None:
    table = two[0]
    token = table.running("again", retry=Retry(delays_ms=(0,), backoff="list"))
    table.finish(token, 1, error_text="once more")
    table.later(10)
    table.do(c.Promote())
    token = table.award("again")
    assert table.db.execute("SELECT plain, attempt FROM live WHERE token = ?", (token,)).fetchone() == (1, 2)


def new_tasks(rng: random.Random, step: int, count: int = 40) -> Iterator[c.NewTask]:
    """Most of them plain, and of every other kind some."""
    for n in range(count):
        more: dict[str, object] = {}
        if rng.random() < 0.4:
            more["name"] = f"name-{rng.randrange(3)}"
        if rng.random() < 0.2:
            more["limit"] = rng.randint(1, 9)
        if rng.random() < 0.5:
            more["key"] = f"key-{rng.randrange(4)}"
        if rng.random() < 0.2:
            more |= rng.choice(
                (
                    {"kind": "service"}, {"keep_ms": 1000}, {"lease_ms": 9000}, {"unique": Unique("only")},
                    {"notify": Notify(url="http://host/")}, {"group": "other"}, {"priority": 3}, {"cost": 2},
                )
            )  # fmt: skip
        spec = TaskSpec(WORK, queue=rng.choice((*QUEUES, "plain", "plain")), **more)  # type: ignore[arg-type]
        # Now and then the id of one is the name of others.
        yield c.NewTask(f"name-{step % 3}" if step == n else f"t-{step}-{n}-{count}", spec)


def some_payload(rng: random.Random) -> bytes | None:
    return rng.choice((None, b"payload"))


def some_awards(rng: random.Random, table: Table) -> tuple[c.Award, ...]:
    """In order, mostly, and to one worker or to several; some that must be refused, and some twice."""
    seqs = [row[0] for row in table.db.execute("SELECT seq FROM task WHERE ready > 0 ORDER BY queue, rank, seq")]
    if rng.random() < 0.3:
        rng.shuffle(seqs)
    seqs = seqs[: rng.choice((3, 20, 60))]
    seqs += [rng.randint(1, 400) for _ in range(3)]
    workers = WORKERS if rng.random() < 0.5 else WORKERS[:1]
    return tuple(c.Award(seq, (worker := rng.choice(workers)), f"s-{worker}") for seq in seqs)


def some_ends(rng: random.Random, table: Table) -> list[c.Finish]:
    """By worker; nearly all are successes."""
    found = []
    for worker in WORKERS:
        rows = table.db.execute("SELECT token, task FROM live WHERE worker = ? ORDER BY token", (worker,)).fetchall()
        rng.shuffle(rows)
        ends = [c.End(token, task, 0, rng.choice((0, table.now - 1, table.now))) for token, task in rows[:30]]
        ends += [c.End(token, task, 1, table.now, c.EndDetail(exit_code=1)) for token, task in rows[30:32]]
        found.append(c.Finish(f"s-{worker}", tuple(ends)))
    return found


def both(two: tuple[Table, Table], *commands: c.AnyCommand) -> None:
    one, other = (table.entry(*(c.Item(command) for command in commands)) for table in two)
    assert one == other


def told(outcomes: Sequence[Outcome]) -> list[Event]:
    return [event for outcome in outcomes for event in outcome.events]


def agree(two: tuple[Table, Table]) -> None:
    for table in two:
        table.check()
        table.later(30)
    one, other = (tables_digest(table.db) for table in two)
    assert one == other
