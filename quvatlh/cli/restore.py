"""`quvatlh cluster restore`: a backup into an empty data directory, on this machine, without any daemon.

It opens the directory as the daemon would, under the same lock, and lets raft/backup.py do the rest.
"""

from __future__ import annotations

import os
import sys

import click

from quvatlh import daemon
from quvatlh.cli.configured import CONFIG_VARIABLE, loaded
from quvatlh.cli.printing import print_json, say
from quvatlh.cli.status import ExitStatus
from quvatlh.config import Config
from quvatlh.ports import Member
from quvatlh.raft import backup
from quvatlh.raft.datadir import DataDir
from quvatlh.raft.disk import RealDisk
from quvatlh.raft.settings import Settings
from quvatlh.system import host
from quvatlh.system.clock import RealClock
from quvatlh.system.entropy import RealEntropy


@click.command(short_help="Make a new cluster of one node from a backup.")
@click.argument("file", metavar="FILE")
@click.option("--config", "config_file", metavar="F", envvar=CONFIG_VARIABLE, help="Configuration of the node to be.")
@click.option("--data", metavar="DIR", help="Its data directory, which must be empty.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def restore(file: str, config_file: str | None, data: str | None, *, as_json: bool) -> None:
    """Make a new cluster of one node from a backup, here, with no daemon running on the directory.

    Start it with `quvatlh run` on the same directory; add other nodes with `quvatlh cluster add`.
    """
    config = loaded(config_file, {"node.data": ("--data", data)})
    try:
        index = restored(config, os.path.abspath(file))
    except (backup.BackupDamaged, backup.NotEmpty, *daemon.REFUSALS) as error:
        say(f"quvatlh: not restored: {_words(error)}")
        sys.exit(ExitStatus.REJECTED)
    if as_json:
        print_json({"data": config.node.data, "index": index})
    else:
        click.echo(f"restored up to log index {index:,} into {config.node.data}")
        click.echo(f"start it with: quvatlh run --data {config.node.data}")


def restored(config: Config, path: str) -> int:
    """The log index that the new cluster goes on from."""
    disk = RealDisk()
    with open(path, "rb"):
        pass  # so that a wrong name is told as such before anything is made
    directory = DataDir.open(disk, config.node.data, RealEntropy(), host.machine_id(), now_ms=RealClock().wall_ms())
    try:
        name = daemon._kept_name(config, directory, disk)  # noqa: SLF001 - the node shall go by it after its start too
        own = Member(directory.node_id, name, config.peer.advertised, config.http.advertised)
        return backup.restore(path, directory, own, disk, Settings())
    finally:
        directory.close()


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror.lower()}"
    return str(error)
