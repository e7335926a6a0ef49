"""A snapshot on its way: what arrives whole is a generation, and what does not is nothing."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from quvatlh.ports import STATE_FILE
from quvatlh.raft import snapshot
from quvatlh.raft.ballot import Ballot
from quvatlh.raft.journal import Journal, LogCorrupt
from quvatlh.raft.segment import Base
from quvatlh.raft.settings import Settings
from quvatlh.raft.snapshot import SnapshotFailed, Source
from tests.raft.net_parts import simulate
from tests.raft.nodes import Town, log_of, play
from tests.raft.parts import HOME, InlineLane, PoweredMachine, membership
from tests.raft.teeth import fails_under
from tests.sim.disk import DiskView, SimFile
from tests.sim.loop import SimLoop

SETTINGS = Settings(snapshot_chunk_bytes=100)
BASE = Base(77, 3, 5000, membership("a", "b"))
STATE = bytes(range(256)) * 4
GENERATION = f"{HOME}/gen-000002"


class Tube:
    """One end of a connection of kind snapshot."""

    def __init__(self) -> None:
        self.other: Tube = self
        self.arrived: asyncio.Queue[Any] = asyncio.Queue()
        self.tamper: Callable[[list[Any]], list[Any] | None] = lambda message: message
        """What becomes of a message on its way; None: it vanishes."""
        self.gone = False
        self.stuck = False
        self.sent: list[Any] = []

    def send(self, message: list[Any]) -> bool:
        if self.gone:
            return False
        self.sent.append(message)
        changed = self.tamper(message)
        if changed is not None:
            self.other.arrived.put_nowait(changed)
        return True

    async def drain(self) -> None:
        if self.stuck:
            await asyncio.Event().wait()

    async def receive(self) -> Any:
        return await self.arrived.get()

    def close(self, reason: str) -> None:
        self.gone = True


class Ends:
    """A sender with a copy of its state, and a receiver with an empty generation."""

    def __init__(self, state: bytes = STATE, seed: int = 2) -> None:
        self.machines = PoweredMachine(), PoweredMachine(seed)
        self.theirs, self.ours = (machine.view for machine in self.machines)
        for disk in (self.theirs, self.ours):
            disk.mkdir(HOME)
        file = self.theirs.create(f"{HOME}/copy")
        file.write(state)
        self.ours.mkdir(GENERATION)
        self.sender, self.receiver = Tube(), Tube()
        self.sender.other, self.receiver.other = self.receiver, self.sender

    def serve(self) -> Awaitable[None]:
        source = Source(f"{HOME}/copy", BASE)
        return snapshot.serve(self.sender, source, self.theirs, InlineLane(), SETTINGS)

    def fetch(self) -> Awaitable[Base]:
        return snapshot.fetch(self.receiver, GENERATION, self.ours, InlineLane(), SETTINGS)

    async def run(self) -> list[Any]:
        return list(await asyncio.gather(self.serve(), self.fetch(), return_exceptions=True))


@pytest.fixture
async def ends() -> Ends:
    return Ends()


def journal_in(disk: DiskView) -> Journal:
    ballot = Ballot.open(disk, HOME)
    return Journal.open(disk, f"{GENERATION}/log", InlineLane(), SETTINGS, ballot, applied_index=BASE.index)


# --- what arrives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 1024])
async def test_state_and_an_empty_log_behind_it_arrive_and_outlive_the_power(size: int) -> None:
    ends = Ends(STATE[:size])
    assert await ends.run() == [None, BASE]
    ends.ours.sync_dir(HOME)
    ends.ours.sync_dir("/")
    disk = ends.machines[1].power_fail()
    assert disk.read(f"{GENERATION}/{STATE_FILE}") == STATE[:size]
    journal = journal_in(disk)
    assert (journal.first_index, journal.last_index, journal.last_term) == (77, 77, 3)
    assert (journal.membership, journal.last_time_ms) == (BASE.membership, 5000)


@fails_under("snapshot-renamed-before-sync", raises=(FileNotFoundError, LogCorrupt))
async def test_all_of_it_is_on_the_disk_before_the_sender_is_told() -> None:
    for seed in range(10):
        ends = Ends(seed=seed)
        assert await ends.run() == [None, BASE]
        ends.ours.sync_dir(HOME)
        ends.ours.sync_dir("/")
        disk = ends.machines[1].power_fail()
        assert disk.read(f"{GENERATION}/{STATE_FILE}") == STATE
        assert journal_in(disk).last_index == BASE.index


async def test_it_comes_in_chunks_and_is_acknowledged_at_the_end(ends: Ends) -> None:
    await ends.run()
    kinds = [message[0] for message in ends.sender.sent]
    assert kinds == ["snapshot", *["data"] * 11, "end"]
    assert max(len(message[1]) for message in ends.sender.sent if message[0] == "data") == 100
    assert ends.receiver.sent == [["done"]]


# --- what does not ----------------------------------------------------------------------------------------------------


def flipped(message: list[Any]) -> list[Any]:
    if message[0] == "data":
        return ["data", bytes([message[1][0] ^ 1]) + message[1][1:]]
    return message


def short(message: list[Any]) -> list[Any]:
    return ["data", message[1][:-1]] if message[0] == "data" else message


def long(message: list[Any]) -> list[Any]:
    return ["data", message[1] + b"x"] if message[0] == "data" else message


def empty(message: list[Any]) -> list[Any]:
    return ["data", b""] if message[0] == "data" else message


def other_digest(message: list[Any]) -> list[Any]:
    return ["end", hashlib.blake2b(b"", digest_size=32).digest()] if message[0] == "end" else message


def early_end(message: list[Any]) -> list[Any]:
    return ["end", bytes(32)] if message[0] == "data" else message


def other_size(message: list[Any]) -> list[Any]:
    return [*message[:-1], message[-1] - 1] if message[0] == "snapshot" else message


def nonsense(message: list[Any]) -> list[Any]:
    return ["nonsense"] if message[0] == "data" else message


def no_manifest(message: list[Any]) -> list[Any]:
    return ["snapshot", "x"] if message[0] == "snapshot" else message


@pytest.mark.parametrize(
    "tamper", [flipped, short, long, empty, other_digest, early_end, other_size, nonsense, no_manifest]
)
async def test_what_is_not_what_manifest_and_digest_say_is_no_snapshot(
    ends: Ends, tamper: Callable[[list[Any]], list[Any]]
) -> None:
    ends.sender.tamper = tamper
    serving = asyncio.ensure_future(ends.serve())
    with pytest.raises(SnapshotFailed):
        await ends.fetch()
    assert (ends.receiver.sent, ends.ours.exists(f"{GENERATION}/log")) == ([], False)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_a_stream_that_is_cut_off_is_no_snapshot(ends: Ends) -> None:
    for messages in range(4):
        ends = Ends()
        ends.receiver.arrived.put_nowait(["snapshot", 1, 1, 1, b"", 1000])
        for _ in range(messages):
            ends.receiver.arrived.put_nowait(["data", bytes(100)])
        ends.receiver.arrived.put_nowait(None)
        with pytest.raises(SnapshotFailed):
            await ends.fetch()


async def test_a_sender_that_is_busy_says_so(ends: Ends) -> None:
    ends.receiver.arrived.put_nowait(["busy", "no snapshot can be had here now"])
    with pytest.raises(SnapshotFailed, match="no snapshot can be had here now"):
        await ends.fetch()


async def test_a_receiver_that_goes_away_ends_the_sending(ends: Ends) -> None:
    def hang_up(message: list[Any]) -> list[Any] | None:
        ends.sender.gone = True
        return None

    ends.sender.tamper = hang_up
    with pytest.raises(SnapshotFailed, match="went away"):
        await ends.serve()


def test_a_stream_that_stands_still_is_given_up_by_both_and_one_that_crawls_is_not() -> None:
    async def main(loop: SimLoop) -> None:
        ends = Ends()
        ends.sender.stuck = True
        outcomes = await ends.run()
        assert [type(outcome) for outcome in outcomes] == [TimeoutError, TimeoutError]
        assert SETTINGS.snapshot_stall_s <= loop.time() <= 2 * SETTINGS.snapshot_stall_s
        ends = Ends()

        async def slowly() -> None:
            await asyncio.sleep(SETTINGS.snapshot_stall_s * 0.9)

        ends.sender.drain = slowly  # type: ignore[method-assign]
        assert await ends.run() == [None, BASE]

    simulate(main)


def test_a_receiver_that_never_acknowledges_is_given_up() -> None:
    async def main(_loop: SimLoop) -> None:
        ends = Ends()
        ends.receiver.tamper = lambda _message: None
        outcomes = await ends.run()
        assert [type(outcome) for outcome in outcomes] == [TimeoutError, Base]

    simulate(main)


@pytest.mark.parametrize("kind", ["create", "write", "sync", "sync_dir"])
async def test_a_failing_disk_is_told_and_leaves_no_file_open(
    ends: Ends, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_files = watch_files(monkeypatch)
    ends.machines[1].disk.fail(kind)
    serving = asyncio.ensure_future(ends.serve())
    with pytest.raises(snapshot.FAILURES):
        await ends.fetch()
    assert {path for path in open_files if path.startswith(GENERATION)} == set()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_a_broken_stream_leaves_no_file_open(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is removed while it is open would keep its space."""
    open_files = watch_files(monkeypatch)
    ends.sender.tamper = flipped
    serving = asyncio.ensure_future(ends.serve())
    with pytest.raises(SnapshotFailed):
        await ends.fetch()
    assert open_files == set()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


