"""What a shell is offered for names of workers, policies, queues and classes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.shell_completion import ShellComplete

from quvatlh.cli.main import main
from quvatlh.core.model import HtbClass, QueueSettings
from tests.cli.stage import Stage
from tests.fakes.pool import TOKEN


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with Stage() as made:
        monkeypatch.setenv("QUVATLH_URL", made.url)
        monkeypatch.setenv("QUVATLH_TOKEN", TOKEN)
        yield made


def offered(*args: str, typed: str = "") -> list[str]:
    found = ShellComplete(main, {}, "quvatlh", "_QUVATLH_COMPLETE").get_completions(list(args), typed)
    return [each.value for each in found]


def test_names_are_those_that_the_node_knows(stage: Stage) -> None:
    stage.tell(["worker", "gpu-1", "2"])
    stage.call(lambda: stage.pool.stored.update(near={"name": "near", "version": 1, "source": ""}))
    assert offered("drain") == ["gpu-1", "one"]
    assert offered("worker", "show", typed="g") == ["gpu-1"]
    assert offered("move", "a", "--to", typed="o") == ["one"]
    assert offered("policy", "show", typed="n") == ["near"]
    stage.call(lambda: stage.pool.queueing.settings.update(mail=QueueSettings(), maps=QueueSettings()))
    stage.call(lambda: stage.pool.queueing.tree.update(top=HtbClass()))
    assert offered("queue", "set", typed="ma") == ["mail", "maps"]
    assert offered("queue", "pause", "mail", typed="map") == ["maps"]
    for command in ("add", "ls", "move"):
        assert offered(command, "--queue", typed="mai") == ["mail"]
    assert offered("class", "show") == ["top"]
    assert offered("queue", "set", "mail", "--class", typed="t") == ["top"]
    assert offered("add", "--policy", typed="x") == []
    assert offered("drain", "--token", "wrong") == []


def test_states_are_offered_one_after_the_other() -> None:
    assert offered("ls", "--state", typed="fa") == ["failed"]
    assert offered("ls", "--state", typed="failed,re") == ["failed,retrying"]


def test_where_no_node_answers_nothing_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUVATLH_URL", "nonsense")
    assert offered("drain") == []
