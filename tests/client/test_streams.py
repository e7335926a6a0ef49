"""Answers that go on, over nodes that are lost in the middle; and the parser of events by itself."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quvatlh.client import Broken, Event, Rejected, Unavailable
from quvatlh.client.sse import Frame, Parser
from tests.client.nodes import Behaviour, answers, client, drops_after, node, problem, sends

SSE = "text/event-stream"


def event(number: int, kind: str = "task.added") -> bytes:
    return f'id: {number}-0\nevent: {kind}\ndata: {{"id":"t{number}"}}\n\n'.encode()


async def test_events_go_on_after_the_last_one_that_was_seen() -> None:
    first = drops_after(b":\n\n" + event(8) + event(9)[:-5], SSE)
    async with node(answers({"index": 7}), first) as one, node(sends(event(9), SSE)) as other:
        async with client(one.url, other.url) as asker:
            happened = asker.events(queue="mail")
            seen = [await anext(happened), await anext(happened)]
            await happened.aclose()  # type: ignore[attr-defined]
        asked = [*one.asked[1:], *other.asked]
    assert seen == [Event("8-0", "task.added", {"id": "t8"}), Event("9-0", "task.added", {"id": "t9"})]
    assert [each.headers["Last-Event-ID"] for each in asked] == ["7", "8-0"]
    assert {each.path for each in asked} == {"/v1/stream?queue=mail"}


async def test_a_stream_that_a_stopping_node_ended_goes_on_elsewhere() -> None:
    farewell = b'event: stream.ended\ndata: {"reason":"stopping","last":"8-0"}\n\n'
    async with node(sends(event(8) + farewell, SSE), sends(event(9), SSE)) as only, client(only.url) as asker:
        happened = asker.events("7")
        assert [(await anext(happened)).id, (await anext(happened)).id] == ["8-0", "9-0"]
        await happened.aclose()  # type: ignore[attr-defined]


async def test_what_is_no_longer_kept_is_said() -> None:
    ended = b'event: stream.ended\ndata: {"reason":"gone","last":null}\n\n'
    for behaviour in (problem(410, "gone"), sends(ended, SSE)):
        async with node(behaviour) as only, client(only.url) as asker:
            with pytest.raises(Rejected) as caught:
                await anext(asker.events("3"))
        assert caught.value.code == "gone"


async def test_a_log_that_broke_off_goes_on_at_its_next_byte_of_the_same_action() -> None:
    first = drops_after(b"one tw", Quvatlh_Action="a7", Quvatlh_Offset="0")
    rest = sends(b"o three", Quvatlh_Action="a7", Quvatlh_Offset="6", Quvatlh_Bytes="13")
    async with node(first, rest) as only, client(only.url) as asker:
        log = asker.log("t", follow=True)
        assert b"".join([chunk async for chunk in log]) == b"one two three"
    assert [each.path for each in only.asked] == [
        "/v1/tasks/t/log?stream=stdout&follow=1",
        "/v1/tasks/t/log?stream=stdout&follow=1&action=a7&offset=6",
    ]


async def test_a_log_says_whose_it_is_and_where_it_begins() -> None:
    ended = sends(b"end", Quvatlh_Action="a7", Quvatlh_Offset="900", Quvatlh_Bytes="903")
    async with node(ended) as only, client(only.url) as asker:
        log = asker.log("t", offset=5)
        assert b"".join([chunk async for chunk in log]) == b"end"
    assert (log.action, log.begins, log.tail_only) == ("a7", 900, False)
    assert only.asked[0].path == "/v1/tasks/t/log?stream=stdout&offset=5"


async def test_of_a_log_whose_worker_is_gone_only_the_tail_is_there_and_says_so() -> None:
    async with node(sends(b"tail", Quvatlh_Log="tail")) as only, client(only.url) as asker:
        log = asker.log("t", "stderr")
        assert b"".join([chunk async for chunk in log]) == b"tail"
        assert (log.tail_only, log.is_worker_there) == (True, False)


async def test_a_worker_that_keeps_no_more_is_not_called_gone() -> None:
    async with node(sends(b"end", Quvatlh_Log="end")) as only, client(only.url) as asker:
        log = asker.log("t")
        assert b"".join([chunk async for chunk in log]) == b"end"
        assert (log.tail_only, log.is_worker_there) == (True, True)


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"Quvatlh_Log": "tail", "Quvatlh_Offset": "8"}, "worker was lost"),
        ({"Quvatlh_Offset": "5"}, "it was cut short"),
    ],
)
async def test_a_log_does_not_go_on_where_what_comes_next_cannot_be_had(headers: dict[str, str], words: str) -> None:
    async with node(drops_after(b"one tw"), sends(b"three", **headers)) as only, client(only.url) as asker:
        with pytest.raises(Unavailable, match=words):
            _ = [chunk async for chunk in asker.log("t")]


@pytest.mark.parametrize("first", [sends, drops_after])
async def test_a_log_goes_on_behind_a_gap_and_counts_what_was_written(first: Callable[..., Behaviour]) -> None:
    begin = first(b"one", Quvatlh_Action="a7", Quvatlh_Offset="0", Quvatlh_Bytes="20")
    more = [sends(b"ten", Quvatlh_Action="a7", Quvatlh_Offset=at, Quvatlh_Bytes="20") for at in ("10", "13", "17")]
    async with node(begin, *more) as only, client(only.url) as asker:
        log = asker.log("t")
        assert [chunk async for chunk in log] == [b"one", b"ten", b"ten", b"ten"]
        assert log.gaps == [(3, 10), (16, 17)]
    asked = [each.path.rpartition("offset=")[2] for each in only.asked[1:]]
    assert asked == ["3", "13", "16"]


@pytest.mark.parametrize("follow", [False, True])
async def test_while_an_action_writes_its_log_is_asked_on_until_nothing_is_left(follow: bool) -> None:
    script = [
        sends(data, Quvatlh_Action="a7", Quvatlh_Offset=at) for data, at in ((b"one", "0"), (b"ten", "10"), (b"", "13"))
    ]
    async with node(*script) as only, client(only.url) as asker:
        log = asker.log("t", follow=follow)
        assert [chunk async for chunk in log] == [b"one", b"ten"]
        assert log.gaps == [(3, 10)]


async def test_where_the_end_alone_is_kept_behind_a_gap_a_log_ends_with_it() -> None:
    begin = sends(b"one", Quvatlh_Action="a7", Quvatlh_Offset="0", Quvatlh_Bytes="20")
    tail = sends(b"end", Quvatlh_Action="a7", Quvatlh_Offset="17", Quvatlh_Bytes="20", Quvatlh_Log="end")
    async with node(begin, tail) as only, client(only.url) as asker:
        log = asker.log("t")
        assert [chunk async for chunk in log] == [b"one", b"end"]
        assert (log.gaps, log.tail_only) == ([(3, 17)], False)


async def test_an_offset_that_is_none_is_no_answer_of_ours() -> None:
    async with node(sends(b"x", Quvatlh_Offset="-1")) as only, client(only.url) as asker:
        with pytest.raises(Broken, match="is this the right address"):
            _ = [chunk async for chunk in asker.log("t")]


async def test_a_backup_that_broke_off_is_fetched_anew_and_the_file_is_whole(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    async with node(drops_after(b"half"), sends(b"all of it")) as only, client(only.url) as asker:
        size = await asker.backup().to(str(tmp_path / "b"), lambda *each: seen.append(each))
    assert (size, (tmp_path / "b").read_bytes(), seen) == (9, b"all of it", [(4, None), (9, 9)])
    assert list(tmp_path.iterdir()) == [tmp_path / "b"]


async def test_a_backup_that_never_comes_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"older")
    async with node(*[drops_after(b"half")] * 6) as only, client(only.url) as asker:
        with pytest.raises(Unavailable, match="broke off 6 times"):
            await asker.backup().to(str(tmp_path / "b"))
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("b", b"older")]


TEXT = (
    b': hello\nid: 1-0\nevent: a.b\ndata: {"x":\ndata: 1}\n\ndata: two\n\nevent: none\n\nid: 2-0\r\ndata:three\r\n\r\n'
)
FRAMES = [Frame("1-0", "a.b", '{"x":\n1}'), Frame("1-0", "message", "two"), Frame("2-0", "message", "three")]


@given(st.sets(st.integers(0, len(TEXT))))
def test_events_do_not_depend_on_where_the_network_cuts(places: set[int]) -> None:
    cuts = [0, *sorted(places), len(TEXT)]
    parser = Parser()
    frames = [frame for start, end in itertools.pairwise(cuts) for frame in parser.feed(TEXT[start:end])]
    assert frames == FRAMES


async def test_a_backup_is_read_by_nobody_else(tmp_path: Path) -> None:
    (tmp_path / "b.partial").touch(0o644)
    before = os.umask(0o022)
    try:
        async with node(sends(b"all of it")) as only, client(only.url) as asker:
            await asker.backup().to(str(tmp_path / "b"))
    finally:
        os.umask(before)
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o600
