"""A node of plain pysyncobj, as it comes: what the log is compared with. It keeps nothing on disk for certain.

Reads questions as lines of JSON on standard input and answers on standard output: `status`, `burst`, `write`.

    python -m tests.bench.plain HOST:PORT OTHER,OTHER JOURNAL-FILE
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, replicated

ITEM_S = 30.0


class Store(SyncObj):  # type: ignore[misc]  # pysyncobj has no types
    def __init__(self, own: str, others: list[str], journal: str) -> None:
        super().__init__(own, others, SyncObjConf(journalFile=journal or None, commandsQueueSize=1_000_000))
        self.taken = 0

    @replicated  # type: ignore[untyped-decorator]
    def put(self, _item: bytes) -> None:
        self.taken += 1


def burst(store: Store, proposers: int, nbytes: int, seconds: float) -> dict[str, Any]:
    """So many proposals under way at any time: each answer proposes the next."""
    item = bytes(nbytes)
    latencies: list[float] = []
    refused = 0
    ends = time.perf_counter() + seconds
    running = proposers
    over = threading.Event()
    lock = threading.Lock()

    def propose() -> None:
        began = time.perf_counter()

        def answered(_result: object, error: int) -> None:
            nonlocal refused, running
            now = time.perf_counter()
            if error == FAIL_REASON.SUCCESS:
                latencies.append(now - began)
            else:
                refused += 1
            if now < ends:
                propose()
                return
            with lock:
                running -= 1
                if running == 0:
                    over.set()

        store.put(item, callback=answered)

    began = time.perf_counter()
    for _ in range(proposers):
        propose()
    over.wait(seconds + ITEM_S)
    took_s = time.perf_counter() - began
    ordered = sorted(latencies) or [0.0]
    return {
        "items": len(latencies),
        "refused": refused,
        "seconds": took_s,
        "p50_ms": ordered[len(ordered) // 2] * 1000,
        "p99_ms": ordered[int(len(ordered) * 0.99)] * 1000,
        "max_ms": ordered[-1] * 1000,
    }


def answer(store: Store, question: dict[str, Any]) -> dict[str, Any]:
    match question["op"]:
        case "status":
            leader = store._getLeader()
            return {
                "leads": store._isLeader(),
                "leader": None if leader is None else str(leader),
                "ready": store.isReady(),
            }
        case "write":
            try:
                store.put(b"x", sync=True, timeout=question["seconds"])
            except Exception as error:  # noqa: BLE001  # it raises what it likes
                return {"error": repr(error)}
            return {"ok": True}
        case "burst":
            return burst(store, question["proposers"], question["bytes"], question["seconds"])
        case other:
            raise ValueError(other)


def main() -> None:
    own, others, journal = sys.argv[1:4]
    store = Store(own, [each for each in others.split(",") if each], journal)
    for line in sys.stdin:
        print(json.dumps(answer(store, json.loads(line))), flush=True)
    store.destroy()


if __name__ == "__main__":
    main()
