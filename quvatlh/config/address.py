"""host:port as text: taken apart, never resolved. A name is what it says; only `localhost` is known to be loopback."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

PORT_MAX = 65535
_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*\.?", re.ASCII)
_NAME_LENGTH_MAX = 253


class Address(NamedTuple):
    host: str
    """Without brackets."""
    port: int


def parse(text: str) -> Address:
    """host:port, [v6]:port; ValueError says what it must look like."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^:\[\]]+)):([0-9]{1,5})", text, re.ASCII)
    if match is None or int(match[3]) > PORT_MAX:
        raise ValueError(f"must be host:port, such as 10.0.0.1:7421 or [::1]:7421, not {text[:80]!r}")
    host = match[1] or match[2]
    if not (_is_v6(host) if match[1] else _is_name_or_v4(host)):
        raise ValueError(f"{host!r} is neither a host name nor an IP address")
    return Address(host, int(match[3]))


def is_loopback(host: str) -> bool:
    """Whether what is sent there stays on this machine."""
    if host.rstrip(".").lower() == "localhost":
        return True
    ip = _ip(host)
    return ip is not None and ip.is_loopback


def is_wildcard(host: str) -> bool:
    """Whether it means every address of this machine, so none that another could dial."""
    ip = _ip(host)
    return ip is not None and ip.is_unspecified


def _is_v6(host: str) -> bool:
    return isinstance(_ip(host), ipaddress.IPv6Address)


def _is_name_or_v4(host: str) -> bool:
    if re.fullmatch(r"[0-9.]+", host):
        return isinstance(_ip(host), ipaddress.IPv4Address)
    return len(host) <= _NAME_LENGTH_MAX and _NAME.fullmatch(host) is not None


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
