"""Functions as tasks against a real node: the tour of client/DESIGN.md, and what it has no room for."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import urllib.request
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import cast
from uuid import uuid4

import msgspec
import pytest

from quvatlh import App, TaskFailed
from quvatlh.client import Changes, Rejected, ResultElsewhere, ResultUnfit
from tests.client import typed_app as typed_tasks
from tests.client.typed_app import Color, Order, Point
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


@pytest.fixture
def typed(app: App) -> Iterator[App]:
    yield typed_tasks.app
    typed_tasks.app.close()


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
    assert (out, errors.decode()) == (b"tour:add took (2, 2)\ndone\n", "")


def test_threads_share_writes_and_each_has_its_own_results(app: App, node: Program) -> None:
    before = node.ask("/v1/cluster")["index"]
    every = threading.Barrier(16)

    def some(first: int) -> list[int]:
        every.wait()
        handles = [tasks.twice.enqueue(first + n) for n in range(10)]
        return [handle.result(timeout=60) for handle in handles]

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
        await late.aresult(timeout=60)
    assert caught.value.code == "deleted"
    soon = await tasks.twice.options(delay=0.2, unique=True).aenqueue(2)
    assert (await tasks.twice.options(unique=True).aenqueue(2)).id == soon.id
    assert await soon.aresult(timeout=60) == 4


def test_a_failure_has_its_traceback_and_may_be_tried_again(app: App, tmp_path: Path) -> None:
    needed = tmp_path / "needed"
    handle = tasks.reads.enqueue(str(needed))
    with pytest.raises(TaskFailed, match="FileNotFoundError") as caught:
        handle.result(timeout=60)
    assert (caught.value.code, caught.value.attempts) == ("exception", 2)
    first, where, *_ = caught.value.traceback.splitlines()
    assert (first, where.endswith("in reads")) == ("Traceback (most recent call last):", True)
    needed.write_text("here")
    handle.retry()
    assert handle.result(timeout=60) == "here"


def test_a_task_enqueues_others(app: App, node: Program) -> None:
    token = (node.data / "token").read_text().strip()
    assert tasks.spreads.enqueue(node.url, token, 3).result(timeout=60) == [0, 2, 4]


def test_a_large_result_comes_whole_from_its_worker_and_else_its_place_is_told(app: App, node: Program) -> None:
    handle = tasks.long.enqueue(3_000_000)
    assert handle.result(timeout=60) == "x" * 3_000_000
    assert node.ask(f"/v1/tasks/{handle.id}/result") == "x" * 3_000_000
    place = handle.task()["result"]
    assert (place["file"], place["bytes"], place["worker"]) == ("result.json", 3_000_002, "n")
    Path(place["path"]).unlink()
    with pytest.raises(ResultElsewhere, match=r"3000002 bytes, is .* of worker n: .* does not keep it any more$"):
        handle.result(timeout=60)
    impostor = {"file": "result.json", "bytes": 9, "worker": "n", "path": "/etc/passwd"}
    assert tasks.gives.enqueue(impostor).result(timeout=60) == impostor


def test_what_a_node_refuses_fails_its_author_alone(app: App) -> None:
    with ThreadPoolExecutor(8) as pool:
        good = [pool.submit(tasks.twice.enqueue, n) for n in range(7)]
        bad = pool.submit(tasks.twice.options(timeout="soon").enqueue, 1)
    with pytest.raises(Rejected, match=r"^timeout: must be a duration"):
        bad.result()
    assert [each.result().result(timeout=60) for each in good] == [2 * n for n in range(7)]


def test_values_pass_through_a_real_worker_as_their_annotations_say(typed: App) -> None:
    order = Order(uuid4(), (Point(Decimal("1.10"), datetime(2026, 1, 2, tzinfo=UTC)),), b"\0\xff", {"a"})
    handle = typed_tasks.echo.enqueue(order, datetime.now(UTC), color=Color.RED, span=timedelta(seconds=2))
    assert handle.result(timeout=60) == order
    days = typed_tasks.days.enqueue(date(2026, 1, 2), a=Decimal("0.3"))
    assert days.result(timeout=60) == {date(2026, 1, 2): Decimal("0.3")}
    assert typed_tasks.unsaid.enqueue(0).result(timeout=60) == "1970-01-01T00:00:00Z"
    with pytest.raises(ResultUnfit, match="Invalid RFC3339"):
        typed_tasks.lies.enqueue().result(timeout=60)


@pytest.mark.parametrize("size", [1, 50_000])
def test_a_result_in_msgpack_comes_back_as_it_was_and_raw_to_who_asks(typed: App, node: Program, size: int) -> None:
    whole = {1: [b"\0\xff" * size, datetime(2026, 1, 2, tzinfo=UTC), float("inf")]}
    handle = typed_tasks.packed.enqueue(size)
    assert handle.result(timeout=60) == whole
    assert [each.result() for each in typed.results([handle])] == [whole]
    asked = urllib.request.Request(
        f"{node.url}/v1/tasks/{handle.id}/result",
        headers={
            "Authorization": f"Bearer {(node.data / 'token').read_text().strip()}",
            "Accept": "application/msgpack",
        },
    )
    with urllib.request.urlopen(asked) as answer:
        assert answer.headers["Content-Type"] == "application/msgpack"
        assert msgspec.msgpack.decode(answer.read()) == whole
    if size == 1:
        assert node.ask(f"/v1/tasks/{handle.id}/result") == {"1": ["AP8=", "2026-01-02T00:00:00Z", None]}
    assert typed_tasks.unbounded.enqueue().result(timeout=60) == [float("-inf")]


def test_what_others_sent_and_does_not_fit_fails_for_good_and_the_next_one_runs(typed: App, node: Program) -> None:
    for args, words in (
        ([1, "2026-01-01T00:00:00Z"], "its arguments do not fit: order: Expected `object`, got `int`"),
        ([], "its arguments do not fit: missing a required argument: 'order'"),
    ):
        found = node.done(node.add(work={"python": typed_tasks.echo.target, "args": args}))
        assert (found["error"], found["attempts"]) == ({"code": "unrunnable", "text": words}, 1)
    assert typed_tasks.anything.enqueue(1).result(timeout=60) == 1


def test_hooks_run_where_the_task_does_and_write_to_its_log(typed: App, node: Program) -> None:
    handle = typed_tasks.again.enqueue(1)
    assert handle.result(timeout=60) == 1
    assert node.raw(f"/v1/tasks/{handle.id}/log?stream=stderr").startswith(b"closed ")


async def test_results_come_as_tasks_finish_each_once_until_all_have(app: App, tmp_path: Path) -> None:
    early = tasks.twice.enqueue(7)
    assert early.result(timeout=60) == 14
    late = tasks.awaits.enqueue(str(tmp_path / "go"), 0)
    handles = [early, late, *app.enqueue_many(tasks.twice.call(n) for n in range(1, 50))]
    found = []
    async for outcome in app.results(handles):
        found.append((outcome.id, await outcome.aresult()))
        if len(found) == len(handles) - 1:
            (tmp_path / "go").touch()
    assert dict(found) == {each.id: each.result() for each in handles}
    assert (len(found), found[0][0], found[-1][0]) == (51, early.id, late.id)


def test_results_of_a_queue_go_on_after_the_last_that_was_seen(app: App, tmp_path: Path) -> None:
    mine = tasks.twice.options(queue="mine")
    place = ""
    seen: list[object] = []
    for number in range(3):  # each time a program that was started anew
        if place:
            mine.enqueue(number)
        follows = iter(app.results(queue="mine", **({"since": place} if place else {})))
        if not place:
            threading.Timer(0.3, mine.enqueue, [number]).start()  # from now on: so it must be enqueued later
        outcome = next(follows)
        seen.append(outcome.result())
        place = outcome.place
        cast("Generator[object, None, None]", follows).close()
    assert seen == [0, 2, 4]
    (lost,) = app.results([tasks.reads.enqueue(str(tmp_path / "nothing"))])
    with pytest.raises(TaskFailed, match="FileNotFoundError"):
        lost.result()
    with pytest.raises(Rejected, match="there is no task nobody"):
        list(app.results(["nobody"]))


def test_schedules_in_code_are_put_once_changed_and_taken_away(typed: App, node: Program) -> None:
    first = typed.put_schedules("tests.typed")
    assert (sorted(first.put), first.gone, first.refused) == (["tests.typed:hourly", "tests.typed:tidy"], [], {})
    told = node.ask("/v1/schedules/tests.typed:tidy")
    assert (told["cron"], told["zone"], told["task"]["queue"]) == ("*/5 * * * *", "Europe/Berlin", "typed")
    assert node.ask("/v1/schedules/tests.typed:hourly")["task"]["work"]["args"] == [1]
    paused = node.ask("/v1/schedules/tests.typed:tidy/pause", {})
    assert typed.put_schedules("tests.typed") == Changes([], [], {})
    assert node.ask("/v1/schedules/tests.typed:tidy") == paused

    other = App()
    other.schedule("0 4 * * *", name="hourly", args=[1])(tasks.twice)
    other.schedule("61 * * * *", name="never", args=[1])(tasks.twice)
    try:
        changed = other.put_schedules("tests.typed")
    finally:
        other.close()
    assert (changed.put, changed.gone) == (["tests.typed:hourly"], ["tests.typed:tidy"])
    assert list(changed.refused) == ["tests.typed:never"]
    there = [each["name"] for each in node.ask("/v1/schedules")["items"]]
    assert [name for name in there if name.startswith("tests.typed:")] == ["tests.typed:hourly"]
    assert "cron" in changed.refused["tests.typed:never"]
