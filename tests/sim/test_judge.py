"""What the judge takes for a cluster that forked, and what not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.sim.judge import Judge, Violation


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
