"""Programs that end while they enqueue: what was accepted is in the cluster afterwards, or they say that it is not."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quvatlh.client import BlockingClient, Options
from tests.cli.stage import Stage
from tests.client.nodes import nobody
from tests.fakes.pool import TOKEN

HEAD = """
import atexit, json, threading
from quvatlh import App
app = App()
dumps = app.task(json.dumps)
def after_main(): threading.main_thread().join()
"""


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as made:
        yield made


def ran(url: str, code: str, head: str = HEAD) -> str:
    """What a program told on its standard error."""
    environment = os.environ | {"QUVATLH_URL": url.replace("127.0.0.1", "localhost"), "QUVATLH_TOKEN": TOKEN}
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-c", head + code],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


def written(stage: Stage) -> list[object]:
    """The first argument of each task, in order."""
    with BlockingClient(Options((stage.url,), TOKEN)) as client:
        return sorted(json.loads(task["id"][1:]) for task in client.all_tasks())


def test_what_a_thread_enqueues_after_the_main_one_has_ended_is_written(stage: Stage) -> None:
    code = """
dumps.options(id="t0").enqueue("m")
def late():
    after_main()
    for n in range(1, 100): dumps.options(id=f"t{n}").enqueue_nowait(n)
    dumps.options(id="t100").enqueue(100)
    assert dumps.options(id="t101").enqueue(101).id == "t101"
    for n in range(102, 200): dumps.options(id=f"t{n}").enqueue_nowait(n)
threading.Thread(target=late).start()
"""
    assert ran(stage.url, code) == ""
    assert written(stage) == list(range(200))


@pytest.mark.parametrize("verb", ["enqueue", "enqueue_nowait"])
def test_a_thread_may_be_the_first_to_enqueue_when_the_main_one_has_ended(stage: Stage, verb: str) -> None:
    code = f"""
def late():
    after_main()
    for n in range(3): dumps.options(id=f"t{{n}}").{verb}(n)
threading.Thread(target=late).start()
"""
    assert ran(stage.url, code) == ""
    assert written(stage) == [0, 1, 2]


def test_a_thread_may_be_the_first_to_import_it_when_the_main_one_has_ended(stage: Stage) -> None:
    head = "import threading\n"
    code = """
def late():
    threading.main_thread().join()
    import json
    from quvatlh import App
    dumps = App().task(json.dumps)
    dumps.options(id="t0").enqueue(0)
    dumps.options(id="t1").enqueue_nowait(1)
threading.Thread(target=late).start()
"""
    assert ran(stage.url, code, head) == ""
    assert written(stage) == [0, 1]


@pytest.mark.parametrize("before", ["", "dumps.options(id='t9').enqueue(9)"])
def test_what_is_enqueued_at_exit_is_written_whichever_handler_was_registered_first(stage: Stage, before: str) -> None:
    head = """
import atexit
def handler(first):
    dumps.options(id=f"t{first}").enqueue(first)
    handle = dumps.options(id=f"t{first + 1}").enqueue_nowait(first + 1)
    assert repr(handle) == f"<quvatlh.Handle t{first + 1}>"  # written: nobody comes later who would see to it
atexit.register(handler, 0)
"""
    assert ran(stage.url, f"{before}\natexit.register(handler, 2)", head + HEAD) == ""
    assert written(stage) == [0, 1, 2, 3, *([9] if before else [])]


def test_a_child_of_multiprocessing_which_has_no_atexit_writes_too(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        HEAD
        + """
import multiprocessing
def late():
    after_main()
    dumps.options(id="t1").enqueue_nowait(1)
def child():
    threading.Thread(target=late).start()
    dumps.options(id="t0").enqueue_nowait(0)
if __name__ == "__main__":
    started = multiprocessing.get_context("fork").Process(target=child)
    started.start()
    started.join()
    started = multiprocessing.get_context("fork").Process(target=dumps.options(id="t2").enqueue_nowait, args=(2,))
    started.start()
    started.join()
"""
    )
    assert ran(stage.url, f"import runpy; runpy.run_path({str(tmp_path / 'program.py')!r}, run_name='__main__')") == ""
    assert written(stage) == [0, 1, 2]


def test_results_that_are_still_followed_at_the_end_end_in_silence(stage: Stage) -> None:
    code = """
handle = dumps.options(id="t1", queue="mail").enqueue(1)
handle.cancel()
followed = iter(app.results(queue="mail", since="0"))
assert next(followed).id == handle.id
"""
    assert ran(stage.url, code) == ""
    assert ran(stage.url, code + "app.close()\ndel followed\n") == ""


async def test_what_cannot_be_written_at_the_end_is_told() -> None:
    code = """
app = App(deadline_s=0.2)
dumps = app.task(json.dumps)
def late():
    after_main()
    for _ in range(3): dumps.enqueue_nowait(1)
threading.Thread(target=late).start()
"""
    async with nobody() as url:
        told = ran(url, code)
        assert told.startswith("quvatlh: 3 task(s) were not enqueued: no node answers: ")
        code = "app = App(deadline_s=0.2)\napp.task(json.dumps).enqueue_nowait(1)\napp.close()\n"
        assert ran(url, code).startswith("quvatlh: 1 task(s) were not enqueued: no node answers: ")


def test_what_has_no_answer_when_the_program_waits_no_longer_is_told_as_in_doubt() -> None:
    code = """
from quvatlh.client import motor
motor.EXIT_S = 0.1
app = App(deadline_s=60)
app.task(json.dumps).enqueue_nowait(1)
"""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        told = ran(f"http://127.0.0.1:{silent.getsockname()[1]}", code)
    assert told.startswith("quvatlh: 1 task(s) may not have been enqueued: ")
