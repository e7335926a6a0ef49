"""Warm processes that do not keep to the protocol, by name; one that does answers every call with its name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

LAST = [""]
"""The call before."""


def say(message: Any) -> None:
    sys.stdout.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
    sys.stdout.flush()


def answer(call: str, name: str, args: list[str]) -> None:  # noqa: C901, PLR0912 - one way to fail a line
    if call == "garbage":
        say("hello from the program")
    elif call == "half":
        sys.stdout.write('{"type":"res')
        sys.stdout.flush()
        os._exit(1)
    elif call == "stranger":
        say({"type": "result", "id": "nobody's"})
    elif call == "wrong":
        say({"type": "result", "id": name, "ms": "long"})
    elif call == "timeless":
        say({"type": "result", "id": name, "began": 2**64})
    elif call == "nan":
        say('{"type":"result","id":"' + name + '","value":NaN}')
    elif call == "endless":
        while True:
            sys.stdout.write("x" * 1_000_000)
    elif call == "garbled":
        say(args[0] + json.dumps({"type": "result", "id": name}))
    elif call == "twice":
        say({"type": "result", "id": name})
        say({"type": "result", "id": name})
    elif call == "again":
        say({"type": "result", "id": LAST[0]})
        say({"type": "result", "id": name, "value": os.getpid()})
    elif call == "starts":
        with open(args[0], "w") as file:
            file.write(str(subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL).pid))
        say({"type": "result", "id": name})
    elif call == "silent":
        time.sleep(1000)
    elif call == "newer":
        say({"type": "weather", "id": name})
        say({"type": "result", "id": name, "value": 1, "color": "blue"})
    elif call == "large":
        say({"type": "result", "id": name, "value": "x" * 100_000})
    elif call == "leaving":
        say({"type": "result", "id": name, "leaving": True})
        os._exit(0)
    elif call == "pid":
        say({"type": "result", "id": name, "value": os.getpid()})
    else:
        say({"type": "result", "id": name, "value": call})


def main() -> None:
    mode = sys.argv[1] if len(sys.argv) > 1 else ""
    if mode == "never-ready":
        time.sleep(1000)
    elif mode == "old":
        say({"type": "ready", "version": 0})
    elif mode == "dies":
        sys.exit(7)
    else:
        if mode == "helped":
            subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL)
        say({"type": "ready", "version": 1})
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "run":
            answer(message["call"], message["id"], message["args"])
            LAST[0] = message["id"]
        elif "id" not in message:
            return


main()
