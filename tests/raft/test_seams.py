"""The private parts of pysyncobj that seams.py stands on are there, and what is overridden is really called.

Fails when another version is installed, before anything subtle can.
"""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pysyncobj.pickle
import pysyncobj.syncobj as engine_module
import pytest
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.transport import Transport

import quvatlh.raft
from quvatlh.raft import seams
from quvatlh.raft.engine import Engine
from quvatlh.raft.seams import PINNED_VERSION, Seams
from tests.raft.nodes import SOON_S, Town, log_of, play
from tests.raft.parts import turns
from tests.raft.rig import bench, cluster, rows

PACKAGE = Path(inspect.getfile(quvatlh.raft)).parent
SOURCE = Path(inspect.getfile(seams)).read_text()
MANGLED = "_SyncObj__"


def private_names() -> set[str]:
    """All of pysyncobj's private names that the package uses, wherever it does."""
    found = set()
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node, "attr", None) or getattr(node, "name", None)
            if isinstance(name, str) and name.startswith(MANGLED):
                found.add(name)
    return found


def overridden() -> list[str]:
    return [name for name in vars(Seams) if name.startswith(MANGLED)]


def test_the_installed_version_is_the_pinned_one() -> None:
    assert importlib.metadata.version("pysyncobj") == PINNED_VERSION == "0.3.17"


def test_only_seams_uses_private_names() -> None:
    elsewhere = [path.name for path in PACKAGE.glob("*.py") if MANGLED in path.read_text() and path.name != "seams.py"]
    assert elsewhere == []


async def test_every_private_name_exists() -> None:
    """As a method of the class, or as an attribute that its constructor sets."""
    node = await bench()
    source = inspect.getsource(SyncObj)
    for name in private_names():
        own = name.removeprefix(MANGLED)
        assert hasattr(SyncObj, name) or f"self.__{own} = " in source, name
        assert hasattr(node.engine, name), name
    assert len(private_names()) > 20


@pytest.mark.parametrize("name", overridden())
def test_every_override_overrides_something_with_the_same_arguments(name: str) -> None:
    theirs, ours = inspect.signature(getattr(SyncObj, name)), inspect.signature(getattr(Seams, name))
    assert len(ours.parameters) == len(theirs.parameters)


@pytest.mark.parametrize("name", ["transferLeadership", "doTick"])
def test_every_method_that_is_called_exists(name: str) -> None:
    assert callable(getattr(SyncObj, name))


def calls_of(engine: Engine, name: str) -> list[object]:
    """Watch one method of this engine."""
    seen: list[object] = []
    real = getattr(engine, name)

    def watch(*args: Any, **kwargs: Any) -> object:
        seen.append(args)
        return real(*args, **kwargs)

    setattr(engine, name, watch)
    return seen


async def test_every_override_is_called_when_an_engine_is_at_work() -> None:
    node = await bench()
    asleep = {"_SyncObj__loadDumpFile", "_SyncObj__doApplyCommand"}
    calls = {name: calls_of(node.engine, name) for name in overridden()}
    node.append("b", 1, (0, 0), *rows(1, 3), commit=2)
    await node.tick()
    await node.lead()
    node.propose()
    assert {name for name, seen in calls.items() if not seen} == asleep


async def test_what_must_never_run_says_so() -> None:
    node = await bench()
    with pytest.raises(AssertionError, match="snapshot branch"):
        node.engine._SyncObj__loadDumpFile(True)
    with pytest.raises(AssertionError, match="applied an entry itself"):
        node.engine._SyncObj__doApplyCommand(b"x")


def test_importing_the_seams_replaces_the_modules_names() -> None:
    assert engine_module.PIPE_NOTIFIER_ENABLED is False
    assert engine_module.monotonicTime.__self__ is seams._here
    assert engine_module.random is seams._here
    journal = object()
    assert engine_module.createJournal(journal) is journal


def test_pysyncobj_looks_for_these_names_in_its_module() -> None:
    """An import of its own inside a function would pass by what was replaced."""
    source = inspect.getsource(engine_module)
    for name in ("createJournal(", "monotonicTime()", "random.random()", "PIPE_NOTIFIER_ENABLED"):
        assert name in source
    names = set()
    for part in ast.walk(ast.parse(source)):
        if isinstance(part, ast.FunctionDef):
            names |= {alias.name for inner in ast.walk(part) if isinstance(inner, ast.Import) for alias in inner.names}
    assert not names & {"random", "time"}


