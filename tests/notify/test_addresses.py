from __future__ import annotations

import pytest

from quvatlh.notify.addresses import Allowed


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.9.10", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "192.0.2.1", "198.18.0.1", "224.0.0.1", "239.1.1.1", "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1",
        "fd12::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::",
        "2002:a00:1::", "::7f00:1", "::a00:1", "::ffff:0:7f00:1", "::ffff:0:a9fe:a9fe", "64:ff9b:1::808:808", "fec0::1", "5f00::1",
        "2001:0:7f00:1::", "", "localhost", "127.1", "0x7f000001",
    ],
)  # fmt: skip
def test_what_is_no_public_address_is_not_asked(address: str) -> None:
    assert not Allowed().has(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_the_public_internet_is(address: str) -> None:
    assert Allowed().has(address)


def test_networks_that_are_named_are_allowed_and_no_others() -> None:
    allowed = Allowed(["10.1.0.0/16", "127.0.0.1", "fd00:1::/32"])
    for address in ("10.1.2.3", "127.0.0.1", "::ffff:10.1.2.3", "64:ff9b::a01:203", "fd00:1::7", "8.8.8.8"):
        assert allowed.has(address), address
    for address in ("10.2.0.1", "127.0.0.2", "::1", "fd00:2::1"):
        assert not allowed.has(address), address


def test_what_is_no_network_is_none() -> None:
    with pytest.raises(ValueError, match=r"10\.0\.0\.0/33"):
        Allowed(["10.0.0.0/33"])
