"""A child of a Python environment: it runs the functions that it is told to, and says what became of them.

The protocol is that of every warm process (DESIGN.md): a line of JSON each way. Answers are written at once, so that a crash
loses none of them; the executor is rung when all that was given is answered, so that many short tasks cost one wakening.
Standard library only, Python 3.9 or newer; forked by server.py.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import contextlib
import fcntl
import gc
import importlib
import json
import os
import select
import signal
import sys
import termios
import threading
import traceback
from collections import deque
from time import monotonic_ns, perf_counter, time  # as they are now: a task may patch the module's
from typing import Any

from quvatlh import task

from . import environ
from .functions import described, formed, has_children, has_living_children, is_awaitable, line, resolved
from .streams import Stream

VERSION = 1
READ_BYTES = 1024 * 1024
OUTPUT_CHARS_MAX = 1_000_000
"""Of a message: many may be written as six bytes each, and the executor reads no line without end."""
MARKS = ((1, signal.SIGURG), (2, signal.SIGWINCH))
"""Of standard output and error: the signal that each would send if it were asked to send any (F_SETSIG). Whatever else has its
number afterwards has another, or none: as good as fstat, in a third of its time."""
RING = (1).to_bytes(8, sys.byteorder)
STREAMS = ("stdout", "stderr")
read = json.JSONDecoder().raw_decode


def prepare(cwd: str, preload: list[str]) -> None:
    """In the server, once: what is here now is shared by all children, as long as nobody writes to it."""
    sys.stdout, sys.stderr = Stream(1, "stdout"), Stream(2, "stderr")
    sys.path.insert(0, cwd)
    for name in preload:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


class Child:
    def __init__(self, files: dict[str, int]) -> None:
        self._in, self._out, self._bell = files["in"], files["out"], files["bell"]
        self._reads = tuple((name, files[f"{name}_read"]) for name in STREAMS)
        os.set_blocking(self._out, False)
        self._readable, self._writable, self._written = select.poll(), select.poll(), select.poll()
        self._readable.register(self._in, select.POLLIN)
        self._writable.register(self._out, select.POLLOUT)
        for _, fd in self._reads:
            self._written.register(fd, select.POLLIN)
        self._rest = b""
        self._pending: deque[dict[str, Any] | None] = deque()
        self._recalled: list[str] = []
        """Taken back before they have begun, and not said yet."""
        self._unwanted: set[str] = set()
        """Asked to stop before they have begun."""
        self._functions: dict[str, Any] = {}
        self._alone: Any = None
        """The context of what has the process for itself now."""
        self._sharing: dict[str, tuple[Any, asyncio.Task[None]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: asyncio.Future[None] | None = None
        self._feeding = self._nudged = False
        self._lock = threading.Lock()
        self._is_copy = False
        """Of the child that was made, by a task's fork: it has no part in the protocol."""
        self._marks: tuple[tuple[int, int], ...] = ()
        signal.signal(signal.SIGTERM, self._signalled)

    def mark(self) -> None:
        """From now on it is noticed what becomes of standard output and error, where the kernel has such marks."""
        with contextlib.suppress(OSError):
            for fd, number in MARKS:
                fcntl.fcntl(fd, fcntl.F_SETSIG, number)
            self._marks = MARKS

    def serve(self) -> None:
        self.say({"type": "ready", "version": VERSION})
        while True:
            while self._pending:
                message = self._pending.popleft()
                if message is None:
                    self._end()
                else:
                    self._run(message)
            self._ring()
            self._feed(wait=True)

    def copied(self) -> None:
        """In what a task has forked: two that answer for one call, or take the next ones, would be taken for each other."""
        self._is_copy = True
        self._pending.clear()
        self._recalled.clear()
        if signal.getsignal(signal.SIGTERM) == self._signalled:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    # --- what comes ---

    def _feed(self, *, wait: bool) -> None:
        if self._is_copy:
            return
        self._feeding = True
        try:
            if wait or self._readable.poll(0):
                data = os.read(self._in, READ_BYTES)
                if not data:
                    os._exit(0)
                whole, end, rest = data.rpartition(b"\n")
                if end:
                    text, self._rest = (self._rest + whole).decode(), rest
                    for each in text.split("\n"):
                        self._take(read(each)[0])
                else:
                    self._rest += rest
        finally:
            self._feeding = False
        if self._nudged:
            self._nudged = False
            self._feed(wait=False)

    def _take(self, message: dict[str, Any]) -> None:
        if message["type"] == "run":
            self._pending.append(message)
        elif message["type"] == "stop":
            name = message.get("id")
            if name is None:
                self._pending.append(None)
            elif self._alone is not None and self._alone.action == name:
                self._alone.stopping = True
            elif name in self._sharing:
                self._cancel(*self._sharing[name])
            else:
                self._unwanted.add(name)
        elif message["type"] == "recall" and self._alone is not None:
            self._recall(message["id"])

    def _recall(self, name: str) -> None:
        """While another call has the process: what has not begun never will, and that is said."""
        for message in self._pending:
            if message is not None and message["id"] == name:
                self._pending.remove(message)
                self._recalled.append(name)
                return

    def _signalled(self, _number: int, _frame: Any) -> None:
        """There is news, and whatever runs may not look for it by itself."""
        if self._is_copy:
            os._exit(128 + signal.SIGTERM)
        if self._feeding:
            self._nudged = True
        else:
            self._feed(wait=False)
            self._remind()
            self._say_recalled()
        alone = self._alone
        if alone is not None and alone.stopping and not alone.is_seen:
            alone.is_seen = True
            raise task.Cancelled

    # --- what is run ---

    def _run(self, message: dict[str, Any]) -> None:
        context = self._context(message)
        value = self._called(context, message)
        if value is not context and is_awaitable(value):
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(self._share(context, value))
        elif value is not context:
            self._returned(context, value)

    def _context(self, message: dict[str, Any]) -> Any:
        context: Any = task.Context(message, self.say_now, self._look)
        context.tell = lambda stream, text: self.say_now(task.output(context.action, stream, text))
        context.began, context.began_s = time(), perf_counter()
        return context

    def _called(self, context: Any, message: dict[str, Any]) -> Any:
        """What the function returned; the context itself where it failed, which is said."""
        if context.action in self._unwanted:
            context.stopping = True
            self._failed(context, task.Cancelled())
            return context
        mark = task.running.set(context)
        try:
            function = self._function(message["call"])
            environ.tell(message)
            context.began_s = perf_counter()  # what is imported for the first call is not how long its like takes
            self._alone = context
            try:
                return function(*message.get("args", ()), **message.get("kwargs", {}))
            finally:
                self._alone = None
        except BaseException as error:  # noqa: BLE001 - whatever a task raises is its own end alone
            self._failed(context, error)
            return context
        finally:
            task.running.reset(mark)

    def _function(self, target: str) -> Any:
        found = self._functions.get(target)
        if found is None:
            found = self._functions[target] = resolved(target)
        return found

    def _returned(self, context: Any, value: Any) -> None:
        if self._is_copy:
            self._fall(0)
        try:
            name, text = formed(value)
        except BaseException as error:  # noqa: BLE001 - what it returned may be of any make
            return self._failed(context, error)
        took_ms = (perf_counter() - context.began_s) * 1000
        value_part = f',"{name}":{text}' if text else ""
        leaving = self._tidied(context)
        head = f'"id":"{context.action}","began":{int(context.began * 1000)},"ms":{took_ms:.3f}'
        head += f',"drained":{monotonic_ns()}'
        shared = ',"shared":true' if hasattr(context, "shared") else ""
        self._write(f'{{"type":"result",{head}{shared}{value_part}{leaving}}}\n'.encode())
        return self._after(leaving)

    def _failed(self, context: Any, error: BaseException) -> None:
        if self._is_copy:
            self._print_trace(context, described(error, context).get("trace", ""))
            self._fall(1)
        said = {"type": "error", "id": context.action, "began": int(context.began * 1000)}
        if hasattr(context, "shared"):
            said["shared"] = True
        said.update(described(error, context))
        if said.get("trace"):
            self._print_trace(context, said.pop("trace"))
        leaving = self._tidied(context)
        if leaving:
            said["leaving"] = True
        said["drained"] = monotonic_ns()
        self.say(said)
        self._after(leaving)

    @staticmethod
    def _fall(status: int) -> None:
        """The end of a copy that comes out of its task, as it would come out of its program: what it has written is said."""
        for file in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):
                file.flush()
        os._exit(status)

    def _print_trace(self, context: Any, trace: str) -> None:
        if hasattr(context, "shared"):
            context.tell("stderr", trace)
        else:
            with contextlib.suppress(BaseException):  # it may be the task's own
                sys.stderr.write(trace)

    def _tidied(self, context: Any) -> str:
        """After a task: its outputs are with it; words for the answer if it has left processes behind, or descriptors that the next
        one's output would not come from."""
        shared = getattr(context, "shared", None)
        if shared is not None:
            for stream, rest in shared.items():
                if rest:
                    context.tell(stream, rest)
            # Whose a process is cannot be told as long as others share this one.
            is_last = len(self._sharing) <= 1
            if is_last:
                self._drain_all(context)
            return ',"leaving":true' if is_last and (has_living_children() or self._is_spoiled()) else ""
        for file in (sys.stdout, sys.stderr):
            if getattr(file, "is_used", True):
                with contextlib.suppress(BaseException):
                    file.flush()
        self._drain_all(context)
        return ',"leaving":true' if not self._sharing and (has_children() or self._is_spoiled()) else ""

    def _is_spoiled(self) -> bool:
        """Standard output or error is closed, or is something else now."""
        try:
            for fd, number in self._marks:
                if fcntl.fcntl(fd, fcntl.F_GETSIG) != number:
                    return True
        except OSError:
            return True
        return False

    def _drain_all(self, context: Any) -> None:
        if self._written.poll(0):
            for stream, fd in self._reads:
                self._drain(context.action, stream, fd)

    def _drain(self, action: str, stream: str, fd: int) -> None:
        """What the executor has not read yet of what was written to the file itself, by C or by processes."""
        size = int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"), sys.byteorder)
        while size > 0:
            try:
                data = os.read(fd, min(size, 65536))
            except BlockingIOError:
                return
            size -= len(data)
            said = {"type": "output", "id": action, "stream": stream, "data": base64.b64encode(data).decode()}
            self.say({**said, "drained": monotonic_ns()})

    def _after(self, leaving: str) -> None:
        self._say_recalled()
        if leaving:
            self._ring()
            os._exit(0)

    # --- several at once ---

    async def _share(self, first: Any, awaitable: Any) -> None:
        """Until nothing of what is async goes on."""
        loop = asyncio.get_running_loop()
        self._idle = loop.create_future()
        self._spawn(first, awaitable)
        loop.add_reader(self._in, self._more)
        try:
            self._next()
            await self._idle
        finally:
            loop.remove_reader(self._in)

    def _spawn(self, context: Any, awaitable: Any) -> None:
        context.shared = dict.fromkeys(STREAMS, "")
        mark = task.running.set(context)
        running = asyncio.get_running_loop().create_task(self._follow(context, awaitable))
        task.running.reset(mark)
        self._sharing[context.action] = context, running
        if context.action in self._unwanted:
            self._cancel(context, running)

    @staticmethod
    def _cancel(context: Any, running: asyncio.Task[None]) -> None:
        """Not before its first step: it would have none, and nobody would hear of its end."""
        context.stopping = True
        running.get_loop().call_soon_threadsafe(running.cancel)

    async def _follow(self, context: Any, awaitable: Any) -> None:
        try:
            value = await awaitable
        except BaseException as error:  # noqa: BLE001 - as in _called
            self._failed(context, error)
        else:
            self._returned(context, value)
        self._sharing.pop(context.action, None)
        asyncio.get_running_loop().call_soon(self._rest_or_ring)

    def _rest_or_ring(self) -> None:
        self._ring()
        if not self._sharing and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _more(self) -> None:
        if self._is_copy:
            self._fall(1)
        self._feed(wait=False)
        self._next()

    def _next(self) -> None:
        while self._pending and self._pending[0] is not None:
            message = self._pending.popleft()
            assert message is not None
            context = self._context(message)
            value = self._called(context, message)
            if value is not context and is_awaitable(value):
                self._spawn(context, value)
            elif value is not context:
                self._returned(context, value)
                self._ring()
            else:
                self._ring()

    # --- what goes ---

    def say(self, message: dict[str, Any]) -> None:
        self._write(line(message))

    def _say_recalled(self) -> None:
        """From wherever the process was: only if it was not just writing itself. It is asked again."""
        if self._recalled and self._lock.acquire(blocking=False):
            names, self._recalled = self._recalled, []
            try:
                data = b"".join(line({"type": "recalled", "id": name}) for name in names)
                self._push(data)
            finally:
                self._lock.release()
            self._ring()

    def say_now(self, message: dict[str, Any]) -> None:
        if not self._is_copy:
            text = message["text"]
            for at in range(0, max(1, len(text)), OUTPUT_CHARS_MAX):
                self.say({**message, "text": text[at : at + OUTPUT_CHARS_MAX]})
            self._ring()
        elif message["type"] == "output":
            with contextlib.suppress(OSError):
                os.write(2 if message["stream"] == "stderr" else 1, message["text"].encode("utf-8", "replace"))

    def _write(self, data: bytes) -> None:
        if self._is_copy:
            return
        with self._lock:
            self._push(data)

    def _push(self, data: bytes) -> None:
        rest: bytes | memoryview = data
        while rest:
            try:
                sent = os.write(self._out, rest)
            except BlockingIOError:
                self._ring()
                self._writable.poll()
                continue
            if sent == len(rest):
                return
            rest = memoryview(rest)[sent:]

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._bell, RING)

    def _look(self) -> None:
        if threading.current_thread() is threading.main_thread() and not self._feeding:
            self._feed(wait=False)
            self._remind()

    def _remind(self) -> None:
        """What was read beside the loop's own reader is not forgotten by it."""
        if self._pending and self._loop is not None and self._idle is not None and not self._idle.done():
            self._loop.call_soon_threadsafe(self._next)

    def _end(self) -> None:
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()  # noqa: SLF001 - os._exit would leave them out
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(0)


def run_child(files: dict[str, int], _message: dict[str, Any]) -> None:
    child = Child(files)
    os.register_at_fork(after_in_child=child.copied)
    child.mark()
    try:
        child.serve()
    except BaseException:  # noqa: BLE001 - a task has broken what it runs in; that is its crash
        with contextlib.suppress(BaseException):
            os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
    finally:
        os._exit(1)