def test_the_clock_of_pysyncobj_is_used_nowhere_else() -> None:
    source = inspect.getsource(SyncObj)
    asked = [line.strip() for line in source.splitlines() if "time.time()" in line or "time.monotonic" in line]
    assert asked == []


async def test_time_and_chance_are_those_of_the_engine_that_runs() -> None:
    one, other = await bench("a"), await bench("b")
    one.clock.advance(1000)
    one.engine.look()
    assert engine_module.monotonicTime() == one.clock.boot()
    other.engine.look()
    assert engine_module.monotonicTime() == other.clock.boot()
    drawn: list[float] = []
    with patch.object(other.engine, "_entropy", _Counting(drawn)):
        other.engine.random_timeout()
    assert drawn == [0.25]


class _Counting:
    def __init__(self, drawn: list[float]) -> None:
        self.drawn = drawn

    def random(self) -> float:
        self.drawn.append(0.25)
        return 0.25


async def test_an_engine_starts_no_thread_opens_no_pipe_and_never_sleeps() -> None:
    threads, files = threading.enumerate(), os.listdir("/proc/self/fd")
    with patch("time.sleep", side_effect=AssertionError("slept")):
        node = await bench(membership=cluster("a"))
        for _ in range(10):
            await node.tick(0.1)
    assert node.engine.acts()
    assert (threading.enumerate(), len(os.listdir("/proc/self/fd"))) == (threads, len(files))
    assert node.engine._SyncObj__thread is None


async def test_the_configuration_is_the_one_the_package_relies_on() -> None:
    node = await bench()
    conf: SyncObjConf = node.engine.conf
    found = {
        name: getattr(conf, name)
        for name in (
            "autoTick",
            "appendEntriesUseBatch",
            "commandsWaitLeader",
            "dynamicMembershipChange",
            "fullDumpFile",
            "journalFile",
        )
    }
    assert found == {
        "autoTick": False,
        "appendEntriesUseBatch": False,
        "commandsWaitLeader": False,
        "dynamicMembershipChange": False,
        "fullDumpFile": None,
        "journalFile": node.journal,
    }


async def test_two_engines_in_one_process_do_not_share_anything() -> None:
    one, other = await bench("a"), await bench("b")
    one.append("b", 3, (0, 0), *rows(1, 3, term=3))
    await turns()
    assert (one.engine.term(), other.engine.term(), other.held) == (3, 0, [])


# --- no pickles -------------------------------------------------------------------------------------------------------


def test_nothing_in_the_package_imports_a_pickle() -> None:
    for path in PACKAGE.parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                assert not {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle"} & {
                    part for name in names for part in name.split(".")
                }, path


def test_a_cluster_lives_without_a_single_pickle() -> None:
    """Founding, elections, writes, membership, a restart and a transfer, with pysyncobj's own pickles forbidden."""

    async def story(town: Town) -> None:
        master = await town.founded()
        await town.write(master, "x")
        await town.at(master, lambda log: log.transfer(deadline=SOON_S))
        following = await town.master(other_than=master)
        gone = log_of(master).node_id
        await town.at(following, lambda log: log.remove_member(gone, deadline=SOON_S))
        following.crash(power=True)
        following.start()
        await town.write(await town.master(), "y")

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a pickle")

    names: list[tuple[Any, str]] = [(pickle, "loads"), (pickle, "dumps"), (pickle, "load"), (pickle, "dump")]
    names += [(pysyncobj.pickle, name) for name in ("loads", "dumps")]
    stack: list[Callable[[], None]] = []
    try:
        for module, name in names:
            patcher = patch.object(module, name, forbidden)
            patcher.start()
            stack.append(patcher.stop)
        play(story)
    finally:
        for stop in stack:
            stop()


class _Exploding:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return _explode, ()


def _explode() -> None:
    raise AssertionError("a pickle was loaded")


@pytest.mark.parametrize("prefix", [b"", b"\x00", b"\x01", b"\x02", b"\x03", b"\x11"])
async def test_a_pickle_in_the_place_of_a_command_is_never_loaded(prefix: bytes) -> None:
    """The first byte is what pysyncobj would call a command's kind: regular, membership, version."""
    node = await bench()
    command = prefix + pickle.dumps(_Exploding())
    for message in ([command, 1, 1], [pickle.dumps([command, 1, 1])]):
        with pytest.raises(Exception, match="malformed"):
            node.hear("b", "append", 1, 0.0, 0, 0, 1, [message])
    await node.tick()
    assert node.held == []


def test_the_transport_is_ours() -> None:
    assert issubclass(seams._Outbox, Transport)
    assert SOURCE.count("pickle") <= 2
