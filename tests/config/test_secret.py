from __future__ import annotations

from pathlib import Path

import pytest

from quvatlh.config import ConfigError
from quvatlh.config.secret import SECRET_BYTES_MAX, read_secret

GOOD = b"0123456789abcdef0123456789abcdef"


def secret_file(tmp: Path, content: bytes, mode: int = 0o600) -> str:
    path = tmp / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


def test_the_secret_is_the_content_without_white_space_around_it(tmp_path: Path) -> None:
    secret = read_secret(secret_file(tmp_path, GOOD + b"\n"))
    assert (secret.value, secret.warnings) == (GOOD, ())


def test_a_secret_is_never_shown(tmp_path: Path) -> None:
    assert repr(read_secret(secret_file(tmp_path, GOOD))) == "Secret(...)"


def test_a_short_or_open_secret_is_warned_about(tmp_path: Path) -> None:
    warnings = read_secret(secret_file(tmp_path, b"short", 0o644)).warnings
    assert [word for word in warnings if "chmod 600" in word or "shorter than 16 bytes" in word] == list(warnings)
    assert len(warnings) == 2


@pytest.mark.parametrize(("content", "words"), [(b" \n", "is empty"), (b"x" * (SECRET_BYTES_MAX + 1), "not a secret")])
def test_what_is_no_secret_is_a_fault(content: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        read_secret(secret_file(tmp_path, content))


def test_a_missing_file_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_secret(str(tmp_path / "none"))
