"""What the judge takes for a cluster that forked, and what not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from quvatlh.ports import Entry
from tests.sim.judge import Judge, Violation
from tests.sim.registers.judge import RegisterJudge


def box(name: str, cluster: str) -> Any:
    log = SimpleNamespace(membership=SimpleNamespace(cluster=cluster))
    return SimpleNamespace(name=name, log=log, machine=SimpleNamespace(applied_index=0), wipes=0)


def test_two_disks_that_name_different_clusters_are_a_fork() -> None:
    judge = Judge()
    one, two = box("n1", "c"), box("n2", "d")
    judge.boxes = [one, two]
    judge.opened(one)
    with pytest.raises(Violation, match="n2 is in cluster d, others in c"):
        judge.opened(two)


def test_a_disk_that_comes_back_with_another_cluster_than_the_others_is_a_fork() -> None:
    judge = Judge()
    one, two = box("n1", "c"), box("n2", "c")
    judge.boxes = [one, two]
    judge.opened(one)
    judge.opened(two)
    one.log.membership.cluster = "d"
    with pytest.raises(Violation, match="n1 is in cluster d, others in c"):
        judge.opened(one)


def test_a_cluster_that_one_disk_alone_knew_of_and_that_was_lost_with_it_is_none() -> None:
    """As by seed 200063 of the log's world: the others, still empty, may found one without it."""
    judge = Judge()
    one, two = box("n1", "c"), box("n2", "d")
    judge.boxes = [one, two]
    judge.opened(one)
    one.wipes += 1
    judge.opened(two)
    one.log.membership.cluster = "d"
    judge.opened(one)


def applied(judge: RegisterJudge, request: str, result: object) -> None:
    entry = Entry(index=1, term=1, time_ms=1, items=(msgpack.packb([request, "write", "r", 1]),))
    judge._first_applied(box("n1", "c"), entry, [result])


def test_what_is_answered_must_have_been_applied_by_then_and_so() -> None:
    judge = RegisterJudge()
    with pytest.raises(Violation, match="one was answered True, applied was None"):
        judge.acknowledge("one", True)
    applied(judge, "one", True)
    judge.acknowledge("one", True)
    with pytest.raises(Violation, match="one was answered False, applied was True"):
        judge.acknowledge("one", False)


def test_what_is_refused_is_applied_neither_before_nor_after() -> None:
    judge = RegisterJudge()
    applied(judge, "one", True)
    with pytest.raises(Violation, match="one was refused as certainly not done, and had been applied"):
        judge.refuse("one")
    judge.refuse("two")
    with pytest.raises(Violation, match="two was refused as certainly not done, and is applied at 1"):
        applied(judge, "two", True)
