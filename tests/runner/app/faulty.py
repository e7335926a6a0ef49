"""Warm processes with a fault of their own, by name; one without answers every call with its name."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

KEPT: list[bytearray] = []


def say(message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def result(name: str, **given: Any) -> None:
    say({"type": "result", "id": name, **given})


def floods(name: str, path: str) -> None:
    """Until there is such a file, or for longer than anybody is patient."""
    line = json.dumps({"type": "progress", "id": name, "percent": 1}) + "\n"
    for _ in range(1000):
        sys.stdout.write(line * 1000)
        if os.path.exists(path):
            break
    result(name, value=os.path.exists(path))


def hurries(name: str) -> None:
    lines = [json.dumps({"type": "progress", "id": name, "text": str(each)}) for each in range(1000)]
    sys.stdout.write("\n".join(lines) + "\n")
    result(name)


def gives_up(name: str) -> None:
    say({"type": "error", "id": name, "stopped": True, "text": "stopped"})


def is_ready_again(name: str, version: int) -> None:
    say({"type": "ready", "version": version})
    result(name)


def waits(name: str, path: str) -> None:
    say({"type": "progress", "id": name})
    while not os.path.exists(path):
        time.sleep(0.001)
    result(name, value=os.getpid())


def is_deaf(_name: str) -> None:
    os.close(0)
    time.sleep(1000)


def is_deaf_after(name: str) -> None:
    os.close(0)
    result(name)
    time.sleep(1000)


def is_dumb(_name: str) -> None:
    os.close(1)
    time.sleep(1000)


def stays(name: str) -> None:
    result(name, leaving=True)
    time.sleep(1000)


def names_nothing(_name: str) -> None:
    say({"type": "result", "value": 1})


def fails_without_a_name(_name: str) -> None:
    say({"type": "error", "text": "no good"})


def rounds(name: str) -> None:
    for percent, text in (33.3, "a third"), (66.0, None), (1e300, ""):
        say({"type": "progress", "id": name, "percent": percent, "text": text})
    say({"type": "output", "id": name, "text": None})
    result(name, began=1500.6, ms=1)


def fails_without_words(name: str) -> None:
    say({"type": "error", "id": name, "class": None, "text": None, "trace": None})


def grows(name: str, megabytes: int) -> None:
    KEPT.append(bytearray(megabytes * 1_000_000))
    result(name, value=os.getpid())


def pid(name: str) -> None:
    result(name, value=os.getpid())


def returns(name: str, size: int) -> None:
    """That many bytes of JSON."""
    result(name, value="x" * (size - 2))


CALLS: dict[str, Callable[..., None]] = {
    each.__name__: each
    for each in (
        floods, hurries, gives_up, is_ready_again, waits, is_deaf, is_deaf_after, is_dumb, stays, names_nothing, fails_without_a_name,
        rounds, fails_without_words, grows, pid, returns,
    )
}  # fmt: skip


def first(path: str) -> None:
    """Only the first process that asks for this file begins."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        sys.exit(1)


def complains(count: str) -> None:
    """For so many bytes, and ends."""
    sys.stderr.write("x" * int(count) + "\nno gem \0 of that name\n")
    sys.exit(1)


def complains_of_little() -> None:
    sys.stderr.write("deprecated\n")


def mute() -> None:
    os.close(1)
    time.sleep(1000)


MODES: dict[str, Callable[..., None]] = {each.__name__: each for each in (first, complains, complains_of_little, mute)}


def main() -> None:
    if len(sys.argv) > 1:
        MODES[sys.argv[1]](*sys.argv[2:])
    say({"type": "ready", "version": 1})
    for line in sys.stdin:
        message = json.loads(line)
        name, call = message.get("id"), message.get("call")
        if message["type"] == "run" and call in CALLS:
            CALLS[call](name, *message["args"])
        elif message["type"] == "run":
            result(name, value=call)
        elif name is None:
            return


main()
