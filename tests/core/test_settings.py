"""Queues, classes, policies, tokens."""

from __future__ import annotations

import pytest

from quvatlh.core import commands as c
from quvatlh.core import queries
from quvatlh.core.commands import ClassChanges, QueueChanges
from quvatlh.core.commands.settings import KeepChanges, RetryChanges, UniqueChanges
from quvatlh.core.limits import DAY_MS
from quvatlh.core.model import (
    Code,
    HtbClass,
    Keep,
    QueueSettings,
    Rate,
    Retry,
    ScheduleSpec,
    TaskSpec,
    TaskState,
    TokenScope,
    Unique,
)
from quvatlh.core.rejections import Rejection
from quvatlh.core.results import Ok, Versioned, Worked
from quvatlh.core.verbs.access import EXPIRED_KEPT_MS
from tests.core.table import WORK, Table

# --- queues ---


def test_put_replaces_and_patch_merges(table: Table) -> None:
    table.do(c.PatchQueue("q", QueueChanges(limit=3, rate=Rate(1, 1000))))
    table.do(c.PatchQueue("q", QueueChanges(weight=2, limit=None)))
    expected = QueueSettings(weight=2, rate=Rate(1, 1000))
    assert queries.queues(table.db, table.now, "q")[0].settings == expected
    table.do(c.PutQueue("q", QueueSettings(retry=Retry(attempts=2))))
    assert queries.queues(table.db, table.now, "q")[0].settings == QueueSettings(retry=Retry(attempts=2))


def test_a_patch_of_keep_leaves_what_it_does_not_name_and_entries_of_before_bring_it_whole(table: Table) -> None:
    def kept() -> tuple[Keep, Keep]:
        settings = queries.queues(table.db, table.now, "q")[0].settings
        return settings.keep, settings.keep_failed

    table.do(c.PatchQueue("q", QueueChanges(keep=Keep(5000, 7), keep_failed=Keep(5000, 7))))
    table.do(c.PatchQueue("q", QueueChanges(keep_part=KeepChanges(age_ms=9000), keep_failed_part=KeepChanges(count=1))))
    assert kept() == (Keep(9000, 7), Keep(5000, 1))
    table.do(c.PatchQueue("q", QueueChanges(keep=Keep(1000))))
    assert kept() == (Keep(1000), Keep(5000, 1))


def test_a_patch_of_retry_or_unique_leaves_what_it_does_not_name_and_none_takes_the_whole_away(table: Table) -> None:
    def found() -> tuple[Retry | None, Unique | None]:
        settings = queries.queues(table.db, table.now, "q")[0].settings
        return settings.retry, settings.unique

    table.do(c.PatchQueue("q", QueueChanges(retry_part=RetryChanges(attempts=4), unique_part=UniqueChanges(key="k"))))
    assert found() == (Retry(attempts=4), Unique(key="k"))
    table.do(
        c.PatchQueue("q", QueueChanges(retry_part=RetryChanges(first_ms=5000), unique_part=UniqueChanges(for_ms=9)))
    )
    assert found() == (Retry(attempts=4, first_ms=5000), Unique(key="k", for_ms=9))
    table.do(c.PatchQueue("q", QueueChanges(retry_part=None, unique_part=None)))
    assert found() == (None, None)
    table.do(c.PatchQueue("q", QueueChanges(retry=Retry(attempts=2))))  # as entries of before say it
    table.do(c.PatchQueue("q", QueueChanges(retry=Retry(first_ms=7))))
    assert found() == (Retry(first_ms=7), None)


def test_what_a_patch_says_against_what_there_is_then_is_refused_and_entries_of_before_are_not(table: Table) -> None:
    table.do(c.PutQueue("q", QueueSettings(retry=Retry(max_ms=500))))
    for changes, path in (
        (QueueChanges(burst=3), "burst"),
        (QueueChanges(retry_part=RetryChanges(first_ms=501)), "retry.first"),
        (QueueChanges(rate=None, burst=3), "burst"),
    ):
        refused = table.do(c.PatchQueue("q", changes, judged=True))
        assert isinstance(refused, Rejection)
        assert (refused.code, refused.errors[0].path) == ("invalid", path)
        assert queries.queues(table.db, table.now, "q")[0].settings == QueueSettings(retry=Retry(max_ms=500))
    for changes in (
        QueueChanges(retry_part=RetryChanges(attempts=3)),
        QueueChanges(retry_part=RetryChanges(first_ms=501, max_ms=None)),
        QueueChanges(rate=Rate(1, 1000), burst=3),
        QueueChanges(burst=4),
        QueueChanges(rate=None),
        QueueChanges(weight=2),
    ):
        assert table.do(c.PatchQueue("q", changes, judged=True)) == Ok()
    assert table.do(c.PatchQueue("before", QueueChanges(burst=3))) == Ok()


