"""A node for transcripts: the real HTTP server over the pool in memory, in a thread of its own, and a handful of words
that say what happens to its tasks. Its clock stands still until it is told; the commands see the same one.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from quvatlh.api.formats import duration_ms
from quvatlh.api.server import Options, Server
from quvatlh.service.pool import Call, Json, Output, Rejected, Unavailable, Unknown
from tests.fakes.market import worker
from tests.fakes.pool import FakePool

T = TypeVar("T")

PROBLEMS: Final[Mapping[str, Callable[[], BaseException]]] = {
    "no_master": lambda: Unavailable("no_master", "there is no master at the moment", retry_after_s=1),
    "disk_full": lambda: Unavailable(
        "disk_full", "less than 256 MiB are free on the disk of node one", retry_after_s=1
    ),
    "unknown": lambda: Unknown("the master was lost before it answered"),
    "gone": lambda: Rejected("gone", "the task of this id was purged"),
}


class StagePool(FakePool):
    def __init__(self) -> None:
        super().__init__()
        self.at_wait: dict[str, list[str]] = {}
        """Task -> what happens to it as soon as somebody waits for it."""
        self.is_waited_for = threading.Event()
        self.stuck: str | None = None
        """Every call fails with this problem."""

    async def task(self, call: Call, task_id: str, wait_ms: int = 0) -> Json:
        if wait_ms:
            self.is_waited_for.set()
        if wait_ms and task_id in self.at_wait:
            words = self.at_wait.pop(task_id)
            self.tell(words)
            if words[0] == "retry":  # a question that ends before the task does, as a real one would after a while
                return await super().task(call, task_id)
        return await super().task(call, task_id, wait_ms)

    async def _enter(self, call: Call) -> None:
        if self.stuck is not None:
            problem = PROBLEMS[self.stuck]()
            raise problem
        await super()._enter(call)

    async def bulk(self, call: Call, bulk_id: str) -> Json:
        """Half of it from question to question."""
        found = await super().bulk(call, bulk_id)
        found["done"] = min(found["matched"], found["done"] + -(-found["matched"] // 2))
        found["state"] = "done" if found["done"] == found["matched"] else "working"
        return dict(found)

    def tell(self, words: list[str]) -> None:
        """`start ID`, `write ID stdout TEXT`, `succeed ID`, `fail ID CODE`, `retry ID CODE [THEN...]`, `back-off ID CODE SPAN`,
        `delete ID`, `when-waited ID ...`,
        or about
        the node: `later 5m`, `bulk-above N`, `stuck CODE`, `unstuck`, `tail-only`, `worker-there`, `log-begins N`,
        `log-gap N N`; about workers: `worker NAME SLOTS TAG...`, `pulls NAME`, `refuses NAME`, `lost NAME`, `rates QUEUE JSON`,
        `place ID WORKER`; about both: `why ID JSON`, `announce ID JSON`."""
        match words:
            case ["start", task_id]:
                self._start(self.records[task_id])
            case ["write", task_id, stream, *text]:
                self._write(task_id, stream, " ".join(text) + "\n")
            case ["succeed", task_id]:
                self._end(self.records[task_id], "succeeded", 0)
            case ["fail", task_id, code]:
                self._end(self.records[task_id], "failed", int(code))
            case ["retry", task_id, code, *rest]:
                self._fail_once(self.records[task_id], int(code))
                if rest:
                    self.at_wait[task_id] = rest
            case ["back-off", task_id, code, span]:
                self._back_off(self.records[task_id], int(code), duration_ms(span))
            case ["delete", task_id]:
                self.finish(task_id, state="deleted")
            case ["when-waited", task_id, *rest]:
                self.at_wait[task_id] = rest
            case _:
                self._change(words)

    def _change(self, words: list[str]) -> None:
        match words:
            case ["later", span]:
                self.now_ms += duration_ms(span)
            case ["bulk-above", number]:
                self.bulk_above = self.queueing.bulk_above = int(number)
            case ["stuck", code]:
                self.stuck = code
            case ["unstuck"]:
                self.stuck = None
            case ["tail-only"]:
                self.tail_only = True
            case ["worker-there"]:
                self.is_worker_there = True
            case ["log-begins", number]:
                self.log_begins = int(number)
            case ["log-gap", begin, end]:
                self.log_gap = (int(begin), int(end))
            case _:
                self._place(words)

    def _place(self, words: list[str]) -> None:
        match words:
            case ["rates", name, text]:
                self.queueing.rates[name] = json.loads(text)
            case ["worker", name, slots, *tags]:
                self.crew[name] = worker(name, int(slots), *tags)
            case ["pulls", name]:
                self.crew[name] |= {"role": "pull", "adapters": ["pull"]}
            case ["refuses", name]:
                self.refusing.add(name)
            case ["lost", name]:
                self.crew[name]["state"] = "lost"
            case ["place", task_id, name]:
                self.placed[task_id] = name
            case ["why", task_id, text]:
                self.why[task_id] = json.loads(text)
            case ["announce", task_id, text]:
                self.records[task_id]["actions"][-1]["announcement"] = json.loads(text)
            case _:
                raise ValueError(f"no such word: {' '.join(words)}")

    def _write(self, task_id: str, stream: str, line: str) -> None:
        output: Output = "stderr" if stream == "stderr" else "stdout"
        self.write_output(task_id, line.encode(), output)
        self.records[task_id]["actions"][-1]["output_tail"] = self.outputs[task_id, output].decode()

    def _start(self, record: Json) -> None:
        attempt = record["attempts"] + 1
        action = {
            "id": "a1",
            "task": record["id"],
            "worker": "one",
            "token": attempt,
            "attempt": attempt,
            "state": "running",
            "started_at_ms": self.now_ms,
            "finished_at_ms": None,
            "exit_code": None,
            "signal": None,
            "error": None,
            "output_tail": None,
        }
        self.placed[record["id"]] = "one"
        record |= {"state": "running", "attempts": attempt, "started_at_ms": self.now_ms}
        record["actions"].append(action)
        self._tell("task.started", record)

    def _fail_once(self, record: Json, code: int) -> None:
        """One attempt failed, and the task is tried again at once."""
        error = {"code": "exit_code", "text": f"ended with exit status {code}"}
        record["actions"][-1] |= {"state": "failed", "exit_code": code, "finished_at_ms": self.now_ms, "error": error}
        self._start(record)

    def _back_off(self, record: Json, code: int, wait_ms: int) -> None:
        """One attempt failed, and the next one waits."""
        error = {"code": "exit", "text": f"exit status {code}"}
        record["actions"][-1] |= {"state": "failed", "exit_code": code, "finished_at_ms": self.now_ms, "error": error}
        record |= {"state": "retrying", "due_at_ms": self.now_ms + wait_ms, "error": error}
        self._tell("task.retrying", record)

    def _end(self, record: Json, state: str, code: int) -> None:
        record["actions"][-1] |= {"state": state, "exit_code": code, "finished_at_ms": self.now_ms}
        if code:
            record["error"] = {"code": "exit_code", "text": f"ended with exit status {code}"}
        self.finish(record["id"], state=state)


class Stage:
    """Entered: a node listens. Its address is `url`."""

    def __init__(self, cert: Path | None = None, key: Path | None = None) -> None:
        self.pool: StagePool
        self.url = ""
        self._options = Options("127.0.0.1:0", str(cert) if cert else None, str(key) if key else None)
        self._scheme = "https" if cert else "http"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stage")
        self._server: Server
        self.bugs: list[BaseException] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._server.stop(grace_s=1.0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        assert self.bugs == [], self.bugs

    def tell(self, words: list[str]) -> None:
        self.call(lambda: self.pool.tell(words))

    def call(self, work: Callable[[], T]) -> T:
        """In the thread of the pool."""

        async def inside() -> T:
            return work()

        result: T = self._do(inside())
        return result

    def _do(self, work: Any) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(timeout=60)

    async def _open(self) -> None:
        self.pool = StagePool()
        self._server = Server(self.pool, self._options, on_broken=self.bugs.append)
        self.url = f"{self._scheme}://{await self._server.start()}"
