"""ports.Host of this machine, from /proc and the cgroup that the daemon is in. Linux only, as the executor is."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from quvatlh.ports import Facts, HostLoad
from quvatlh.system import cloud

SAMPLE_S: Final = 0.25
"""The shortest span that a share of processors is told of: within it the last one stands."""
NO_LIMIT: Final = 2**63


class RealHost:
    """`metadata_url`: where this cloud tells a machine about itself; None: nobody is asked."""

    def __init__(
        self,
        data: str,
        environ: Mapping[str, str],
        metadata_url: str | None = None,
        *,
        note: Callable[..., None] = lambda _what, **_more: None,
        proc: str = "/proc",
        cgroups: str = "/sys/fs/cgroup",
    ) -> None:
        self._data = data
        self._environ = environ
        self._metadata_url = metadata_url
        self._note = note
        self._proc = proc
        self._cgroups = cgroups
        self._facts: Facts | None = None
        self._ticks = self._processor_ticks()
        self._cpu_load = 0.0

    async def facts(self) -> Facts:
        if self._facts is None:
            self._facts = {**self._own_facts(), **await self._cloud()}
        return self._facts

    def load(self) -> HostLoad:
        free, total = self._memory()
        disk = os.statvfs(self._data)
        return HostLoad(self._processors(), free, total, disk.f_bavail * disk.f_frsize)

    # --- what stands ---

    def _own_facts(self) -> Facts:
        uname = os.uname()
        return {
            "os": uname.sysname.lower(),
            "arch": uname.machine,
            "cpus": os.cpu_count() or 1,
            "memory_bytes": self._memory()[1],
            "hostname": socket.gethostname(),
            "python": platform.python_version(),
        }

    async def _cloud(self) -> dict[str, str]:
        """The environment goes before the address: a person has written it."""
        told: dict[str, str] = {}
        if self._metadata_url is not None:
            try:
                told = await cloud.from_address(self._metadata_url)
            except cloud.Silent as error:
                self._note("cloud metadata not read", url=self._metadata_url, why=str(error))
        return {f"cloud.{name}": value for name, value in {**told, **cloud.from_environment(self._environ)}.items()}

    # --- what changes ---

    def _processors(self) -> float:
        busy, total = (now - before for now, before in zip(self._processor_ticks(), self._ticks, strict=True))
        if total >= SAMPLE_S * os.sysconf("SC_CLK_TCK") * (os.cpu_count() or 1):
            self._ticks = (self._ticks[0] + busy, self._ticks[1] + total)
            self._cpu_load = min(1.0, max(0.0, busy / total))
        return self._cpu_load

    def _processor_ticks(self) -> tuple[int, int]:
        """Of all processors since boot: busy, and in all. Waiting for the disk is not busy."""
        user, nice, system, idle, iowait, irq, softirq, steal = map(
            int, self._read("stat").split("\n", 1)[0].split()[1:9]
        )
        busy = user + nice + system + irq + softirq + steal
        return busy, busy + idle + iowait

    def _memory(self) -> tuple[int, int]:
        """Free and in all, of the machine or of the tightest cgroup around the daemon, whose children the actions are."""
        lines = (line.split() for line in self._read("meminfo").splitlines())
        sizes = {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}
        free, total = sizes["MemAvailable"], sizes["MemTotal"]
        for directory in self._own_cgroups():
            limit = _number(f"{directory}/memory.max")
            if limit is not None and limit < NO_LIMIT:
                left = limit - (_number(f"{directory}/memory.current") or 0) + _reclaimable(f"{directory}/memory.stat")
                free, total = min(free, max(0, left)), min(total, limit)
        return min(free, total), total

    def _own_cgroups(self) -> Iterator[str]:
        """The one that the daemon is in, and those around it. Of version 2; older ones have nothing to say here."""
        for line in self._read("self/cgroup").splitlines():
            if line.startswith("0::/"):
                path = line[3:].rstrip("/")
                while path:
                    yield self._cgroups + path
                    path = path.rsplit("/", 1)[0]
                yield self._cgroups

    def _read(self, name: str) -> str:
        with open(f"{self._proc}/{name}", encoding="ascii", errors="replace") as file:
            return file.read()


def _number(path: str) -> int | None:
    """None where there is none, or no limit (`max`)."""
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _reclaimable(path: str) -> int:
    """What the kernel gives back at once when somebody needs it."""
    try:
        with open(path, encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("inactive_file ")), 0)
    except OSError:
        return 0
