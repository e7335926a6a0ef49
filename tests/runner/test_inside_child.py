"""A child of an environment, in this process: what comes in moments that no test of real processes can hit."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator

import pytest

from quvatlh import task
from quvatlh.runner.inside.child import Child
from quvatlh.runner.inside.functions import RESULT_BYTES_MAX, RESULT_LEVELS_MAX, formed
from quvatlh.runner.inside.streams import Stream
from quvatlh.service import records


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Child, int]]:
    """And where its answers are read."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    pipes = [os.pipe() for _ in range(5)]
    (inward, _), (answers, out), (_, bell), (stdout, _), (stderr, _) = pipes
    yield Child({"in": inward, "out": out, "bell": bell, "stdout_read": stdout, "stderr_read": stderr}), answers
    for fd in (fd for pipe in pipes for fd in pipe):
        os.close(fd)


@pytest.mark.parametrize("early", [True, False], ids=["before it is there", "before its first step"])
def test_an_async_call_that_is_stopped_as_it_begins_says_so(child: tuple[Child, int], early: bool) -> None:
    inside, answers = child
    stop = {"type": "stop", "id": "a-1"}

    async def work() -> None:
        await asyncio.sleep(3600)

    async def begin() -> None:
        inside._idle = asyncio.get_running_loop().create_future()
        context = inside._context({"id": "a-1"})
        if early:
            inside._take(stop)
        inside._spawn(context, work())
        if not early:
            inside._take(stop)
        async with asyncio.timeout(60):
            await inside._idle

    asyncio.run(begin())
    said = json.loads(os.read(answers, 65536))
    assert (said["type"], said["id"], said["stopped"]) == ("error", "a-1", True)


@pytest.mark.parametrize("character", ["x", "\xe9", "\u20ac", "\U0001f4a1"])
def test_a_result_is_measured_in_bytes_of_utf_8(character: str) -> None:
    size = len(character.encode())
    most = (RESULT_BYTES_MAX - 2) // size
    assert formed(most * character) == ("value", f'"{most * character}"')
    with pytest.raises(task.Unfit, match=f"has {(most + 1) * size + 2} bytes"):
        formed((most + 1) * character)


def test_half_a_character_is_no_result() -> None:
    with pytest.raises(task.Unfit, match="surrogates not allowed"):
        formed(["\u20ac", "\ud83d"])
    assert formed(["\\ud83d", "\U0001f4a1"]) == ("value", '["\\\\ud83d","\U0001f4a1"]')


@pytest.mark.parametrize("wrap", [lambda inner: [0, inner], lambda inner: {"a": inner}, lambda inner: (inner,)])
def test_a_result_that_nodes_could_not_read_is_none(wrap: Callable[[object], object]) -> None:
    value: object = ["[" * 1000]
    for _ in range(RESULT_LEVELS_MAX - 1):
        value = wrap(value)
    assert records._value(formed(value)[1].encode()) == json.loads(formed(value)[1])
    with pytest.raises(task.Unfit, match=r"^what it returned is nested deeper than 256 levels$"):
        formed(wrap(value))
    assert formed([[]] * 1000)[0] == "value"


def test_what_is_as_deep_as_a_node_reads_is_what_a_child_writes() -> None:
    assert RESULT_LEVELS_MAX == records.RESULT_LEVELS_MAX


class Broken:
    """A file whose writer is cancelled in the middle of it."""

    def write(self, _text: str) -> int:
        raise task.Cancelled

    def flush(self) -> None:
        raise task.Cancelled


@pytest.mark.parametrize("broken_off", [lambda stream: stream.write("half"), lambda stream: stream.flush()])
def test_what_is_broken_off_leaves_something_to_be_written(
    broken_off: Callable[[Stream], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(os.devnull, "wb") as nowhere:
        stream = Stream(nowhere.fileno(), "stdout")
        monkeypatch.setattr(stream, "_file", Broken())
        with pytest.raises(task.Cancelled):
            broken_off(stream)
        assert stream.is_used
