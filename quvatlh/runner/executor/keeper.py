"""The executor's memory and its rules: who is held, until when each lease runs, and which daemon is heard.

Each action's lease counts from the send time of the last beat that was answered, on the boot clock. When it is over the
action is killed, and nothing else here ends one by itself. The end of an action is kept until somebody says that it need
not be, however many daemons come and go. No token is started that is not above all seen before.

What does not fit into the worker's slots waits in line, strictly by token, and begins when one before it ends, without a word
of the daemon: so short actions follow each other as fast as processes start. While there is a line, ends are told in bulk.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from quvatlh.config.environments import Environment
from quvatlh.ports import ActionFinished, ActionProgress, ActionSpec, ActionStarted, Clock, HeldAction, Life, RunError
from quvatlh.runner import wire
from quvatlh.runner.carriers import Carrier

LOOK_S_MAX: Final = 0.25
"""Leases are looked at this often at least: the loop's timers stand while the machine sleeps, the boot clock does not."""
LOOK_S_MIN: Final = 0.001
"""And no more often: what is due by one clock may be due in less than a tick of another, again and again."""
LINGER_S: Final = 3.0
"""So long an executor without work waits for a daemon that is being restarted."""
DEATH_WAIT_S: Final = 5.0
TELL_S: Final = 0.01
"""So long an end waits for others while actions wait for slots: nothing waits for its slot then, and what the daemon and the
log do for a dozen at once costs them little more than one. Claims go 50 ms ahead of slots."""

LEASE: Final = RunError("lease", "its lease is over: the worker was out of touch")
STALE_TOKEN: Final = RunError("stale", "its token is not above the highest seen")
STALE_LEASE: Final = RunError("stale", "its lease was over before it began")
STALE_WAIT: Final = RunError("stale", "no slot became free in time")
STALE_STOP: Final = RunError("stale", "it was stopped before it began")
FULL: Final = RunError("resources", "the executor holds more actions and results than it has room for")


@dataclass(slots=True)
class Held:
    spec: ActionSpec
    """Without its payload, once it has begun."""
    until_s: float = 0.0
    """It waits for a slot, and no longer than to this time of the boot clock."""
    runs: bool = False
    """The runner has it."""
    stopping: bool = False
    over: bool = False
    """Its lease is."""
    forgotten: bool = False
    started: ActionStarted | None = None
    finished: ActionFinished | None = None
    told_start: bool = False

    def told(self) -> HeldAction:
        spec = self.spec
        return HeldAction(
            spec.id, spec.fence, spec.seq, spec.slots, spec.lease_s, self.stopping, self.started, self.finished
        )


