"""The page for people who come from elsewhere says what is so."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from types import ModuleType

import click

import quvatlh.client
from quvatlh import App
from quvatlh.cli.main import main

PAGE = (Path(quvatlh.client.__file__).parent / "COMING.md").read_text()


def test_its_python_runs() -> None:
    first, *rest = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    shop = ModuleType("shop")
    exec(first, shop.__dict__)
    app: App = shop.__dict__["app"]
    with app.inline():
        for block in rest:
            exec(block, shop.__dict__)
    assert app.schedules().keys() == {"tidy"}


def test_its_commands_and_flags_are_there() -> None:
    for line in "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)).splitlines():
        words = shlex.split(line)[1:]
        command: click.Command = main
        while isinstance(command, click.Group):
            found = command.get_command(click.Context(command), words.pop(0))
            assert found is not None, line
            command = found
        flags = {flag for parameter in command.params for flag in parameter.opts}
        own = words[: words.index("--")] if "--" in words else words
        assert {word for word in own if word.startswith("--")} <= flags, line
