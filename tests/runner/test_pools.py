"""Environments: what their children share, when these are replaced, and that nothing of one harms another."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from quvatlh.config.environments import Environment
from quvatlh.core.calls import Call
from quvatlh.core.work import Work
from quvatlh.ports import ActionSpec, ActionStarted
from quvatlh.runner.connect import ProcessExecutor
from quvatlh.runner.hatch import ExecutorSettings, Wish
from quvatlh.runner.settings import OUTPUT_BYTES_MIN, RunnerSettings
from quvatlh.runner.wire import ERROR_CHARS_MAX
from quvatlh.system.clock import RealClock
from tests.runner.bed import is_alive
from tests.runner.calls import DEFAULT, Calls, code, text
from tests.runner.perch import Ear, ended

OTHER = next(
    (path for path in ("/usr/bin/python3",) if Path(path).exists() and not sys.executable.startswith(path)), None
)


async def test_a_child_is_replaced_after_so_many_calls(calls: Calls) -> None:
    calls.pools.configure([replace(DEFAULT, recycle_tasks=2)])
    pids = [await calls.value("jobs:pid") for _ in range(6)]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4] == pids[5]


async def test_a_child_is_replaced_after_so_many_calls_however_long_the_line(calls: Calls) -> None:
    calls.pools.configure([replace(DEFAULT, recycle_tasks=20)])
    names = [calls.start("jobs:short_pid", width=1) for _ in range(100)]
    pids = Counter([(await calls.end(name)).result for name in names])
    assert set(pids.values()) == {20}


async def test_a_child_that_others_share_is_replaced_after_so_many_calls(calls: Calls, tmp_path: Path) -> None:
    calls.pools.configure([replace(DEFAULT, recycle_tasks=3)])
    for target, args in (("jobs:shared_pid", ()), ("jobs:dozes", (str(tmp_path),))):
        await calls.run(target, *args)  # from now on they are known to be async
    calls.pools.reload("default")
    goes_on = calls.start("jobs:dozes", str(tmp_path / "go"), width=9)
    await calls.begun(goes_on)
    pids = [await calls.value("jobs:shared_pid", width=9) for _ in range(5)]
    assert pids[0] == pids[1] != pids[2] == pids[3] == pids[4]
    (tmp_path / "go").touch()
    assert code(await calls.end(goes_on)) is None


async def test_a_child_that_has_grown_is_replaced(calls: Calls) -> None:
    calls.pools.configure([replace(DEFAULT, recycle_megabytes=100)])
    await calls.value("jobs:pid")
    child = next(iter(calls.pools.pool("default").brood.children.values()))
    child.measured_s = 0.0  # it is looked at after a second
    grown = await calls.value("jobs:grows", 150)
    assert await calls.value("jobs:pid") != grown
    while is_alive(grown):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)


async def test_no_more_children_than_allowed(calls: Calls) -> None:
    calls.pools.configure([replace(DEFAULT, children=1)])
    names = [calls.start("jobs:rest", 0.02, width=4) for _ in range(6)]
    await asyncio.gather(*map(calls.end, names))
    assert calls.children() == 1
    around = Work((), cwd="/")
    assert (await calls.value("jobs:surroundings", around=around))[0] == "/"


WAITING = """
import os, time
VERSION = 1
def version(path):
    while not os.path.exists(path):
        time.sleep(0.005)
    return VERSION
