"""Workers, announcements and policies, as a door sees them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from quvatlh.core import commands as c
from quvatlh.core.owned import OwnedFilter
from quvatlh.ports import CodeKind, SourceFault, Verdict
from quvatlh.service import asks
from quvatlh.service.pool import Principal, Rejected
from tests.service.bidding import session_of
from tests.service.stand import WORK, Stand, asked, one, two

GOOD, BAD = "function(state, task) return true end", "function("


def compiled(stand: Stand) -> Counter[tuple[str, str]]:
    """How often each source is compiled from now on; all of them by one rule."""
    counted: Counter[tuple[str, str]] = Counter()

    async def check(source: str, kind: CodeKind) -> SourceFault | None:
        counted[source, kind] += 1
        return SourceFault(1, 10, "unfinished") if source == BAD else None

    stand.judge.check = check  # type: ignore[method-assign]
    return counted


async def test_a_worker_is_shown_and_changed(tmp_path: Path) -> None:
    async with one(tmp_path, slots=4) as stand:
        await stand.working()
        await stand.until_state(await stand.add(slots=3), "running")
        (worker,) = await stand.pool.workers(asked())
        assert worker == {
            "name": "n1",
            "node": "n1",
            "role": "node",
            "state": "up",
            "tags": ["worker=n1", "node=n1"],
            "adapters": ["command"],
            "slots": 4,
            "free": 1,
            "queues": ["*"],
            "facts": {"node_id": "n1"},
            "load": None,
        }
        changes = {"tags": ["gpu", *worker["tags"]], "slots": 8, "queues": ["a*"], "draining": True}
        changed = await stand.pool.patch_worker(asked(), "n1", changes)
        assert (changed["tags"], changed["slots"], changed["free"]) == (["gpu", "worker=n1", "node=n1"], 8, 5)
        assert (changed["queues"], changed["state"]) == (["a*"], "draining")
        with pytest.raises(Rejected, match="facts") as refused:
            await stand.pool.patch_worker(asked(), "n1", {"facts": {}})
        assert refused.value.code == "unknown_field"
        with pytest.raises(Rejected, match="no worker"):
            await stand.pool.patch_worker(asked(), "n9", {"slots": 1})


async def test_a_persons_drain_outlives_the_daemon_and_its_own_leaving_does_not(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        door, facts = stand.node.door, stand.node.session.facts

        async def anew(session: str) -> str:
            stand.clock.advance(10)
            await door.write(asks.Open("n1", session, b"x" * 32, "n1", facts), 1, door.request_id())
            return str((await stand.pool.worker(asked(), "n1"))["state"])

        await stand.node.tree.stop("session")
        await stand.node.session.leave(1)
        assert (await stand.pool.worker(asked(), "n1"))["state"] == "draining"
        assert await anew("s2") == "up"
        await stand.pool.patch_worker(asked(), "n1", {"draining": True})
        assert await anew("s3") == "draining"
        assert (await stand.pool.patch_worker(asked(), "n1", {"draining": False}))["state"] == "up"


async def test_announcements_are_listed_while_their_action_lives(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        task = await stand.add(group="g", name="web")
        await stand.until_state(task, "running")
        token = stand.live()[0][0]
        command = c.Announce(session_of(stand, "n1"), token, {"port": 80})
        await stand.node.door.write(asks.Do(command), 1)
        (told,) = await stand.pool.announcements(asked(), "g")
        assert (told["task"], told["action"], told["worker"], told["name"]) == (task, f"a{token}", "n1", "web")
        assert told["data"] == {"port": 80}
        assert await stand.pool.announcements(asked(), "h") == []
        stand.end(f"a{token}")
        await stand.until_state(task, "succeeded")
        assert await stand.pool.announcements(asked(), None) == []


async def test_live_actions_are_counted_and_listed_wherever_their_task_began(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        of: dict[str, Any] = {"group": "g", "kind": "service", "limit": 2, "slots": 0}
        services = [await stand.add(name=f"s{n}", **of) for n in range(3)]
        await stand.until(lambda: len(stand.live()) == 6)
        wanted = OwnedFilter(group="g", kind="service")
        found = await stand.pool.owned(asked(), wanted, 4, None)
        rest = await stand.pool.owned(asked(), wanted, 4, found.next)
        assert (await stand.pool.count_owned(asked(), wanted, "worker")).groups == [{"value": "n1", "count": 6}]
        told = [*found.items, *rest.items]
        assert sorted(each["task"] for each in told) == sorted([*services, *services])
        assert {(each["worker"], each["queue"], each["kind"]) for each in told} == {("n1", "default", "service")}
        assert (found.total, found.next is None, rest.next) == (6, False, None)
        assert (await stand.pool.owned(asked(), OwnedFilter(kind="job"), 4, None)).items == []
        with pytest.raises(Rejected, match="no cursor"):
            await stand.pool.owned(asked(), wanted, 4, "x")


async def test_live_actions_out_of_scope_are_neither_listed_nor_counted(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        for group in ("a", "b"):
            await stand.until_state(await stand.add(group=group), "running")
        narrow = dataclasses.replace(asked(), principal=Principal("bob", "viewer", ("*",), ("a",)))
        found = await stand.pool.owned(narrow, OwnedFilter(), 4, None)
        assert ([each["group"] for each in found.items], found.total) == (["a"], 1)
        counted = await stand.pool.count_owned(narrow, OwnedFilter(), "group")
        assert counted.groups == [{"value": "a", "count": 1}]
        assert (await stand.pool.owned(asked(), OwnedFilter(), 4, None)).total == 2


async def test_who_holds_a_policy_that_is_to_go_is_named_and_what_has_finished_holds_it_too(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.pool.put_policy(asked(), "p", GOOD)
        task = await stand.add(announce={"name": "p"})
        for state in ("pending", "deleted"):
            with pytest.raises(
                Rejected, match=f"tasks name policy p, as {task} does, which is {state}; what has"
            ) as no:
                await stand.pool.delete_policy(asked(), "p")
            assert no.value.code == "not_empty"
            await stand.node.door.propose(c.Delete((task,)), 1.0)


async def test_policies_are_stored_by_name_and_version(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        compiled(stand)
        first = await stand.pool.put_policy(asked(), "p", GOOD)
        assert await stand.pool.put_policy(asked(), "p", GOOD) == first
        second = await stand.pool.put_policy(asked(), "p", GOOD + " ")
        assert second["version"] > first["version"]
        assert await stand.pool.policies(asked()) == [second]
        assert (await stand.pool.policy(asked(), "p"))["source"] == GOOD + " "
        with pytest.raises(Rejected) as refused:
            await stand.pool.put_policy(asked(), "p", BAD)
        assert refused.value.code == "invalid"
        assert [(e.path, e.message) for e in refused.value.errors] == [("source", "line 1, column 10: unfinished")]
        await stand.pool.delete_policy(asked(), "p")
        with pytest.raises(Rejected, match="no policy"):
            await stand.pool.policy(asked(), "p")


@pytest.mark.parametrize("field", ["policy", "announce"])
async def test_a_policy_that_a_task_names_stays(field: str, tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        await stand.pool.put_policy(asked(), "p", GOOD)
        naming: dict[str, Any] = {field: {"name": "p"}}
        await stand.add(**naming)
        with pytest.raises(Rejected) as refused:
            await stand.pool.delete_policy(asked(), "p")
        assert refused.value.code == "not_empty"


async def test_an_add_tells_which_sources_do_not_compile_and_asks_once_for_each(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        counted = compiled(stand)
        task: Any = {"spec": {"work": WORK, "policy": {"source": GOOD}, "announce": {"source": GOOD}}}
        await stand.pool.add(asked(), [task] * 500)
        await stand.pool.add(asked(), [task] * 500)
        assert counted == {(GOOD, "policy"): 1, (GOOD, "announce"): 1}
        wrong: Any = {"spec": {"work": WORK, "policy": {"source": BAD}}}
        with pytest.raises(Rejected) as refused:
            await stand.pool.add(asked(), [task, wrong])
        assert [(e.path, e.message) for e in refused.value.errors] == [
            ("tasks[1].policy", "line 1, column 10: unfinished")
        ]
        count = stand.machine.db.execute("SELECT count(*) FROM task").fetchone()
        assert count == (1000,)


async def test_a_task_that_names_no_stored_policy_is_refused(tmp_path: Path) -> None:
    async with one(tmp_path, slots=0) as stand:
        with pytest.raises(Rejected) as refused:
            await stand.add(policy={"name": "p"})
        assert [error.path for error in refused.value.errors] == ["tasks[0].policy.name"]


async def test_a_policy_is_tried_on_live_workers_and_nothing_runs(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, switchboard):
        await master.working()
        await follower.working()
        seen: list[Mapping[str, Any]] = []

        def judge(_state: Mapping[str, Any], task: Mapping[str, Any]) -> Verdict:
            seen.append(task)
            return Verdict("bid", 2.0)

        follower.judge.teach(GOOD, judge)
        task = await master.add(tags=["nobody"], group="g", payload=b"[1]")
        told = {each["worker"]: each for each in await master.pool.test_policy(asked(), GOOD, task, None)}
        states = [told[name].pop("state") for name in ("n1", "n2")]
        assert [state["worker"]["name"] for state in states] == ["n1", "n2"]
        assert told["n1"] == {"worker": "n1", "verdict": "bid", "score": 1.0, "text": ""}
        assert told["n2"] == {"worker": "n2", "verdict": "bid", "score": 2.0, "text": ""}
        assert (seen[0]["group"], seen[0]["id"], seen[0]["payload"]) == ("g", task, [1])
        before = master.machine.applied_index
        draft: Any = {"spec": {"work": WORK, "priority": 3}}
        await master.pool.test_policy(asked(), GOOD, draft, "n2")
        assert seen[1]["priority"] == 3
        assert master.machine.applied_index == before
        with pytest.raises(Rejected, match="no worker"):
            await master.pool.test_policy(asked(), GOOD, task, "n9")
        with pytest.raises(Rejected, match="does not compile"):
            await master.pool.test_policy(asked(), BAD, task, None)
        with pytest.raises(Rejected, match="no task"):
            await master.pool.test_policy(asked(), GOOD, "nothing", None)
        switchboard.cut("n2")
        (silent,) = await master.pool.test_policy(asked(), GOOD, task, "n2")
        assert (silent["verdict"], silent["score"]) == ("not_asked", None)


@pytest.mark.parametrize(
    "draft",
    [
        {"spec": {"work": WORK, "tags": ["a"], "priority": 3, "limit": 2, "name": "x"}, "payload": b"[1]"},
        {"spec": {"work": WORK, "kind": "service"}, "payload": b"[" + b" " * 20_000 + b"]"},
        {"spec": {"work": WORK}, "delay_ms": 1000, "expires_in_ms": 5000, "payload": b"x", "payload_json": False},
    ],
)
async def test_a_task_that_might_stand_is_judged_as_the_same_would_be_that_stands(
    tmp_path: Path, draft: dict[str, Any]
) -> None:
    async with one(tmp_path, slots=0, works=True) as stand:
        await stand.working()
        seen: list[Mapping[str, Any]] = []

        def judge(_state: Mapping[str, Any], task: Mapping[str, Any]) -> Verdict:
            seen.append(task)
            return Verdict("bid", 2.0)

        stand.judge.teach(GOOD, judge)
        given: Any = draft | {"spec": {"tags": [], **draft["spec"]}}
        (task,) = (await stand.pool.add(asked(), [given])).ids
        await stand.pool.test_policy(asked(), GOOD, task, None)
        await stand.pool.test_policy(asked(), GOOD, given, None)
        stands, might = (dict(each) for each in seen)
        for each in (stands, might):
            if each.pop("id") == each["name"]:
                each.pop("name")
        assert stands == might


async def test_a_recorded_state_is_judged_as_it_was_whatever_has_become_of_its_worker(tmp_path: Path) -> None:
    async with two(tmp_path, slots=4) as (master, follower, switchboard):
        await master.working()
        await follower.working()

        def judge(state: Mapping[str, Any], _task: Mapping[str, Any]) -> Verdict:
            return Verdict("bid", float(state["worker"]["free"]))

        for stand in (master, follower):
            stand.judge.teach(GOOD, judge)
        draft: Any = {"spec": {"work": WORK}}
        first = await master.pool.test_policy(asked(), GOOD, draft, None)
        assert {each["score"] for each in first} == {4.0}
        for stand in (master, follower):
            await master.add(tags=[f"node={stand.name}"])
            await master.until(stand.running)
        switchboard.cut("n2")
        states = [each["state"] for each in first]
        assert await master.pool.test_policy(asked(), GOOD, draft, None, states) == first
        (again,) = await master.pool.test_policy(asked(), GOOD, draft, "n2", states)
        assert (again["worker"], again["score"]) == ("n2", 4.0)
        with pytest.raises(Rejected, match="cannot be taken") as refused:
            await master.pool.test_policy(asked(), GOOD, draft, None, [states[0], states[1] | {"now": 2**70}])
        assert [each.path for each in refused.value.errors] == ["states[1]"]


async def test_a_state_tells_of_all_groups_and_is_not_shown_to_who_may_see_some(tmp_path: Path) -> None:
    async with one(tmp_path) as stand:
        await stand.working()
        narrow = dataclasses.replace(asked(), principal=Principal("p", "producer", ("*",), ("default",)))
        draft: Any = {"spec": {"work": WORK}}
        (told,) = await stand.pool.test_policy(narrow, GOOD, draft, None)
        assert (told["verdict"], told["state"]) == ("bid", None)


async def test_a_worker_lost_for_a_day_leaves(tmp_path: Path) -> None:
    async with two(tmp_path) as (master, follower, switchboard):
        await master.working()
        await follower.working()
        switchboard.cut("n2")
        master.clock.advance(3)
        await master.node.session.beat()
        await master.until(lambda: session_of(master, "n2") == "None")
        master.clock.advance(23 * 3600)
        await master.node.session.beat()
        await master.node.duties.chores._look()
        assert len(await master.pool.workers(asked())) == 2
        master.clock.advance(3600 + 60)
        await master.node.session.beat()
        await master.node.duties.chores._look()
        assert [each["name"] for each in await master.pool.workers(asked())] == ["n1"]
