"""What the texts say is what is done."""

from __future__ import annotations

import os
import re
import tomllib
from itertools import chain
from pathlib import Path

from tests.conftest import APART

ROOT = Path(__file__).parents[1]
TEST_COMMAND = "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/pytest"


def test_the_readme_and_ci_run_the_same_test_command() -> None:
    lines = [(ROOT / name).read_text().splitlines().count(TEST_COMMAND) for name in ("README.md", ".ci/run")]
    assert lines == [1, 1]


def test_ci_can_be_run() -> None:
    assert all(os.access(ROOT / ".ci" / name, os.X_OK) for name in ("run", "gate"))


def test_every_dependency_has_its_reason_above_it() -> None:
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    project = tomllib.loads("\n".join(lines))["project"]
    for dependency in chain(project["dependencies"], *project["optional-dependencies"].values()):
        place = lines.index(f'    "{dependency}",')
        assert lines[place - 1].startswith("    # ")


def test_the_engine_is_pinned_exactly() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert "pysyncobj==0.3.17" in dependencies


def test_what_the_readme_points_at_is_there() -> None:
    readme = (ROOT / "README.md").read_text()
    for path in re.findall(r"\]\(([^)#:]+)\)", readme):
        assert (ROOT / path).exists()


def test_what_the_quick_suite_leaves_out_is_run_by_ci() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "pytest --long" in script
    assert all(f"pytest tests/{suite.name}" in script for suite in APART)
