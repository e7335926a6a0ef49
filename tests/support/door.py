"""The door of the small test program: operations on registers and sets, asked of any node, answered by the master.

A node that does not act asks the master, one hop; what is unavailable is asked again until the deadline, under the same
request id, which the machine remembers. So is what is unknown: only the deadline turns it into an answer. A master that
is none any more is not waited for: stopped or cut off, it answers nobody. An answer is {"ok": ..., "index": n} or
{"error": code, "detail": text}.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgpack

from quvatlh.ports import Entry, Log, LogError, Member, Peers, Refused, Role, Unavailable, Unknown
from tests.support import register
from tests.support.register import RegisterMachine

REQUEST = "door"
DEADLINE_S = 5.0
PAUSE_S = 0.02
"""Before asking again. Elections take at least ten times as long."""

Request = dict[str, Any]
Answer = dict[str, Any]

ITEMS: dict[str, Callable[[Request], bytes]] = {
    "write": lambda request: register.write(request["name"], request["value"]),
    "cas": lambda request: register.cas(request["name"], request["old"], request["new"]),
    "add": lambda request: register.add(request["name"], request["value"]),
}


Operation = Callable[[Request], Awaitable[Answer]]


class Door:
    """Answers requests, and hears of masters as a LogListener."""

    def __init__(
        self,
        log: Log,
        peers: Peers,
        machine: Callable[[], RegisterMachine],
        *,
        operations: Mapping[str, Operation] | None = None,
        facts: Callable[[], Answer] = dict,
    ) -> None:
        """`machine` gives the one in force: a snapshot brings another. `operations` are more of them, done on the node
        that is asked; `facts` join the status."""
        self._log = log
        self._peers = peers
        self._machine = machine
        self._operations = operations or {}
        self._facts = facts
        self._role_changed = asyncio.Event()
        self._master_only: dict[str, Callable[[Request, float], Awaitable[Answer]]] = {
            **dict.fromkeys(ITEMS, self._change),
            "barrier": self._barrier,
            "transfer": self._transfer,
            "add_member": self._add_member,
            "remove_member": self._remove_member,
        }
        peers.handle(REQUEST, self._asked_by_peer)
        log.listen(self)

    def applied(self, entry: Entry, results: Sequence[object]) -> None:
        pass

    def role_changed(self, role: Role) -> None:
        self._role_changed.set()
        self._role_changed = asyncio.Event()

    def reset(self, index: int) -> None:
        pass

    async def ask(self, request: Request) -> Answer:
        """Total: whatever is asked gets an answer, at the latest a little after the deadline."""
        try:
            return await self._ask(dict(request))
        except LogError as error:
            return {"error": error.code, "detail": error.detail}
        except (KeyError, TypeError, ValueError) as error:
            return {"error": "bad_request", "detail": repr(error)}

    async def _ask(self, request: Request) -> Answer:
        deadline_s = float(request.get("deadline", DEADLINE_S))
        match request["op"]:
            case "local":
                return self._look(request)
            case "status":
                return self._status()
            case "backup":
                return {"ok": True, "index": await self._log.backup(request["path"])}
            case "read" | "members":
                return await self._read(request, deadline_s)
            case op if op in self._operations:
                return await self._operations[op](request)
            case op if op in self._master_only:
                request.setdefault("id", uuid.uuid4().hex)
                return await self._at_master(request, deadline_s)
            case op:
                raise ValueError(f"unknown op {op!r}")

    async def _read(self, request: Request, deadline_s: float) -> Answer:
        """What is applied here once all that was answered before the question is."""
        ends = _now() + deadline_s
        barrier = await self._at_master({"op": "barrier", "id": uuid.uuid4().hex}, deadline_s)
        await self._log.wait_applied(barrier["index"], deadline=max(0.0, ends - _now()))
        return self._look(request)

    def _look(self, request: Request) -> Answer:
        machine = self._machine()
        name = request["name"]
        is_set = request.get("kind") == "set" or request["op"] == "members"
        found = sorted(machine.members(name), key=repr) if is_set else machine.read(name)
        return {"ok": found, "index": machine.applied_index}

    def _status(self) -> Answer:
        role, membership = self._log.role, self._log.membership
        members = () if membership is None else (*membership.voters, *membership.learners)
        return {
            "ok": True,
            "index": self._log.applied_index,
            "node": self._log.node_id,
            "master": role.master,
            "term": role.term,
            "acts": self._log.acts(),
            "voters": [] if membership is None else [m.id for m in membership.voters],
            "members": {m.id: [m.name, m.peer] for m in members},
            "digest": self._machine().digest.hex() if membership is not None else "",
            **self._facts(),
        }

    # -- to the master, again and again

    async def _at_master(self, request: Request, deadline_s: float) -> Answer:
        ends = _now() + deadline_s
        unknown: Unknown | None = None
        while True:
            left_s = ends - _now()
            try:
                if left_s <= 0:
                    raise Unavailable("no master has answered in time")
                return await self._try(request, left_s)
            except Unavailable as error:
                if left_s <= 0 or error.code == "stopping":
                    raise unknown or error from None
            except Unknown as error:
                unknown = error
            await asyncio.sleep(min(PAUSE_S, max(0.0, left_s)))

    async def _try(self, request: Request, left_s: float) -> Answer:
        if self._log.acts():
            return await self._master_only[request["op"]](request, left_s)
        master = self._log.role.master
        if master is None or master == self._log.node_id:
            raise Unavailable("no master is known")
        body = msgpack.packb({**request, "deadline": left_s})
        answer: Answer = msgpack.unpackb(await self._hop(master, body, left_s))
        if "error" in answer:
            raise _error(answer["error"], answer["detail"])
        return answer

    async def _hop(self, master: str, body: bytes, left_s: float) -> bytes:
        asked = asyncio.ensure_future(self._peers.request(master, REQUEST, body, deadline=left_s))
        changed = asyncio.ensure_future(self._role_changed.wait())
        try:
            await asyncio.wait({asked, changed}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise Unknown(f"{master} was asked, and is not the master any more")
            return asked.result()
        finally:
            changed.cancel()
            asked.cancel()

    async def _asked_by_peer(self, _asker: str, body: bytes) -> bytes:
        """The hop: this node acts, or says that it does not."""
        request = msgpack.unpackb(body)
        try:
            if not self._log.acts():
                raise Unavailable("this node is not master")
            answer = await self._master_only[request["op"]](request, request["deadline"])
        except LogError as error:
            answer = {"error": error.code, "detail": error.detail}
        return bytes(msgpack.packb(answer))

    # -- on the master

    async def _change(self, request: Request, left_s: float) -> Answer:
        item = register.once(request["id"], ITEMS[request["op"]](request))
        applied = await self._log.propose(item, deadline=left_s)
        return {"ok": applied.result, "index": applied.index}

    async def _barrier(self, _request: Request, left_s: float) -> Answer:
        return {"ok": True, "index": await self._log.barrier(deadline=left_s)}

    async def _transfer(self, request: Request, left_s: float) -> Answer:
        return {"ok": await self._log.transfer(request.get("to"), deadline=left_s), "index": self._log.applied_index}

    async def _add_member(self, request: Request, left_s: float) -> Answer:
        member = Member(str(request["node"]), str(request.get("name", request["node"])), str(request["peer"]))
        changed = await self._log.add_member(member, deadline=left_s)
        return {"ok": [m.id for m in changed.voters], "index": self._log.applied_index}

    async def _remove_member(self, request: Request, left_s: float) -> Answer:
        changed = await self._log.remove_member(request["node"], deadline=left_s)
        return {"ok": [m.id for m in changed.voters], "index": self._log.applied_index}


def _error(code: str, detail: str) -> LogError:
    if code == Unknown.code:
        return Unknown(detail)
    return Refused(detail, code) if code in {"conflict", "not_found"} else Unavailable(detail, code)


def _now() -> float:
    return asyncio.get_running_loop().time()


LINE_BYTES_MAX = 16 * 1024 * 1024


async def serve(door: Door, address: str) -> asyncio.Server:
    """The client port: one JSON object a line, answered in order on each connection."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await _answer_to(door, line)).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            # Cancelled when the program ends: streams of this Python would tell that as an error.
            pass
        finally:
            writer.close()

    host, _, port = address.rpartition(":")
    return await asyncio.start_server(talk, host, int(port), limit=LINE_BYTES_MAX)


async def _answer_to(door: Door, line: bytes) -> Answer:
    try:
        request = json.loads(line)
    except ValueError as error:
        return {"error": "bad_request", "detail": str(error)}
    if not isinstance(request, dict):
        return {"error": "bad_request", "detail": "not an object"}
    return await door.ask(request)
