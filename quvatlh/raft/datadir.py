"""The data directory of a node: who it is, what it promised, and which generation of log and state is the true one.

```
lock           held while a daemon runs
identity       node id, machine, and whether a node or a worker lives here; made once
ballot         term and vote, see ballot.py; outlives every generation
current        names the generation in force, or none
gen-NNNNNN/    log/ and the machine's state file
copy-*         copies of the state on their way to others, and
backup-*       backups on their way to whoever asked; void at the next start
```
A generation is built aside and made current by one rename; whatever is not current after a crash was never in force.
`ballot` and `current` are made before `identity`, so that beside an identity their absence is damage, not youth.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from quvatlh.config.model import NodeRole
from quvatlh.ports import Entropy
from quvatlh.raft import sealed
from quvatlh.raft.ballot import BALLOT_FILE, Ballot
from quvatlh.raft.disk import UNFINISHED, DirectoryLock, Disk, lock_directory, make_directory

IDENTITY_FILE = "identity"
CURRENT_FILE = "current"
LOG_DIRECTORY = "log"
SCRATCH = "copy-"

_GENERATION = re.compile(r"gen-(\d{6,})")
_BACKUP = re.compile(r"backup-[0-9a-f]{16}(\.partial)?")
"""As service/status.py names them. What a person has put there is called otherwise."""
_ID_BYTES = 16

_REJOIN = (
    "Restore a backup, or move the data directory away and rejoin as a new node: `quvatlh cluster remove ID` for the old "
    "one, `quvatlh cluster add ID HOST:PORT` for the new one"
)


class DataDirDamaged(Exception):
    """Something that was made with the directory is gone or unreadable."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"the data directory {path} is damaged: {why}. {_REJOIN}")
        self.path = path


class CopiedDirectory(Exception):
    """The directory was made on another machine, where a node of the same id may be running."""

    def __init__(self, path: str, node_id: str) -> None:
        super().__init__(
            f"the data directory {path} was made on another machine, as node {node_id}. Two nodes must never vote under "
            "one id, so this one does not start. Start it with an empty data directory and add it as a new node: "
            f"`quvatlh cluster add ID HOST:PORT`; if node {node_id} is gone for good: `quvatlh cluster remove {node_id}`"
        )
        self.path = path
        self.node_id = node_id


class OtherRole(Exception):
    """A node's directory is not for a worker, nor a worker's for a node."""

    def __init__(self, path: str, belongs_to: str, role: NodeRole) -> None:
        harm = {
            "worker": "a worker would go about under its identity and take its actions for its own",
            "node": "a node would found a cluster under its identity and take its actions for its own",
        }
        super().__init__(
            f"the data directory {path} belongs to a {belongs_to}: {harm[role]}. Start the {role} with another --data, or "
            f"with --role {belongs_to}"
        )
        self.path = path


