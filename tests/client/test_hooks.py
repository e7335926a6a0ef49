"""What an app does around its tasks: in order, on failure, async or not, and without changing what becomes of the task."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NoReturn, TypeVar

import pytest

from quvatlh import App, Attempt, Retry, TaskFailed
from quvatlh.client.hooks import Hook
from quvatlh.task import Cancelled, Context

T = TypeVar("T")


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


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError("x"), Cancelled("x")])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_hook_that_ends_whatever_it_is_in_changes_nothing(
    error: BaseException, when: str, is_async: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    app = App(inline=True)

    def plain(_attempt: Attempt) -> None:
        raise error

    async def coroutine(attempt: Attempt) -> None:
        plain(attempt)

    async def waits(number: int) -> int:
        return number

    getattr(app, when)(coroutine if is_async else plain)
    assert promptly(lambda: [app.task(each).enqueue(1).result() for each in (positive, waits, positive)]) == [1, 1, 1]
    said = capsys.readouterr().err
    assert said.count(f"({when}) failed; the task goes on\nTraceback") == 3
    assert said.count(f"{type(error).__name__}: ") == 3


def promptly(act: Callable[[], T]) -> T:
    """In a thread that need not end: what fails here has waited without end."""
    ended: Future[T] = Future()
    threading.Thread(target=lambda: ended.set_result(act()), daemon=True).start()
    return ended.result(60)


def test_the_loop_of_async_hooks_goes_on_whatever_runs_in_it() -> None:
    app = App(inline=True)

    async def leaves() -> None:
        sys.exit(1)

    @app.before
    async def hook(_attempt: Attempt) -> None:
        asyncio.get_running_loop().stop()
        await asyncio.create_task(leaves())

    assert promptly(lambda: [app.task(positive).enqueue(-n).result() for n in (1, 2)]) == [1, 2]


def test_a_keyboard_means_the_program_where_a_person_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    app = App(inline=True)

    @app.before
    def hook(_attempt: Attempt) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        app.task(positive).enqueue(1)
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)  # as in a worker
    try:
        assert app.task(positive).enqueue(1).result() == 1
    finally:
        signal.signal(signal.SIGINT, before)
    assert "hook (before) failed; the task goes on\nTraceback" in capsys.readouterr().err


@pytest.mark.parametrize("is_async", [False, True])
def test_a_task_that_is_to_end_while_a_hook_runs_ends(is_async: bool) -> None:
    app = App(inline=True)
    words: list[str] = []

    @app.before
    def plain(attempt: Attempt) -> None:
        attempt.context.stopping = True
        raise Cancelled

    @app.before
    async def coroutine(attempt: Attempt) -> None:
        attempt.context.stopping = True
        raise asyncio.CancelledError

    @app.after
    def after(attempt: Attempt) -> None:
        words.append(type(attempt.error).__name__)

    async def waits(number: int) -> int:
        return number

    app.hooks.before[:] = [coroutine if is_async else plain]
    with pytest.raises(TaskFailed):
        app.task(waits if is_async else positive).enqueue(1).result()
    assert words == ["CancelledError" if is_async else "Cancelled"]


async def test_who_waits_for_an_async_task_may_cancel_it_while_a_hook_runs() -> None:
    app = App(inline=True)
    begun = asyncio.Event()

    @app.before
    async def hook(_attempt: Attempt) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def waits() -> None: ...

    context = Context({"id": "a"}, lambda _said: None, lambda: None)
    running = asyncio.create_task(app.hooks.around(Attempt("m:waits", context, (), {}), waits, lambda value: value))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_hook_does_to_its_attempt_stays_with_the_hooks(is_async: bool) -> None:
    app = App(inline=True)

    @app.before
    def hook(attempt: Attempt) -> None:
        attempt.kwargs["right"] = 99  # type: ignore[index]
        attempt.args, attempt.kwargs = (99,), {}

    def pair(left: int, right: int = 2, more: int = 3) -> list[int]:
        return [left, right, more]

    async def coroutine(left: int, right: int = 2, more: int = 3) -> list[int]:
        return pair(left, right, more)

    hooks = app.hooks
    context = Context({"id": "a"}, lambda _said: None, lambda: None)
    found = hooks.around(
        Attempt("m:f", context, [1], {"more": 4}), coroutine if is_async else pair, lambda value: value
    )
    assert (asyncio.run(found) if is_async else found) == [1, 2, 4]


def test_a_hook_whose_exception_cannot_be_told_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    class Causeless(Exception):
        @property
        def __cause__(self) -> NoReturn:  # type: ignore[override]
            raise SystemExit

    app = App(inline=True)

    @app.before
    def hook(_attempt: Attempt) -> None:
        raise Causeless

    assert app.task(positive).enqueue(1).result() == 1
    assert capsys.readouterr().err.endswith("hook (before) failed; the task goes on\nCauseless\n")


class Open(dict[str, int]):
    def __getattr__(self, name: str) -> int:
        return self[name]


@pytest.mark.parametrize("has_hooks", [False, True])
def test_a_value_that_answers_for_every_name_is_a_value(has_hooks: bool) -> None:
    app = App(inline=True)
    if has_hooks:
        app.before(lambda _attempt: None)

    def opened() -> dict[str, int]:
        return Open(a=1)

    assert app.task(opened).enqueue().result() == {"a": 1}
