"""A seat at a node across a WebSocket: for a worker that holds no replica and no vote.

One connection at a time, to any node. When it ends, or the node does not answer a beat, the next node is tried at once: a
lease is longer than that takes, so the actions go on. What was missed in between the new node tells as it is by then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from quvatlh.ports import LogError, Unavailable
from quvatlh.service import asks
from quvatlh.service.crew import Member
from quvatlh.service.presence import BEAT_S
from quvatlh.service.seat import LISTED_MAX, Look, Occupant, Report
from quvatlh.service.wire import Hello, Line, Link, Silent, Welcome

DIAL_S: Final = 1.0
WELCOME_S: Final = 1.0
OPEN_S: Final = 6.0
LOOK_S: Final = 2.0
MORE_S: Final = 1.0
"""A node gives up in its time; it is not waited for much longer."""
REST_S: Final = 0.05
REST_MAX_S: Final = 1.0
"""Between two rounds of all nodes, none of which could be reached."""

Dial = Callable[[str], Awaitable[Line]]
"""To a URL; OSError when it cannot be reached, PermissionError when it refuses this worker."""


class RemoteSeat:
    """seat.Seat."""

    def __init__(
        self, dial: Dial, servers: Sequence[str], worker: str, note: Callable[..., None] = lambda *_, **__: None
    ) -> None:
        """`servers` are URLs as they were configured; more are learned from the cluster."""
        self._dial = dial
        self._given = tuple(servers)
        self._learned: tuple[str, ...] = ()
        self._worker = worker
        self._note = note
        self._occupant: Occupant
        self._member: Member
        self._session = ""
        self._link: Link | None = None
        self._url = ""
        self._complaints: dict[str, str] = {}
        """URL -> why there is no connection to it, as it was told last."""
        self._welcomed = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        return self._link is not None and self._link.is_up and self._welcomed.is_set()

    @property
    def servers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._given, *self._learned)))

    def sit(self, occupant: Occupant) -> None:
        self._occupant = occupant

    def serve(self, member: Member) -> None:
        """Who answers what the node asks."""
        self._member = member

    # --- the connection ---

    async def run(self) -> None:
        """From one node to the next, the one after the last first."""
        rest_s = REST_S
        while True:
            for url in self._order():
                if await self._stay_at(url):
                    rest_s = REST_S
                    break
            else:
                await asyncio.sleep(rest_s)
                rest_s = min(REST_MAX_S, rest_s * 2)

    def _order(self) -> list[str]:
        urls = list(self.servers)
        place = urls.index(self._url) + 1 if self._url in urls else 0
        return urls[place:] + urls[:place]

    async def _stay_at(self, url: str) -> bool:
        """Whether there was a connection, which is over now."""
        try:
            async with asyncio.timeout(DIAL_S):
                line = await self._dial(url)
        except PermissionError as error:
            self._complain("the node refuses this worker", url, str(error))
            return False
        except (OSError, TimeoutError) as error:
            self._complain("the node cannot be reached", url, str(error) or f"no connection within {DIAL_S:g} s")
            return False
        self._complaints.pop(url, None)
        self._url = url
        self._welcomed.clear()
        link = self._link = Link(line, self._do, self._told, self._greeted)
        link.put(Hello(self._worker))
        running = asyncio.get_running_loop().create_task(link.run())
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WELCOME_S):
                    await self._welcomed.wait()
            if not self._welcomed.is_set():
                return False
            self._note("connected", url=url)
            self._occupant.moved()
            if self._session:
                self.follow(self._session)
            await asyncio.wait({running})
            self._note("the connection ended", url=url)
            return True
        finally:
            self._link = None
            link.hang_up()
            await asyncio.gather(running, return_exceptions=True)

    def _complain(self, what: str, url: str, why: str) -> None:
        """Once, and again when there is another reason."""
        if self._complaints.get(url) != why:
            self._complaints[url] = why
            self._note(what, url=url, why=why)

    def _greeted(self, greeting: Hello | Welcome) -> None:
        if isinstance(greeting, Welcome):
            scheme = self._url.partition("://")[0]
            self._learned = tuple(f"{scheme}://{server}" for server in greeting.servers)
            self._welcomed.set()

    def _told(self, kind: str, value: Any) -> None:
        tell = getattr(self._occupant, kind)
        tell() if value is None else tell(value)

    async def _do(self, kind: str, value: Any) -> Any:
        if kind == "output":
            return await self._member.output(value)
        if kind == "result":
            return await self._member.result(value)
        if kind == "judge":
            return await self._member.judge(value)
        if kind == "reload":
            return await self._member.reload(value)
        raise Unavailable(f"{kind} is not for workers")

    # --- a seat.Seat ---

    def follow(self, session: str) -> None:
        """It is asked for with the next beat, in order, if not now."""
        self._session = session
        link = self._link
        if link is not None and link.is_up:
            task = asyncio.get_running_loop().create_task(self._follow(link, session))
            self._following = task

    async def _follow(self, link: Link, session: str) -> None:
        with contextlib.suppress(LogError):  # the connection ended: the next one follows anew
            await link.call("follow", session, LOOK_S)

    async def open(self, wish: asks.Open) -> int:
        floor: int = await self._call("open", wish, OPEN_S)
        return floor

    async def beat(self, beat: asks.Beat) -> asks.BeatAnswer:
        link = self._link
        try:
            answer: asks.BeatAnswer = await self._call("beat", beat, 2 * BEAT_S)
        except Silent:
            if link is not None:
                link.hang_up()
            raise
        return answer

    async def report(self, report: Report, deadline_s: float) -> None:
        await self._call("report", report, deadline_s + MORE_S)

    async def offer(self, offers: asks.Offers) -> None:
        await self._call("offer", offers, LOOK_S)

    async def look(self) -> Look:
        look: Look = await self._call("look", None, LOOK_S)
        return look

    async def listed(self, tokens: Sequence[int]) -> Sequence[int]:
        listed: tuple[int, ...] = await self._call("listed", tuple(tokens[:LISTED_MAX]), OPEN_S)
        return listed

    async def _call(self, kind: str, value: object, deadline_s: float) -> Any:
        link = self._link
        if link is None or not self._welcomed.is_set():
            raise Unavailable("this worker is not connected to any node")
        return await link.call(kind, value, deadline_s)
