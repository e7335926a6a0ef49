"""Warm processes with a fault of their own, by name; one without answers every call with its name."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any


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


CALLS: dict[str, Callable[..., None]] = {each.__name__: each for each in (floods, hurries, gives_up)}


def main() -> None:
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
