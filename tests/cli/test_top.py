"""`quvatlh top` without a terminal: keys to states, states to frames, readings of a node that comes and goes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from click.testing import CliRunner

from quvatlh.cli.main import main
from quvatlh.cli.topframe import frame
from quvatlh.cli.topkeys import Decoder, State, place, press, tasks_query, tasks_shown
from quvatlh.cli.toplines import Column, Row, Span, ansi, bars, cut, fit, line_width, table, text_of, width, wrapped
from quvatlh.cli.topoverview import health
from quvatlh.cli.topread import Reader
from quvatlh.client import Rejected, Unavailable
from tests.cli import frames

KEYS = ["a", "b", "c"]


def pressed(keys: str, state: State | None = None, rows: list[str] = KEYS) -> State:
    state = state or State()
    for key in keys.split():
        state = press(state, key, rows)
    return state


# --- keys ---


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"q2", ["q", "2"]),
        (b"\x1b[A\x1b[B\x1bOA", ["up", "down", "up"]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[F", ["page_up", "page_down", "home", "end"]),
        (b"\r\x7f\x15\x0c\x04", ["enter", "backspace", "erase", "redraw", "leave"]),
        (b"\x1b[1;5Cj\x1b[200~k", ["j", "k"]),
        ("ü日".encode(), ["ü", "日"]),
        (b"\x1bj", ["esc", "j"]),
        (b"\x00\x01\x02", []),
    ],
)
def test_bytes_become_keys_however_they_are_cut(typed: bytes, keys: list[str]) -> None:
    assert Decoder().feed(typed) == keys
    one_by_one = Decoder()
    assert [key for i in range(len(typed)) for key in one_by_one.feed(typed[i : i + 1])] == keys


def test_a_lone_escape_is_a_key_once_nothing_follows() -> None:
    decoder = Decoder()
    assert decoder.feed(b"\x1b") == []
    assert (decoder.waits, decoder.flush(), decoder.waits) == (True, ["esc"], False)
    assert decoder.feed(b"\x1b") + decoder.feed(b"[A") == ["up"]


def test_views_are_reached_by_number_and_letter() -> None:
    assert [pressed(key).view for key in "1234outw"] == ["overview", "queues", "tasks", "workers"] * 2


def test_the_marked_row_stays_marked_when_rows_come_and_go() -> None:
    state = pressed("2 j j")
    assert place(state, KEYS) == 2
    assert place(state, ["new", *KEYS]) == 3
    assert place(state, ["a"]) == 0
    assert place(state, []) == 0
    assert place(pressed("k k k", state), KEYS) == 0
    assert place(pressed("G", state), KEYS) == 2


def test_enter_opens_and_escape_goes_back_step_by_step() -> None:
    state = pressed("t j enter")
    assert state.opened == ("task", "b")
    assert pressed("j j k", state).scroll == 1
    state = pressed("esc", state)
    assert (state.opened, state.view, state.leaving) == (None, "tasks", False)
    assert pressed("esc", state).view == "overview"
    assert pressed("u enter").opened == ("queue", "a")
    assert pressed("u enter", rows=[]).opened is None


def test_a_worker_opens_what_it_runs() -> None:
    state = pressed("w j enter")
    assert (state.view, state.filter) == ("tasks", "worker:b")
    assert tasks_query(state) == {"state": "claimed,running", "worker": "b", "sort": "-created_at"}


def test_q_closes_what_is_open_and_else_leaves() -> None:
    state = pressed("t enter q")
    assert not state.leaving
    assert pressed("q", state).leaving
    assert pressed("leave", pressed("/")).leaving


def test_a_filter_is_typed_kept_and_taken_back() -> None:
    state = pressed("/ q u backspace q 2 enter")
    assert (state.view, state.filter, state.typing) == ("tasks", "qq2", None)
    assert pressed("/ x esc", state).filter == "qq2"
    assert pressed("/ erase enter", state).filter == ""
    assert pressed("esc", state).filter == ""


def test_a_filter_is_fields_and_text() -> None:
    state = State(view="tasks", filter="queue:emails two state:failed words http://x")
    assert tasks_query(state) == {
        "queue": "emails",
        "state": "failed",
        "q": "two words http://x",
        "sort": "-created_at",
    }
    assert tasks_query(State(sorts={"tasks": "failed"})) == {"state": "failed", "sort": "-finished_at"}
    assert tasks_shown(State(sorts={"tasks": "failed"}, filter="queue:a")) == "failed"
    assert tasks_shown(State(sorts={"tasks": "failed"}, filter="state:running")) == "as filtered"
    assert tasks_shown(State(filter="state:running")) == "newest"
    assert tasks_query(State(sorts={"tasks": "waiting"})) == {"state": "pending", "sort": "created_at"}


def test_sorting_goes_round() -> None:
    assert [pressed("t" + " s" * n).sort for n in range(5)] == ["newest", "running", "waiting", "failed", "newest"]


def test_pausing_is_no_other_question() -> None:
    assert pressed("p").paused
    assert not pressed("p p").paused
    assert pressed("p").question == State().question


# --- lines ---


def test_widths_are_columns_not_characters() -> None:
    assert [width(text) for text in ("abc", "日本", "e\u0301", "")] == [3, 4, 1, 0]
    assert cut("日本語", 5) == "日本…"
    assert cut("日本語", 4) == "日…"
    assert cut("abc", 0) == ""
    assert fit("日本語", 4) == "日… "
    assert fit("7", 3, right=True) == "  7"
    assert wrapped("日本語ab", 4) == ["日本", "語ab"]


def test_bars_are_as_high_as_their_share_with_gaps_where_nothing_is_known() -> None:
    assert bars([0, 1, None, 8], 6) == "  ▁▂ █"
    assert bars([0, 0], 2) == "··"
    assert bars([1, 2, 8], 2) == "▃█"
    assert bars([], 0) == ""


def test_colours_are_left_out_and_shapes_stay() -> None:
    line = [Span("a", "bold red"), Span("b")]
    assert ansi(line, colours=True) == "\x1b[1;31ma\x1b[0mb"
    assert ansi(line, colours=False) == "\x1b[1ma\x1b[0mb"


def test_what_a_producer_wrote_moves_no_cursor() -> None:
    line = table([Column("TASK", grows=True)], [Row([frames.EVIL])], 60)[1]
    assert ansi(line, colours=True).isprintable()
    for about, state, size in frames.FRAMES.values():
        assert all(text_of(each).isprintable() for each in frame(about, state, size, frames.NOW_MS))


# --- frames ---


@pytest.mark.parametrize("name", frames.FRAMES)
def test_frames_are_as_they_were_looked_at(name: str) -> None:
    assert frames.drawn(name) == (frames.HERE / f"{name}.txt").read_text()


def test_what_no_worker_may_have_is_a_notice_and_leaves_the_cluster_well() -> None:
    lacks = [{"what": "tag", "value": "gpu", "count": 8}]
    stuck = {"count": 8, "at_least": False, "lacks": lacks}
    images = frames.queue("images", 8, 0, 7000, unplaceable=stuck, oldest_placeable_at=None)
    shown = [
        text_of(line) for line in health(frames.seen(queues={"items": [images]}, **frames.WELL), {}, frames.NOW_MS)
    ]
    assert "All is well" in shown[0]
    assert shown[1:] == ["  ! queue images: 8 tasks that no worker may have: none has the tag gpu"]
    waits = frames.queue("images", 8, 0, 7000, unplaceable=stuck, oldest_placeable_at=frames.at(125))
    shown = [text_of(line) for line in health(frames.seen(queues={"items": [waits]}, **frames.WELL), {}, frames.NOW_MS)]
    assert "Look at this" in shown[0]
    assert "the oldest task has waited for 2m" in shown[1]


def test_queues_that_were_not_judged_are_told_and_leave_the_cluster_well() -> None:
    items = [frames.queue("deep", 8), frames.queue("less", 1)]
    page = {"items": items, "next": "more", "total": 300}
    shown = [text_of(line) for line in health(frames.seen(queues=page, **frames.WELL), {}, frames.NOW_MS)]
    assert "All is well" in shown[0]
    assert shown[1:] == ["  ! judged are the 2 queues in which most waits, of 300"]
    items[-1] = frames.queue("empty", 0)
    assert len(health(frames.seen(queues=page, **frames.WELL), {}, frames.NOW_MS)) == 1


def test_every_size_gets_a_frame_of_that_size() -> None:
    for size in [(1, 1), (2, 3), (10, 4), (30, 8), (500, 200)]:
        for about, state, _ in frames.FRAMES.values():
            lines = frame(about, state, size, frames.NOW_MS)
            assert [line_width(line) for line in lines] == [size[0]] * size[1]


# --- readings ---


class Node:
    """Answers of a client; `trouble` instead, while there is some."""

    def __init__(self) -> None:
        self.trouble: Exception | None = None
        self.asked_for_tasks = asyncio.Event()
        self.held: asyncio.Event | None = None

    async def _say(self, name: str, answer: Any) -> Any:
        if name == "tasks":
            self.asked_for_tasks.set()
        if self.held is not None:
            await self.held.wait()
        if self.trouble is not None:
            raise self.trouble
        return answer

    async def cluster(self) -> Any:
        return await self._say("cluster", frames.CLUSTER)

    async def queues(self, **query: object) -> Any:
        return await self._say("queues", {"items": [], "query": query})

    async def tasks(self, **query: object) -> Any:
        return await self._say("tasks", {"items": [], "query": query})

    async def events(self, **query: object) -> Any:
        await self._say("events", None)
        await asyncio.Event().wait()
        yield


class Watched:
    def __init__(self, state: State) -> None:
        self.node, self.state = Node(), state
        self.moved = asyncio.Event()
        self.reader = Reader(self.node, lambda: self.state, lambda: frames.NOW_MS, self.moved.set)  # type: ignore[arg-type]

    async def until(self, what: Any) -> None:
        async with asyncio.timeout(60):
            while not what(self.reader.seen):
                self.moved.clear()
                await self.moved.wait()


async def test_a_node_that_is_gone_is_told_and_read_anew_when_it_is_back() -> None:
    watched = Watched(State(view="tasks"))
    running = asyncio.create_task(watched.reader.run())
    try:
        await watched.until(lambda seen: seen.get("tasks") is not None)
        watched.node.trouble = Unavailable("", "nobody listens")
        watched.reader.asked()
        await watched.until(lambda seen: seen.gone_ms is not None)
        assert watched.reader.seen.gone == "nobody listens"
        watched.node.trouble = None
        await watched.until(lambda seen: seen.gone_ms is None and seen.get("tasks") is not None)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_what_the_node_has_against_a_filter_is_told_and_is_no_absence() -> None:
    watched = Watched(State(view="tasks", filter="state:bogus"))
    watched.node.trouble = Rejected("bad_request", "state must be one of")
    running = asyncio.create_task(watched.reader.run())
    try:
        await watched.until(lambda seen: seen.refused)
        assert watched.reader.seen.gone_ms is None
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("code", ["forbidden", "invalid"])
async def test_charts_that_a_narrowed_token_may_not_see_are_left_out(code: str) -> None:
    class Narrow(Node):
        async def history(self) -> Any:
            raise Rejected(code, "this needs a token for all queues and groups")

        async def workers(self) -> Any:
            return []

    reader = Reader(Narrow(), lambda: State(view="workers"), lambda: frames.NOW_MS)  # type: ignore[arg-type]
    if code == "forbidden":
        await reader.once()
        assert (reader.seen.get("history"), reader.seen.get("workers")) == (None, [])
    else:
        with pytest.raises(Rejected):
            await reader.once()


@pytest.mark.parametrize(
    ("state", "name", "sort"),
    [
        (State(view="queues"), "listed", "-pending"),
        (State(view="queues", sorts={"queues": "failed"}), "listed", "-failed"),
        (State(view="queues", sorts={"queues": "running"}), "listed", "-running"),
        (State(view="queues", sorts={"queues": "name"}), "listed", "name"),
        (State(sorts={"queues": "name"}), "queues", "-pending"),
    ],
)
async def test_of_many_queues_those_are_asked_for_that_come_first(state: State, name: str, sort: str) -> None:
    class Whole(Node):
        async def history(self) -> Any:
            return None

        async def workers(self) -> Any:
            return []

    reader = Reader(Whole(), lambda: state, lambda: frames.NOW_MS)  # type: ignore[arg-type]
    await reader.once()
    assert reader.seen.get(name)["query"]["sort"] == sort


async def test_an_answer_to_an_older_question_is_thrown_away() -> None:
    watched = Watched(State(view="tasks", filter="old"))
    watched.node.held = asyncio.Event()
    running = asyncio.create_task(watched.reader.run())
    try:
        async with asyncio.timeout(60):
            await watched.node.asked_for_tasks.wait()
        watched.state = State(view="tasks", filter="new")
        watched.reader.asked()
        watched.node.held.set()
        await watched.until(lambda seen: seen.get("tasks") is not None)
        assert watched.reader.seen.get("tasks")["query"]["q"] == "new"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_without_a_terminal_it_says_so() -> None:
    found = CliRunner().invoke(main, ["top", "--token", "t"])
    assert (found.exit_code, found.stdout) == (2, "")
    assert "--once" in found.stderr
