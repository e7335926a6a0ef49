"""Where the nodes are and where the token is, when nobody says so. Reads the environment and one file; dials nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from quvatlh.config.defaults import SYSTEM_DATA, data_directory

URL_DEFAULT = "http://127.0.0.1:7420"
URL_VARIABLE = "QUVATLH_URL"
TOKEN_VARIABLE = "QUVATLH_TOKEN"  # noqa: S105 - a name
DATA_VARIABLE = "QUVATLH_NODE_DATA"
"""The same as `node.data` of the daemon's configuration."""
TOKEN_FILE = "token"  # noqa: S105 - a name
TOKEN_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Token:
    """What was found, and every place that was looked at, in order, with what was there."""

    value: str | None
    source: str = ""
    looked: tuple[tuple[str, str], ...] = ()


def parse_urls(given: str) -> tuple[str, ...]:
    """Addresses with commas or spaces between them, without their last slash; ValueError says what one must look like."""
    urls = tuple(url.rstrip("/") for url in given.replace(",", " ").split())
    if not urls:
        raise ValueError(f"must be one or more addresses such as {URL_DEFAULT}")
    for url in urls:
        _check(url)
    return urls


def find_token(given: str | None, environ: Mapping[str, str], data: str | None = None, *, is_root: bool) -> Token:
    """Of the flag, else of the environment, else of the data directory: the named one, or those where a daemon keeps it
    by default."""
    looked = [("--token", "not given")]
    if given:
        return Token(given.strip(), "--token", (("--token", "used"),))
    if environ.get(TOKEN_VARIABLE):
        return Token(environ[TOKEN_VARIABLE].strip(), TOKEN_VARIABLE, (*looked, (TOKEN_VARIABLE, "used")))
    looked.append((TOKEN_VARIABLE, "set, but empty" if TOKEN_VARIABLE in environ else "not set"))
    named = data or environ.get(DATA_VARIABLE)
    directories = [named] if named else [data_directory(environ, is_root=is_root), SYSTEM_DATA]
    for directory in dict.fromkeys(directories):
        path = os.path.join(os.path.expanduser(directory), TOKEN_FILE)
        value, found = _read(path)
        looked.append((path, found))
        if value is not None:
            return Token(value, path, tuple(looked))
    return Token(None, "", tuple(looked))


def _read(path: str) -> tuple[str | None, str]:
    try:
        with open(path, "rb") as file:
            value = file.read(TOKEN_BYTES_MAX).decode("ascii").strip()
    except FileNotFoundError:
        return None, "no such file"
    except OSError as error:
        return None, (error.strerror or str(error)).lower()
    except UnicodeDecodeError:
        return None, "holds no token"
    return (value, "used") if value else (None, "empty")


def _check(url: str) -> None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{url}: {error}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise ValueError(f"{url}: must be an address such as {URL_DEFAULT} or https://host:7420")
    if parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f"{url}: must not hold more than scheme, host, port and path")
