"""The dashboard's modules, read as text: what an unbuilt page would otherwise only tell in a browser."""

from __future__ import annotations

import os
import re

import pytest

from quvatlh.web import files

FILES = {path: body.decode() for path, body in files().by_path.items()}
MODULES = sorted(path for path in FILES if path.endswith(".js"))
IMPORT = re.compile(r'^import (?:(\* as \w+)|\{ ([^}]+) \}|(\w+)) from "([^"]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:default )?(?:function|class|const) (\w+)", re.MULTILINE)
LINES_MAX = 400
SINKS = (
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "eval(",
    "new Function",
    "srcdoc",
    "DOMParser",
)


@pytest.mark.parametrize("path", MODULES)
def test_imports_exist_and_are_used(path: str) -> None:
    text = FILES[path]
    body = IMPORT.sub("", text)
    assert len(re.findall(r"^import ", body, re.MULTILINE)) == 0
    for whole, some, default, place in IMPORT.findall(text):
        target = os.path.normpath(os.path.join(os.path.dirname(path), place))
        assert target in FILES, f"{path} imports {place}"
        names = some.split(", ") if some else [whole.removeprefix("* as ") or default]
        for name in names:
            assert not some or name in EXPORT.findall(FILES[target]), f"{target} exports no {name}"
            assert re.search(rf"\b{name}\b", body), f"{path} does not use {name}"
        assert not default or "export default" in FILES[target]


@pytest.mark.parametrize("path", MODULES)
def test_nothing_is_ever_parsed_as_markup_or_code(path: str) -> None:
    assert [sink for sink in SINKS if sink in FILES[path]] == []
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)\w", FILES[path].replace("https?://", ""))


def test_the_page_holds_no_code_and_no_style_of_its_own() -> None:
    page = FILES["index.html"]
    assert re.findall(r"<script(?![^>]* src=)", page) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=", page) == []


@pytest.mark.parametrize("path", sorted(FILES))
def test_files_stay_small_enough_to_read(path: str) -> None:
    assert FILES[path].count("\n") <= LINES_MAX
