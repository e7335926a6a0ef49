"""What one value must look like. A kind turns what a source gave into what the model holds, or raises ValueError with
the words that follow the key's name.

A file gives YAML's types; the environment and flags give text, so that each kind takes both.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable
from urllib.parse import urlsplit

from quvatlh.config import address

Kind = Callable[[object], object]

NAME_LENGTH_MAX = 256
COUNT_MAX = 100_000
SPAN_MS_MAX = 24 * 60 * 60 * 1000
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


def text(given: object) -> str:
    if isinstance(given, dict | list | set):
        raise ValueError("must be text")  # noqa: TRY004 - a fault of the value, for people
    if not isinstance(given, str):
        raise ValueError(f"must be text; write it in quotes: '{given}'")  # noqa: TRY004 - as above
    if not given.strip():
        raise ValueError("must not be empty")
    if has_control_characters(given):
        raise ValueError("must not hold control characters")
    return given


def path(given: object) -> str:
    return os.path.expanduser(text(given))


def url(given: object) -> str:
    """Of HTTP, with a host."""
    value = text(given)
    try:
        parts = urlsplit(value)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or " " in value:
        raise ValueError(f"must be an address such as http://169.254.169.254/latest, not {value}")
    return value


def name(given: object) -> str:
    """A node's name stands in tags, URLs and file names, hence no slash."""
    value = text(given)
    if len(value) > NAME_LENGTH_MAX:
        raise ValueError(f"must be 1 to {NAME_LENGTH_MAX} characters, not {len(value)}")
    if "/" in value:
        raise ValueError("must not hold '/'")
    return value


def listen_address(given: object) -> str:
    """Port 0 takes any free port."""
    value = text(given)
    address.parse(value)
    return value


def peer_address(given: object) -> str:
    """One that can be dialled."""
    value = text(given)
    host, port = address.parse(value)
    if port == 0 or address.is_wildcard(host):
        raise ValueError(f"must be an address that other nodes can dial, not {value}")
    return value


def peer_addresses(given: object) -> tuple[str, ...]:
    """A list, or text with commas."""
    peers = _each(given, peer_address, "host:port")
    twice = sorted({peer for peer in peers if peers.count(peer) > 1})
    if twice:
        raise ValueError(f"names {', '.join(twice)} twice")
    return peers


def urls(given: object) -> tuple[str, ...]:
    """A list, or text with commas: of nodes' HTTP sides, without a path."""
    return _each(given, _url, "URLs")


def _url(given: object) -> str:
    value = text(given).rstrip("/")
    scheme, _, place = value.partition("://")
    if scheme not in {"http", "https"} or not place or "/" in place:
        raise ValueError(f"must be URLs such as http://127.0.0.1:7420, not {value}")
    peer_address(place if place.rpartition(":")[2].isdigit() else f"{place}:{443 if scheme == 'https' else 80}")
    return value


def names(given: object) -> tuple[str, ...]:
    """A list, or text with commas: of hosts."""
    return _each(given, name, "names")


def tags(given: object) -> tuple[str, ...]:
    """A list, or text with commas: of words, and of words with values."""
    return _each(given, tag, "tags")


def tag(given: object) -> str:
    value = name(given)
    if value.startswith("!"):
        raise ValueError(f"must not begin with '!', by which tasks say what they do not want, not {value}")
    word, sign, rest = value.partition("=")
    if not word.strip() or word != word.strip() or (sign and (not rest.strip() or rest[0] in "= ")):
        raise ValueError(f"must be a tag such as gpu or zone=eu-1, not {value}")
    return value


def patterns(given: object) -> tuple[str, ...]:
    """A list, or text with commas: of queues that a worker takes from."""
    return _each(given, pattern, "names")


def pattern(given: object) -> str:
    """Without exclusion: what is meant as one would match no queue."""
    value = name(given)
    if value.startswith("!"):
        raise ValueError(f"must not begin with '!': only what is taken is named, not {value}")
    return value


def networks(given: object) -> tuple[str, ...]:
    """A list, or text with commas: of addresses, with the length of their prefix or alone."""
    return _each(given, _network, "networks such as 10.0.0.0/8")


def _network(given: object) -> str:
    value = text(given)
    try:
        return str(ipaddress.ip_network(value))
    except ValueError as error:
        raise ValueError(f"must be networks such as 10.0.0.0/8 or 127.0.0.1: {error}") from None


def _each(given: object, kind: Callable[[object], str], of: str) -> tuple[str, ...]:
    """A list, or text with commas; text with nothing in it is an empty list. ValueError with all that is wrong, by its place."""
    if isinstance(given, str):
        parts: object = [part.strip() for part in given.split(",")] if given.strip() else []
    else:
        parts = given
    if not isinstance(parts, list):
        raise ValueError(f"must be a list of {of}")  # noqa: TRY004 - as above
    taken: list[str] = []
    faults: list[str] = []
    for place, part in enumerate(parts, 1):
        try:
            taken.append(kind(part))
        except ValueError as error:
            faults.append(f"{f'item {place}: ' if len(parts) > 1 else ''}{error}")
    if faults:
        raise ValueError("; ".join(faults))
    return tuple(taken)


def count(given: object) -> int:
    number = _whole(given, COUNT_MAX)
    if number is None:
        raise ValueError(f"must be a whole number from 0 to {COUNT_MAX}")
    return number


def milliseconds(given: object) -> int:
    number = _whole(given, SPAN_MS_MAX)
    if number is None:
        raise ValueError(f"must be whole milliseconds, at most {SPAN_MS_MAX} (a day)")
    return number


def _whole(given: object, most: int) -> int | None:
    if isinstance(given, bool) or not isinstance(given, int | str):
        return None
    if isinstance(given, str) and not (given.isascii() and given.isdigit() and len(given) < 12):
        return None
    number = int(given)
    return number if 0 <= number <= most else None


def boolean(given: object) -> bool:
    if isinstance(given, bool):
        return given
    word = str(given).strip().lower() if isinstance(given, str | int) else ""
    if word not in _TRUE | _FALSE:
        raise ValueError("must be true or false")
    return word in _TRUE


def choice(*words: str) -> Kind:
    def one_of(given: object) -> str:
        if given not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return str(given)

    return one_of


def balance(given: object) -> str:
    """YAML reads a bare `off` as false."""
    return choice("auto", "off")("off" if given is False else given)  # type: ignore[return-value]


def has_control_characters(value: str) -> bool:
    return any(not character.isprintable() for character in value)
