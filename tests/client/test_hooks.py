"""What an app does around its tasks: in order, on failure, async or not, and without changing what becomes of the task."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quvatlh import App, Attempt, Retry, TaskFailed
from quvatlh.client.hooks import Hook


def positive(number: int) -> int:
    return abs(number)


class Heard:
    """An app with a hook of each kind twice, and what they heard."""

    def __init__(self) -> None:
        self.app = App(inline=True)
        self.words: list[str] = []
        for name in ("one", "two"):
            self.app.before(self._hook(f"before {name}"))
            self.app.on_failure(self._hook(f"failed {name}"))
            self.app.after(self._hook(f"after {name}"))

    def _hook(self, words: str) -> Hook:
        def hook(attempt: Attempt) -> None:
            self.words.append(words if attempt.error is None else f"{words}: {attempt.error}")

        return hook


@pytest.mark.parametrize("is_async", [False, True])
def test_hooks_stand_around_the_function_the_last_one_ending_first(is_async: bool) -> None:
    heard = Heard()

    def plain(left: int) -> int:
        heard.words.append("runs")
        return left

    async def coroutine(left: int) -> int:
        return plain(left)

    assert heard.app.task(coroutine if is_async else plain).enqueue(1).result() == 1
    assert heard.words == ["before one", "before two", "runs", "after two", "after one"]


@pytest.mark.parametrize("is_async", [False, True])
def test_whatever_is_raised_is_told_and_raised(is_async: bool) -> None:
    heard = Heard()

    def plain() -> None:
        raise Retry("busy")

    async def coroutine() -> None:
        plain()

    with pytest.raises(TaskFailed, match="Retry: busy"):
        heard.app.task(coroutine if is_async else plain).enqueue().result()
    words = ["failed one: busy", "failed two: busy", "after two: busy", "after one: busy"]
    assert heard.words == ["before one", "before two", *words]


def test_what_returns_something_awaitable_is_over_when_that_is() -> None:
    heard = Heard()

    async def later() -> int:
        heard.words.append("later")
        return 3

    def plain() -> Any:
        return later()

    assert heard.app.task(plain).enqueue().result() == 3
    assert heard.words[2:] == ["later", "after two", "after one"]


@pytest.mark.parametrize("when", ["before", "on_failure", "after"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_hook_that_fails_is_told_in_the_log_and_changes_nothing(
    when: str, is_async: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    app = App(inline=True)

    def plain(attempt: Attempt) -> None:
        raise LookupError(f"no {attempt.target.partition('.')[0]}")

    async def coroutine(attempt: Attempt) -> None:
        plain(attempt)

    getattr(app, when)(coroutine if is_async else plain)
    assert app.task(positive).enqueue(-1).result() == 1
    with pytest.raises(TaskFailed, match=r"^task inline-2: TypeError"):
        app.task(hash).enqueue([]).result()
    said = capsys.readouterr().err
    name = "coroutine" if is_async else "plain"
    assert f".<locals>.{name} ({when}) failed; the task goes on\nTraceback" in said
    assert said.endswith("LookupError: no builtins:hash\n")

    async def waits(number: int) -> int:
        return 1 // number

    assert app.task(waits).enqueue(1).result() == 1
    with pytest.raises(TaskFailed, match="ZeroDivisionError"):
        app.task(waits).enqueue(0).result()
    assert f".<locals>.{name} ({when}) failed; the task goes on\nTraceback" in capsys.readouterr().err


def test_async_hooks_of_plain_functions_share_a_loop_and_what_they_open() -> None:
    app = App(inline=True)
    loops: list[asyncio.AbstractEventLoop] = []

    @app.before
    async def opens(attempt: Attempt) -> None:
        loops.append(asyncio.get_running_loop())
        attempt.kept["connection"] = attempt.context.task

    @app.after
    async def closes(attempt: Attempt) -> None:
        loops.append(asyncio.get_running_loop())
        assert attempt.kept.pop("connection") == attempt.context.task

    task = app.task(positive)
    assert [task.enqueue(n).result() for n in (-1, -2)] == [1, 2]
    assert len(loops) == 4
    assert len(set(loops)) == 1


def test_hooks_see_arguments_and_results_as_python_has_them() -> None:
    app = App(inline=True)
    seen: list[Any] = []

    @app.after
    def look(attempt: Attempt) -> None:
        seen.append((attempt.args, attempt.kwargs, attempt.result, attempt.context.attempt))

    @app.task
    def pair(left: tuple[int, ...], right: int = 2) -> set[int]:
        return {*left, right}

    assert pair.enqueue((1,), right=3).result() == {1, 3}
    assert seen == [(((1,), 3), {}, {1, 3}, 1)]


def test_a_call_that_does_not_fit_has_no_hooks_for_it_never_began() -> None:
    heard = Heard()

    def plain(left: int) -> int:
        return left

    with pytest.raises(Exception, match="its arguments do not fit"):
        heard.app.task(plain).__quvatlh_run__()
    assert heard.words == []
