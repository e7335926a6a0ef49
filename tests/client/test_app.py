"""Functions as tasks: what is sent, what is refused before it is sent, and tasks that run here for a test."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, assert_type

import pytest
from aiohttp import web

from quvatlh import App, Handle, PermanentFailure, Retry, TaskFailed, current
from quvatlh.client import Call, Rejected, Unavailable, Unknown
from quvatlh.client.feed import CALL_BYTES_MAX
from quvatlh.client.sides import Cluster
from quvatlh.core.limits import WORK_BYTES_MAX
from quvatlh.task import Context, running
from tests.cli.stage import Stage
from tests.client.nodes import added, node, problem
from tests.fakes.pool import TOKEN

app = App(inline=True)
tries: list[int] = []


@app.task
def add(left: int, right: int = 1) -> int:
    return left + right


@app.task(queue="mail", retry=3)
async def send(to: str) -> str:
    tries.append(current().attempt)
    if current().attempt < 2:
        raise Retry("not yet")
    return f"to {to}"


@app.task
def broken(*words: object, **named: object) -> None:
    raise ValueError("no good")


@app.task(retry=5)
def hopeless() -> None:
    tries.append(current().attempt)
    raise PermanentFailure("never")


def sent(call: Call[Any]) -> Any:
    return json.loads(call.body)


def test_a_call_is_a_task_of_its_function_with_its_options() -> None:
    assert sent(add.call(1, right=2)) == {
        "name": "add",
        "work": {"python": "tests.client.test_app:add", "args": [1], "kwargs": {"right": 2}},
    }
    told = send.options(
        delay=timedelta(minutes=5),
        timeout=1.5,
        unique="u",
        notify="http://h/",
        tags="gpu",
        expires=datetime(2030, 1, 1, tzinfo=UTC),
        environment="e",
        queue="post",
    )
    assert sent(told.call("me")) == {
        "name": "send",
        "queue": "post",
        "retry": {"attempts": 3},
        "delay": "300000ms",
        "timeout": "1500ms",
        "unique": {"key": "u"},
        "notify": {"url": "http://h/"},
        "tags": ["gpu"],
        "expires": "2030-01-01T00:00:00.000+00:00",
        "work": {"python": "tests.client.test_app:send", "args": ["me"], "kwargs": {}, "environment": "e"},
    }
    assert sent(told.options(stop=2.5).call("me"))["stop"] == {"grace": "2500ms"}
    assert sent(told.options(stop={"signal": "INT"}).call("me"))["stop"] == {"signal": "INT"}
    assert "unique" not in sent(told.options(unique=False).call("me"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"quue": "x"}, "quue: there is no such option"),
        ({"at": datetime.now(UTC), "delay": 1}, "at, delay: only one"),
        ({"at": datetime(2030, 1, 1)}, "at: a datetime without zone"),  # noqa: DTZ001 - it is what is refused
        ({"timeout": -1}, "timeout: must be a timedelta"),
        ({"retry": True}, "retry: how many attempts"),
        ({"retry": "3"}, "retry: how many attempts"),
        ({"unique": 3}, "unique: True, a key, or a mapping"),
        ({"notify": 3}, "notify: an address, or a mapping"),
    ],
)
def test_options_that_cannot_be_are_refused_where_they_are_written(options: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        app.task(**options)(len)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (datetime.now(UTC), "words[0]: datetime.datetime has no form in JSON"),
        ({"a": [1, {2}]}, "words[0].a[1]: set has no form in JSON"),
        ({1: 2}, "words[0]: the key 1 is no text"),
        (float("nan"), "words[0]: nan has no form in JSON"),
        (b"x", "words[0]: bytes has no form in JSON"),
        (2**70, "words[0]: an int of more than 64 bits; give it as text"),
    ],
)
def test_an_argument_that_json_cannot_carry_is_named_before_anything_is_sent(value: object, words: str) -> None:
    with pytest.raises(TypeError) as caught:
        broken.call(value)
    assert str(caught.value) == f"broken(): argument {words}"
    with pytest.raises(TypeError, match=r"argument named\.it"):
        broken.call(it=value)


def test_an_argument_within_itself_is_refused() -> None:
    knot: list[object] = []
    knot.append(knot)
    with pytest.raises(TypeError, match="nested deeper than 60, or within itself"):
        broken.call(knot)


def test_arguments_that_do_not_fit_the_function_are_refused() -> None:
    with pytest.raises(TypeError, match=r"add\(\): missing a required argument: 'left'"):
        add.call()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"add\(\): got an unexpected keyword argument 'middle'"):
        add.call(1, middle=2)  # type: ignore[call-arg]


@app.task
def selfish(self: int) -> int:
    return self


def test_a_parameter_may_have_any_name() -> None:
    assert selfish.enqueue(self=1).result() == selfish(self=1) == 1
    assert asyncio.run(selfish.aenqueue(self=1)).id
    assert selfish.enqueue_nowait(self=1).result() == 1


def test_a_task_is_pickled_as_a_function_is() -> None:
    assert pickle.loads(pickle.dumps(add)) is add
    again = pickle.loads(pickle.dumps(add.options(queue="q")))
    assert sent(again.call(1)) == sent(add.options(queue="q").call(1))
    nameless = [app.task(lambda: None), app.task(json.dumps), app.task(test_types_are_those_of_the_function)]
    for each in nameless:
        with pytest.raises(TypeError, match="only a task that its module has under its name can be pickled"):
            pickle.dumps(each)
    with pytest.raises(TypeError, match="an App has connections and cannot be pickled; its tasks can"):
        pickle.dumps(app)


def test_what_was_pickled_and_is_a_task_no_more_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.dumps(add)
    monkeypatch.setattr(sys.modules[__name__], "add", add.__wrapped__)
    with pytest.raises(TypeError, match=r"^tests\.client\.test_app\.add is no task here$"):
        pickle.loads(data)


def test_a_task_of_a_task_is_refused() -> None:
    with pytest.raises(TypeError, match=r"test_app:add is a task already; @app\.schedule stands above @app\.task"):
        app.task(timeout="4m")(app.schedule(every="1h", name="never")(add))


async def test_what_is_no_list_of_tasks_and_no_call_is_named() -> None:
    handle = add.enqueue(1)
    wrong: list[Any] = [handle.id, handle]
    for each in wrong:
        with pytest.raises(TypeError, match=r"^results\(\): takes a list of ids or handles"):
            app.results(each)
    with pytest.raises(
        TypeError, match=r"^enqueue_many takes calls, as add\.call\(1, 2\) makes them, not <quvatlh\.Handle"
    ):
        app.enqueue_many([handle])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^enqueue_many takes calls"):
        await app.aenqueue_many([handle])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^timeout: must be seconds, not '5s'"):
        handle.result(timeout="5s")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^timeout: must be seconds"):
        await handle.aresult(timeout="5s")  # type: ignore[arg-type]


@pytest.mark.parametrize("token", ["a\nb", "a b", "t\xf6ken"])
def test_a_token_that_is_none_is_refused_before_it_is_sent(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"^the token of App\(token=…\) holds what none does"):
        App("http://127.0.0.1:1", token=token).side()
    monkeypatch.setenv("QUVATLH_TOKEN", token)
    with pytest.raises(ValueError, match=r"^the token of QUVATLH_TOKEN holds what none does"):
        App("http://127.0.0.1:1").side()


def test_types_are_those_of_the_function() -> None:
    assert_type(add(1), int)
    assert_type(add.enqueue(1), Handle[int])
    assert_type(add.options(priority=1).enqueue(1).result(), int)
    assert_type(send.enqueue("me").result(), str)
    assert_type(app.task(queue="q")(len).__name__, str)


def test_inline_tasks_run_while_they_are_enqueued() -> None:
    assert add.enqueue(1, 2).result(timeout=0) == 3
    assert [each.result() for each in app.enqueue_many(add.call(n) for n in range(3))] == [1, 2, 3]
    tries.clear()
    assert send.enqueue("me").result() == "to me"
    assert tries == [1, 2]
    assert add.options(id="once").enqueue(1).existing is False
    again = add.options(id="once").enqueue(7)
    assert (again.existing, again.result(), app.handle("once").result()) == (True, 2, 2)


def test_an_inline_failure_has_the_traceback_of_the_task() -> None:
    handle = broken.enqueue("x")
    with pytest.raises(TaskFailed) as caught:
        handle.result()
    failed = caught.value
    assert (failed.code, failed.text) == ("exception", "ValueError: no good")
    assert failed.traceback.endswith('raise ValueError("no good")\nValueError: no good\n')
    assert failed.traceback in str(failed.__cause__)
    tries.clear()
    with pytest.raises(TaskFailed, match="never"):
        hopeless.enqueue().result()
    assert tries == [1]


async def test_an_inline_task_that_is_not_there_is_rejected_as_by_a_node() -> None:
    handle = app.handle("nonesuch")

    def results() -> object:
        return list(app.results(["nonesuch"]))

    asked: list[Callable[[], object]] = [handle.result, handle.task, handle.cancel, handle.retry, results]
    for ask in asked:
        with pytest.raises(Rejected, match="there is no task nonesuch") as caught:
            ask()
        assert caught.value.code == "not_found"
    with pytest.raises(Rejected, match="there is no task nonesuch"):
        await handle.aresult()


async def test_inline_tasks_run_under_a_loop_too() -> None:
    handles = [await send.aenqueue("a"), send.enqueue("b"), *await app.aenqueue_many([send.call("c")])]
    assert [await each.aresult() for each in handles] == ["to a", "to b", "to c"]


async def test_what_many_enqueue_shares_requests_which_are_repeated_under_their_keys() -> None:
    ids = [f"t{n}" for n in range(20)]
    asked, go = asyncio.Event(), asyncio.Event()

    async def unavailable(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        asked.set()
        await go.wait()
        return await problem(503, "no_master", Retry_After="0")(request, body)

    async with node(unavailable, added(ids[0]), added(*ids[1:])) as one:
        remote = App(one.url, token="t")
        task = remote.task(add.__wrapped__)
        first = asyncio.create_task(task.aenqueue(0))
        await asked.wait()
        rest = [asyncio.create_task(task.aenqueue(n)) for n in range(1, 20)]
        await asyncio.sleep(0)  # all are on their way
        go.set()
        assert [(await each).id for each in (first, *rest)] == ids
        await asyncio.to_thread(remote.close)
    assert one.keys[0] == one.keys[1] != one.keys[2]
    assert len(json.loads(one.asked[2].body)["tasks"]) == 19


async def test_a_program_that_ends_writes_what_is_on_its_way_first() -> None:
    async with node(added("t1")) as one:
        url = one.url.replace("127.0.0.1", "localhost")  # a name: looking it up takes a thread
        code = "from quvatlh import App\nimport json\napp = App()\napp.task(json.dumps).enqueue_nowait(1)\n"
        ended = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, env=os.environ | {"QUVATLH_URL": url, "QUVATLH_TOKEN": "t"}
        )
        assert await ended.wait() == 0
    assert json.loads(one.asked[0].body)["tasks"][0]["work"]["python"] == "json:dumps"
    assert one.asked[0].headers["Authorization"] == "Bearer t"


async def test_what_could_not_be_enqueued_is_told_by_flush_and_at_the_end() -> None:
    refusal = problem(400, "invalid", "no", [{"path": "tasks[0].queue", "message": "is no queue"}])
    async with node(refusal, refusal) as one:
        remote = App(one.url, token="t")
        remote.task(add.__wrapped__).enqueue_nowait(1)
        with pytest.raises(Exception, match=r"^queue: is no queue\n"):
            await asyncio.to_thread(remote.flush, 10)
        await asyncio.to_thread(remote.close)
        code = f"from quvatlh import App\nimport json\nApp({one.url!r}, token='t').task(json.dumps).enqueue_nowait(1)"
        ended = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stderr=asyncio.subprocess.PIPE)
        _, errors = await ended.communicate()
        assert errors.decode() == "quvatlh: 1 task(s) were not enqueued: queue: is no queue\n"


async def test_inside_a_task_nothing_is_left_for_later() -> None:
    """A worker's child ends without a last word."""
    async with node(problem(400, "invalid", "no task")) as one:
        remote = App(one.url, token="t")
        mark = running.set(Context({"id": "a1"}, lambda _said: None, lambda: None))
        with pytest.raises(Rejected, match="no task"):
            await asyncio.to_thread(remote.task(add.__wrapped__).enqueue_nowait, 1)
        running.reset(mark)
        await asyncio.to_thread(remote.close)


