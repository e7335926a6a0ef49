"""Has a worker's programs loaded anew, wherever it sits: by its node, over the peer link if that is another one."""

from __future__ import annotations

from typing import Final

from quvatlh.core import queries
from quvatlh.ports import LogError, Peers
from quvatlh.service import asks
from quvatlh.service.crew import RELOAD, Crew
from quvatlh.service.pool import Call, Json, Rejected, Unavailable
from quvatlh.service.reads import Reads

ASK_S: Final = 5.0


class Reloading:
    def __init__(self, peers: Peers, node_id: str, crew: Crew, reads: Reads) -> None:
        self._peers = peers
        self._node_id = node_id
        self._crew = crew
        self._reads = reads

    async def reload_worker(self, call: Call, name: str, environment: str | None) -> Json:
        found = await self._reads.read(call, lambda db: queries.workers(db, name))
        if not found:
            raise Rejected("not_found", f"there is no worker named {name}")
        if found[0].facts.role == "pull":
            text = f"{name} is a pull worker: it has no environments, and whoever runs it loads its programs anew"
            raise Rejected("conflict", text)
        try:
            answer = await self._asked(found[0].facts.facts.get("node_id"), asks.ReloadAsk(name, environment))
        except (LogError, asks.Unreadable) as error:
            raise Unavailable("no_master", f"worker {name} cannot be asked now: {error}") from error
        if environment is not None and not answer.environments:
            raise Rejected("not_found", f"worker {name} has no environment {environment}")
        return {"worker": name, "environments": list(answer.environments)}

    async def _asked(self, node: object, ask: asks.ReloadAsk) -> asks.ReloadAnswer:
        if not isinstance(node, str) or node == self._node_id:
            return await self._crew.reload(ask)
        body = await self._peers.request(node, RELOAD, asks.RELOAD_ASK.encode(ask), deadline=ASK_S)
        answer: asks.ReloadAnswer = asks.RELOAD_ANSWER.decode(body)
        return answer
