"""A pull worker of the tests, on nothing but the standard library: it holds some actions at once, renews them, and writes
down when it had which by its own count.

    python puller.py NAME DIARY TOKEN URL URL...

A line of the diary is `begin TASK TOKEN FROM UNTIL`, `hold TASK TOKEN UNTIL` or `end TASK TOKEN AT`, in seconds of
CLOCK_BOOTTIME: from FROM to AT, or to the last UNTIL, it took the action for its own. A line is written before what it
says is acted upon.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import sys
import time
from typing import Any

MOST, LEASE_S, WAIT_S, RENEW_S, STEP_S = 4, 5.0, 1.0, 0.8, 0.05
ASK_S = 1.0
"""A lease outlives several questions that nobody answers: one that runs out counts as a death, three are poison."""


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Worker:
    def __init__(self, name: str, diary: str, token: str, nodes: list[str]) -> None:
        self.name = name
        self.diary = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.nodes = itertools.cycle(nodes)
        self.node = next(self.nodes)
        self.serial = 0
        self.held: dict[str, dict[str, Any]] = {}

    def write(self, what: str, action: dict[str, Any], *times: float) -> None:
        words = (what, action["task"]["id"], action["token"], *(f"{each:.6f}" for each in times))
        os.write(self.diary, (" ".join(map(str, words)) + "\n").encode())

    def ask(self, verb: str, body: object, key: str = "") -> Any:
        """None: nobody knows; the next node is asked next."""
        patience_s = ASK_S + (WAIT_S if verb == "claim" else 0)
        connection = http.client.HTTPConnection(self.node, timeout=patience_s)
        try:
            headers = self.headers | ({"Idempotency-Key": key} if key else {})
            connection.request("POST", f"/v1/work/{verb}?deadline=800ms", json.dumps(body), headers)
            answer = connection.getresponse()
            said = json.load(answer)
            if answer.status == 200:
                return said
            if answer.status < 500 and answer.status != 429:
                sys.exit(f"{verb}: {said}")
        except (OSError, http.client.HTTPException, ValueError):
            pass
        finally:
            connection.close()
        self.node = next(self.nodes)
        time.sleep(STEP_S)
        return None

    def claim(self) -> None:
        """Under one key until it is answered."""
        self.serial += 1
        key = f"{self.name}-{os.getpid()}-{self.serial}"
        claim = {"worker": self.name, "queues": ["pulled*"], "max": MOST, "wait": f"{WAIT_S}s", "lease": f"{LEASE_S}s"}
        while True:
            sent = now()
            answer = self.ask("claim", claim, key)
            if answer is not None:
                break
        for action in answer["actions"]:
            until = sent + action["lease_ms"] / 1000
            if now() < until:
                action |= {"until": until, "renewed": sent, "due": now() + action["payload"]}
                self.write("begin", action, now(), until)
                self.held[action["action"]] = action

    def work(self) -> None:
        done = [each for each in self.held.values() if each["due"] <= now() < each["until"]]
        if done:
            self.finish(done)
        for over in [name for name, each in self.held.items() if each["until"] <= now()]:
            del self.held[over]
        if any(each["renewed"] + RENEW_S < now() for each in self.held.values()):
            self.renew()
        time.sleep(STEP_S)

    def finish(self, done: list[dict[str, Any]]) -> None:
        for each in done:
            self.write("end", each, now())
            del self.held[each["action"]]
        reports = [{"action": each["action"], "token": each["token"], "result": each["payload"]} for each in done]
        while self.ask("finish", reports) is None:
            self.renew()

    def renew(self) -> None:
        held = list(self.held.values())
        if not held:
            return
        sent = now()
        answer = self.ask("renew", [{"action": each["action"], "token": each["token"]} for each in held])
        for each, result in zip(held, [] if answer is None else answer["results"], strict=False):
            if "ok" in result and now() < each["until"]:
                each |= {"until": sent + LEASE_S, "renewed": sent}
                self.write("hold", each, each["until"])
            elif "ok" not in result:
                self.write("end", each, now())
                del self.held[each["action"]]

    def run(self) -> None:
        while True:
            if self.held:
                self.work()
            else:
                self.claim()


if __name__ == "__main__":
    Worker(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]).run()
