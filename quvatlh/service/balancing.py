"""pool.Market.balance on any node: one hop to the master, again and again until the deadline."""

from __future__ import annotations

import asyncio
from typing import Final

from quvatlh import ports
from quvatlh.core.rejections import FieldError
from quvatlh.ports import Log, LogError, Peers
from quvatlh.service import asks, scoping
from quvatlh.service.answers import problem
from quvatlh.service.balance import Balancer
from quvatlh.service.door import error_of, no_of
from quvatlh.service.pool import Balanced, Call, Rejected
from quvatlh.service.writes import request_of

KIND: Final = "balance"
PAUSE_S: Final = 0.05


class Balancing:
    def __init__(self, log: Log, peers: Peers, balancer: Balancer) -> None:
        self._log = log
        self._peers = peers
        self._balancer = balancer
        peers.handle(KIND, self._asked)

    async def balance(self, call: Call, group: str, most: int | None, *, dry_run: bool) -> Balanced:
        """Asked twice it plans twice, the second time what the first has left; under one Idempotency-Key it has planned
        once, unless that was only to be seen. It moves actions of whatever queue, so it is not for tokens of some."""
        _check(call, group)
        request = None if call.key is None or dry_run else request_of(call.key)
        doubt: LogError | None = None
        loop = asyncio.get_running_loop()
        ends = loop.time() + call.deadline_ms / 1000
        while True:
            ask = asks.BalanceAsk(group, most, dry_run, max(0.0, ends - loop.time()), request)
            try:
                answer = await self._answer(ask)
            except LogError as error:
                again = isinstance(error, ports.Unavailable) or (dry_run or request is not None)
                if isinstance(error, ports.Refused) or not again or loop.time() >= ends:
                    raise problem(doubt or error) from error
                if isinstance(error, ports.Unknown) and not dry_run:
                    doubt = error
                await asyncio.sleep(PAUSE_S)
                continue
            if answer.no is not None:
                raise Rejected(answer.no.code, answer.no.detail)
            moves = [{"task": each.task, "from": each.source, "to": each.target} for each in answer.moves]
            return Balanced(moves, answer.index)

    async def _answer(self, ask: asks.BalanceAsk) -> asks.BalanceAnswer:
        if self._log.acts():
            return await self._balancer.balance(ask.group, ask.most, dry_run=ask.dry_run, request=ask.request)
        master = self._log.role.master
        if master is None or master == self._log.node_id:
            raise ports.Unavailable("no master is known")
        body = await self._peers.request(master, KIND, asks.BALANCE_ASK.encode(ask), deadline=ask.deadline_s)
        answer: asks.BalanceAnswer = asks.BALANCE_ANSWER.decode(body)
        if answer.no is not None and answer.no.kind != "rejected":
            raise error_of(answer.no)
        if answer.index is not None:
            await self._log.wait_applied(answer.index, deadline=ask.deadline_s)
        return answer

    async def _asked(self, _asker: str, body: bytes) -> bytes:
        ask = asks.BALANCE_ASK.decode(body)
        try:
            if not self._log.acts():
                raise ports.Unavailable("this node is not master")
            answer = await self._balancer.balance(ask.group, ask.most, dry_run=ask.dry_run, request=ask.request)
        except LogError as error:
            answer = asks.BalanceAnswer((), None, no_of(error))
        return asks.BALANCE_ANSWER.encode(answer)


def _check(call: Call, group: str) -> None:
    scope = call.principal.scope
    if scope is None:
        return
    if not scope.has_group(group):
        text = f"{group} is none of this token's groups, {scoping.listed(scope.groups)}"
        raise scoping.refused(call.principal, [FieldError("group", text)])
    if not scope.has_all_queues:
        text = f"moves actions of any queue; this token is for queues {scoping.listed(scope.queues)}"
        raise scoping.refused(call.principal, [FieldError("group", text)])