def test_a_root_class_has_no_ceiling_above_its_rate_and_entries_of_before_keep_theirs(table: Table) -> None:
    assert table.do(c.PatchClass("old", ClassChanges(rate_milli=3, ceil_milli=5))) == Ok()
    assert table.do(c.PatchClass("old", ClassChanges(priority=1), judged=True)) == Ok()
    refused = table.do(c.PatchClass("old", ClassChanges(rate_milli=4), judged=True))
    assert isinstance(refused, Rejection)
    assert (refused.code, refused.errors[0].path) == ("invalid", "ceil")
    assert table.do(c.PatchClass("old", ClassChanges(rate_milli=5), judged=True)) == Ok()
    assert table.do(c.PatchClass("part", ClassChanges(parent="old", ceil_milli=5), judged=True)) == Ok()
    assert table.do(c.PatchClass("part", ClassChanges(parent=None), judged=True)) != Ok()


def test_a_queue_shows_what_is_in_it(table: Table) -> None:
    created = table.now
    table.add("a", queue="q", priority=-1)
    table.later(10)
    table.add("b", queue="q", priority=1)
    table.add("c", queue="q", at_ms=table.now + 1000)
    table.award("b")
    (queue,) = queries.queues(table.db, table.now, "q")
    assert queue.counts == {"pending": 1, "claimed": 1, "scheduled": 1}
    assert (queue.live, queue.oldest_pending_at) == (1, created)


def test_a_queue_is_deleted_only_when_it_is_empty(table: Table) -> None:
    table.add("a", queue="q")
    assert table.do(c.DeleteQueue("q")).code == "not_empty"
    assert table.do(c.PurgeQueue("q")) == Worked(1, more=False)
    assert table.state("a") == "deleted"
    assert table.do(c.DeleteQueue("q")).code == "not_empty"
    assert table.do(c.PurgeQueue("q", ("deleted",))).done == 1
    assert table.do(c.DeleteQueue("q")) == Ok()
    assert queries.queues(table.db, table.now) == []
    assert table.do(c.DeleteQueue("q")).code == "not_found"


def test_purge_goes_piece_by_piece_and_leaves_the_active_alone(table: Table) -> None:
    for n in range(5):
        table.add(f"t{n}", queue="q", at_ms=table.now + 1000 if n % 2 else None)
    table.award("t0")
    states: tuple[TaskState, ...] = ("scheduled", "pending", "retrying", "claimed", "running")
    assert table.do(c.PurgeQueue("q", states, 3)) == Worked(3, more=True)
    assert table.do(c.PurgeQueue("q", states, 3)) == Worked(1, more=False)
    assert table.db.execute("SELECT state, count(*) FROM task GROUP BY 1").fetchall() == [
        ("claimed", 1),
        ("deleted", 4),
    ]
    assert table.do(c.PurgeQueue("none")).code == "not_found"


def test_purge_of_what_was_found_takes_only_what_is_so_still(table: Table) -> None:
    """Who found them may be late: what runs by now, waits elsewhere or was asked for in another state stays."""
    for name in ("waits", "runs", "fails", "other"):
        table.add(name, queue="elsewhere" if name == "other" else "q", retry=Retry(attempts=1))
    table.start(table.award("runs"))
    table.finish(table.award("fails"), how=1, exit_code=1)
    found = ("waits", "runs", "fails", "other", "never")
    assert table.do(c.PurgeQueue("q", ids=found)) == Worked(1, more=False)
    assert [table.state(name) for name in found[:4]] == ["deleted", "running", "failed", "pending"]
    assert table.do(c.PurgeQueue("q", ("failed", "deleted"), ids=found)) == Worked(2, more=False)
    assert table.db.execute("SELECT id FROM task ORDER BY id").fetchall() == [("other",), ("runs",)]


def test_purge_takes_a_service_that_rests(table: Table) -> None:
    table.add("s", queue="q", kind="service")
    table.finish(table.award("s"))
    assert (table.state("s"), table.value("s", "ready")) == ("pending", 0)
    assert table.do(c.PurgeQueue("q")) == Worked(1, more=False)
    assert table.state("s") == "deleted"


def test_a_queue_that_is_not_empty_says_of_what(table: Table) -> None:
    table.add("a", queue="q")
    table.running("b", queue="q")
    rejection = table.do(c.DeleteQueue("q"))
    assert (rejection.code, "1 pending, 1 running" in rejection.detail) == ("not_empty", True)


# --- classes ---


