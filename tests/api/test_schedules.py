"""Schedules over HTTP: as they were given, with what follows from it."""

from __future__ import annotations

import msgspec

from quvatlh.core.model import ScheduleSpec
from tests.api.client import WORK, Client, Node

TASK = {"work": WORK, "queue": "nightly", "expires": "90s", "payload": {"a_ms": 1}}


async def test_a_schedule_is_shown_as_it_was_given_with_its_defaults_its_words_and_its_next_slots(
    client: Client,
) -> None:
    given = {"cron": "30 2 * * *", "zone": "Europe/Berlin", "jitter": "5m", "overlap": "queue", "task": TASK}
    made = (await client.ask("PUT", "/v1/schedules/backup", given)).json
    task = made.pop("task")
    assert {name: task[name] for name in ("work", "queue", "expires", "payload", "group", "name", "delivery")} == {
        **TASK,
        "group": "default",
        "name": None,
        "delivery": "at-least-once",
    }
    slots = made.pop("next")
    assert made == {
        "name": "backup",
        "cron": "30 2 * * *",
        "every": None,
        "zone": "Europe/Berlin",
        "catchup": "last",
        "overlap": "queue",
        "jitter": "5m",
        "paused": False,
        "text": "At 02:30 every day (Europe/Berlin time)",
        "last_slot": None,
        "last_task": None,
        "version": 1,
    }
    assert (len(slots), slots[:2]) == (10, ["2023-11-15T01:30:00.000Z", "2023-11-16T01:30:00.000Z"])
    assert (await client.get("/v1/schedules/backup")).json == made | {"task": task, "next": slots}
    assert (await client.get("/v1/schedules")).json["items"] == [made | {"task": task, "next": slots[:1]}]


async def test_what_is_shown_can_be_given_again(client: Client) -> None:
    shown = (await client.ask("PUT", "/v1/schedules/s", {"every": "5s", "task": TASK})).json
    told = {"name", "text", "next", "last_slot", "last_task", "version"}
    again = {name: value for name, value in shown.items() if name not in told}
    assert (await client.ask("PUT", "/v1/schedules/s", again)).json == shown | {"version": 2}


async def test_what_stands_in_its_environment_is_shown_to_nobody_and_stays_when_it_is_given_again(node: Node) -> None:
    client = node.client
    task = {"work": WORK | {"env": {"A": "1", "B": "s3cret"}}}
    shown = (await client.ask("PUT", "/v1/schedules/s", {"every": "5s", "task": task})).json
    assert shown["task"]["work"]["env"] == {"A": None, "B": None}
    assert "s3cret" not in (await client.get("/v1/schedules")).body.decode()
    again = {"every": "7s", "task": {"work": WORK | {"env": {"A": "2", "B": None}}}}
    assert (await client.ask("PUT", "/v1/schedules/s", again)).json["every"] == "7s"
    assert node.pool.planned["s"]["spec"]["task"]["work"]["env"] == {"A": "2", "B": "s3cret"}
    again["task"]["work"]["env"] = {"C": None}  # type: ignore[index]
    refused = await client.ask("PUT", "/v1/schedules/s", again)
    assert (refused.status, [each["path"] for each in refused.json["errors"]]) == (400, ["task.work.env.C"])


async def test_what_is_shown_of_its_task_leaves_to_the_queue_what_was_left_to_it(node: Node) -> None:
    full = TASK | {
        "kind": "service",
        "retry": {"attempts": 3, "backoff": ["1s", "5s"], "jitter": 0.25, "permanent_exceptions": ["KeyError"]},
        "unique": {"while": "5m"},
        "lease": "5s",
        "stop": {"signal": "INT"},
        "notify": {"url": "http://n/", "on": ["failed"]},
        "policy": {"name": "p"},
        "keep": "1h",
    }
    for task in (TASK, full):
        shown = (await node.client.ask("PUT", "/v1/schedules/s", {"every": "5s", "task": task})).json["task"]
        asked = msgspec.convert(node.pool.planned["s"]["spec"], ScheduleSpec)
        assert (shown["retry"] is None, shown["lease"] is None) == (task is TASK, task is TASK)
        await node.client.ask("PUT", "/v1/schedules/s", {"every": "5s", "task": shown})
        assert msgspec.convert(node.pool.planned["s"]["spec"], ScheduleSpec) == asked


async def test_a_span_may_be_written_as_cron_does(client: Client) -> None:
    made = (await client.ask("PUT", "/v1/schedules/s", {"cron": "@every 90s", "task": TASK})).json
    assert (made["cron"], made["every"], made["zone"], made["text"]) == (None, "90s", None, "Every 90 seconds")


async def test_bytes_as_payload_come_back_as_bytes(client: Client) -> None:
    task = {"work": WORK, "payload_base64": "AP8="}
    made = (await client.ask("PUT", "/v1/schedules/s", {"every": "5s", "task": task})).json
    assert (made["task"]["payload_base64"], "payload" in made["task"]) == ("AP8=", False)


async def test_pause_resume_run_ledger_and_delete(node: Node) -> None:
    client = node.client
    await client.ask("PUT", "/v1/schedules/s", {"every": "5s", "task": TASK})
    paused = (await client.ask("POST", "/v1/schedules/s/pause")).json
    assert (paused["paused"], paused["next"]) == (True, [])
    assert (await client.ask("POST", "/v1/schedules/s/resume")).json["paused"] is False
    assert (await client.ask("POST", "/v1/schedules/s/run")).json == {"task": "s-0", "why": None}
    missed = {"slot_ms": 1_700_000_000_000, "at_ms": 1_700_000_061_000, "outcome": "skipped", "task": None}
    node.pool.slots["s"].append(missed | {"why": "missed", "manual": False})
    page = (await client.get("/v1/schedules/s/ledger?limit=1")).json
    assert [row["task"] for row in page["items"]] == ["s-0"]
    rest = (await client.get(f"/v1/schedules/s/ledger?limit=1&cursor={page['next']}")).json
    assert rest == {
        "items": [
            {
                "slot": "2023-11-14T22:13:20.000Z",
                "at": "2023-11-14T22:14:21.000Z",
                "outcome": "skipped",
                "task": None,
                "why": "missed",
                "manual": False,
            }
        ],
        "next": None,
        "total": None,
    }
    assert (await client.ask("DELETE", "/v1/schedules/s")).json == {"name": "s"}
    assert (await client.get("/v1/schedules")).json == {"items": [], "next": None, "total": 0}