class Keeper:
    """A ports.RunnerListener. `quit_` is called once, when the executor is to end."""

    def __init__(
        self,
        runner: Carrier,
        clock: Clock,
        life: tuple[str, bytes, str],
        quit_: Callable[[], None],
        *,
        isolated: bool,
    ) -> None:
        self._runner = runner
        self._clock = clock
        self._session, self._secret, self.worker = life
        self._isolated = isolated
        self._quit = quit_
        self._loop = asyncio.get_running_loop()
        self._held: dict[str, Held] = {}
        self._line: deque[Held] = deque()
        """What waits for slots, by token."""
        self._fence = 0
        self._renewed_s = self._alone_s = clock.boot()
        """A session is opened after this, so its first leases are no longer than if they were counted from here."""
        self._link: wire.Link | None = None
        self._untold: dict[str, Held] = {}
        """Events that wait for a slow daemon, or for company."""
        self._telling: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._watched: dict[str, wire.Link] = {}
        """Actions of which more is waited for, and who is to be told."""
        self._timer: asyncio.TimerHandle | None = None
        self._look_at_s = 0.0
        """When that looks, by the boot clock."""
        self._result_bytes = 0
        """Of ends that are kept."""
        self._ending = False
        self.on_environments: Callable[[tuple[Environment, ...]], None] = lambda _environments: None
        self.on_reload: Callable[[str | None], Collection[str]] = lambda _name: ()
        """Of whoever has any; what they load is no matter of leases."""
        self.on_read: Callable[[], None] = lambda: None
        """What came together from the daemon has been begun together."""
        runner.listen(self)
        self._arm()

    # --- daemons ---

    def take(self, link: wire.Link) -> None:
        """It is the newest: the one before hears no more."""
        before, self._link = self._link, link
        if before is not None:
            before.send("taken")
            before.close()
        self._untold.clear()
        for held in self._held.values():
            held.told_start = held.started is not None
        link.on_pace = self._tell_untold
        told = tuple(held.told() for held in self._held.values())
        life = Life(self._session, self._secret, self.worker, self._isolated, self._fence, told, fresh=False)
        link.send("life", *wire.life_out(life))

    def let_go(self, link: wire.Link) -> None:
        if link is self._link:
            self._link = None
            self._untold.clear()
            self._alone_s = self._clock.boot()
            self._look()

    def heard(self, link: wire.Link, message: wire.Message) -> None:
        """From the newest daemon. An unknown kind is none of ours to judge: versions are equal."""
        if link is not self._link:
            return
        kind, *rest = message
        if kind in {"ask", "reload", "environments"}:
            self._asked(link, kind, *rest)
        elif kind == "start":
            self.start(wire.spec_in(*rest))
        elif kind == "stop":
            self._stop(*rest)
        elif kind == "recall":
            self._recall(STALE_WAIT)
        elif kind == "forget":
            self._forget(*rest)
        elif kind == "renew":
            self._renew(*rest)
        elif kind == "watch":
            self._watch(link, *rest)
        elif kind == "close":
            self.end(*rest)

    def _asked(self, link: wire.Link, kind: str, told: Any, environment: str | None = None) -> None:
        """What is no matter of leases."""
        if kind == "ask":
            link.send("answer", told)
        elif kind == "reload":
            link.send("reloaded", told, tuple(self.on_reload(environment)))
        else:
            self.on_environments(wire.environments_in(told))

    # --- actions ---

    def start(self, spec: ActionSpec) -> None:
        if spec.id in self._held:
            return
        held = Held(spec)
        if len(self._held) >= wire.HELD_MAX or self._result_bytes > wire.RESULTS_BYTES_MAX:
            held.forgotten = True
            self._refuse(held, FULL)
            return
        self._held[spec.id] = held
        if spec.fence <= self._fence:
            self._refuse(held, STALE_TOKEN)
            return
        self._fence = spec.fence
        if self._ending:
            self._refuse(held, STALE_STOP)
            return
        held.until_s = self._clock.boot() + spec.wait_s
        self._line.append(held)
        self._advance()

    def started(self, event: ActionStarted) -> None:
        held = self._held[event.action_id]
        held.started = event
        self._tell(held)

    def progressed(self, event: ActionProgress) -> None:
        """The next one will do, for a daemon that is slow or away."""
        if self._link is not None and not self._link.is_slow:
            self._link.send("progress", event.action_id, event.percent, event.text)

    def finished(self, event: ActionFinished) -> None:
        self._ended(self._held[event.action_id], event)

    def end(self, grace_s: float) -> None:
        """Stop every action, then quit. Said again it can only shorten the grace."""
        self._recall(STALE_STOP)
        for name in list(self._runner.live()):
            self._stop(name, grace_s)
        if not self._ending:
            self._ending = True
            self._spawn(self._end(grace_s))

    # --- the line ---

    def _advance(self) -> None:
        """Begin what has room now, the lowest token first. Calls go on to their pool, where they wait in the same order for
        the same slots: there they are given to children several at a time."""
        while self._line and not self._ending:
            held = self._line[0]
            spec = held.spec
            if spec.work.call is None and spec.slots and spec.width and self._runner.taken + spec.slots > spec.width:
                self._arm_by(min(held.until_s, self._ends_s(held)))
                return
            self._line.popleft()
            self._begin(held)
        if self._untold and not self._runner.has_line:  # a slot is about to be idle
            self._tell_untold()

    def _begin(self, held: Held) -> None:
        if self._ends_s(held) <= self._clock.boot():
            self._refuse(held, STALE_LEASE)
            return
        spec = held.spec
        if spec.payload is not None:
            held.spec = replace(spec, payload=None)
        held.runs = True
        self._arm_by(self._ends_s(held))
        try:
            self._runner.start(spec)
        except (ValueError, RuntimeError) as error:
            self._refuse(held, RunError("unrunnable" if isinstance(error, ValueError) else "stale", str(error)))

    def _recall(self, why: RunError) -> None:
        line, self._line = self._line, deque()
        for held in line:
            self._refuse(held, why)

    def _leave_line(self, held: Held, why: RunError) -> None:
        self._line.remove(held)
        self._refuse(held, why)

    # --- inside ---

    async def _end(self, grace_s: float) -> None:
        with contextlib.suppress(TimeoutError):  # what cannot be killed ends with us, as far as the kernel can
            async with asyncio.timeout(grace_s + DEATH_WAIT_S):
                await self._runner.close(grace_s)
        self._quit()

    def _stop(self, action_id: str, grace_s: float | None) -> None:
        held = self._held.get(action_id)
        if held is None or held.finished is not None:
            return
        held.stopping = True
        if held.runs:
            self._runner.stop(action_id, grace_s)
        else:
            self._leave_line(held, STALE_STOP)
            self._advance()

    def _forget(self, action_ids: Collection[str]) -> None:
        for name in action_ids:
            held = self._held.get(name)
            if held is not None:
                held.forgotten = True
                if held.finished is not None:
                    self._drop(name)

    def _renew(self, sent_s: float) -> None:
        self._renewed_s = max(self._renewed_s, sent_s)
        self._arm()

    def _watch(self, link: wire.Link, action_id: str, stdout: int, stderr: int) -> None:
        """Say once that there is more than so much."""
        run = self._runner.run_of(action_id)
        if any(held.spec.id == action_id for held in self._line):
            self._loop.call_later(LOOK_S_MAX / 10, link.send, "more", action_id)
        elif run is None or any(has > known for has, known in zip(run.written(), (stdout, stderr), strict=True)):
            link.send("more", action_id)
        else:
            asked = action_id in self._watched
            self._watched[action_id] = link
            if not asked:
                self._spawn(self._say_more(run.bell.wait(), action_id))

    async def _say_more(self, rung: asyncio.Future[None], action_id: str) -> None:
        """To the newest connection; one waits for all who look."""
        try:
            await rung
        finally:
            link = self._watched.pop(action_id)
        link.send("more", action_id)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refuse(self, held: Held, error: RunError) -> None:
        now_ms = self._clock.wall_ms()
        self._ended(held, ActionFinished(held.spec.id, None, None, error, "", "", 0, 0, None, now_ms))

    def _ended(self, held: Held, event: ActionFinished) -> None:
        held.finished = event
        if held.forgotten:
            self._held.pop(event.action_id, None)
        else:
            self._result_bytes += 0 if event.result is None else len(event.result)
        self._tell(held)
        if held.runs:
            held.runs = False
            if self._line:  # a call that waits in its pool is older, and takes the slot in this turn of the loop
                self._loop.call_soon(self._advance)
            else:
                self._advance()

    def _drop(self, name: str) -> None:
        end = self._held.pop(name).finished
        self._result_bytes -= 0 if end is None or end.result is None else len(end.result)

    def _tell(self, held: Held) -> None:
        """Now, or with what comes next: in either case in the order in which things happened to one action."""
        link = self._link
        if link is None:
            return
        if link.is_slow or self._line or self._untold or self._runner.has_line:
            self._untold[held.spec.id] = held
            if self._telling is None and not link.is_slow:
                self._telling = self._loop.call_later(TELL_S, self._tell_untold)
        else:
            self._say(link, held)

    def _tell_untold(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        link = self._link
        if link is None or link.is_slow:
            return
        untold, self._untold = self._untold, {}
        for held in untold.values():
            self._say(link, held)

    def _say(self, link: wire.Link, held: Held) -> None:
        """An end tells of its start, too."""
        if held.finished is not None:
            link.send("finished", *wire.finished_out(held.finished))
        elif held.started is not None and not held.told_start:
            held.told_start = True
            link.send("started", *wire.started_out(held.started))

    # --- time ---

    def _ends_s(self, held: Held) -> float:
        return self._renewed_s + held.spec.lease_s

    def _arm(self) -> None:
        """Look again when the next lease or wait ends, or when nobody needs us any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.boot()
        ends = [self._ends_s(held) for held in self._held.values() if held.finished is None and not held.over]
        if self._line:
            ends.append(min(held.until_s for held in self._line))
        if self._link is None:
            ends.append(self._needless_s())
        if ends and not self._ending:
            after_s = max(LOOK_S_MIN, min(min(ends) - now, LOOK_S_MAX))
            self._look_at_s = now + after_s
            self._timer = self._loop.call_later(after_s, self._look)

    def _arm_by(self, at_s: float) -> None:
        """It is armed already, nearly always."""
        look_s = self._look_at_s
        if self._timer is None or (look_s > at_s and look_s > self._clock.boot() + LOOK_S_MIN):
            self._arm()

    def _needless_s(self) -> float:
        """When, without a daemon, the last lease is over: of an action, or of an end that nobody has fetched."""
        return max(self._alone_s + LINGER_S, *(self._ends_s(held) for held in self._held.values()), 0.0)

    def _look(self) -> None:
        now = self._clock.boot()
        for held in [each for each in self._line if each.until_s <= now or self._ends_s(each) <= now]:
            self._leave_line(held, STALE_LEASE if self._ends_s(held) <= now else STALE_WAIT)
        for held in self._held.values():
            if held.runs and not held.over and self._ends_s(held) <= now:
                held.over = True
                self._runner.stop(held.spec.id, 0, LEASE)
        self._advance()
        if self._link is None and self._needless_s() <= now:
            self.end(0)
        self._arm()
