"""ports.Executor: the daemon's side of its executor, which may have been started by an earlier daemon.

Nothing is asked twice and nothing polled: one connection, messages both ways, and outputs read from their files, which are
on this machine. What the daemon believes is what the executor told it last.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, Final

from quvatlh.ports import (
    ActionFinished,
    ActionProgress,
    ActionSpec,
    ActionStarted,
    Clock,
    ExecutorListener,
    Life,
    OutputChunk,
)
from quvatlh.runner import hatch, outputs, wire
from quvatlh.runner.capture import STREAMS, Bell
from quvatlh.runner.death import Death
from quvatlh.runner.hatch import ExecutorSettings
from quvatlh.runner.native import ACTION_ID

HELLO_S: Final = 3.0
"""Longer than any stall of a living one; who says nothing for so long is stopped or stuck, and is killed."""
OPEN_S: Final = 20.0
AGAIN_S: Final = 0.05
DEATH_WAIT_S: Final = 5.0
"""For the end of an executor whose connection has ended: `gone` is said when nothing of it is left. Longer only where
something cannot be killed."""
UNSENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""To an executor that does not read. More is not begun."""


class ProcessExecutor:
    """Made on the loop. `note` gets what a person should know."""

    def __init__(self, settings: ExecutorSettings, clock: Clock, note: Callable[[str], None]) -> None:
        self._settings = settings
        self._clock = clock
        self._note = note
        self.on_reloaded: Callable[[], None] = lambda: None
        """Environments begin anew."""
        self._loop = asyncio.get_running_loop()
        self._listeners: list[ExecutorListener] = []
        self._link: wire.Link | None = None
        self._death: Death | None = None
        self._life: Life | None = None
        self._live: dict[str, Bell] = {}
        self._ends: dict[str, ActionFinished] = {}
        """Not forgotten yet: short outputs are in them alone."""
        self._question = 0
        self._questions: dict[int, asyncio.Future[Any]] = {}
        self._cut = asyncio.Event()
        """The connection has ended."""
        self._closing = False
        self._waiting: asyncio.Task[None] | None = None
        self._pruning: asyncio.Task[None] | None = None

    @property
    def life(self) -> Life | None:
        return self._life

    def listen(self, listener: ExecutorListener) -> None:
        self._listeners.append(listener)

    async def open(self) -> Life:
        if self._life is not None:
            return self._life
        fresh = False
        try:
            async with asyncio.timeout(OPEN_S):
                while (life := await self._greet(fresh=fresh)) is None:
                    try:
                        note = await hatch.hatch(self._settings)
                    except hatch.Crowded:
                        await asyncio.sleep(AGAIN_S)
                        continue
                    fresh = True
                    if note:
                        self._note(note)
        except TimeoutError:
            raise OSError(f"no executor in {self._settings.data}: none answers, and none can be started") from None
        return life

    def start(self, action: ActionSpec) -> None:
        if self._link is None or self._life is None:
            raise RuntimeError("there is no executor")
        if not ACTION_ID.fullmatch(action.id):
            raise ValueError(f"not an action id: {action.id!r}")
        if action.id in self._live:
            raise ValueError(f"action {action.id} is live already")
        if self._link.waiting_bytes > UNSENT_BYTES_MAX:
            raise RuntimeError("the executor does not keep up")
        self._live[action.id] = Bell()
        self._link.send("start", *wire.spec_out(action))

    def flush(self) -> None:
        link = self._link
        if link is None or link.is_slow:
            return
        is_alone = link.is_alone
        link.flush()
        if is_alone:
            # The kernel takes it that who writes to a socket of this machine sleeps next, and has the reader wait for his
            # processor, though another is idle: a tenth of a millisecond, while the answer to the producer is made.
            os.sched_yield()

    def stop(self, action_id: str, grace_s: float | None = None) -> None:
        if self._link is not None and action_id in self._live:
            self._link.send("stop", action_id, grace_s)

    def recall(self) -> None:
        if self._link is not None:
            self._link.send("recall")

    def forget(self, action_ids: Collection[str]) -> None:
        for name in action_ids:
            self._ends.pop(name, None)
        if self._link is not None and action_ids:
            self._link.send("forget", tuple(action_ids))

    async def ask(self) -> float:
        sent_s = self._clock.boot()
        await self._asked("ask")
        return sent_s

    async def reload(self, environment: str | None) -> Collection[str]:
        names: Collection[str] = await self._asked("reload", environment)
        self.on_reloaded()
        return names

    def renew(self, sent_s: float) -> None:
        if self._link is not None:
            self._link.send("renew", sent_s)

    def live(self) -> Collection[str]:
        return self._live.keys()

    async def follow(
        self, action_id: str, stdout_offset: int = 0, stderr_offset: int = 0
    ) -> AsyncIterator[OutputChunk]:
        if not ACTION_ID.fullmatch(action_id):
            raise ValueError(f"not an action id: {action_id!r}")
        directory = f"{self._settings.runner.outputs_dir}/{action_id}"
        offsets = {"stdout": stdout_offset, "stderr": stderr_offset}
        while True:
            bell = self._live.get(action_id)
            found = False
            for stream in STREAMS:
                offset, data = outputs.read(directory, stream, offsets[stream])
                if data:
                    offsets[stream] = offset + len(data)
                    found = True
                    yield OutputChunk(stream, offset, data)
            if found:
                continue
            if bell is None or self._link is None:
                break
            self._link.send("watch", action_id, offsets["stdout"], offsets["stderr"])
            await bell.wait()
        for chunk in self._short(action_id, offsets["stdout"], offsets["stderr"]):
            yield chunk

    async def result(self, action_id: str, offset: int) -> tuple[bytes, int] | None:
        if not ACTION_ID.fullmatch(action_id):
            raise ValueError(f"not an action id: {action_id!r}")
        directory = f"{self._settings.runner.outputs_dir}/{action_id}"
        return await asyncio.to_thread(outputs.read_result, directory, offset)

    async def keep(self, action_id: str, stdout: bytes) -> None:
        if not ACTION_ID.fullmatch(action_id):
            raise ValueError(f"not an action id: {action_id!r}")
        settings = self._settings.runner
        directory = f"{settings.outputs_dir}/{action_id}"
        await asyncio.to_thread(outputs.write, directory, stdout, settings.output_bytes_max)

    async def kept(self) -> Collection[str]:
        try:
            return await asyncio.to_thread(os.listdir, self._settings.runner.outputs_dir)
        except FileNotFoundError:
            return ()

    def prune(self, keep: Collection[str]) -> None:
        if self._pruning is None or self._pruning.done():
            kept = frozenset(keep)
            live = frozenset(self._live) | self._ends.keys()
            self._pruning = self._loop.create_task(_prune(self._settings.runner.outputs_dir, kept | live))

    async def close(self, grace_s: float) -> None:
        link, death = self._link, self._death
        if link is None or death is None:
            return
        self._closing = True
        link.send("close", grace_s)
        if not await death.wait(grace_s + 2 * DEATH_WAIT_S):
            death.hasten()
            await death.wait(DEATH_WAIT_S)
        with contextlib.suppress(TimeoutError):  # all that it said last has been heard
            async with asyncio.timeout(DEATH_WAIT_S):
                await self._cut.wait()
        self._closing = False
        self._let_go()
        await self._rest()

    async def leave(self) -> None:
        self._let_go()
        await self._rest()

    # --- the connection ---

    async def _asked(self, kind: str, *more: Any) -> Any:
        """What the executor answers."""
        if self._link is None:
            raise ConnectionError("there is no executor")
        self._question += 1
        number = self._question
        answered = self._questions[number] = self._loop.create_future()
        self._link.send(kind, number, *more)
        try:
            return await answered
        finally:
            self._questions.pop(number, None)

    async def _greet(self, *, fresh: bool) -> Life | None:
        """The life of the executor that is there and ours; None when one is to be started."""
        dialled = await self._dial()
        if dialled is None:
            return None
        link, death, answers = dialled
        link.send("hello", wire.VERSION, self._settings.worker, "open")
        try:
            async with asyncio.timeout(HELLO_S):
                kind, *rest = await answers.get()
        except TimeoutError:
            self._note("the executor does not answer; it is killed with all of its actions")
            death.hasten()
            kind, rest = "lost", []
        if kind == "life":
            self._take(link, death, wire.life_in(*rest, fresh=fresh))
            self._loop.call_soon(self._catch_up, link, answers)
            return self._life
        if kind in {"version", "worker"}:
            what = f"speaks version {rest[0]}" if kind == "version" else f"is of worker {rest[0]}"
            self._note(f"the executor found {what}; it is ended with all of its actions, and a new one started")
            link.send("hello", wire.VERSION, self._settings.worker, "end")
        if not await death.wait(2 * DEATH_WAIT_S):
            death.hasten()
            await death.wait(DEATH_WAIT_S)
        link.cut()
        death.close()
        return None

    def _take(self, link: wire.Link, death: Death, life: Life) -> None:
        self._link, self._death, self._life = link, death, life
        self._cut.clear()
        self._live = {each.id: Bell() for each in life.held if each.finished is None}
        self._ends = {each.id: each.finished for each in life.held if each.finished is not None}
        link.heard = self._heard
        link.send("environments", wire.environments_out(self._settings.environments))

    def _catch_up(self, link: wire.Link, answers: asyncio.Queue[wire.Message]) -> None:
        """What came in one read with the greeting's answer; nothing was read since."""
        while not answers.empty():
            self._heard(link, answers.get_nowait())

    async def _dial(self) -> tuple[wire.Link, Death, asyncio.Queue[wire.Message]] | None:
        answers: asyncio.Queue[wire.Message] = asyncio.Queue()
        peer = socket.socket(socket.AF_UNIX)
        peer.setblocking(False)  # noqa: FBT003 - the standard library's own switch
        directory = os.open(self._settings.data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # However long the path is: an address has room for 107 bytes.
            await self._loop.sock_connect(peer, f"/proc/self/fd/{directory}/{hatch.SOCKET}")
            death = Death.of_peer(peer)
        except (FileNotFoundError, ConnectionRefusedError, ProcessLookupError):
            peer.close()
            return None
        except BaseException:
            peer.close()
            raise
        finally:
            os.close(directory)

        def lost(link: wire.Link) -> None:
            answers.put_nowait(("lost",))
            self._lost(link)

        _, link = await self._loop.create_unix_connection(
            lambda: wire.Link(lambda _link, message: answers.put_nowait(message), lost), sock=peer
        )
        return link, death, answers

    def _heard(self, link: wire.Link, message: wire.Message) -> None:
        if link is not self._link:
            return
        kind, *rest = message
        if kind == "finished":
            self._finished(wire.finished_in(*rest))
        elif kind in {"started", "progress"}:
            for listener in self._listeners:
                if kind == "started":
                    listener.started(ActionStarted(*rest))
                else:
                    listener.progressed(ActionProgress(*rest))
        elif kind == "more":
            bell = self._live.get(rest[0])
            if bell is not None:
                bell.ring()
        elif kind in {"answer", "reloaded"}:
            self._answered(*rest)
        elif kind == "taken":
            self._let_go()
            self._say_gone("another daemon has taken the executor")

    def _answered(self, number: int, answer: Any = None) -> None:
        question = self._questions.get(number)
        if question is not None and not question.done():
            question.set_result(answer)

    def _finished(self, event: ActionFinished) -> None:
        bell = self._live.pop(event.action_id, None)
        self._ends[event.action_id] = event
        for listener in self._listeners:
            listener.finished(event)
        if bell is not None:
            bell.ring()

    def _lost(self, link: wire.Link) -> None:
        if link is not self._link:
            return
        self._cut.set()
        if self._death is not None and not self._closing:
            death, self._death = self._death, None
            self._let_go()
            self._waiting = self._loop.create_task(self._dying(death))

    async def _dying(self, death: Death) -> None:
        """It is gone when nothing of it is left: then its actions may begin elsewhere."""
        ended = await death.wait(DEATH_WAIT_S)
        death.close()
        self._say_gone(
            "the executor has died" if ended else "the executor is lost, and something of it cannot be killed"
        )

    def _let_go(self) -> None:
        link, self._link = self._link, None
        death, self._death = self._death, None
        self._life = None
        live, self._live = self._live, {}
        self._ends.clear()
        if link is not None:
            link.close()
        if death is not None:
            death.close()
        for question in self._questions.values():
            if not question.done():
                question.set_exception(ConnectionError("there is no executor any more"))
        for bell in live.values():
            bell.ring()

    def _say_gone(self, why: str) -> None:
        for listener in self._listeners:
            listener.gone(why)

    async def _rest(self) -> None:
        """What still runs here on its own."""
        for task in (self._waiting, self._pruning):
            if task is not None:
                with contextlib.suppress(OSError):
                    await task

    # --- outputs ---

    def _short(self, action_id: str, stdout: int, stderr: int) -> list[OutputChunk]:
        """What of short outputs has no file, since the end says every byte of it."""
        end = self._ends.get(action_id)
        if end is None:
            return []
        chunks = [
            OutputChunk("stdout", stdout, _rest_of(end.stdout_tail, end.stdout_bytes, stdout)),
            OutputChunk("stderr", stderr, _rest_of(end.stderr_tail, end.stderr_bytes, stderr)),
        ]
        return [chunk for chunk in chunks if chunk.data]


async def _prune(directory: str, keep: Collection[str]) -> None:
    with contextlib.suppress(FileNotFoundError):
        await asyncio.to_thread(outputs.prune, directory, keep)


def _rest_of(text: str, size: int, offset: int) -> bytes:
    data = text.encode()
    return data[offset:] if len(data) == size else b""
