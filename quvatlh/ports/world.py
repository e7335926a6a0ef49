"""Time, chance, and the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

Facts = Mapping[str, str | int]
"""`os, arch, cpus, memory_bytes, hostname, python`, and `cloud.*` where known: region, zone, instance_type, instance_id, or
whatever the environment says."""

_TAG_CHARS_MAX = 256
_GIB = 1024**3


def fact_tags(facts: Facts) -> tuple[str, ...]:
    """What tasks may ask for: `os=linux`, `cpus=4`, `cloud.zone=eu-1a`; memory in whole GiB, `memory_gib=15`."""
    named = {("memory_gib" if name == "memory_bytes" else name): value for name, value in facts.items()}
    if isinstance(size := facts.get("memory_bytes"), int):
        named["memory_gib"] = size // _GIB
    tags = (f"{name}={value}" for name, value in named.items())
    return tuple(tag for tag in tags if len(tag) <= _TAG_CHARS_MAX and tag.isprintable())


class Clock(Protocol):
    """The two clocks. Everything that measures uses `boot`; only log time is made of `wall_ms`."""

    def boot(self) -> float:
        """Seconds of CLOCK_BOOTTIME: never set, goes on while the machine sleeps."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC, as this machine believes."""
        ...


class Entropy(Protocol):
    """Chance, as a port, so that a simulation can own it."""

    def random(self) -> float:
        """In [0, 1)."""
        ...

    def token(self, nbytes: int) -> bytes:
        """Unguessable bytes."""
        ...


@dataclass(frozen=True, slots=True)
class HostLoad:
    """As it is now. The fields are those of WorkerState."""

    cpu_load: float
    """Share of all processors that was busy lately, 0 to 1."""
    memory_free_bytes: int
    memory_total_bytes: int
    disk_free_bytes: int
    """Of the data directory."""


class Host(Protocol):
    """The machine that the node runs on."""

    async def facts(self) -> Facts:
        """What stands while the node runs. The first call may take two seconds, where a cloud is asked."""
        ...

    def load(self) -> HostLoad:
        """Some tens of microseconds. OSError if the data directory is gone."""
        ...
