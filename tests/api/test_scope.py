"""What a narrowed token sees and changes, asked over HTTP of the real services: by guessing, by filters, by cursors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.client import WORK
from tests.api.judged import Door, add, judged, judged_twice, secret_of
from tests.service.stand import Mirror

MINE = ("mail.a", "mail-bulk.a")
OTHERS = ("mail.b", "images.a", "images.b", "Mail.a")
PLACES = (*MINE, *OTHERS)


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    """Ann may operate group a of the queues mail*; Eve sees all."""
    async with judged(tmp_path) as door:
        await door.token("ann", "operator", ("mail*",), ("a",))
        await door.token("eve", "admin")
        await door.fill(*PLACES)
        yield door


# --- reads ---


async def test_lists_hold_what_is_in_scope_and_count_no_more(door: Door) -> None:
    for query in ("", "?sort=-priority", "?sort=at", "?state=pending", "?q=a", "?created_after=2000-01-01T00:00:00Z"):
        found = await door.get("ann", f"/v1/tasks{query}")
        assert sorted(task["id"] for task in found["items"]) == sorted(MINE), query
        assert found["total"] == len(MINE), query
    assert await door.ids("eve", "/v1/tasks") == sorted(PLACES)


@pytest.mark.parametrize(
    "widened",
    [
        "queue=images",
        "queue=*",
        "group=b",
        "queue=mail&group=b",
        "name=images.a",
        "q=images",
        "tag=*",
        "queue=images&state=pending",
    ],
)
async def test_no_filter_widens(door: Door, widened: str) -> None:
    assert await door.get("ann", f"/v1/tasks?{widened}") == {"items": [], "next": None, "total": 0}
    for by in ("queue", "group", "state", "name"):
        assert (await door.get("ann", f"/v1/tasks?{widened}&group_by={by}"))["groups"] == []


async def test_counts_by_a_field_tell_nothing_of_others(door: Door) -> None:
    async def counted(name: str, by: str) -> dict[str, int]:
        groups = (await door.get(name, f"/v1/tasks?group_by={by}"))["groups"]
        return {group["value"]: group["count"] for group in groups}

    assert await counted("ann", "queue") == {"mail": 1, "mail-bulk": 1}
    assert await counted("ann", "group") == {"a": 2}
    assert await counted("ann", "state") == {"pending": 2}
    assert await counted("ann", "name") == dict.fromkeys(MINE, 1)
    await door.token("queues", "viewer", ("mail*", "images"))
    assert await counted("queues", "queue") == {"mail": 2, "images": 2, "mail-bulk": 1}
    assert await counted("queues", "state") == {"pending": 5}


async def test_finished_tasks_are_narrowed_too(door: Door) -> None:
    await door.as_("eve", "POST", "/v1/tasks/delete", {"ids": list(PLACES)})
    for query in ("?state=deleted", "?sort=-finished_at", "?state=deleted&sort=finished_at&limit=1"):
        found = await door.get("ann", f"/v1/tasks{query}")
        assert {task["id"] for task in found["items"]} <= set(MINE), query
        assert found["total"] == len(MINE), query


async def test_a_cursor_of_another_token_leads_nowhere_else(door: Door) -> None:
    for sort in ("created_at", "-created_at", "priority", "at"):
        seen: list[str] = []
        cursor = (await door.get("eve", f"/v1/tasks?sort={sort}&limit=1"))["next"]
        while cursor is not None:
            page = await door.get("ann", f"/v1/tasks?sort={sort}&limit=1&cursor={cursor}")
            seen += [task["id"] for task in page["items"]]
            cursor = page["next"]
        assert set(seen) <= set(MINE), sort
        assert seen, sort


async def test_one_task_out_of_scope_is_as_one_that_never_was(door: Door) -> None:
    for rest in ("", "/explain", "/actions", "/log", "/result", "?wait=1ms"):
        guessed = await door.as_("ann", "GET", f"/v1/tasks/images.a{rest}")
        never = await door.as_("ann", "GET", f"/v1/tasks/never{rest}")
        assert guessed.json | {"detail": ""} == never.json | {"detail": ""}
        assert guessed.json["detail"] == never.json["detail"].replace("never", "images.a")
        assert (guessed.status, guessed.code) == (404, "not_found")
        assert (await door.as_("ann", "GET", f"/v1/tasks/mail.a{rest}")).status != 404


async def test_what_is_no_longer_listed_is_not_told_of(door: Door) -> None:
    await door.as_("eve", "POST", "/v1/queues/images/purge", {"states": ["pending", "deleted"]})
    assert (await door.as_("eve", "GET", "/v1/tasks/images.a")).status == 410
    assert (await door.as_("ann", "GET", "/v1/tasks/images.a")).status == 404


async def test_a_wait_ends_when_the_task_leaves_the_scope(door: Door) -> None:
    waiting = asyncio.create_task(door.as_("ann", "GET", "/v1/tasks/mail.a?wait=1m"))
    await door.stand.until(lambda: "mail.a" in door.stand.node.feed._changes)
    await door.as_("eve", "POST", "/v1/tasks/update", {"ids": ["mail.a"], "set": {"queue": "images"}})
    assert (await waiting).status == 404


async def test_queues_are_listed_by_scope(door: Door) -> None:
    found = await door.get("ann", "/v1/queues")
    assert ([queue["name"] for queue in found["items"]], found["total"]) == (["mail", "mail-bulk"], 2)
    page = await door.get("ann", "/v1/queues?limit=1")
    assert [q["name"] for q in (await door.get("ann", f"/v1/queues?cursor={page['next']}"))["items"]] == ["mail-bulk"]
    assert (await door.as_("ann", "GET", "/v1/queues/images")).code == "forbidden"
    assert (await door.as_("ann", "GET", "/v1/queues/never")).code == "forbidden"


async def test_explain_names_no_holder_out_of_scope(tmp_path: Path) -> None:
    async with judged(tmp_path, slots=1) as door:
        await door.stand.working()
        await door.stand.until_state(await door.stand.add(), "running")  # so that there is a worker, and it is full
        await door.token("ann", "viewer", ("*",), ("a",))
        await door.token("eve", "admin")
        await door.stand.add(id="held-b", queue="one", group="b")
        await door.stand.add(id="held-a", queue="one", group="a")
        await door.as_("eve", "PATCH", "/v1/queues/one", {"limit": 1})
        told = await door.get("ann", "/v1/tasks/held-a/explain")
        assert (told["reason"], told["holders"]) == ("head", [])
        assert "held-b" not in json.dumps(told)
        assert "a task out of your scope" in told["text"]
        assert (await door.get("eve", "/v1/tasks/held-a/explain"))["holders"] == ["held-b"]


async def test_announcements_and_schedules_are_where_their_tasks_are(door: Door) -> None:
    def daily(**task: Any) -> dict[str, Any]:
        return {"cron": "@daily", "task": {"work": WORK, **task}}

    await door.as_("eve", "PUT", "/v1/schedules/theirs", daily(queue="images"))
    own = await door.as_("ann", "PUT", "/v1/schedules/mine", daily(queue="mail", group="a"))
    assert own.status == 200
    assert [each["name"] for each in (await door.get("ann", "/v1/schedules"))["items"]] == ["mine"]
    outside = await door.as_("ann", "PUT", "/v1/schedules/new", daily(queue="images"))
    assert (outside.status, [fault["path"] for fault in outside.json["errors"]]) == (403, ["task.queue", "task.group"])
    taken = await door.as_("ann", "PUT", "/v1/schedules/theirs", daily(queue="mail", group="a"))
    assert (taken.status, taken.code) == (403, "forbidden")
    for method, rest in (("GET", ""), ("GET", "/ledger"), ("POST", "/run"), ("POST", "/pause"), ("DELETE", "")):
        assert (await door.as_("ann", method, f"/v1/schedules/theirs{rest}")).status == 404, rest
        assert (await door.as_("ann", method, f"/v1/schedules/mine{rest}")).status == 200, rest
    told = await door.get("eve", "/v1/schedules/theirs")
    assert (told["task"]["queue"], told["paused"]) == ("images", False)
    assert (await door.get("ann", "/v1/announcements?group=b"))["items"] == []
    assert (await door.get("ann", "/v1/actions?group=b"))["items"] == []


# --- writes ---


@pytest.mark.parametrize(
    ("task", "paths"),
    [
        ({"queue": "images", "group": "a"}, ["queue"]),
        ({"queue": "mail", "group": "b"}, ["group"]),
        ({}, ["queue", "group"]),
        ({"queue": "MAIL", "group": "a"}, ["queue"]),
    ],
)
async def test_an_add_out_of_scope_is_refused_whole_with_the_path(
    door: Door, task: dict[str, Any], paths: list[str]
) -> None:
    good = {"work": WORK, "queue": "mail", "group": "a", "id": "good"}
    body = {"event": "ADD", "tasks": [good, {"work": WORK, **task}]}
    answer = await door.as_("ann", "POST", "/v1/events", body)
    assert (answer.status, answer.code) == (403, "forbidden")
    assert [fault["path"] for fault in answer.json["errors"]] == [f"tasks[1].{path}" for path in paths]
    headers = {"Content-Type": "application/x-ndjson"}
    raw = "\n".join(json.dumps(each) for each in body["tasks"]).encode()
    (line,) = (await door.as_("ann", "POST", "/v1/events", raw=raw, headers=headers)).lines
    assert line["problem"]["code"] == "forbidden"
    yaml = await door.as_("ann", "POST", "/v1/events", raw=raw, headers={"Content-Type": "application/yaml"})
    assert yaml.status in {400, 403}
    assert door.stand.peek("good") is None
    assert (await door.as_("ann", "POST", "/v1/events", {"event": "ADD", "tasks": [good]})).status == 201


async def test_queue_limit_sets_a_queue_so_a_producer_may_not(door: Door) -> None:
    await door.token("pat", "producer")
    answer = await door.as_("pat", "POST", "/v1/events", add(queue="q", queue_limit=3))
    assert (answer.code, answer.json["errors"][0]["path"]) == ("forbidden", "tasks[0].queue_limit")
    assert "role operator" in answer.json["errors"][0]["message"]
    await door.token("oda", "operator", ("mail*",))
    assert (await door.as_("oda", "POST", "/v1/events", add(queue="mail", group="a", queue_limit=3))).status == 201


async def test_queue_limit_sets_a_queue_so_it_is_not_for_who_has_some_groups_of_it(door: Door) -> None:
    """As with PATCH of the queue: the tasks of other groups wait by the same limit."""
    limited = {"queue": "mail", "group": "a", "queue_limit": 0}
    answer = await door.as_("ann", "POST", "/v1/events", add(**limited))
    assert (answer.code, answer.json["errors"][0]["path"]) == ("forbidden", "tasks[0].queue_limit")
    schedule = {"every": "1h", "task": {"work": WORK, **limited}}
    answer = await door.as_("ann", "PUT", "/v1/schedules/s", schedule)
    assert (answer.code, answer.json["errors"][0]["path"]) == ("forbidden", "task.queue_limit")
    assert (await door.get("eve", "/v1/queues/mail"))["limit"] is None


async def test_no_program_runs_in_a_queue_out_of_scope_by_way_of_a_notice(door: Door) -> None:
    """Workers may be told apart by queues, and those of _notify are others."""
    place = {"queue": "mail", "group": "a"}
    command, url = {"command": ["id"], "on": ["failed"]}, {"url": "https://example.org/"}
    answer = await door.as_("ann", "POST", "/v1/events", add(**place, notify=command))
    assert (answer.code, answer.json["errors"][0]["path"]) == ("forbidden", "tasks[0].notify.command")
    answer = await door.as_(
        "ann", "PUT", "/v1/schedules/s", {"every": "1h", "task": {"work": WORK, **place, "notify": command}}
    )
    assert (answer.code, answer.json["errors"][0]["path"]) == ("forbidden", "task.notify.command")
    assert (await door.as_("ann", "POST", "/v1/events", add(**place, notify=url))).status == 201
    await door.token("nat", "producer", ("mail*", "_notify"), ("a",))
    assert (await door.as_("nat", "POST", "/v1/events", add(**place, notify=command))).status == 201


VERBS = [
    ("/v1/tasks/delete", {}),
    ("/v1/tasks/kill", {}),
    ("/v1/tasks/retry", {}),
    ("/v1/tasks/relocate", {}),
    ("/v1/tasks/update", {"set": {"priority": 7}}),
    ("/v1/events", {"event": "DELETE"}),
]


@pytest.mark.parametrize(("path", "more"), VERBS)
async def test_a_verb_by_ids_is_refused_whole_and_by_match_narrowed(
    door: Door, path: str, more: dict[str, Any]
) -> None:
    before = await door.get("eve", "/v1/tasks")
    guessed = await door.as_("ann", "POST", path, {"ids": ["mail.a", "images.a"], **more})
    never = await door.as_("ann", "POST", path, {"ids": ["mail.a", "never"], **more})
    assert (guessed.status, guessed.code) == (404, "not_found")
    assert guessed.body == never.body.replace(b"never", b"images.a")
    assert await door.get("eve", "/v1/tasks") == before
    for match in ({"state": ["pending"]}, {"group": "a"}, {"q": "a"}):
        assert (await door.as_("ann", "POST", path, {"match": match, **more})).json["matched"] <= len(MINE)
    changed = [
        new["id"]
        for old, new in zip(before["items"], (await door.get("eve", "/v1/tasks"))["items"], strict=True)
        if old != new
    ]
    assert set(changed) <= set(MINE)
    assert (await door.as_("ann", "POST", path, {"match": {"queue": "images"}, **more})).json["matched"] == 0


async def test_nothing_is_moved_out_of_scope(door: Door) -> None:
    body = {"match": {"queue": "mail"}, "set": {"queue": "images"}}
    answer = await door.as_("ann", "POST", "/v1/tasks/update", body)
    assert (answer.status, answer.json["errors"][0]["path"]) == (403, "set.queue")
    answer = await door.as_("ann", "POST", "/v1/tasks/retry", {"match": {"queue": "mail"}, "queue": "images"})
    assert (answer.status, answer.json["errors"][0]["path"]) == (403, "queue")
    inside = {"ids": ["mail.a"], "set": {"queue": "mail-bulk"}}
    assert (await door.as_("ann", "POST", "/v1/tasks/update", inside)).json["done"] == 1


def proposed(mirror: Mirror) -> int:
    """Items that the follower has not heard of yet."""
    return sum(len(entry.items) for entry in mirror._late or ())


async def test_what_was_moved_meanwhile_is_judged_as_it_is_applied(tmp_path: Path) -> None:
    """The node that is asked lags: to it the task is still in scope, or not there yet; the entry decides."""
    async with judged_twice(tmp_path) as (first, second):
        await first.token("ann", "operator", ("mail",))
        await first.token("eve", "admin")
        await first.fill("mail.x", "mail.y")
        (mirror,) = first.stand.mirrors
        mirror.hold()
        await first.as_("eve", "POST", "/v1/tasks/update", {"ids": ["mail.x"], "set": {"queue": "images"}})
        await first.fill("images.new")
        late = proposed(mirror)
        verbs = [
            asyncio.create_task(second.as_("ann", "POST", "/v1/tasks/delete", which))
            for which in ({"ids": ["mail.x"]}, {"ids": ["images.new"]}, {"match": {"queue": "mail"}})
        ]
        await first.stand.until(lambda: proposed(mirror) == late + len(verbs))
        mirror.release()
        by_id, by_guess, by_match = await asyncio.gather(*verbs)
        assert (by_id.status, by_guess.status) == (404, 404)
        assert by_match.json["matched"] == by_match.json["done"] == 1
        assert [first.stand.peek(task) for task in ("mail.x", "mail.y", "images.new")] == [
            "pending",
            "deleted",
            "pending",
        ]


async def test_a_bulk_verb_stays_in_scope(door: Door) -> None:
    await door.stand.many(1100, queue="mail", group="a")
    await door.stand.many(1100, queue="mail", group="b")
    answer = await door.as_("ann", "POST", "/v1/tasks/kill", {"match": {"queue": "mail"}})
    assert answer.status == 202

    async def over() -> dict[str, Any]:
        while (told := await door.get("ann", f"/v1/bulk/{answer.json['bulk']}"))["state"] != "done":  # noqa: ASYNC110
            await asyncio.sleep(0.005)  # the work tells nobody of its end
        return dict(told)

    assert (await asyncio.wait_for(over(), 20))["matched"] == 1101
    left = await door.get("eve", "/v1/tasks?queue=mail&group=b&state=pending&limit=1")
    assert left["total"] == 1101


async def test_a_bulk_verb_stays_in_scope_where_its_node_lags(tmp_path: Path) -> None:
    async with judged_twice(tmp_path) as (first, second):
        await first.token("ann", "operator", ("mail",))
        await first.token("eve", "admin")
        ids = list((await first.stand.many(1100, queue="mail")).ids)
        (mirror,) = first.stand.mirrors
        mirror.hold()
        gone = {"ids": ids[:1000], "set": {"queue": "images"}}
        await first.as_("eve", "POST", "/v1/tasks/update", gone)
        late = proposed(mirror)
        answer = await second.as_("ann", "POST", "/v1/tasks/delete", {"match": {"queue": "mail"}})
        assert answer.status == 202
        await first.stand.until(lambda: proposed(mirror) > late)
        mirror.release()
        await first.stand.until(lambda: first.stand.peek(ids[0]) == first.stand.peek(ids[999]) == "pending")
        await first.stand.until(lambda: {first.stand.peek(each) for each in ids[1000:]} == {"deleted"})
        assert (await first.get("eve", "/v1/tasks?queue=images&state=pending&limit=1"))["total"] == 1000


async def test_balance_is_for_groups_in_scope_and_all_queues(door: Door) -> None:
    for name, scope, code in (
        ("ann", (("mail*",), ("a",)), "forbidden"),
        ("group", (("*",), ("a",)), None),
        ("other", (("*",), ("b",)), "forbidden"),
    ):
        await door.token(name, "operator", *scope)
        answer = await door.as_(name, "POST", "/v1/events", {"event": "BALANCE", "group": "a", "dry_run": True})
        assert answer.code == code, name


# --- answers that are kept ---


async def test_one_token_gets_no_answer_of_anothers_key(door: Door) -> None:
    key = {"Idempotency-Key": "k"}
    body = add(queue="mail", group="a")
    await door.token("bob", "operator", ("mail*",), ("a",))
    first = await door.as_("ann", "POST", "/v1/events", body, headers=key)
    assert (await door.as_("ann", "POST", "/v1/events", body, headers=key)).json["ids"] == first.json["ids"]
    assert (await door.as_("bob", "POST", "/v1/events", body, headers=key)).json["ids"] != first.json["ids"]


async def test_a_token_of_the_same_name_is_another_token(door: Door) -> None:
    made = await door.as_("eve", "POST", "/v1/tokens", {"name": "ci", "role": "producer", "queues": ["mail"]})
    assert (made.status, made.json["queues"]) == (201, ["mail"])
    key = {"Idempotency-Key": "k"}
    one = await door.client.add({"work": WORK, "queue": "mail"}, token=made.json["secret"], headers=key)
    assert one.status == 201
    assert (await door.as_("eve", "DELETE", "/v1/tokens/ci")).json == {"name": "ci"}
    assert (await door.client.get("/v1/tasks", token=made.json["secret"])).status == 401
    again = await door.as_("eve", "POST", "/v1/tokens", {"name": "ci", "role": "producer", "queues": ["mail"]})
    assert again.json["secret"] != made.json["secret"]
    other = await door.client.add({"work": WORK, "queue": "mail"}, token=again.json["secret"], headers=key)
    assert other.json["ids"] != one.json["ids"]
    assert made.json["secret"] not in json.dumps(await door.get("eve", "/v1/tokens"))


async def test_the_last_admin_stays(door: Door) -> None:
    assert (await door.as_("eve", "DELETE", "/v1/tokens/admin-n1")).status == 200
    answer = await door.as_("eve", "DELETE", "/v1/tokens/eve")
    assert (answer.status, answer.code) == (409, "conflict")
    assert secret_of("eve") not in answer.body.decode()