def test_patch_of_a_class_merges_and_makes_it(table: Table) -> None:
    assert table.do(c.PatchClass("a", ClassChanges(rate_milli=3000))) == Ok()
    assert table.do(c.PatchClass("a", ClassChanges(priority=2, ceil_milli=5000))) == Ok()
    assert queries.classes(table.db)[0].settings == HtbClass(rate_milli=3000, ceil_milli=5000, priority=2)
    assert table.do(c.PatchClass("a", ClassChanges(ceil_milli=1))).errors[0].path == "ceil"
    assert table.do(c.PatchClass("a", ClassChanges(ceil_milli=None))) == Ok()
    assert queries.classes(table.db)[0].settings == HtbClass(rate_milli=3000, priority=2)


def test_the_tree_of_classes_has_a_bound_whichever_end_grows(table: Table) -> None:
    for n in range(16):
        assert table.do(c.PutClass(f"c{n}", HtbClass(parent=f"c{n - 1}" if n else None))) == Ok()
    assert "deeper than 16" in table.do(c.PutClass("leaf", HtbClass(parent="c15"))).errors[0].message
    table.do(c.PutClass("root", HtbClass()))
    assert "deeper than 16" in table.do(c.PutClass("c0", HtbClass(parent="root"))).errors[0].message
    assert table.do(c.PutClass("c1", HtbClass(parent="root"))) == Ok()


@pytest.mark.parametrize(
    ("name", "settings", "path"),
    [
        ("a", HtbClass(parent="nowhere"), "parent"),
        ("a", HtbClass(rate_milli=5, ceil_milli=4), "ceil"),
        ("root", HtbClass(parent="leaf", rate_milli=40), "parent"),
        ("root", HtbClass(rate_milli=30), "rate"),
        ("other", HtbClass(parent="root", rate_milli=61), "rate"),
        ("other", HtbClass(parent="root", of="starts"), "of"),
        ("root", HtbClass(rate_milli=100, of="starts"), "of"),
        ("root", HtbClass(parent="root", rate_milli=100), "parent"),
        ("new", HtbClass(parent="new"), "parent"),
    ],
)
def test_a_class_that_does_not_fit_into_the_tree_is_refused(
    name: str, settings: HtbClass, path: str, table: Table
) -> None:
    table.do(c.PutClass("root", HtbClass(rate_milli=100)))
    table.do(c.PutClass("leaf", HtbClass(parent="root", rate_milli=40)))
    before = queries.classes(table.db)
    rejection = table.do(c.PutClass(name, settings))
    assert (rejection.code, rejection.errors[0].path) == ("invalid", path)
    assert queries.classes(table.db) == before


def test_a_class_in_use_stays(table: Table) -> None:
    table.do(c.PutClass("root", HtbClass(rate_milli=100)))
    table.do(c.PutClass("leaf", HtbClass(parent="root", rate_milli=40)))
    assert table.do(c.PatchQueue("q", QueueChanges(class_="none"))).code == "invalid"
    table.do(c.PatchQueue("q", QueueChanges(class_="leaf")))
    assert [table.do(c.DeleteClass(name)).code for name in ("root", "leaf", "x")] == [
        "not_empty",
        "not_empty",
        "not_found",
    ]
    table.do(c.PatchQueue("q", QueueChanges(class_=None)))
    assert [table.do(c.DeleteClass(name)) for name in ("leaf", "root")] == [Ok(), Ok()]


# --- policies ---


def test_a_policy_has_a_new_version_when_its_source_changes(table: Table) -> None:
    answers = [table.do(c.PutPolicy("p", source)) for source in ("one", "one", "two", "one")]
    assert answers == [Versioned(1), Versioned(1), Versioned(2), Versioned(3)]
    assert queries.policies(table.db, "p")[0].source == "one"


def test_a_policy_that_an_announce_or_a_schedule_names_is_not_deleted(table: Table) -> None:
    table.do(c.PutPolicy("p", "function() end"))
    table.add("t", announce=Code(name="p"))
    assert table.do(c.DeletePolicy("p")).code == "not_empty"
    table.do(c.Delete(("t",)))
    table.do(c.PurgeQueue("default", ("deleted",)))
    spec = ScheduleSpec(TaskSpec(WORK, announce=Code(name="p")), every_ms=1000)
    assert isinstance(table.do(c.PutSchedule("s", spec, None)), Versioned)
    assert "schedule s" in table.do(c.DeletePolicy("p")).detail
    table.do(c.DeleteSchedule("s"))
    assert table.do(c.DeletePolicy("p")) == Ok()
    assert table.do(c.PutSchedule("s", spec, None)).errors[0].path == "task.announce.name"


