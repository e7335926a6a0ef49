"""Nodes that are the program itself, `quvatlh run`, asked over HTTP. Killed, frozen and waited for as all others are."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.cluster import Cluster, running, secret_in
from tests.cluster.line import Answer, Line, NoAnswer, NotSent
from tests.cluster.netns import Net, nodes_in
from tests.cluster.node import PATIENCE_S, Node, Place, until
from tests.cluster.ports import Reserved
from tests.support.wire import Broken, Wire, head

TOKEN = "one-token-for-all-of-these-nodes"
RUN = (sys.executable, "-c", "from quvatlh.cli.main import main; main()", "run")
GAUGED = (sys.executable, "-m", "tests.support.gauged")
STALLS = "stalls.json"
LOOK_S = 1.0
"""For a question about the node itself. One that takes longer is asked again."""

_URL = re.compile(rb"http://127\.0\.0\.1:\d+/login\?once=[\w-]+\n")


class HttpLine(Line):
    """A request is `path`, and maybe `body` and `key`; an answer `status`, and `body` or `problem`."""

    def __init__(self, address: str, new_socket: Callable[[], socket.socket] = socket.socket) -> None:
        super().__init__(address, new_socket)
        self._wire: Wire | None = None

    async def open(self) -> None:
        if self._wire is None:
            try:
                self._wire = await Wire.open(self._address, self._new_socket())
            except OSError as error:
                raise NotSent(str(error)) from error

    async def ask(self, request: dict[str, Any], patience_s: float) -> Answer:
        await self.open()
        assert self._wire is not None
        body = json.dumps(request["body"]).encode() if "body" in request else b""
        sent = head(self._address, TOKEN, request["path"], length=len(body), key=request.get("key", "")) + body
        try:
            async with asyncio.timeout(patience_s):
                reply = await self._wire.ask(sent)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError | TimeoutError | Broken):
                raise NoAnswer(repr(error)) from error
            raise
        found = json.loads(reply.body)
        return {"status": reply.status, "body" if reply.status < 300 else "problem": found}

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


@dataclass(frozen=True, slots=True)
class DaemonPlace(Place):
    """Configured by its environment alone. `client` is the address of its HTTP side."""

    def command(self) -> list[str]:
        return [*self.prefix, *self.python]


class Daemon(Node):
    """It is known by its name, which is what it tells of itself and of the master."""

    def line(self) -> HttpLine:
        return HttpLine(self.place.client, self.place.new_socket)

    def listens(self, said: bytes) -> bool:
        return _URL.fullmatch(said) is not None

    async def status(self) -> Answer:
        answer = await self._line.ask({"path": "/v1/cluster"}, LOOK_S)
        if answer["status"] != 200:
            raise NoAnswer(str(answer))
        found = answer["body"]
        self.id = self.name
        # A node that acts knows how far the others are.
        acts = found["master"] == self.name and any(node["lag"] is not None for node in found["nodes"])
        alone = len(found["nodes"]) == 1 and found["master"] == self.name
        return {**found, "committed": found["index"], "acts": acts or alone}

    async def ready(self, within_s: float = PATIENCE_S) -> None:
        """Once /readyz says so."""
        line = self.line()

        async def look() -> bool:
            try:
                return bool((await line.ask({"path": "/readyz"}, LOOK_S))["status"] == 200)
            except (NotSent, NoAnswer):
                return False

        try:
            await until(look, lambda: f"node {self.name} is ready", within_s)
        finally:
            line.close()

    async def get(self, path: str, patience_s: float = PATIENCE_S) -> Any:
        answer = await self._line.ask({"path": path}, patience_s)
        if answer["status"] != 200:
            raise AssertionError(f"{path}: {answer}")
        return answer["body"]

    def hang_up(self) -> None:
        """A connection that nobody used for a minute may be closed at its other end; the next `get` opens another."""
        self._line.close()

    async def stalls(self) -> dict[str, Any]:
        """What its gauge has seen since this was asked last; only of a gauged one."""
        path = self.place.directory / STALLS
        path.unlink(missing_ok=True)
        os.kill(self.pid, signal.SIGUSR1)
        await until(path.exists, lambda: f"node {self.name} tells its stalls")
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def cpu_s(self) -> float:
        """Seconds of processor that all its threads have used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def daemon(place: Place, environ: Mapping[str, str], *, gauged: bool = False) -> Daemon:
    """The program at this place. `environ` goes before what it would get."""
    given = {
        "QUVATLH_NODE_NAME": place.name,
        "QUVATLH_NODE_DATA": str(place.data),
        "QUVATLH_PEER_LISTEN": place.peer,
        "QUVATLH_PEER_INSECURE": "true" if place.insecure else "false",
        "QUVATLH_HTTP_LISTEN": place.client,
        "QUVATLH_LOG_FORMAT": "json",
        "QUVATLH_TOKEN": TOKEN,
    }
    if place.peers:
        given |= {"QUVATLH_PEER_PEERS": ",".join(place.peers), "QUVATLH_PEER_SECRET_FILE": str(place.secret_file)}
    return Daemon(
        DaemonPlace(
            name=place.name,
            directory=place.directory,
            peer=place.peer,
            client=place.client,
            peers=place.peers,
            secret_file=place.secret_file,
            prefix=place.prefix,
            new_socket=place.new_socket,
            python=(*GAUGED, str(place.directory / STALLS)) if gauged else RUN,
            environ={**given, **environ},
        )
    )


@contextlib.asynccontextmanager
async def daemons(directory: Path, count: int = 3, *, gauged: bool = False, **environ: str) -> AsyncIterator[Cluster]:
    """So many on the loopback, ready."""
    ports = [Reserved() for _ in range(2 * count)]
    try:
        peers = tuple(port.address for port in ports[:count])
        clients = [port.address for port in ports[count:]]

        places = [
            Place(
                name=f"n{number}",
                directory=directory / f"n{number}",
                peer=peers[number],
                client=clients[number],
                peers=peers if count > 1 else (),
                secret_file=secret_in(directory),
            )
            for number in range(count)
        ]
        made = Cluster([daemon(place, environ, gauged=gauged) for place in places])
        async with running(made):
            await asyncio.gather(*(node.ready() for node in made.nodes if isinstance(node, Daemon)))
            yield made
    finally:
        for port in ports:
            port.release()


def daemons_in(
    net: Net, directory: Path, environ: Mapping[str, str] | None = None, count: int | None = None
) -> Cluster:
    """One in each namespace, or in the first few, not started yet. {host} in `environ` is each one's own."""

    def own(place: Place) -> dict[str, str]:
        host = place.peer.rpartition(":")[0]
        return {name: value.replace("{host}", host) for name, value in (environ or {}).items()}

    return Cluster([daemon(node.place, own(node.place)) for node in nodes_in(net, directory, count=count).nodes])
