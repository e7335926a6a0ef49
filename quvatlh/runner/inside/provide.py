"""`quvatlh.task` for this process, before anything that uses it is imported. See server.py."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types


def provide_task(path: str) -> None:
    """Ours, also where another one is installed: what runs the tasks and what they use must be of one kind."""
    if importlib.util.find_spec("quvatlh") is None:
        package = types.ModuleType("quvatlh", "Only `quvatlh.task`: the rest is not installed in this environment.")
        package.__path__ = []
        sys.modules["quvatlh"] = package
    package = importlib.import_module("quvatlh")
    spec = importlib.util.spec_from_file_location("quvatlh.task", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["quvatlh.task"] = module
    spec.loader.exec_module(module)
    package.task = module  # type: ignore[attr-defined]
