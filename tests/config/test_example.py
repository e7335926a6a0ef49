"""config.example.yaml names every key, and means what an empty file means."""

from __future__ import annotations

from pathlib import Path

import yaml

from quvatlh.config import load
from quvatlh.config.keys import KEYS

EXAMPLE = Path(__file__).parents[2] / "config.example.yaml"


def paths(tree: object, prefix: str = "") -> set[str]:
    if not isinstance(tree, dict) or not tree:
        return {prefix}
    return {path for key, value in tree.items() for path in paths(value, f"{prefix}.{key}" if prefix else key)}


def test_the_example_names_every_key_and_no_other() -> None:
    assert paths(yaml.safe_load(EXAMPLE.read_text())) == set(KEYS)


def test_the_example_equals_the_defaults() -> None:
    environ = {"HOME": "/home/ann"}
    assert load(str(EXAMPLE), environ=environ, is_root=False) == load(environ=environ, is_root=False)