def test_a_policy_that_tasks_name_is_not_deleted(table: Table) -> None:
    table.do(c.PutPolicy("p", "one"))
    table.add("t", policy=Code(name="p"))
    assert table.do(c.DeletePolicy("p")).code == "not_empty"
    table.do(c.PurgeQueue("default"))
    table.do(c.PurgeQueue("default", ("deleted",)))
    assert table.do(c.DeletePolicy("p")) == Ok()
    assert table.do(c.DeletePolicy("p")).code == "not_found"


# --- tokens ---

ADMIN = TokenScope("admin")
HASH, OTHER = b"1" * 32, b"2" * 32


def test_a_token_is_known_by_its_hash_until_it_is_revoked_for_good(table: Table) -> None:
    assert table.do(c.PutToken("t", HASH, ADMIN)) == Ok()
    assert table.do(c.PutToken("t", HASH, TokenScope("viewer", ("q*",)))) == Ok()
    found = queries.token_by_hash(table.db, HASH)
    assert found is not None
    assert found.scope == TokenScope("viewer", ("q*",))
    assert [token.name for token in queries.tokens(table.db)] == ["t"]
    assert table.do(c.RevokeToken("t")) == Ok()
    assert queries.was_revoked(table.db, HASH)
    assert table.do(c.PutToken("t", HASH, ADMIN)).code == "conflict"
    assert table.do(c.PutToken("t", OTHER, ADMIN)) == Ok()
    assert table.do(c.RevokeToken("none")).code == "not_found"


def test_a_token_that_was_written_before_any_could_expire_is_read(table: Table) -> None:
    table.db.execute("INSERT INTO token VALUES ('old', ?, ?, 1)", (HASH, '{"role":"viewer","queues":["q*"]}'))
    (found,) = queries.tokens(table.db)
    assert found.scope == TokenScope("viewer", ("q*",), expires_at=None)


def test_the_name_of_a_token_that_has_expired_is_free_and_the_old_one_is_revoked(table: Table) -> None:
    ends = table.now + 1000
    table.do(c.PutToken("t", HASH, TokenScope("viewer", expires_at=ends)))
    assert table.do(c.PutToken("t", OTHER, ADMIN)).code == "conflict"
    table.later(ends - table.now - 1)
    assert table.do(c.PutToken("t", OTHER, ADMIN)).code == "conflict"
    table.later(1)
    assert table.do(c.PutToken("t", OTHER, ADMIN)) == Ok()
    assert queries.was_revoked(table.db, HASH)
    assert queries.token_by_hash(table.db, HASH) is None


def test_what_expired_long_ago_leaves_the_table_when_another_is_made(table: Table) -> None:
    table.do(c.PutToken("a", HASH, TokenScope("viewer", expires_at=table.now)))
    table.later(EXPIRED_KEPT_MS + 1)
    assert table.do(c.PutToken("a", HASH, TokenScope("viewer", expires_at=table.now))) == Ok()
    assert not queries.was_revoked(table.db, HASH)
    table.later(EXPIRED_KEPT_MS)
    table.do(c.PutToken("b", OTHER, ADMIN))
    assert [token.name for token in queries.tokens(table.db)] == ["a", "b"]
    table.later(1)
    table.do(c.PutToken("c", b"3" * 32, ADMIN))
    assert [token.name for token in queries.tokens(table.db)] == ["b", "c"]
    assert table.do(c.PutToken("admin-n1", HASH, ADMIN)).code == "conflict"  # a node that is started with it


def test_the_last_admin_that_does_not_expire_is_spared_whoever_asks_at_once(table: Table) -> None:
    table.do(c.PutToken("a", HASH, ADMIN))
    table.do(c.PutToken("b", OTHER, ADMIN))
    table.do(c.PutToken("short", b"3" * 32, TokenScope("admin", expires_at=table.now + DAY_MS)))
    items = [c.Item(c.RevokeToken(name, spare_last=True)) for name in ("a", "b")]
    first, second = (each.result for each in table.entry(*items))
    assert first == Ok()
    assert isinstance(second, Rejection)
    assert (second.code, second.detail.partition(":")[0]) == (
        "conflict",
        "b is the last token of role admin that does not expire",
    )
    assert table.do(c.RevokeToken("short", spare_last=True)) == Ok()
    assert [token.name for token in queries.tokens(table.db)] == ["b"]


def test_entries_of_before_revoke_the_last_admin_as_they_did(table: Table) -> None:
    table.do(c.PutToken("a", HASH, ADMIN))
    assert table.do(c.RevokeToken("a")) == Ok()


def test_a_name_and_a_hash_belong_together(table: Table) -> None:
    table.do(c.PutToken("t", HASH, ADMIN))
    assert table.do(c.PutToken("u", HASH, ADMIN)).code == "conflict"
    assert table.do(c.PutToken("t", OTHER, ADMIN)).code == "conflict"
