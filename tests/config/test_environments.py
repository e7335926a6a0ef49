"""Environments as they stand in a configuration: what is taken, what is refused with which words, what a daemon makes of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from quvatlh.config import ConfigError, load
from quvatlh.config.environments import Environment, with_default

HOME = {"HOME": "/home/ann"}


def loaded(text: str, tmp_path: Path) -> tuple[Environment, ...]:
    file = tmp_path / "config.yaml"
    file.write_text(f"worker:\n  environments:\n{text}")
    return load(str(file), environ=HOME, is_root=False).worker.environments


def test_environments_are_read_from_the_file(tmp_path: Path) -> None:
    text = """
    reports: {python: /srv/venv, cwd: /srv, env: {A: b, N: 1}, preload: [a.b], recycle_tasks: 100, recycle_megabytes: 500}
    rails: {command: [bin/rails, runner, warm.rb], children: 4, start_s: 30}
    plain:
"""
    reports, rails, plain = loaded(text, tmp_path)
    assert reports == Environment(
        "reports", (), "/srv/venv", "/srv", (("A", "b"), ("N", "1")), ("a.b",), None, 100, 500
    )
    assert rails == Environment("rails", ("bin/rails", "runner", "warm.rb"), children=4, start_s=30)
    assert plain == Environment("plain")


def test_and_from_the_environment_as_json() -> None:
    environ = {**HOME, "QUVATLH_WORKER_ENVIRONMENTS": '{"a": {"cwd": "/a"}}', "QUVATLH_WORKER_APP": "shop.tasks"}
    worker = load(environ=environ, is_root=False).worker
    assert (worker.environments, worker.app) == ((Environment("a", cwd="/a"),), "shop.tasks")


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"QUVATLH_WORKER_RELOAD": "true"}, "worker.reload: goes with worker.app: nothing else is watched"),
        (
            {"QUVATLH_WORKER_APP": "shop/tasks.py"},
            r"such as pkg.mod, not shop/tasks\.py \(did you mean shop\.tasks\?\)",
        ),
        ({"QUVATLH_WORKER_APP": "shop-tasks"}, r"such as pkg.mod, not shop-tasks \("),
    ],
)
def test_an_app_is_a_module_and_reload_goes_with_one(environ: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(environ={**HOME, **environ}, is_root=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("    a: [1]", "a: must be a mapping of command, python"),
        ("    a: {pyton: /x}", "a.pyton: is not a key; there are command, python"),
        ("    a: {python: venv}", "a.python: must be absolute: the daemon may be started anywhere"),
        ("    a: {command: rails}", "a.command: must be a list of program and arguments"),
        ("    a: {command: [x], preload: [y]}", "a: command goes with neither python nor preload"),
        (
            "    a: {preload: [not a module]}",
            "a.preload: must be the name of a module such as pkg.mod, not not a module",
        ),
        ("    a: {children: 0}", "a.children: must be a whole number from 1 to 1000"),
        ("    a: {env: {'A=B': 1}}", "a.env: 'A=B' is not the name of a variable"),
        ("    a/b: {}", "'a/b' is no name"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(text, tmp_path)
    assert f"worker.environments: {words}" in str(caught.value)


def test_there_is_always_a_default() -> None:
    assert with_default((), None, "/srv") == (Environment("default", cwd="/srv"),)
    given = (Environment("other", cwd="/o"), Environment("default", preload=("a",)))
    assert with_default(given, "app", "/srv") == (
        Environment("default", cwd="/srv", preload=("a", "app")), Environment("other", cwd="/o"),
    )  # fmt: skip


def test_an_interpreter_may_be_named_by_its_virtual_environment(tmp_path: Path) -> None:
    assert Environment("a", python=str(tmp_path)).interpreter == str(tmp_path / "bin" / "python")
    assert Environment("a", python="/usr/bin/python3").interpreter == "/usr/bin/python3"
    assert Environment("a").interpreter == sys.executable
