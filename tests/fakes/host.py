"""A machine that is as the test says. ports.Host."""

from __future__ import annotations

from quvatlh.ports import Facts, Host, HostLoad

FACTS: Facts = {
    "os": "linux",
    "arch": "x86_64",
    "cpus": 4,
    "memory_bytes": 8 * 2**30,
    "hostname": "here",
    "python": "3.11.7",
}


class FakeHost:
    """Change `now` and `known` as you like."""

    def __init__(self, known: Facts = FACTS) -> None:
        self.known = known
        self.now = HostLoad(0.25, 6 * 2**30, 8 * 2**30, 100 * 2**30)

    async def facts(self) -> Facts:
        return self.known

    def load(self) -> HostLoad:
        return self.now


def _is_a_host() -> Host:
    """Held by mypy."""
    return FakeHost()