async def test_who_is_not_known_is_told_where_his_token_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QUVATLH_TOKEN", raising=False)
    refusal = problem(401, "unauthorized", "no token")
    async with node(refusal, refusal) as one:
        remote = App(one.url, data=str(tmp_path))
        with pytest.raises(Rejected) as enqueued:
            await remote.task(add.__wrapped__).aenqueue(1)
        with pytest.raises(Rejected) as asked:
            await remote.handle("t").aresult()
        await asyncio.to_thread(remote.close)
    words = (
        f"The token was looked for: App(token=…): not given; QUVATLH_TOKEN: not set; {tmp_path}/token: no such file."
    )
    assert enqueued.value.__notes__ == asked.value.__notes__ == [words]


async def test_what_is_closed_opens_again() -> None:
    async with node(added("t1"), added("t2")) as one:
        remote = App(one.url, token="t")
        for name in ("t1", "t2"):
            assert (await remote.task(add.__wrapped__).aenqueue(1)).id == name
            await asyncio.to_thread(remote.close)


async def test_a_call_under_way_when_the_app_is_closed_is_in_doubt_and_one_that_comes_later_is_not_made() -> None:
    asked = asyncio.Event()

    async def waits(_request: web.BaseRequest, _body: bytes) -> web.StreamResponse:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with node(waits) as one:
        remote = App(one.url, token="t")
        side, handle = remote.side(), remote.handle("t1")
        result = asyncio.create_task(handle.aresult())
        await asked.wait()
        await asyncio.to_thread(remote.close)
        with pytest.raises(Unknown, match="the app was closed before the answer came"):
            await result
        with pytest.raises(Unavailable, match="the app was closed"):
            await handle.aresult()
        with pytest.raises(Unavailable, match="the app was closed"):
            await asyncio.to_thread(side.put, add.call(1))


