"""NDJSON of any length: cut into segments, each repeated under its own key, in memory that does not grow."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from quvatlh.client import Fault, Rejected, Unavailable, Unknown
from quvatlh.client import segments as cutting
from quvatlh.client.segments import LineTooLong, segments
from tests.client.nodes import Behaviour, Time, client, drops, drops_after, node, problem

LINE = b'{"work":{"command":["true"]}}\n'
NDJSON = "application/x-ndjson"
LINES_MANY = 100_000
GROWTH_BYTES_MAX = 48 * 1024 * 1024
"""Of a process that sends 100 MB."""


def takes(*, refuse: int | None = None, unavailable: int | None = None, cut: int = 1000) -> Behaviour:
    """Answers cut by cut as a node does; `refuse` and `unavailable` are numbers of lines."""

    async def behave(_request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        total = body.count(b"\n") + (not body.endswith(b"\n"))
        lines = []
        for start in range(0, total, cut):
            end = min(start + cut, total)
            place: dict[str, Any] = {"from": start, "to": end}
            if refuse is not None and start <= refuse < end:
                errors = [{"path": f"lines[{refuse}].queue", "message": "is wrong"}]
                lines.append(place | {"problem": {"code": "invalid", "status": 400, "detail": "no", "errors": errors}})
            elif unavailable is not None and start <= unavailable < end:
                lines.append(place | {"problem": {"code": "no_master", "status": 503, "detail": "later"}})
            else:
                lines.append(place | {"ids": [f"t{n}" for n in range(start, end)], "index": 1, "existing": {"0": "id"}})
        text = "".join(json.dumps(line) + "\n" for line in lines)
        return web.Response(body=text.encode(), content_type=NDJSON)

    return behave


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "SEGMENT_LINES_MAX", 10)


@pytest.mark.usefixtures("small")
async def test_numbers_count_through_all_segments() -> None:
    async with node(takes(cut=4), takes(cut=4, refuse=5), takes(cut=4)) as only, client(only.url) as asker:
        cuts = [cut async for cut in asker.add_lines(io.BytesIO(LINE * 25).read)]
        assert [(cut.first, cut.end) for cut in cuts] == [
            (0, 4), (4, 8), (8, 10), (10, 14), (14, 18), (18, 20), (20, 24), (24, 25),
        ]  # fmt: skip
        assert [sorted(cut.existing) for cut in cuts[3:5]] == [[10], []]
        refused = cuts[4].problem
        assert isinstance(refused, Rejected)
        assert refused.errors == (Fault("lines[15].queue", "is wrong"),)
        assert len(set(only.keys)) == 3


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "failure",
    [drops(), drops_after(b'{"from":0,"to":4,"ids":[', NDJSON), takes(unavailable=3), problem(504, "unknown")],
)
async def test_a_segment_in_doubt_is_repeated_whole_under_its_own_key(failure: Behaviour) -> None:
    time = Time()
    async with node(takes(), failure, takes()) as only, client(only.url, time=time) as asker:
        cuts = [cut async for cut in asker.add_lines(io.BytesIO(LINE * 15).read, key="mine")]
        assert [(cut.first, cut.end, cut.problem) for cut in cuts] == [(0, 10, None), (10, 15, None)]
        assert only.keys == ["mine-0", "mine-1", "mine-1"]
        assert only.asked[1].body == only.asked[2].body == LINE * 5


async def test_cuts_that_were_answered_are_told_before_what_could_not_be_mended() -> None:
    time = Time()
    async with node(*[takes(unavailable=6, cut=4)] * 100) as only, client(only.url, time=time) as asker:
        cuts = asker.add_lines(io.BytesIO(LINE * 8).read)
        told = [await anext(cuts), await anext(cuts)]
        assert [(cut.first, cut.problem is None) for cut in told] == [(0, True), (4, False)]
        with pytest.raises(Unavailable, match="later"):
            await anext(cuts)


async def test_a_node_that_is_lost_for_good_leaves_it_unknown() -> None:
    time = Time()
    async with node(*[drops()] * 200) as only, client(only.url, time=time) as asker:
        with pytest.raises(Unknown):
            _ = [cut async for cut in asker.add_lines(io.BytesIO(LINE).read)]


async def test_an_empty_text_asks_nobody() -> None:
    async with node() as only, client(only.url) as asker:
        assert [cut async for cut in asker.add_lines(io.BytesIO(b"\n \n").read)] == []


async def test_a_line_that_no_node_takes_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "LINE_BYTES_MAX", 100)
    with pytest.raises(LineTooLong, match="line 3 is longer than 100 bytes"):
        _ = [each async for each in segments(io.BytesIO(LINE * 2 + b"x" * 102).read)]


async def test_what_reading_raises_is_raised() -> None:
    def read(_size: int) -> bytes:
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        _ = [each async for each in segments(read)]


@given(st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line), max_size=60), st.integers(1, 50))
def test_segments_are_the_lines_that_hold_something(lines: list[bytes], step: int) -> None:
    text = b"\n".join(lines)
    cutter = cutting._Cutter()
    found = [each for start in range(0, len(text), step) for each in cutter.feed(text[start : start + step])]
    found.append(cutter.finish())
    whole = [line for line in text.split(b"\n") if line.strip()]
    assert [line for line in b"".join(each.body for each in found).split(b"\n") if line] == whole
    assert sum(each.lines for each in found) == len(whole)


SENDER = """
import asyncio, resource, sys
from quvatlh.client import Client, Options
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
async def send(client, path):
    with open(path, "rb", buffering=0) as file:
        return sum([cut.end - cut.first async for cut in client.add_lines(file.read)])
async def main():
    async with Client(Options((sys.argv[1],))) as client:
        await send(client, sys.argv[2])
        before = peak()
        print(await send(client, sys.argv[3]), peak() - before)
asyncio.run(main())
"""


async def test_a_hundred_thousand_lines_need_no_more_memory_than_a_few(tmp_path: Path) -> None:
    long = json.dumps({"work": {"command": ["true"]}, "payload": "x" * 950}).encode() + b"\n"
    (tmp_path / "few").write_bytes(long * 10)
    with open(tmp_path / "many", "wb") as file:
        file.writelines([long * 1000] * (LINES_MANY // 1000))
    async with node(*[takes()] * 100) as only:
        sender = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SENDER, only.url, tmp_path / "few", tmp_path / "many", stdout=subprocess.PIPE
        )
        out, _ = await sender.communicate()
        only.asked.clear()
    lines, growth = map(int, out.split())
    assert lines == LINES_MANY
    assert growth < GROWTH_BYTES_MAX
