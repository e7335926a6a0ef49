"""What a forked child may use of its parent's."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from aiohttp import web

from tests.client.nodes import added, answers, node


async def test_a_fork_has_connections_of_its_own() -> None:
    async with node(added("t1"), added("t2")) as one:
        code = (
            "import json, os\nfrom quvatlh import App\n"
            f"app = App({one.url!r}, token='t')\ntask = app.task(json.dumps)\ntask.enqueue(1)\n"
            "pid = os.fork()\nif not pid:\n    task.enqueue(2)\n    os._exit(7)\n"
            "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
        )
        ended = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
        assert await asyncio.wait_for(ended.wait(), 20) == 0
    assert len(one.asked) == 2


async def test_a_fork_may_ask_handles_of_its_parent_and_waits_for_nothing_that_the_parent_writes() -> None:
    asked = asyncio.Event()

    async def waits(_request: web.BaseRequest, _body: bytes) -> web.StreamResponse:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with node(added("t1"), waits, answers({"id": "t1", "state": "succeeded", "result": 5})) as one:
        code = (
            "import json, os\nfrom quvatlh import App\nfrom quvatlh.client import Unknown\n"
            f"app = App({one.url!r}, token='t')\ntask = app.task(json.dumps)\n"
            "written, unwritten = task.enqueue(1), task.enqueue_nowait(2)\n"
            "input()\npid = os.fork()\n"
            "if not pid:\n    assert written.result(timeout=9) == 5\n"
            "    try:\n        unwritten.result(timeout=9)\n"
            "    except Unknown as error:\n        os._exit(7 if 'the process was forked' in str(error) else 1)\n"
            "os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        )
        ended = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=asyncio.subprocess.PIPE)
        await asyncio.wait_for(asked.wait(), 60)
        await asyncio.wait_for(ended.communicate(b"\n"), 60)
        assert ended.returncode == 7


async def test_what_was_opened_before_a_fork_answers_no_in_the_child() -> None:
    async with node(added("t1")) as one:
        code = (
            "import json, os\nfrom quvatlh import App\nfrom quvatlh.client import Unavailable\n"
            f"app = App({one.url!r}, token='t')\ntask = app.task(json.dumps)\ntask.enqueue(1)\n"
            "motor = app.side().motor\nmotor._lock.acquire()\npid = os.fork()\n"
            "if not pid:\n    try:\n        motor.call(lambda client: client.cluster())\n"
            "    except Unavailable as error:\n        os._exit(7 if 'the process was forked' in str(error) else 1)\n"
            "os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        )
        ended = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
        assert await asyncio.wait_for(ended.wait(), 20) == 7


def test_a_fork_finds_nothing_locked_by_a_thread_that_it_has_not() -> None:
    code = (
        "import os, threading\nfrom quvatlh.client import ways\nheld, let_go = threading.Event(), threading.Event()\n"
        "def hold():\n    with ways._LOCK:\n        held.set()\n        let_go.wait(0.2)\n"
        "threading.Thread(target=hold, daemon=True).start()\nheld.wait()\npid = os.fork()\n"
        "if not pid:\n    ways.Way().settle(ways.Written('a', False))\n    os._exit(7)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