async def test_where_the_connections_were_ended_by_another_the_next_call_opens_others() -> None:
    async with node(added("t1")) as one:
        remote = App(one.url, token="t")
        ended = remote.side()
        assert isinstance(ended, Cluster)
        await asyncio.to_thread(ended.motor.close)
        assert (await remote.task(add.__wrapped__).aenqueue(1)).id == "t1"
        await asyncio.to_thread(remote.close)


class Adder:
    def __call__(self, left: int) -> int:
        return left + 1

    def add(self, left: int) -> int:
        return left + 1

    @classmethod
    def made(cls, left: int) -> int:
        return left + 1


@pytest.mark.parametrize("function", [partial(len, "a"), Adder(), Adder().add, [].append, Adder, "len"])
def test_what_has_no_name_by_which_workers_find_it_is_no_task(function: Any) -> None:
    with pytest.raises(TypeError, match="a task is a function, which workers find by its module and name, not "):
        app.task(function)
    with pytest.raises(TypeError, match="a task is a function"):
        app.schedule(every="1h")(function)


@pytest.mark.parametrize(
    ("function", "target"),
    [
        (len, "builtins:len"),
        (Adder.made, "tests.client.test_app:Adder.made"),
        (lru_cache(sent), "tests.client.test_app:sent"),
    ],
)
def test_what_has_a_name_is_a_task_whatever_it_is_made_of(function: Any, target: str) -> None:
    assert app.task(function).target == target


