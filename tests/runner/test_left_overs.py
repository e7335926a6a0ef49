"""What a call leaves behind in its process, and beside it: it ends with the call, and nobody else pays for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runner.bed import is_alive
from tests.runner.calls import Calls, code, healthy


async def test_what_a_call_leaves_running_ends_with_it(calls: Calls) -> None:
    left = await calls.value("jobs:leaks")
    assert not is_alive(left)
    await healthy(calls)


@pytest.mark.parametrize("then", ["returns", "raises"])
@pytest.mark.parametrize("job", ["jobs:forks", "jobs:async_forks"])
async def test_what_a_call_forks_does_not_answer_for_it(calls: Calls, job: str, then: str) -> None:
    for _ in range(2):
        assert await calls.value(job, then) == "original"
    end = await calls.run("jobs:forks", then)
    assert ("ValueError: in the copy" in end.stderr_tail) is (then == "raises")
    await healthy(calls)


async def test_what_an_async_call_forks_writes_is_its_own(calls: Calls) -> None:
    for word in ("one", "two", "three"):
        assert (await calls.run("jobs:forks_a_worker", word)).stdout_tail == f"{word} printed by the copy\n"


async def test_what_a_call_forks_is_no_part_of_the_protocol(calls: Calls) -> None:
    end = await calls.run("jobs:forks_and_speaks")
    assert (end.result, end.stderr_tail) == (b"-15", "noted by the copy\n")
    assert [each.text for each in calls.progress] == ["told"]
    await healthy(calls)


@pytest.mark.parametrize(
    ("then", "given", "expected"),
    [
        ("leaves it", {}, None),
        ("fails", {}, "exception"),
        ("waits", {"timeout_s": 0.2}, "timeout"),
        ("waits", {"timeout_s": 0.2, "grace_s": 0}, "timeout"),
    ],
)
async def test_what_an_async_call_leaves_running_ends_with_it(
    calls: Calls, tmp_path: Path, then: str, given: dict[str, float], expected: str | None
) -> None:
    for n in range(2):  # by itself, and known to be async
        path = tmp_path / str(n)
        end = await calls.run("jobs:starts", str(path), then, **given)
        assert (code(end), is_alive(int(path.read_text()))) == (expected, False)
    await healthy(calls)


async def test_an_async_call_that_ends_its_processes_keeps_its_child(calls: Calls, tmp_path: Path) -> None:
    before = await calls.value("jobs:pid")
    await calls.value("jobs:starts", str(tmp_path / "pid"), "ends it")
    assert await calls.value("jobs:pid") == before


async def test_what_one_of_several_async_calls_leaves_ends_with_the_last_of_them(calls: Calls, tmp_path: Path) -> None:
    path, go = tmp_path / "pid", tmp_path / "go"
    go.touch()
    await calls.value("jobs:dozes", str(go))
    await calls.value("jobs:starts", str(path), "leaves it")
    go.unlink()
    last = calls.start("jobs:dozes", str(go))
    stopped = calls.start("jobs:starts", str(path), "waits")
    while len(calls.progress) < 2:
        await calls.told()
    calls.stop(stopped)
    assert code(await calls.end(stopped)) == "stopped"
    left = int(path.read_text())
    assert is_alive(left), "whose it is cannot be told"
    go.touch()
    assert code(await calls.end(last)) is None
    assert not is_alive(left)


async def test_a_child_that_leaves_gives_back_what_has_not_begun(calls: Calls, tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.touch()
    await calls.value("jobs:leaves_late", str(go))
    await calls.value("jobs:shared_pid")
    go.unlink()
    first = calls.start("jobs:leaves_late", str(go))
    while len(calls.progress) < 2:
        await calls.told()
    behind = [calls.start("jobs:shared_pid") for _ in range(2)]
    await calls.turn()
    go.touch()
    assert [code(await calls.end(name)) for name in (first, *behind)] == [None, None, None]
