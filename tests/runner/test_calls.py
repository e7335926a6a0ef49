"""Python functions in warm children: what they are given, what is kept of them, how each of them ends by itself alone."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from quvatlh.core.limits import FILED_RESULT, PACKED_RESULT
from quvatlh.core.work import Work
from quvatlh.runner.outputs import read_result
from tests.runner.bed import is_alive
from tests.runner.calls import Calls, code, healthy, text


async def test_a_function_gets_its_arguments_and_gives_its_result(calls: Calls) -> None:
    assert await calls.value("jobs:add", 1) == 2
    assert await calls.value("jobs:add", 1, kwargs={"right": 5}) == 6
    end = await calls.run("jobs:noop")
    assert (end.error, end.result) == (None, None)
    assert await calls.value("os.path:join", "a", "b") == "a/b"


async def test_a_function_knows_whose_it_is(calls: Calls) -> None:
    assert await calls.value("jobs:whose") == ["t1", "a1", 2, 101, "w1", None, "101"]
    assert await calls.value("jobs:whose", payload=b'{"n": 1}') == ["t2", "a2", 2, 102, "w1", '{"n": 1}', "102"]


async def test_a_library_may_wrap_functions(calls: Calls) -> None:
    assert await calls.value("jobs:wrapped", "hello") == "hello in t1"


async def test_a_child_is_kept_for_the_next_call(calls: Calls) -> None:
    assert await calls.value("jobs:pid") == await calls.value("jobs:pid")


async def test_as_many_run_at_once_as_there_are_slots(calls: Calls) -> None:
    names = [calls.start("jobs:rest", 0.05, width=2) for _ in range(4)]
    await asyncio.gather(*map(calls.end, names))
    assert calls.children() == 2


@pytest.fixture
def impatient(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> Calls:
    monkeypatch.setattr("quvatlh.runner.pools.pool.STALE_S", 0.25)
    return calls


async def test_calls_beyond_the_slots_that_do_not_begin_soon_come_back(impatient: Calls, tmp_path: Path) -> None:
    calls, go = impatient, tmp_path / "go"
    long = [calls.start("jobs:waits", str(go), width=2) for _ in range(2)]
    behind = await calls.end(calls.start("jobs:noop", width=2))
    assert (code(behind), behind.started_at_ms) == ("stale", None)
    go.touch()
    assert [code(await calls.end(name)) for name in long] == [None, None]


async def test_calls_behind_one_that_is_long_for_once_come_back_unstarted(impatient: Calls, tmp_path: Path) -> None:
    calls, mark, go = impatient, tmp_path / "mark", tmp_path / "go"
    for _ in range(3):
        await calls.value("jobs:waits", str(tmp_path))  # known to be short
    long = calls.start("jobs:waits", str(go), width=1)
    behind = [calls.start("jobs:writes", str(mark), 0, width=1) for _ in range(3)]
    assert [code(await calls.end(name)) for name in behind] == ["stale"] * 3
    go.touch()
    assert code(await calls.end(long)) is None
    await healthy(calls)
    assert not mark.exists(), "it has run, and runs again elsewhere"


async def test_a_call_behind_another_is_stopped_without_harm_to_that(calls: Calls, tmp_path: Path) -> None:
    for _ in range(3):
        await calls.value("jobs:waits", str(tmp_path))
    long = calls.start("jobs:waits", str(tmp_path / "go"), width=1)
    behind = calls.start("jobs:rest", 0, width=1)
    await asyncio.sleep(0.05)
    calls.stop(behind, 0)
    assert code(await calls.end(behind)) == "stopped"
    (tmp_path / "go").touch()
    assert code(await calls.end(long)) is None


async def test_commands_take_of_the_same_slots(impatient: Calls) -> None:
    calls = impatient
    command = calls.start("jobs:noop", width=2)
    await calls.end(command)
    calls.carriers.gate.take(2)
    waits = calls.start("jobs:noop", width=2)
    assert code(await calls.end(waits)) == "stale"
    calls.carriers.gate.release(2)
    await healthy(calls)


async def test_what_a_call_writes_is_its_own(calls: Calls) -> None:
    await healthy(calls)
    words = ["one", "two", "three", "four", "five", "six"]
    ends = await asyncio.gather(*(calls.run("jobs:speak", word) for word in words))
    for word, end in zip(words, ends, strict=True):
        assert end.stdout_tail == f"{word} printed\n{word} from a shell\n{word} from below\n"
        lines = end.stderr_tail.splitlines()
        assert sorted(lines) == sorted([f"{word} complained", f"{word} logged", f"{word} noted"])


async def test_what_stays_in_a_buffer_is_told_with_its_call(calls: Calls) -> None:
    for word in ("one", "two"):
        assert (await calls.run("jobs:mutter", word, width=1)).stdout_tail == word
    await calls.run("jobs:keep_buffer", width=1)
    for word in ("one", "two"):
        filled = await calls.run("jobs:fill_buffer", word, width=1)
        muttered = await calls.run("jobs:mutter", word, width=1)
        assert (filled.stdout_tail, muttered.stdout_tail) == (word, word)


async def test_async_calls_share_a_child_and_not_their_output(calls: Calls) -> None:
    await calls.run("jobs:murmur", "first")  # from now on it is known to be async
    words = [f"w{n}" for n in range(20)]
    ends = await asyncio.gather(*(calls.run("jobs:murmur", word, width=20) for word in words))
    for word, end in zip(words, ends, strict=True):
        assert (end.stdout_tail, end.stderr_tail) == (f"{word}\n" * 20, f"{word}\n" * 20)
    assert calls.children() <= 2


async def test_an_exception_is_kept_with_its_traceback(calls: Calls) -> None:
    end = await calls.run("jobs:broken")
    assert end.error is not None
    assert (end.error.code, end.error.text, end.error.exception) == (
        "exception", "ValueError: no good", "builtins.ValueError",
    )  # fmt: skip
    assert not end.error.permanent
    assert end.stderr_tail.startswith("Traceback (most recent call last):\n")
    assert end.stderr_tail.endswith('raise ValueError("no good")\nValueError: no good\n')
    await healthy(calls)


async def test_retry_says_when_and_permanent_says_never(calls: Calls) -> None:
    later, never = await calls.run("jobs:later"), await calls.run("jobs:never")
    assert later.error is not None
    assert never.error is not None
    assert (later.error.retry_after_s, later.error.permanent) == (7.0, False)
    assert (never.error.retry_after_s, never.error.permanent) == (None, True)


@pytest.mark.parametrize(
    ("target", "args", "words"),
    [
        ("nowhere:fn", (), "there is no module nowhere in this environment"),
        ("jobs.deep:fn", (), "there is no module jobs.deep in this environment"),
        ("jobs:nothing", (), "module jobs has no nothing"),
        ("jobs:os", (), "jobs:os is no function: module"),
        (
            "jobs:add",
            (1, 2, 3),
            "its arguments do not fit: add() takes from 1 to 2 positional arguments but 3 were given",
        ),
        (
            "jobs:shapeless",
            (),
            (
                "what it returned has no form in JSON (Object of type object is not JSON serializable), nor in msgpack: it is of "
                "type object"
            ),
        ),
        (
            "jobs:naive",
            (),
            (
                "what it returned has no form in JSON (Object of type bytes is not JSON serializable), nor in msgpack: "
                "it[1]['when'] is a datetime without a zone"
            ),
        ),
        (
            "jobs:unwritable",
            (),
            "what it returned has no form in JSON (not these), nor in msgpack: it is of type Unwritable",
        ),
        ("jobs:nowhen", (), "what it returned cannot be written: LookupError: no such place"),
        (
            "jobs:torn",
            ("é",),
            (
                "what it returned has no form in JSON ('utf-8' codec can't encode characters in position 6-7: surrogates not "
                "allowed), nor in msgpack: 'utf-8' codec can't encode characters in position 0-1: surrogates not allowed"
            ),
        ),
        ("jobs:mispacked", (), "what it returned is Packed, and holds no bytes: str"),
        (
            "jobs:mixed",
            (8_400_000,),
            "what it returned has 16800025 bytes; at most 16777216, the rest belongs into a file",
        ),
        (
            "jobs:large",
            (17_000_000,),
            "what it returned has 17000002 bytes; at most 16777216, the rest belongs into a file",
        ),
    ],
)
async def test_what_cannot_be_called_fails_for_good(calls: Calls, target: str, args: tuple[object], words: str) -> None:
    end = await calls.run(target, *args)
    assert (code(end), text(end)) == ("unrunnable", words)
    await healthy(calls)


async def test_an_unknown_environment_may_be_known_elsewhere(calls: Calls) -> None:
    end = await calls.run("jobs:noop", environment="other")
    assert (code(end), text(end)) == ("environment", "there is no environment 'other' on this worker; it has default")
    assert end.error is not None
    assert not end.error.permanent


MIXED = [float("inf"), {b"k": b"\0\xff"}, datetime(2026, 1, 2, tzinfo=UTC)]


async def test_what_has_no_form_in_json_is_kept_in_msgpack(calls: Calls) -> None:
    end = await calls.run("jobs:mixed", 1)
    assert end.result is not None
    assert end.result[:1] == PACKED_RESULT
    assert msgspec.msgpack.decode(end.result[1:]) == MIXED
    name = calls.start("jobs:mixed", 50_000)
    end = await calls.end(name)
    assert end.result is not None
    assert end.result[:1] == FILED_RESULT
    told = json.loads(end.result[1:])
    assert (told["file"], told["path"]) == ("result.msgpack", str(calls.outputs / name / "result.msgpack"))
    assert msgspec.msgpack.decode(Path(told["path"]).read_bytes())[1] == {b"k": b"\0\xff" * 50_000}
    whole = read_result(str(calls.outputs / name), 0)
    assert whole is not None
    assert whole[1] == told["bytes"]


async def test_a_character_of_two_halves_is_no_fault(calls: Calls) -> None:
    assert await calls.value("jobs:wide") == "\U0001f4a1"


async def test_a_result_in_msgpack_may_be_as_large_as_one_in_json(calls: Calls) -> None:
    end = await calls.run("jobs:mixed", 8_300_000)
    assert end.error is None
    assert end.result is not None
    assert json.loads(end.result[1:])["bytes"] == 16_600_025


async def test_a_large_result_is_a_file_of_the_worker(calls: Calls) -> None:
    name = calls.start("jobs:large", 100_000)
    end = await calls.end(name)
    assert end.result is not None
    assert end.result[:1] == FILED_RESULT
    told = json.loads(end.result[1:])
    assert (told["file"], told["bytes"], told["worker"]) == ("result.json", 100_002, "w1")
    assert json.loads(Path(told["path"]).read_text()) == "x" * 100_000
    assert told["path"] == str(calls.outputs / name / "result.json")


@pytest.mark.parametrize(
    ("target", "words", "how"),
    [
        (
            "jobs:segfault",
            "its process ended by signal SEGV: memory that was not its own, before the task did",
            (None, "SEGV"),
        ),
        ("jobs:vanish", "its process ended with exit status 3, before the task did", (3, None)),
    ],
)
async def test_a_child_that_dies_takes_its_call_alone(
    calls: Calls, target: str, words: str, how: tuple[int | None, str | None]
) -> None:
    await calls.value("jobs:add", 1)
    calls.pools.pool("default").paces.ran(target, 0.1, shared=False)  # so that it stands among others
    before = [calls.start("jobs:add", n, width=1) for n in range(5)]
    dead = calls.start(target, width=1)
    behind = [calls.start("jobs:add", n, width=1) for n in range(5)]
    end = await calls.end(dead)
    assert (code(end), text(end), (end.exit_code, end.signal)) == ("crash", words, how)
    assert [(await calls.end(name)).result for name in (*before, *behind)] == [b"1", b"2", b"3", b"4", b"5"] * 2


async def test_a_call_that_leaves_has_raised(calls: Calls) -> None:
    end = await calls.run("jobs:leaves")
    assert (code(end), text(end)) == ("exception", "SystemExit: 4")
    await healthy(calls)


@pytest.mark.parametrize("target", ["jobs:spin", "jobs:deaf", "jobs:blocks"])
async def test_a_timeout_ends_whatever_runs(calls: Calls, target: str) -> None:
    end = await calls.run(target, timeout_s=0.1, grace_s=0.1)
    assert (code(end), text(end)) == ("timeout", "ran longer than 0.1 s")
    await healthy(calls)


async def test_a_stopped_call_may_tidy_up(calls: Calls, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    name = calls.start("jobs:tidy", str(mark), grace_s=20)
    await calls.told()
    calls.stop(name)
    assert code(await calls.end(name)) == "stopped"
    assert mark.read_text() == "tidied"
    await healthy(calls)


async def test_a_call_may_look_whether_it_is_to_end(calls: Calls) -> None:
    name = calls.start("jobs:looks", grace_s=20)
    await calls.begun(name)
    calls.stop(name)
    end = await calls.end(name)
    assert code(end) in {None, "stopped"}


async def test_an_async_call_is_stopped_alone(calls: Calls, tmp_path: Path) -> None:
    await calls.run("jobs:dozes", str(tmp_path))
    calls.pools.pool("default").paces.ran("jobs:dozes", 1.0, shared=True)  # so long that none is put behind another
    names = [calls.start("jobs:dozes", str(tmp_path / "go"), width=9, grace_s=20) for _ in range(3)]
    for name in names:
        await calls.begun(name)
    calls.stop(names[1])
    assert code(await calls.end(names[1])) == "stopped"
    (tmp_path / "go").touch()
    assert [code(await calls.end(name)) for name in names] == [None, "stopped", None]


async def test_a_call_that_waits_for_its_turn_is_stopped_before_it_begins(calls: Calls) -> None:
    long = [calls.start("jobs:rest", 0.2, width=2) for _ in range(2)]
    waits = calls.start("jobs:noop", width=2)
    calls.stop(waits)
    end = await calls.end(waits)
    assert (code(end), end.started_at_ms) == ("stopped", None)
    assert [code(await calls.end(name)) for name in long] == [None, None]


async def test_stopped_without_grace_it_is_gone_at_once(calls: Calls) -> None:
    name = calls.start("jobs:deaf")
    await calls.begun(name)
    calls.stop(name, 0)
    assert code(await calls.end(name)) == "stopped"
    assert not is_alive(calls.starts[0].pid)


async def test_of_calls_that_shared_a_dead_child_none_is_blamed_and_each_runs_alone_next(calls: Calls) -> None:
    await calls.run("jobs:nap")
    with pytest.raises(AssertionError):
        await calls.value("jobs:crash_when", 0)  # known to be async only when it has answered: it has not
    calls.pools.pool("default").paces.ran("jobs:crash_when", 1.0, shared=True)
    innocent = [calls.start("jobs:nap", 20, width=9, task=f"i{n}") for n in range(2)]
    guilty = calls.start("jobs:crash_when", 3, width=9, task="guilty")
    ends = [await calls.end(name) for name in (*innocent, guilty)]
    assert {code(end) for end in ends} == {"stopped"}
    assert "it runs again, alone" in text(ends[0])
    again = calls.start("jobs:crash_when", 0, width=9, task="guilty")
    beside = calls.start("jobs:nap", 0.2, width=9, task="i0")
    assert code(await calls.end(again)) == "crash"
    assert code(await calls.end(beside)) is None


async def test_an_at_most_once_call_does_not_end_with_a_neighbour(calls: Calls, tmp_path: Path) -> None:
    """Stopped, it would have failed for good."""
    paces = calls.pools.pool("default").paces
    for target in ("jobs:dozes", "jobs:blocks"):
        paces.ran(target, 1.0, shared=True)
    go = str(tmp_path / "go")
    before = calls.start("jobs:dozes", go, width=9, once=True)
    await calls.begun(before)
    guilty = calls.start("jobs:blocks", width=9, timeout_s=0.3, grace_s=0)
    await calls.begun(guilty)
    after = calls.start("jobs:dozes", go, width=9, once=True)
    assert code(await calls.end(guilty)) == "timeout"
    (tmp_path / "go").touch()
    assert [code(await calls.end(name)) for name in (before, after)] == [None, None]


async def test_progress_is_told_while_it_goes_on(calls: Calls) -> None:
    await calls.run("jobs:steps")
    assert [(each.percent, each.text) for each in calls.progress] == [
        (10, "10 done"),
        (60, "60 done"),
        (100, "100 done"),
    ]


async def test_a_call_that_writes_into_every_descriptor_fails_alone(calls: Calls) -> None:
    end = await calls.run("jobs:babble")
    assert code(end) == "protocol"
    assert text(end).startswith("wrote what is no message to its protocol channel: 'this is no message'")
    await healthy(calls)


async def test_a_call_with_surroundings_has_a_process_of_its_own(calls: Calls) -> None:
    around = Work((), (("A", "b"),), "/", None, "typed", (("nofile", 77),))
    assert await calls.value("jobs:surroundings", around=around) == ["/", "b", "typed", 77]
    user = Work((), user="nobody-of-that-name")
    end = await calls.run("jobs:noop", around=user)
    assert (code(end), text(end)) == ("unrunnable", "user nobody-of-that-name: no such user on this machine")
    place = Work((), cwd="/nowhere")
    end = await calls.run("jobs:noop", around=place)
    assert (code(end), text(end)) == ("unrunnable", "[Errno 2] No such file or directory: '/nowhere'")
    await healthy(calls)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_a_call_may_run_as_another_user(calls: Calls) -> None:
    assert await calls.value("os:getuid", around=Work((), user="nobody")) == 65534


async def test_a_child_has_nobodys_files(calls: Calls) -> None:
    """Its own: standard ones, commands in, answers out, the bell, the ends of its outputs."""
    others = [calls.start("jobs:rest", 0.2, width=4) for _ in range(2)]
    found = await calls.value("jobs:descriptors", width=4)
    assert sorted(each for each in found if not each.startswith("/")) == ["anon_inode", *["pipe"] * 6]
    await asyncio.gather(*map(calls.end, others))


async def test_many_short_calls_cost_few_messages_and_keep_their_order(calls: Calls) -> None:
    await calls.value("jobs:add", 1)
    names = [calls.start("jobs:add", n, width=1) for n in range(500)]
    assert [(await calls.end(name)).result for name in names] == [str(n + 1).encode() for n in range(500)]
    assert calls.order[1:] == names
    assert calls.children() == 1
