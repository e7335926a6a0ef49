"""Every state and every verb of both tables, done for real; and the diagram in DESIGN.md is the one of the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from quvatlh.core import commands as c
from quvatlh.core.limits import HOUR_MS
from quvatlh.core.model import ActionState, Retry, TaskState
from quvatlh.core.transitions import ACTION, ACTION_VERBS, TASK, TASK_VERBS, diagram
from tests.core.table import Table

DESIGN = Path(__file__).parents[2] / "quvatlh" / "core" / "DESIGN.md"
LONG = Retry(backoff="constant", first_ms=3 * HOUR_MS, jitter_permille=0)


def in_state(table: Table, state: str) -> int:
    """A job `t` that is in this state, due in three hours if it waits, expiring in one; the token of its last award."""
    later = table.now + 3 * HOUR_MS if state == "scheduled" else None
    table.add("t", retry=LONG, at_ms=later, expires_ms=table.now + HOUR_MS)
    if state in {"scheduled", "pending"}:
        return 999
    token = table.award("t")
    if state == "running":
        table.start(token)
    elif state == "deleted":
        table.finish(table.award("t") or token, 2)
        table.do(c.Delete(("t",)))
    elif state != "claimed":
        how = 0 if state == "succeeded" else 1
        told: dict[str, Any] = {"permanent": True} if state == "failed" else {}
        table.finish(token, how, **told)
    return token


def wait_and(hours: int, command: c.AnyCommand) -> Callable[[Table, int], Any]:
    def run(table: Table, _: int) -> None:
        table.later(hours * HOUR_MS)
        table.do(command)

    return run


VERBS: dict[str, Callable[[Table, int], Any]] = {
    "promote": wait_and(4, c.Promote()),
    "expire": wait_and(2, c.Expire()),
    "postpone": lambda table, _: table.do(c.Update(("t",), c.TaskChanges(at_ms=table.now + HOUR_MS))),
    "award": lambda table, _: table.award("t"),
    "start": lambda table, token: table.start(token),
    "succeed": lambda table, token: table.finish(token),
    "fail": lambda table, token: table.finish(token, 1, permanent=True),
    "back_off": lambda table, token: table.finish(token, 1),
    "requeue": lambda table, token: table.do(c.Lost((c.Loss(token),))),
    "kill": lambda table, _: table.do(c.Kill(("t",))),
    "delete": lambda table, _: table.do(c.Delete(("t",), failed=True)),
    "retry": lambda table, _: table.do(c.RetryTasks(("t",), sooner=True)),
}


def test_every_verb_of_the_table_is_tried() -> None:
    assert set(VERBS) == set(TASK_VERBS)
    assert set(ACTION_DEEDS) == set(ACTION_VERBS)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("state", get_args(TaskState))
def test_a_task_goes_where_the_table_says_and_nowhere_else(state: TaskState, verb: str, tmp_path: Path) -> None:
    with Table(tmp_path) as table:
        table.worker()
        token = in_state(table, state)
        assert table.state("t") == state
        VERBS[verb](table, token)
        expected = TASK.get((state, verb), state)
        if (state, verb) == ("pending", "start"):
            expected = "pending"  # a job has no action to start; a service's step, tested in test_services
        assert table.state("t") == expected
        table.check()


def action_in(table: Table, state: str) -> int:
    token = table.award(table.add("t", retry=LONG))
    if state == "running":
        table.start(token)
    elif state == "stopping":
        table.do(c.Kill(("t",)))
    elif state == "lost":
        table.do(c.Lost((c.Loss(token),)))
    elif state != "claimed":
        if state == "stopped":
            table.do(c.Kill(("t",)))
        table.finish(token, {"succeeded": 0, "failed": 1, "stopped": 2}[state], output_tail=b"row")
    return token


ACTION_DEEDS: dict[str, Callable[[Table, int], Any]] = {
    "start": lambda table, token: table.start(token),
    "stop": lambda table, _: table.do(c.Kill(("t",))),
    "succeed": lambda table, token: table.finish(token, 0, output_tail=b"row"),
    "fail": lambda table, token: table.finish(token, 1),
    "stopped": lambda table, token: table.finish(token, 2),
    "lose": lambda table, token: table.do(c.Lost((c.Loss(token),))),
}


@pytest.mark.parametrize("verb", ACTION_VERBS)
@pytest.mark.parametrize("state", get_args(ActionState))
def test_an_action_goes_where_the_table_says_and_nowhere_else(state: ActionState, verb: str, tmp_path: Path) -> None:
    with Table(tmp_path) as table:
        table.worker()
        token = action_in(table, state)
        assert action_state(table, token) == state
        ACTION_DEEDS[verb](table, token)
        assert action_state(table, token) == ACTION.get((state, verb), state)
        table.check()


def action_state(table: Table, token: int) -> Any:
    sql = "SELECT state FROM live WHERE token = ? UNION ALL SELECT state FROM action WHERE token = ?"
    return table.db.execute(sql, (token, token)).fetchone()[0]


@pytest.mark.parametrize("table", [TASK, ACTION])
def test_the_diagram_in_the_texts_is_drawn_from_the_table(table: Any) -> None:
    assert diagram(table) in DESIGN.read_text()
