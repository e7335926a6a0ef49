"""Qu'vatlh, through its library and HTTP. Its workers are its nodes, which the bench starts."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import quvatlh.client.motor  # noqa: F401 - the network, which other libraries load with their module
from quvatlh import App
from tests.bench.pyqueues import jobs

app = App(os.environ.get("PYQUEUES_URL"), token=os.environ.get("PYQUEUES_TOKEN"))


def _task(function: Callable[..., None]) -> Any:
    """As the nodes know it: by the directory of its module."""
    made = app.task(function)
    made.target = f"jobs:{function.__name__}"
    return made


tally, mark = _task(jobs.tally), _task(jobs.mark)


def worker(_processes: int) -> list[list[str]]:
    return []


async def many(count: int) -> None:
    await app.aenqueue_many(tally.call() for _ in range(count))


async def one(number: int) -> None:
    await mark.aenqueue(number)
