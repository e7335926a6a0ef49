"""Outputs: bounded on disk and in memory, clean in the record, followed while they grow, removed in time."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import sys
from pathlib import Path

import pytest

from quvatlh.core.limits import OUTPUT_SHORT_BYTES_MAX
from quvatlh.ports import OutputChunk
from quvatlh.runner import outputs
from quvatlh.runner.capture import Bell
from quvatlh.runner.outputs import StreamWriter
from quvatlh.runner.settings import CHUNK_BYTES, OUTPUT_BYTES_MIN, TAIL_BYTES
from quvatlh.runner.tail import Tail, clean, share
from quvatlh.service import tails
from tests.runner.bed import Bed


async def followed(bed: Bed, name: str, stdout: int = 0, stderr: int = 0) -> list[OutputChunk]:
    return [chunk async for chunk in bed.runner.follow(name, stdout, stderr)]


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


async def test_a_flood_is_bounded_on_disk_and_in_memory(bed: Bed) -> None:
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    end = await bed.run("head -c 50000000 /dev/zero | tr '\\0' x; echo; echo end")
    assert (end.error, end.stdout_bytes) == (None, 50_000_005)
    assert end.stdout_tail == "x" * (TAIL_BYTES - 5) + "\nend\n"
    assert size_of(bed.outputs) <= OUTPUT_BYTES_MIN
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 16 * 1024


async def test_of_a_flood_the_beginning_and_the_end_are_kept_and_the_gap_is_seen(bed: Bed) -> None:
    name = bed.start("seq 1000000")
    end = await bed.has_finished(name)
    whole = "".join(f"{n}\n" for n in range(1, 1_000_001)).encode()
    chunks = await followed(bed, name)
    assert all(whole[c.offset : c.offset + len(c.data)] == c.data for c in chunks)
    jumps = [b.offset - a.offset - len(a.data) for a, b in itertools.pairwise(chunks)]
    assert [jump > 0 for jump in jumps].count(True) == 1
    assert chunks[0].offset == 0
    assert chunks[-1].offset + len(chunks[-1].data) == end.stdout_bytes == len(whole)
    kept = sum(len(c.data) for c in chunks)
    assert OUTPUT_BYTES_MIN * 3 // 4 <= kept <= OUTPUT_BYTES_MIN


async def test_a_line_of_megabytes_is_a_line(bed: Bed) -> None:
    end = await bed.run(f"{sys.executable} -c \"print('ä' * 3000000)\"")
    assert end.stdout_bytes == 6_000_001
    assert end.stdout_tail == "ä" * 2047 + "\n"


async def test_binary_output_is_kept_as_it_is_and_clean_in_the_record(bed: Bed) -> None:
    name = bed.start(f'{sys.executable} -c "import sys; sys.stdout.buffer.write(bytes(range(256)) * 16)"')
    end = await bed.has_finished(name)
    assert b"".join([c.data for c in await followed(bed, name)]) == bytes(range(256)) * 16
    assert len(end.stdout_tail.encode()) <= TAIL_BYTES
    assert "\x00" not in end.stdout_tail


@pytest.mark.parametrize("size", [OUTPUT_SHORT_BYTES_MAX, OUTPUT_SHORT_BYTES_MAX + 1, TAIL_BYTES // 2])
async def test_what_has_no_file_has_room_in_the_record(bed: Bed, size: int) -> None:
    name = bed.start(f"printf %{size}s x; printf %{size}s y >&2")
    recorded = tails.unpack(tails.pack(await bed.has_finished(name)))
    for stream in ("stdout", "stderr"):
        has_file = (bed.outputs / name / f"{stream}.0").exists()
        assert has_file or recorded.is_whole(stream)


async def test_follow_gives_both_streams_as_they_come_until_the_end(bed: Bed) -> None:
    name = bed.start("echo one; echo two >&2; sleep 0.05; echo three; sleep 0.05; echo four >&2")
    chunks = await asyncio.wait_for(followed(bed, name), 20)
    by_stream = {s: b"".join(c.data for c in chunks if c.stream == s) for s in ("stdout", "stderr")}
    assert by_stream == {"stdout": b"one\nthree\n", "stderr": b"two\nfour\n"}


@pytest.mark.parametrize("work", ["echo hello", "echo hello; sleep 0.05"])
async def test_followers_of_a_short_and_of_a_longer_action_both_see_it_all(bed: Bed, work: str) -> None:
    name = bed.start(work)
    several = await asyncio.gather(*(followed(bed, name) for _ in range(3)))
    assert [b"".join(c.data for c in chunks) for chunks in several] == [b"hello\n"] * 3


async def test_follow_begins_where_it_is_told(bed: Bed) -> None:
    name = bed.start("echo 0123456789; echo abcdef >&2; sleep 0.05")
    await bed.has_finished(name)
    assert await followed(bed, name, 4, 3) == [
        OutputChunk("stdout", 4, b"456789\n"),
        OutputChunk("stderr", 3, b"def\n"),
    ]
    assert await followed(bed, name, 11, 100) == []


async def test_a_short_output_is_in_the_record_alone(bed: Bed) -> None:
    end = await bed.run({"command": ["echo", "hello"]})
    assert len(end.stdout_tail.encode()) == end.stdout_bytes == 6


async def test_follow_of_nobody_ends_at_once(bed: Bed) -> None:
    assert await followed(bed, "unknown") == []


async def test_a_disk_that_takes_no_output_is_told_and_the_action_goes_on(bed: Bed) -> None:
    bed.outputs.rmdir()
    bed.outputs.write_text("in the way")
    end = await bed.run("echo hello; sleep 0.05; echo again")
    assert (end.error, end.stdout_tail) == (None, "hello\nagain\n")
    assert end.output_error == "stdout: Not a directory"


async def test_streams_that_a_command_closes_are_no_trouble(bed: Bed) -> None:
    end = await bed.run("exec >&- 2>&- <&-; sleep 0.05; exit 4")
    assert (end.exit_code, end.stdout_bytes, end.stderr_bytes) == (4, 0, 0)


async def test_pruning_removes_what_nobody_lists_but_nothing_of_the_last_minute(bed: Bed) -> None:
    listed, over, young = (bed.start("head -c 3000 /dev/zero; sleep 0.02") for _ in range(3))
    for name in (listed, over, young):
        await bed.has_finished(name)
    for name in (listed, over):
        os.utime(bed.outputs / name, (1_000, 1_000))
    assert outputs.prune(str(bed.outputs), {listed}) == 1
    assert sorted(os.listdir(bed.outputs)) == sorted([listed, young])


@pytest.mark.parametrize("size", [1, 1000, CHUNK_BYTES])
def test_files_hold_the_head_and_a_newest_part_whatever_the_writes(tmp_path: Path, size: int) -> None:
    cap, total = 1_000_000, 3_000_000 if size > 1 else 900_000
    whole = os.urandom(total)
    writer = StreamWriter(str(tmp_path / "a"), "stdout", cap)
    for at in range(0, total, size):
        writer.write(whole[at : at + size])
    writer.close()
    assert size_of(tmp_path) <= cap
    at, found = 0, []
    while (read := outputs.read(str(tmp_path / "a"), "stdout", at))[1]:
        found.append(read)
        at = read[0] + len(read[1])
    assert at == total
    assert all(whole[o : o + len(d)] == d for o, d in found)


def test_a_tail_never_splits_a_character() -> None:
    for shift in range(4):
        tail = Tail()
        tail.add(("x" * shift + "€🙂" * 2000).encode())
        assert set(tail.text()) <= {"€", "🙂"}
        assert len(tail.text().encode()) > TAIL_BYTES - 4


def test_what_is_no_text_becomes_replacement_characters() -> None:
    assert (
        clean(b"\x80\x80a\xff\x00", cut=False)
        == "\N{REPLACEMENT CHARACTER}" * 2 + "a" + "\N{REPLACEMENT CHARACTER}" * 2
    )
    assert clean(b"\x80\x80a\xff", cut=True) == "a\N{REPLACEMENT CHARACTER}"


def test_both_tails_share_what_a_record_holds() -> None:
    long = "ö" * TAIL_BYTES
    assert [len(t.encode()) for t in share(long, long)] == [TAIL_BYTES // 2, TAIL_BYTES // 2]
    assert [len(t.encode()) for t in share(long, "")] == [TAIL_BYTES, 0]
    assert [len(t.encode()) for t in share("12", long)] == [2, TAIL_BYTES - 2]


def test_nothing_is_read_at_an_offset_that_no_file_system_can_seek_to(tmp_path: Path) -> None:
    (tmp_path / "stdout.0").write_bytes(b"hello")
    assert outputs.read(str(tmp_path), "stdout", 2**62) == (2**62, b"")
    assert outputs.read(str(tmp_path), "stdout", 5) == (5, b"")
    assert outputs.read(str(tmp_path), "stdout", 4) == (4, b"o")


async def test_who_gave_up_waiting_for_more_is_forgotten_though_nothing_more_comes() -> None:
    bell = Bell()
    last = bell.wait()
    for _ in range(9):
        last.cancel()
        last = bell.wait()
    assert bell._waiters == [last]
    bell.ring()
    await last