def test_a_function_that_workers_cannot_find_is_refused() -> None:
    with pytest.raises(ValueError, match="workers find only functions of a module's top level"):
        App("http://127.0.0.1:1", token="t", deadline_s=0.1).task(lambda: None).enqueue()


def test_who_only_defines_tasks_loads_no_network() -> None:
    code = (
        "import sys, quvatlh\nassert 'asyncio' not in sys.modules\n"
        "app = quvatlh.App()\n@app.task\ndef f(): ...\nf.call()\n"
        "assert not {'aiohttp', 'yarl', 'pysyncobj'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("chars", "code", "words"),
    [
        (CALL_BYTES_MAX, "invalid", "work.python: has 131119 bytes; at most 131072"),
        (5_000_000, "too_large", "the call of the task has 5000071 bytes; its work may have 131072"),
    ],
)
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
def test_a_call_that_is_too_large_is_refused_with_advice_that_its_author_can_follow(
    chars: int, code: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert WORK_BYTES_MAX == CALL_BYTES_MAX
    with Stage() as stage:
        remote = App(stage.url, token=TOKEN)
        task = remote.task(json.dumps)
        with pytest.raises(Rejected) as caught:
            task.enqueue("x" * chars)
        task.enqueue_nowait("x" * chars)
        remote.close()
    said = f"{words}: give it a reference to where the data is, a path or a key, and let the task read it"
    assert (caught.value.code, str(caught.value)) == (code, said)
    assert capsys.readouterr().err == f"quvatlh: 1 task(s) were not enqueued: {said}\n"


async def test_a_large_call_that_is_refused_for_something_else_is_not_told_that_it_is_large() -> None:
    async with node(problem(400, "invalid", "no", [{"path": "tasks[0].queue", "message": "is no queue"}])) as one:
        remote = App(one.url, token="t")
        with pytest.raises(Rejected, match=r"^queue: is no queue$"):
            await remote.task(json.dumps).aenqueue("x" * CALL_BYTES_MAX)
        await asyncio.to_thread(remote.close)
