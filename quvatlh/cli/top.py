"""`quvatlh top`: the dashboard's numbers in a terminal, from the same API, going on by themselves."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import sys
from typing import Any

import click

from quvatlh.cli.printing import print_json, say
from quvatlh.cli.session import Session, speaks_http
from quvatlh.cli.status import ExitStatus
from quvatlh.cli.topframe import frame, row_keys
from quvatlh.cli.topkeys import VIEWS, Decoder, State, press
from quvatlh.cli.toplines import text_of
from quvatlh.cli.topread import TICK_S, Reader
from quvatlh.cli.topterm import Terminal
from quvatlh.client import Client

ESCAPE_S = 0.05
"""So long after an escape the rest of what a key sends may come."""
AGES_S = 1.0
"""Ages move on even where nothing happens."""
GONE_AFTER_S = 2.0
"""A node that has not answered for so long is told to be gone; it is asked again."""
PAPER = (100, 40)
"""Columns and lines of a frame that no terminal shows."""


@click.command()
@click.option("--once", is_flag=True, help="Print one frame and end: for scripts.")
@click.option("--view", type=click.Choice(VIEWS), default=VIEWS[0], help="What to begin with. [default: overview]")
@speaks_http
def top(session: Session, *, once: bool, view: str) -> None:
    """Watch health, rates, queues, tasks and workers, live, in this terminal.

    Keys are at the bottom of the screen: 1-4 or o u t w for the view, arrows or j k to move, Enter to open, / to filter
    tasks, s for the order, p to pause, Esc back, q to quit. It goes on by itself when a node is lost and comes back.
    NO_COLOR takes the colours away.
    """
    state = State(view=view)
    if once or session.as_json:
        session.run(lambda client: _once(client, session, state))
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        say("quvatlh: top needs a terminal to read keys from and to draw on; --once prints one frame")
        sys.exit(ExitStatus.USAGE)
    session.run(lambda client: client.cluster())  # what is wrong with address or token is told as by any command
    quick = dataclasses.replace(session.options, deadline_s=min(session.options.deadline_s, GONE_AFTER_S))
    is_plain = bool(session.around.environ.get("NO_COLOR")) or session.around.environ.get("TERM") == "dumb"

    async def watch(client: Client) -> None:
        with Terminal(colours=not is_plain) as terminal:
            await _Screen(client, session, state, terminal).run()

    dataclasses.replace(session, options=quick).run(watch)


async def _once(client: Client, session: Session, state: State) -> None:
    reader = Reader(client, lambda: state, session.around.wall_ms)
    await reader.once()
    if session.as_json:
        print_json(reader.seen.answers)
        return
    columns = session.around.columns or PAPER[0]
    lines = [text_of(line) for line in frame(reader.seen, state, (columns, PAPER[1]), session.around.wall_ms())[:-1]]
    click.echo("\n".join(lines).rstrip())


class _Screen:
    """Keys, signals and answers, to frames."""

    def __init__(self, client: Client, session: Session, state: State, terminal: Terminal) -> None:
        self._state = state
        self._wall_ms = session.around.wall_ms
        self._terminal = terminal
        self._decoder = Decoder()
        self._changed = asyncio.Event()
        self._left = asyncio.Event()
        self._crash: BaseException | None = None
        self._flush: asyncio.TimerHandle | None = None
        self._reader = Reader(client, lambda: self._state, self._wall_ms, self._changed.set)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        handlers = {
            signal.SIGWINCH: self._resized,
            signal.SIGTSTP: self._stopped,
            signal.SIGTERM: self._left.set,
            signal.SIGHUP: self._left.set,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        loop.set_exception_handler(self._crashed)
        loop.add_reader(self._terminal.reads, self._typed)
        working = [asyncio.create_task(work) for work in (self._reader.run(), self._draw_on(), self._left.wait())]
        try:
            self._draw()
            done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            loop.remove_reader(self._terminal.reads)
            for number in handlers:
                loop.remove_signal_handler(number)
            for each in working:
                each.cancel()
            await asyncio.gather(*working, return_exceptions=True)
        if self._crash is not None:
            raise self._crash

    def _crashed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What a key or a signal set off failed: told where it can be read, on the terminal as it was."""
        self._crash = context.get("exception") or RuntimeError(str(context.get("message")))
        self._left.set()

    async def _draw_on(self) -> None:
        """At most four times a second, whatever happens at the node."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGES_S):
                    await self._changed.wait()
            self._changed.clear()
            self._draw()
            await asyncio.sleep(TICK_S)

    def _draw(self) -> None:
        size = self._terminal.size()
        self._terminal.draw(frame(self._reader.seen, self._state, size, self._wall_ms()), size)

    def _typed(self) -> None:
        data = self._terminal.read()
        if not data:
            self._left.set()
            return
        if self._flush is not None:
            self._flush.cancel()
        self._press(self._decoder.feed(data))
        if self._decoder.waits:
            self._flush = asyncio.get_running_loop().call_later(ESCAPE_S, lambda: self._press(self._decoder.flush()))

    def _press(self, keys: list[str]) -> None:
        before = self._state
        for key in keys:
            if key == "redraw":
                self._terminal.forget()
            self._state = press(self._state, key, row_keys(self._reader.seen, self._state))
        if self._state.leaving:
            self._left.set()
        elif keys:
            if self._state.question != before.question:
                self._reader.asked()
            if before.paused and not self._state.paused:
                self._reader.resumed()
            self._draw()

    def _resized(self) -> None:
        self._terminal.forget()
        self._draw()

    def _stopped(self) -> None:
        """Ctrl-Z: the terminal as it was, until the shell brings us back."""
        self._terminal.leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._terminal.enter()
        self._draw()
