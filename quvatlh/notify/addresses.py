"""Which addresses may be asked: those of the public internet, and the networks that the configuration names.

Whoever may add tasks chooses the URL, and the answer comes back to him. So the machine's own services, its neighbours and
the cloud's metadata are out of reach unless somebody has allowed them; a name counts by what it resolves to, each time.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_V4_INSIDE: Final = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "::ffff:0:0:0/96", "::/96")))
"""Of which the low 32 bits are the IPv4 address that a gateway or the kernel may send to."""
_NOT_PUBLIC: Final = tuple(map(ipaddress.IPv6Network, ("64:ff9b:1::/48", "fec0::/10", "5f00::/16")))
"""Of a network's own, whatever the library of this Python says: gateways, sites, segments."""
_LOW_32: Final = 2**32 - 1


class Allowed:
    def __init__(self, networks: Sequence[str] = ()) -> None:
        """ValueError for what is no network."""
        self._networks = tuple(ipaddress.ip_network(each, strict=False) for each in networks)

    def has(self, text: str) -> bool:
        """An address as a resolver tells it; what is none is not allowed."""
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            return False
        faces = _faces(address)
        return any(self._named(each) for each in faces) or all(
            each.is_global and not each.is_multicast and not any(each in network for network in _NOT_PUBLIC)
            for each in faces
        )

    def _named(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def _faces(address: Address) -> list[Address]:
    """The address itself, and the IPv4 address that packets to it end up at."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and any(address in network for network in _V4_INSIDE):
        inner = ipaddress.IPv4Address(int(address) & _LOW_32)
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    return [address] if inner is None else [address, inner]