class DataDir:
    """An open data directory. `node_id` is for ever; which generation is current is read once and then kept in step."""

    def __init__(self, disk: Disk, path: str, node_id: str, lock: DirectoryLock | None) -> None:
        self._disk = disk
        self._current = _read_current(disk, path)
        self._lock = lock
        self.path = path
        self.node_id = node_id
        self.ballot = Ballot.open(disk, path)

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        entropy: Entropy,
        machine_id: str,
        *,
        role: NodeRole = "node",
        now_ms: int = 0,
        lock: bool = True,
    ) -> DataDir:
        """Made if it is not there.

        What is not for us raises DirectoryInUse, CopiedDirectory, OtherRole, DataDirDamaged, BallotCorrupt or
        sealed.NewerFormat.
        """
        make_directory(disk, path)
        held = lock_directory(path) if lock else None
        try:
            # A name that a killed process left in the page cache is seen now, and lost with the power later: a vote or
            # a generation that is acted on must not be forgotten.
            disk.sync_dir(path)
            if not disk.exists(f"{path}/{IDENTITY_FILE}"):
                _found(disk, path, entropy, machine_id, role, now_ms)
            identity = _identify(disk, path, machine_id)
            opened = cls(disk, path, identity["node_id"], held)
            opened._belong(identity, role)
            opened._remove_copies()
            return opened
        except BaseException:
            if held is not None:
                held.close()
            raise

    @property
    def is_empty(self) -> bool:
        """No generation was ever published: neither founded nor admitted."""
        return self._current is None

    def generation_path(self) -> str:
        """Of the current one; there must be one."""
        assert self._current is not None, "no generation"
        return f"{self.path}/{self._current}"

    def new_generation(self) -> str:
        """An empty directory to build the next generation in, one at a time: an unfinished one goes."""
        number = max((int(name[4:]) for name in self._generations()), default=0) + 1
        self._remove_generations()
        path = f"{self.path}/gen-{number:06d}"
        self._disk.mkdir(path)
        return path

    def publish(self, path: str) -> None:
        """Make it current. The files inside are synced by the caller; on return a crash finds this one and no other."""
        for directory in (f"{path}/{LOG_DIRECTORY}", path, self.path):
            if self._disk.exists(directory):
                self._disk.sync_dir(directory)
        name = path.rpartition("/")[2]
        _write_current(self._disk, self.path, name)
        self._current = name

    def sweep(self) -> None:
        """Remove what is not in force. Not while a generation is being built."""
        self._remove_generations()
        for name in (IDENTITY_FILE, BALLOT_FILE, CURRENT_FILE):
            self._disk.remove(f"{self.path}/{name}{UNFINISHED}")
        self._disk.sync_dir(self.path)

    def scratch(self, entropy: Entropy) -> str:
        """Path of a file that is not there, for a copy that need not outlive this process."""
        return f"{self.path}/{SCRATCH}{entropy.token(8).hex()}"

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def _belong(self, identity: dict[str, Any], role: NodeRole) -> None:
        """Directories of earlier versions do not say whose they are: a log is a node's, else it is who comes first."""
        belongs_to = identity.get("role", role if self.is_empty else "node")
        if belongs_to != role:
            raise OtherRole(self.path, belongs_to, role)
        if "role" not in identity:
            sealed.write(self._disk, f"{self.path}/{IDENTITY_FILE}", "identity", {**identity, "role": role})

    def _generations(self) -> list[str]:
        return [name for name in self._disk.listdir(self.path) if _GENERATION.fullmatch(name)]

    def _remove_generations(self) -> None:
        for name in self._generations():
            if name != self._current:
                self._disk.remove(f"{self.path}/{name}")

    def _remove_copies(self) -> None:
        for name in self._disk.listdir(self.path):
            if name.startswith(SCRATCH) or _BACKUP.fullmatch(name):
                self._disk.remove(f"{self.path}/{name}")


def _found(disk: Disk, path: str, entropy: Entropy, machine_id: str, role: NodeRole, now_ms: int) -> None:
    """Make what every data directory has; the identity comes last and says that the rest is there."""
    if any(_GENERATION.fullmatch(name) for name in disk.listdir(path)):
        raise DataDirDamaged(path, f"it holds a log, but {IDENTITY_FILE} is gone")
    if Ballot.open(disk, path).term:
        raise DataDirDamaged(path, f"it holds a vote, but {IDENTITY_FILE} is gone")
    _write_current(disk, path, None)
    node_id = base64.b32encode(entropy.token(_ID_BYTES)).decode().rstrip("=").lower()
    fields = {"node_id": node_id, "machine_id": machine_id, "role": role, "created_ms": now_ms}
    sealed.write(disk, f"{path}/{IDENTITY_FILE}", "identity", fields)


def _identify(disk: Disk, path: str, machine_id: str) -> dict[str, Any]:
    fields = _fields(disk, path, IDENTITY_FILE)
    if fields["machine_id"] != machine_id:
        raise CopiedDirectory(path, fields["node_id"])
    if not disk.exists(f"{path}/{BALLOT_FILE}"):
        raise DataDirDamaged(path, f"{BALLOT_FILE} is gone, and with it what this node voted")
    return fields


def _write_current(disk: Disk, path: str, name: str | None) -> None:
    sealed.write(disk, f"{path}/{CURRENT_FILE}", "current", {"generation": name})


def _read_current(disk: Disk, path: str) -> str | None:
    name: str | None = _fields(disk, path, CURRENT_FILE)["generation"]
    if name is not None and not disk.exists(f"{path}/{name}"):
        raise DataDirDamaged(path, f"{CURRENT_FILE} names {name}, which is gone")
    return name


def _fields(disk: Disk, path: str, name: str) -> dict[str, Any]:
    try:
        return sealed.read(disk, f"{path}/{name}", name)
    except (sealed.Damaged, FileNotFoundError) as exc:
        raise DataDirDamaged(path, str(exc)) from None
