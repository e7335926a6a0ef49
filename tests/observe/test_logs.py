from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator

import pytest

from quvatlh.observe import logs


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_machine_gets_one_json_object_a_line() -> None:
    stream = io.StringIO()
    logs.set_up("auto", "info", stream)
    logs.noter("quvatlh.raft")("snapshot in force", index=7, name="one", level="high", message="m")
    [line] = stream.getvalue().splitlines()
    found = json.loads(line)
    assert found.pop("timestamp").endswith("Z")
    assert found == {
        "event": "snapshot in force",
        "level": "info",
        "logger": "quvatlh.raft",
        "index": 7,
        "name": "one",
        "level_": "high",
        "message": "m",
    }


def test_what_is_noted_for_debugging_is_seen_at_that_level_only() -> None:
    for level, lines in (("info", 0), ("debug", 1)):
        stream = io.StringIO()
        logs.set_up("json", level, stream)
        logs.noter("quvatlh.http", "debug")("request", status=200)
        assert len(stream.getvalue().splitlines()) == lines


def test_people_get_a_line_without_braces_and_in_color_only_on_a_terminal() -> None:
    for stream, colored in ((Terminal(), True), (io.StringIO(), False)):
        logs.set_up("people", "info", stream)
        logs.noter("quvatlh")("node started", peer="127.0.0.1:7421")
        [line] = stream.getvalue().splitlines()
        assert "node started" in line
        assert ("\x1b[" in line) is colored


def test_auto_means_people_on_a_terminal() -> None:
    stream = Terminal()
    logs.set_up("auto", "info", stream)
    logs.noter("quvatlh")("node started")
    assert not stream.getvalue().startswith("{")


@pytest.mark.parametrize("form", ["json", "people"])
def test_a_traceback_is_kept(form: str) -> None:
    stream = io.StringIO()
    logs.set_up(form, "info", stream)
    try:
        raise ValueError("the reason")
    except ValueError:
        logging.getLogger("asyncio").exception("broken")
    assert "the reason" in stream.getvalue()
    assert form == "people" or len(stream.getvalue().splitlines()) == 1


def test_below_the_level_nothing_is_written() -> None:
    stream = io.StringIO()
    logs.set_up("json", "warning", stream)
    logs.noter("quvatlh")("quiet")
    logging.getLogger("quvatlh").warning("loud %d", 1)
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["loud 1"]


def test_warnings_of_python_are_log_lines() -> None:
    stream = io.StringIO()
    logs.set_up("json", "warning", stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert "DeprecationWarning: old" in json.loads(stream.getvalue())["event"]


@pytest.mark.parametrize("form", ["json", "people"])
def test_a_traceback_shows_no_values_since_any_of_them_may_be_a_secret(form: str) -> None:
    def fails(secret: str) -> None:
        raise RuntimeError(f"a word of {len(secret)} letters")

    stream = io.StringIO()
    logs.set_up(form, "info", stream)
    try:
        fails(bytes.fromhex("6f70656e2d736573616d65").decode())  # the line itself is shown
    except RuntimeError:
        logging.getLogger("quvatlh").exception("it broke")
    assert "a word of 11 letters" in stream.getvalue()
    assert "open-sesame" not in stream.getvalue()
