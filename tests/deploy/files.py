"""What deploy/ says, taken apart: the compose file as data, the Containerfile as instructions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


class Instruction(NamedTuple):
    word: str
    rest: str


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def containerfile() -> list[Instruction]:
    text = (DEPLOY / "Containerfile").read_text()
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [Instruction(*line.split(None, 1)) for line in joined.splitlines()]


def last(word: str) -> str:
    """Of the stage that is shipped."""
    return [each.rest for each in containerfile() if each.word == word][-1]


def variables() -> dict[str, str]:
    """What ENV of the image sets."""
    return dict(re.findall(r"(\w+)=(\S+)", last("ENV")))


def health_command() -> list[str]:
    command: list[str] = json.loads(last("HEALTHCHECK").partition("CMD")[2])
    return command
