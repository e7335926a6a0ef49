"""Functions as tasks against a real node: the tour of client/DESIGN.md, and what it has no room for."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from quvatlh import App, TaskFailed
from quvatlh.client import Rejected, ResultElsewhere
from tests.daemon import library_app as tasks
from tests.daemon.program import ROOT, Program
from tests.support.executors import end_executor

pytestmark = pytest.mark.long

TOUR = ROOT / "quvatlh" / "client" / "DESIGN.md"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    directory = tmp_path_factory.mktemp("library")
    found = re.search(r"```python\n(.*?)```", TOUR.read_text(), re.DOTALL)
    assert found
    (directory / "tour.py").write_text(found[1])
    path = f"{directory}:{ROOT}"
    program = Program(directory / "one", "--name", "n", "--slots", "4", PYTHONPATH=path)
    yield program.listening().ready()
    program.kill()
    end_executor(program.data)


@pytest.fixture
def app(node: Program, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """The module's own, pointed at the node by the environment and its data directory."""
    monkeypatch.setenv("QUVATLH_URL", node.url)
    monkeypatch.setenv("QUVATLH_NODE_DATA", str(node.data))
    yield tasks.app
    tasks.app.close()


async def test_the_tour_holds(node: Program) -> None:
    token = (node.data / "token").read_text().strip()
    environ = {"PATH": "/bin:/usr/bin", "PYTHONPATH": str(ROOT), "QUVATLH_URL": node.url, "QUVATLH_TOKEN": token}
    tour = await asyncio.create_subprocess_exec(
        sys.executable,
        str(node.directory.parent / "tour.py"),
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(tour.communicate(), 60)
    assert (out, errors.decode()) == (b"done\n", "")


def test_threads_share_writes_and_each_has_its_own_results(app: App, node: Program) -> None:
    before = node.ask("/v1/cluster")["index"]
    every = threading.Barrier(16)

    def some(first: int) -> list[int]:
        every.wait()
        handles = [tasks.twice.enqueue(first + n) for n in range(10)]
        return [handle.result(timeout=30) for handle in handles]

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(some, range(0, 1600, 100)))
    assert found == [[2 * (first + n) for n in range(10)] for first in range(0, 1600, 100)]
    assert node.ask("/v1/cluster")["index"] > before


async def test_a_handle_tells_states_waits_and_takes_back(app: App) -> None:
    late = await tasks.twice.options(delay="1h").aenqueue(1)
    with pytest.raises(TimeoutError, match=r"is scheduled after 0\.05 s"):
        await late.aresult(timeout=0.05)
    assert (await late.atask())["state"] == "scheduled"
    await late.acancel()
    with pytest.raises(TaskFailed) as caught:
        await late.aresult(timeout=10)
    assert caught.value.code == "deleted"
    soon = await tasks.twice.options(delay=0.2, unique=True).aenqueue(2)
    assert (await tasks.twice.options(unique=True).aenqueue(2)).id == soon.id
    assert await soon.aresult(timeout=30) == 4


def test_a_failure_has_its_traceback_and_may_be_tried_again(app: App, tmp_path: Path) -> None:
    needed = tmp_path / "needed"
    handle = tasks.reads.enqueue(str(needed))
    with pytest.raises(TaskFailed, match="FileNotFoundError") as caught:
        handle.result(timeout=30)
    assert (caught.value.code, caught.value.attempts) == ("exception", 2)
    assert "in reads\n" in caught.value.traceback
    needed.write_text("here")
    handle.retry()
    assert handle.result(timeout=30) == "here"


def test_a_task_enqueues_others(app: App, node: Program) -> None:
    token = (node.data / "token").read_text().strip()
    assert tasks.spreads.enqueue(node.url, token, 3).result(timeout=30) == [0, 2, 4]


def test_a_large_result_comes_whole_where_its_file_is_and_else_its_place_is_told(app: App) -> None:
    handle = tasks.long.enqueue(100_000)
    assert handle.result(timeout=30) == "x" * 100_000
    Path(handle.task()["result"]["path"]).unlink()
    with pytest.raises(ResultElsewhere, match=r"100002 bytes, is .* of worker n$"):
        handle.result(timeout=30)


def test_what_a_node_refuses_fails_its_author_alone(app: App) -> None:
    with ThreadPoolExecutor(8) as pool:
        good = [pool.submit(tasks.twice.enqueue, n) for n in range(7)]
        bad = pool.submit(tasks.twice.options(timeout="soon").enqueue, 1)
    with pytest.raises(Rejected, match=r"^timeout: must be a duration"):
        bad.result()
    assert [each.result().result(timeout=30) for each in good] == [2 * n for n in range(7)]
