"""Where addresses and tokens are found when nobody says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from quvatlh.client import find_token, parse_urls


def test_addresses_stand_with_commas_or_blanks_between() -> None:
    assert parse_urls("http://a:1/, https://[::1]:7420 http://b/prefix/") == (
        "http://a:1",
        "https://[::1]:7420",
        "http://b/prefix",
    )


@pytest.mark.parametrize(
    "given", ["", " , ", "host:7420", "ftp://host", "http://", "http://h:0", "http://h:x", "http://h?x", "http://u:p@h"]
)
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match=r"must|[Pp]ort"):
        parse_urls(given)


def test_a_token_is_looked_for_in_order(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-the-file\n")
    environ = {"QUVATLH_TOKEN": "of-the-environment", "QUVATLH_NODE_DATA": str(tmp_path)}
    given = find_token("of-the-flag", environ, is_root=False)
    assert (given.value, given.source) == ("of-the-flag", "--token")
    variable = find_token(None, environ, is_root=False)
    assert (variable.value, variable.source) == ("of-the-environment", "QUVATLH_TOKEN")
    del environ["QUVATLH_TOKEN"]
    file = find_token(None, environ, is_root=False)
    assert (file.value, file.source) == ("of-the-file", str(tmp_path / "token"))
    assert file.looked == (("--token", "not given"), ("QUVATLH_TOKEN", "not set"), (str(tmp_path / "token"), "used"))


def test_a_named_data_directory_goes_before_that_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("named")
    assert find_token(None, {"QUVATLH_NODE_DATA": "/nowhere"}, str(tmp_path), is_root=False).value == "named"


def test_by_default_it_is_that_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "quvatlh").mkdir()
    (tmp_path / "quvatlh" / "token").write_text("mine")
    assert find_token(None, {"XDG_STATE_HOME": str(tmp_path)}, is_root=False).value == "mine"


@pytest.mark.parametrize(
    ("content", "why"), [(None, "no such file"), (b"", "empty"), ("tókèn".encode(), "holds no token")]
)
def test_why_a_file_gave_no_token_is_known(tmp_path: Path, content: bytes | None, why: str) -> None:
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    found = find_token(None, {}, str(tmp_path), is_root=False)
    assert (found.value, found.looked[-1]) == (None, (str(tmp_path / "token"), why))