def watch_files(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Paths of the files that are open for appending, from now on."""
    found: set[str] = set()
    real_init, real_close = SimFile.__init__, SimFile.close

    def init(self: SimFile, view: DiskView, path: str, node: Any) -> None:
        real_init(self, view, path, node)
        found.add(path)

    def close(self: SimFile) -> None:
        real_close(self)
        found.discard(self._path)

    monkeypatch.setattr(SimFile, "__init__", init)
    monkeypatch.setattr(SimFile, "close", close)
    return found


# --- in a cluster -----------------------------------------------------------------------------------------------------

SHORT_LOG = Settings(
    segment_bytes=2048,
    keep_bytes=2048,
    cache_bytes=512,
    checkpoint_bytes=3000,
    checkpoint_s=1.0,
    snapshot_chunk_bytes=300,
)


async def left_behind(town: Town) -> tuple[Any, Any]:
    """A master whose log begins after the end of another node's, which is down."""
    master = await town.founded()
    late = town.others(master)[0]
    late.crash(power=True)
    for number in range(60):
        await town.write(master, f"{number:03}" * 30)
    await town.until(lambda: log_of(master).log_span()[0] > 20)
    return master, late


def test_a_transfer_that_is_cut_off_is_begun_anew_and_ends_well() -> None:
    async def story(town: Town) -> None:
        master, late = await left_behind(town)
        late.start()
        for _ in range(3):
            await town.until(lambda: "snapshot goes out" in town.noted(master))
            town.story.notes.clear()
            town.net.cut(master.name, late.name)
        await town.all_hold("000" * 30, "059" * 30)
        assert "snapshot in force" in town.noted(late)

    play(story, settings=SHORT_LOG)


def test_a_receiver_that_dies_on_the_way_has_its_old_generation() -> None:
    async def story(town: Town) -> None:
        master, late = await left_behind(town)
        for operations in range(1, 40, 2):
            late.start()
            late.disk.crash_at_op(operations)
            await town.until(lambda: late.dead or "snapshot in force" in town.noted(late), within_s=5.0)
            late.disk.crash_at_op(0)
            if late.running:
                break
            late.disk.power_fail()
            late.images.power_fail(late.rng)
        if late.dead:
            late.start()
        await town.write(await town.master(), "after")
        await town.all_hold("000" * 30, "059" * 30, "after")
        assert master.running

    play(story, settings=SHORT_LOG)


def test_a_master_that_is_busy_with_snapshots_is_not_asked_without_a_pause() -> None:
    async def story(town: Town) -> None:
        master, late = await left_behind(town)
        generation = log_of(master)._generation
        assert generation is not None
        generation.copies = 2
        late.start()
        await town.until(lambda: "snapshot not received" in town.noted(late))
        began = town.loop.now_s
        await town.until(lambda: town.loop.now_s - began > 5.0)
        assert 5 <= town.noted(late).count("snapshot not received") <= 15
        generation.copies = 0
        await town.all_hold("059" * 30)

    play(story, settings=SHORT_LOG)


def test_a_master_without_room_for_a_copy_says_so_and_gives_one_when_it_has() -> None:
    async def story(town: Town) -> None:
        master, late = await left_behind(town)
        master.room = -1
        late.start()
        await town.until(lambda: "snapshot not received" in town.noted(late))
        assert "snapshot not sent" in town.noted(master)
        assert "snapshot goes out" not in town.noted(master)
        master.room = 1 << 40
        await town.all_hold("059" * 30)
        assert master.running

    play(story, settings=SHORT_LOG)


def test_a_copy_for_another_node_that_fails_is_begun_anew() -> None:
    async def story(town: Town) -> None:
        master, late = await left_behind(town)
        master.disk.fail("write", within="copy-", times=2)
        late.start()
        await town.all_hold("059" * 30)
        assert town.noted(master).count("snapshot not sent") == 2
        assert master.running

    play(story, settings=SHORT_LOG)


def test_a_receiver_whose_disk_fails_leaves_nothing_of_it() -> None:
    async def story(town: Town) -> None:
        _, late = await left_behind(town)
        late.disk.fail("write", within="gen-000002/state")
        late.start()
        await town.until(lambda: "snapshot not received" in town.noted(late))
        assert "gen-000002" not in late.disk.attach(late.process).listdir("/data")
        await town.all_hold("059" * 30)

    play(story, settings=SHORT_LOG)


def test_a_node_whose_state_is_being_replaced_never_seems_empty() -> None:
    """An empty node that met it then could found another cluster with it."""

    async def story(town: Town) -> None:
        _, late = await left_behind(town)
        late.start()
        await town.until(lambda: late.log is not None and late.log.membership is not None)
        log = log_of(late)
        seen = []
        while "snapshot in force" not in town.noted(late):
            seen.append((log._describe()["cluster"], bool(log._describe()["membership"])))
            await asyncio.sleep(0.00005)
        assert set(seen) == {(seen[0][0], True)}
        assert seen[0][0] is not None

    play(story, settings=SHORT_LOG)
