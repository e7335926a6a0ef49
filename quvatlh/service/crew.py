"""Workers that sit at this node, as other nodes ask for them: what their actions wrote, what their policies would say; and
that they load their programs anew."""

from __future__ import annotations

from typing import Final, Protocol

from quvatlh.ports import Peers, Unavailable
from quvatlh.service import asks

JUDGE: Final = "judge"
OUTPUT: Final = "output"
RESULT: Final = "result"
RELOAD: Final = "reload"


class Member(Protocol):
    """One worker. Raises LogError when it cannot be asked."""

    async def output(self, ask: asks.OutputAsk) -> asks.OutputAnswer: ...

    async def result(self, ask: asks.ResultAsk) -> asks.ResultAnswer: ...

    async def judge(self, ask: asks.JudgeAsk) -> asks.JudgeAnswer: ...

    async def reload(self, ask: asks.ReloadAsk) -> asks.ReloadAnswer: ...


class Crew:
    def __init__(self, peers: Peers, own: str) -> None:
        """`own` is the name of the node's own worker."""
        self._own = own
        self._members: dict[str, Member] = {}
        peers.handle(OUTPUT, self._output_asked)
        peers.handle(RESULT, self._result_asked)
        peers.handle(JUDGE, self._judge_asked)
        peers.handle(RELOAD, self._reload_asked)

    def join(self, worker: str, member: Member) -> None:
        self._members[worker] = member

    def leave(self, worker: str, member: Member) -> None:
        if self._members.get(worker) is member:
            del self._members[worker]

    async def output(self, ask: asks.OutputAsk) -> asks.OutputAnswer:
        return await self._member(ask.worker).output(ask)

    async def result(self, ask: asks.ResultAsk) -> asks.ResultAnswer:
        return await self._member(ask.worker).result(ask)

    async def judge(self, ask: asks.JudgeAsk) -> asks.JudgeAnswer:
        return await self._member(ask.worker).judge(ask)

    async def reload(self, ask: asks.ReloadAsk) -> asks.ReloadAnswer:
        return await self._member(ask.worker).reload(ask)

    def _member(self, worker: str) -> Member:
        member = self._members.get(worker or self._own)
        if member is None:
            raise Unavailable(f"worker {worker} is not connected to this node")
        return member

    async def _output_asked(self, _asker: str, body: bytes) -> bytes:
        return asks.OUTPUT_ANSWER.encode(await self.output(asks.OUTPUT_ASK.decode(body)))

    async def _result_asked(self, _asker: str, body: bytes) -> bytes:
        return asks.RESULT_ANSWER.encode(await self.result(asks.RESULT_ASK.decode(body)))

    async def _judge_asked(self, _asker: str, body: bytes) -> bytes:
        return asks.JUDGE_ANSWER.encode(await self.judge(asks.JUDGE_ASK.decode(body)))

    async def _reload_asked(self, _asker: str, body: bytes) -> bytes:
        return asks.RELOAD_ANSWER.encode(await self.reload(asks.RELOAD_ASK.decode(body)))