"""


async def test_reloaded_children_finish_first(calls: Calls, tmp_path: Path) -> None:
    module = tmp_path / "changing.py"
    go = tmp_path / "go"
    module.write_text(WAITING)
    calls.pools.configure([Environment("default", cwd=str(tmp_path), preload=("changing",))])
    assert await calls.value("changing:version", str(tmp_path)) == 1
    goes_on = calls.start("changing:version", str(go))
    await calls.begun(goes_on)
    module.write_text(module.read_text().replace("VERSION = 1", "VERSION = 22"))
    assert calls.pools.reload("default") == ["default"]
    assert calls.pools.reload("none") == []
    assert await calls.value("changing:version", str(tmp_path)) == 22
    go.touch()
    assert (await calls.end(goes_on)).result == b"1"
    assert await calls.value("changing:version", str(tmp_path)) == 22


async def test_a_line_of_calls_does_not_keep_the_old_code_running(calls: Calls, tmp_path: Path) -> None:
    module = tmp_path / "busy.py"
    module.write_text("import time\ndef version():\n    time.sleep(0.002)\n    return 1\n")
    calls.pools.configure([Environment("default", cwd=str(tmp_path), preload=("busy",))])
    names = [calls.start("busy:version", width=1) for _ in range(200)]
    assert (await calls.end(names[0])).result == b"1"
    module.write_text(module.read_text().replace("return 1", "return 22"))
    calls.pools.reload("default")
    found = [(await calls.end(name)).result for name in names]
    assert found[-100:] == [b"22"] * 100


async def test_company_does_not_keep_the_old_code_running(calls: Calls, tmp_path: Path) -> None:
    for target, args in (("jobs:shared_pid", ()), ("jobs:dozes", (str(tmp_path),))):
        await calls.run(target, *args)
    goes_on = calls.start("jobs:dozes", str(tmp_path / "go"), width=9)
    await calls.begun(goes_on)
    old = await calls.value("jobs:shared_pid", width=9)
    calls.pools.reload("default")
    assert await calls.value("jobs:shared_pid", width=9) != old
    (tmp_path / "go").touch()
    assert code(await calls.end(goes_on)) is None


async def test_preloaded_modules_are_loaded_once_for_all(calls: Calls, tmp_path: Path) -> None:
    (tmp_path / "heavy.py").write_text(
        "import os\nLOADER = os.getpid()\ndef loader():\n    return [LOADER, os.getpid()]\n"
    )
    calls.pools.configure([Environment("default", cwd=str(tmp_path), preload=("heavy",))])
    names = [calls.start("heavy:loader") for _ in range(2)]
    found = [await calls.value("heavy:loader"), *[(await calls.end(name)).result for name in names]]
    assert found[0][0] != found[0][1]
    assert {str(each).split(",")[0].strip("[b'") for each in found} == {str(found[0][0])}


async def test_a_module_that_cannot_be_preloaded_is_told_to_every_call_until_it_can(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "sick.py"
    module.write_text("raise OSError('no database')\n")
    calls.pools.configure([Environment("default", cwd=str(tmp_path), preload=("sick",))])
    ends = await asyncio.gather(*(calls.run("sick:noop", width=9) for _ in range(3)))
    for end in ends:
        assert code(end) == "environment"
        assert text(end) == (
            f"environment default: {module}, line 1: OSError: no database\nTraceback (most recent call last):\n"
            f"  File \"{module}\", line 1, in <module>\n    raise OSError('no database')\nOSError: no database"
        )
    module.write_text("def noop(): return 'well'\n")
    monkeypatch.setattr("quvatlh.runner.pools.pool.REFUSE_S", 0.0)
    calls.pools.pool("default").refuse("")
    assert await calls.value("sick:noop") == "well"


DEEP = "def deep(n):\n    {}\n\ndeep(50)\n".format(
    "\n    ".join(["if n == 0:", "    import nothing", "deep(n - 1)  # " + "x" * 80])
)
ODD = "class Odd(Exception):\n    def __str__(self):\n        raise SystemExit(3)\n\nraise Odd\n"


@pytest.mark.parametrize(
    ("source", "words", "last"),
    [
        ("def noop(:\n", "{module}, line 1: invalid syntax", ""),
        ("import nothing\n", "{module}, line 1: there is no module nothing in {prefix}", "named 'nothing'"),
        (DEEP, "{module}, line 3: there is no module nothing in {prefix}", "named 'nothing'"),
        (None, "there is no module sick in {cwd}, on PYTHONPATH, or in {prefix}", ""),
        ("raise OSError('caf\\udce9')\n", "{module}, line 1: OSError: caf\\udce9", "\nOSError: caf\\udce9"),
        (ODD, "Odd: it cannot be described", ""),
    ],
    ids=["syntax", "import", "deep", "missing", "no UTF-8", "odd"],
)
async def test_a_module_that_cannot_be_preloaded_is_told_by_its_own_line(
    calls: Calls, tmp_path: Path, source: str | None, words: str, last: str
) -> None:
    module = tmp_path / "sick.py"
    if source is not None:
        module.write_text(source)
    calls.pools.configure([Environment("default", cwd=str(tmp_path), preload=("sick",))])
    found = text(await calls.run("sick:noop"))
    told = words.format(module=module, prefix=sys.prefix, cwd=tmp_path)
    assert found.partition("\n")[0] == f"environment default: {told}"
    assert found.endswith(last or told)
    assert "/inside/" not in found
    assert len(found) <= ERROR_CHARS_MAX


async def test_a_module_that_takes_too_long_to_preload_is_told_so(calls: Calls, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(1000)\n")
    calls.pools.configure([Environment("default", cwd=str(tmp_path), preload=("slow",), start_s=1)])
    ends = await asyncio.gather(*(calls.run("slow:noop", width=9) for _ in range(3)))
    assert {(code(end), text(end)) for end in ends} == {
        ("environment", "environment default: was not ready within 1 s")
    }


@pytest.mark.long
async def test_a_server_that_is_killed_takes_its_calls_and_is_replaced(calls: Calls, tmp_path: Path) -> None:
    running = calls.start("jobs:keeps", str(tmp_path / "pid"))
    while not (tmp_path / "pid").exists():  # noqa: ASYNC110 - it tells by its file
        await asyncio.sleep(0.01)
    (nursery,) = calls.pools.pool("default").brood._nurseries
    os.kill(nursery.pid, signal.SIGKILL)
    end = await calls.end(running)
    assert (code(end), text(end)) == ("crash", "its process ended with its server, before the task did")
    assert not is_alive(calls.starts[0].pid)
    assert not is_alive(int((tmp_path / "pid").read_text()))
    await asyncio.sleep(1.0)  # so long it is not asked again
    assert await calls.value("jobs:add", 1) == 2


@pytest.mark.skipif(OTHER is None, reason="there is no other Python interpreter here")
async def test_an_interpreter_without_quvatlh_runs_tasks_that_use_it(calls: Calls) -> None:
    calls.pools.configure([replace(DEFAULT, python=str(OTHER))])
    assert await calls.value("jobs:whose") == ["t1", "a1", 2, 101, "w1", None, "101"]
    assert code(await calls.run("jobs:later")) == "exception"
    assert await calls.value("jobs:nap", 0.01) == 0.01
    assert await calls.value("jobs:leaks")
    end = await calls.run("quvatlh.client:Client")
    assert text(end) == "there is no module quvatlh.client in this environment"


async def test_environments_have_their_own_directory_and_variables(calls: Calls, tmp_path: Path) -> None:
    other = Environment("other", cwd=str(tmp_path), env=(("COLOR", "red"),))
    calls.pools.configure([DEFAULT, other])
    assert await calls.value("os:getcwd", environment="other") == str(tmp_path)
    assert await calls.value("os:getenv", "COLOR", environment="other") == "red"
    assert await calls.value("os:getenv", "COLOR") is None


async def test_what_runs_in_an_environment_that_is_taken_away_goes_on_to_its_end(calls: Calls, tmp_path: Path) -> None:
    goes_on = calls.start("jobs:waits", str(tmp_path / "go"))
    await calls.begun(goes_on)
    calls.pools.configure([Environment("other")])
    assert code(await calls.run("jobs:noop")) == "environment"
    (tmp_path / "go").touch()
    assert code(await calls.end(goes_on)) is None


# --- in an executor of its own ---


def executor(directory: Path, isolation: Wish = "auto") -> ProcessExecutor:
    outputs = RunnerSettings(f"{directory}/outputs", f"{directory}/inputs", OUTPUT_BYTES_MIN)
    settings = ExecutorSettings(str(directory), "w1", outputs, isolation, (DEFAULT,))
    return ProcessExecutor(settings, RealClock(), lambda _note: None)


def spec(name: str, fence: int, target: str, args: bytes = b"[]", lease_s: float = 60) -> ActionSpec:
    work = Work((), call=Call("python", "default", target, args))
    return ActionSpec(name, "t", 1, fence, "w1", work, lease_s=lease_s, width=2)


@pytest.mark.long
async def test_a_call_outlives_its_daemon(tmp_path: Path) -> None:
    first, ear = executor(tmp_path), Ear()
    first.listen(ear)
    await first.open()
    first.start(spec("a1", 1, "jobs:rest", b"[0.5]"))
    assert isinstance(await ear.next(), ActionStarted)
    await first.leave()
    second, again = executor(tmp_path), Ear()
    second.listen(again)
    life = await second.open()
    assert [each.id for each in life.held] == ["a1"]
    end = await again.end()
    assert (ended(end), end.result) == (("a1", None), b"0.5")
    second.start(spec("a2", 2, "jobs:steps"))
    assert ended(await again.end()) == ("a2", None)
    assert [each.percent for each in again.progress] == [10, 60, 100]
    assert await second.reload(None) == ("default",)
    await second.close(0)


@pytest.mark.long
async def test_a_lease_that_is_over_ends_the_code_itself(tmp_path: Path) -> None:
    held, ear = executor(tmp_path), Ear()
    held.listen(ear)
    await held.open()
    held.renew(await held.ask())
    held.start(spec("a1", 1, "jobs:deaf", lease_s=1))
    event = await ear.next()
    assert isinstance(event, ActionStarted)
    assert ended(await ear.end()) == ("a1", "lease")
    await held.close(0)


@pytest.mark.long
@pytest.mark.parametrize("isolation", ["auto", "plain"])
async def test_children_end_with_their_executor(tmp_path: Path, isolation: Wish) -> None:
    held, ear = executor(tmp_path, isolation), Ear()
    held.listen(ear)
    await held.open()
    mark = tmp_path / "pid"
    held.start(spec("a1", 1, "jobs:deaf"))
    held.start(spec("a2", 2, "jobs:marks", f'["{mark}"]'.encode()))
    while not mark.exists() or not mark.read_text().endswith("\n"):  # noqa: ASYNC110 - it tells by its file
        await asyncio.sleep(0.01)
    death = held._death
    assert death is not None
    death.hasten()
    await ear.gone_because()
    beats = mark.stat().st_size
    await asyncio.sleep(0.2)
    assert mark.stat().st_size == beats
    await held.close(0)
