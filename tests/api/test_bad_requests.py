"""Every route: what a bad request is answered, and that it changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from quvatlh.api.exchange import BODY_BYTES_MAX
from quvatlh.api.routes import ROUTES
from tests.api.client import WORK, Client, Node

JSON = {"Content-Type": "application/json"}
ADD = {"event": "ADD", "tasks": [{"work": WORK}]}
SPREAD = "/v1/tasks?group_by=error&finished_after=2026-01-01T00:00:00Z"
CRON = {"cron": "@daily", "task": {"work": WORK}}
MANY = CRON | {"task": {"work": WORK, "limit": 2}}


def _one(**given: Any) -> dict[str, Any]:
    return {"event": "ADD", "tasks": [{"work": WORK} | given]}


BAD: list[tuple[str, str, Any, int, str, str]] = [
    ("POST", "/v1/events", {}, 400, "invalid", "event is required"),
    ("POST", "/v1/events", [], 400, "invalid", "must be an object, not a list"),
    ("POST", "/v1/events", {"event": "ADDD"}, 400, "invalid", "event must be one of ADD, DELETE, BALANCE"),
    ("POST", "/v1/events", {"event": "ADD"}, 400, "invalid", "tasks is required"),
    ("POST", "/v1/events", {"event": "ADD", "tasks": []}, 400, "invalid", "tasks must have 1 to 5000 items"),
    ("POST", "/v1/events", ADD | {"task": 1}, 400, "unknown_field", "did you mean tasks?"),
    ("POST", "/v1/events", {"event": "ADD", "tasks": [{"work": WORK}] * 5001}, 413, "too_large", "at most 5000"),
    ("POST", "/v1/events", {"event": "ADD", "tasks": [{"wrk": 1, "work": WORK}]}, 400, "unknown_field", "tasks[0].wrk"),
    ("POST", "/v1/events", {"event": "ADD", "tasks": [{"work": WORK, "limit": "x"}]}, 400, "invalid", "tasks[0].limit"),
    (
        "POST",
        "/v1/events?ids=0",
        ADD,
        400,
        "unknown_field",
        "ids is not a known parameter of a body that is not application/x-ndjson",
    ),
    ("POST", "/v1/events", {"event": "DELETE"}, 400, "invalid", "exactly one of ids, match"),
    ("POST", "/v1/events", {"event": "DELETE", "ids": []}, 400, "invalid", "ids must have 1 to 1000 items"),
    ("POST", "/v1/events", {"event": "DELETE", "match": {}}, 400, "invalid", "match must have at least one filter"),
    ("POST", "/v1/tasks/delete", {"match": {"stat": "x"}}, 400, "unknown_field", "did you mean state?"),
    ("POST", "/v1/tasks/delete", {"match": {"state": ["x"]}}, 400, "invalid", "match.state[0] must be one of"),
    ("POST", "/v1/tasks/delete", {"ids": ["a"], "match": {"queue": "q"}}, 400, "invalid", "exactly one of"),
    ("POST", "/v1/events", {"event": "BALANCE"}, 400, "invalid", "group is required"),
    ("POST", "/v1/events", {"event": "BALANCE", "group": "g"}, 404, "not_found", "there is no task of group g"),
    ("POST", "/v1/events", {"event": "BALANCE", "group": "g", "max": 0}, 400, "invalid", "max must be a whole number"),
    ("POST", "/v1/events", {"event": "BALANCE", "group": "g", "dryrun": 1}, 400, "unknown_field", "mean dry_run?"),
    ("POST", "/v1/tasks/kill", {"ids": ["x"]}, 404, "not_found", "there is no task x"),
    ("POST", "/v1/tasks/kill", {"ids": ["a"], "to": "one"}, 400, "unknown_field", "to is not a known field"),
    ("POST", "/v1/tasks/retry", {}, 400, "invalid", "exactly one of ids, match"),
    ("POST", "/v1/tasks/retry", {"ids": ["a"], "queue": "a/b"}, 400, "invalid", "queue must not hold '/'"),
    ("POST", "/v1/tasks/retry", {"ids": ["a"], "queue": ".."}, 400, "invalid", "queue must not be '..'"),
    ("POST", "/v1/tasks/update", {"ids": ["a"], "set": {"queue": "."}}, 400, "invalid", "set.queue must not be '.'"),
    ("POST", "/v1/tasks/delete", {"ids": ["a"], "queue": "b"}, 400, "unknown_field", "queue is not a known field"),
    ("GET", "/v1/tasks?parts=9", None, 400, "invalid", "parts goes only with group_by and finished_after"),
    ("GET", "/v1/tasks?parts=9&group_by=error", None, 400, "invalid", "parts goes only with finished_after"),
    ("GET", f"{SPREAD}&parts=1", None, 400, "invalid", "parts must be a whole number from 2 to 100"),
    ("GET", f"{SPREAD}&parts=101", None, 400, "invalid", "parts must be a whole number from 2 to 100"),
    (
        "GET",
        f"{SPREAD}&parts=9&finished_before=2020-01-01T00:00:00Z",
        None,
        400,
        "invalid",
        "finished_before must be later than finished_after",
    ),
    ("POST", "/v1/tasks/relocate", {"ids": ["a"], "to": "two"}, 404, "not_found", "there is no worker named two"),
    ("POST", "/v1/tasks/relocate", {"ids": ["a"], "to": 7}, 400, "invalid", "to must be text"),
    ("POST", "/v1/tasks/update", {"ids": ["a"]}, 400, "invalid", "set is required"),
    ("POST", "/v1/tasks/update", {"ids": ["a"], "set": {}}, 400, "invalid", "set must name at least one of queue, "),
    ("POST", "/v1/tasks/update", {"ids": ["a"], "set": {"queue": None}}, 400, "invalid", "must name at least one"),
    ("POST", "/v1/tasks/update", {"ids": ["a"], "set": {"tag": []}}, 400, "unknown_field", "did you mean tags?"),
    ("POST", "/v1/tasks/update", {"ids": ["a"], "set": {"at": "5m"}}, 400, "invalid", "set.at must be a time"),
    (
        "POST",
        "/v1/tasks/update",
        {"ids": ["a"], "set": {"at": "2030-01-01T00:00:00Z", "expires": "2030-01-01T00:00:00Z"}},
        400,
        "invalid",
        "set.expires must be later than the start",
    ),
    ("POST", "/v1/tasks/update", {"ids": ["a"], "set": {"limit": 0}}, 400, "invalid", "set.limit must be"),
    ("GET", "/v1/tasks/none/explain", None, 404, "not_found", "there is no task none"),
    ("GET", "/v1/queues?limit=0", None, 400, "invalid", "limit must be a whole number from 1 to 1000"),
    ("GET", "/v1/queues/none", None, 404, "not_found", "there is no queue none"),
    ("PUT", "/v1/queues/q", {"limit": -1}, 400, "invalid", "limit must be a whole number from 0"),
    ("PUT", "/v1/queues/q", {"limitt": 1}, 400, "unknown_field", "limitt is not a known field; did you mean limit?"),
    ("PUT", "/v1/queues/q", {"limit_per_key": 2**31}, 400, "invalid", "limit_per_key must be a whole number"),
    ("PUT", "/v1/queues/q", {"limit_per_worker": 1.5}, 400, "invalid", "limit_per_worker must be a whole number"),
    ("PUT", "/v1/queues/q", {"weight": 0}, 400, "invalid", "weight must be a whole number from 1 to 1000000"),
    ("PUT", "/v1/queues/q", {"rate": 100}, 400, "invalid", "rate must be a rate such as 100/m, 5/s or 1/30s, not 100"),
    ("PUT", "/v1/queues/q", {"rate": "100/y"}, 400, "invalid", "rate must be a rate such as 100/m"),
    ("PUT", "/v1/queues/q", {"rate": "0/m"}, 400, "invalid", "rate must be of 1 to 2147483647"),
    ("PUT", "/v1/queues/q", {"rate": "1/2d"}, 400, "invalid", "rate must be in 1ms to 1d"),
    ("PUT", "/v1/queues/q", {"burst": 0}, 400, "invalid", "burst must be a whole number from 1"),
    ("PUT", "/v1/queues/q", {"burst": 5}, 400, "invalid", "burst is of no use without a rate"),
    ("PATCH", "/v1/queues/q", {"burst": 5}, 400, "invalid", "burst is of no use without a rate"),
    ("PUT", "/v1/queues/q", {"workers": []}, 400, "invalid", "workers must have 1 to "),
    ("PATCH", "/v1/queues/q", {"workers": []}, 400, "invalid", "workers must have 1 to "),
    ("PUT", "/v1/queues/q", {"retry": {"first": "2h", "max": "1h"}}, 400, "invalid", "retry.first must not be longer"),
    (
        "PUT",
        "/v1/queues/q",
        {"retry": {"first": "2h"}},
        400,
        "invalid",
        "retry.first must not be longer than max, which",
    ),
    ("PATCH", "/v1/queues/q", {"retry": {"first": "2h"}}, 400, "invalid", "retry.first must not be longer than max"),
    (
        "PATCH",
        "/v1/queues/q",
        {"retry": {"permanent_exit_codes": [256]}},
        400,
        "invalid",
        "retry.permanent_exit_codes[0]",
    ),
    ("PUT", "/v1/queues/q", {"retry": {"permanent_exit_codes": [-1]}}, 400, "invalid", "retry.permanent_exit_codes[0]"),
    ("PUT", "/v1/queues/q", {"paused": "yes"}, 400, "invalid", "paused must be true or false"),
    ("PUT", "/v1/queues/q", {"discipline": "lifo"}, 400, "invalid", "unknown discipline"),
    ("PUT", "/v1/queues/q", {"class": "none"}, 400, "invalid", "unknown class"),
    ("PUT", "/v1/queues/q", {"lease": "2h"}, 400, "invalid", "lease must be from 1s to 1h, not '2h'"),
    ("PUT", "/v1/queues/q", {"keep": {"days": 1}}, 400, "unknown_field", "keep.days is not a known field"),
    ("PUT", "/v1/queues/q", {"workers": "a"}, 400, "invalid", "workers must be a list"),
    ("PUT", "/v1/queues/q", {"retry": {"attempts": 0}}, 400, "invalid", "retry.attempts must be a whole number from 1"),
    ("PUT", "/v1/queues/q", {"unique": {"while": "5x"}}, 400, "invalid", "unique.while must be queued, active, unfin"),
    ("PUT", "/v1/queues/a%2Fb", {}, 400, "invalid", "name must not hold '/'"),
    ("PATCH", "/v1/queues/q", {}, 400, "invalid", "must name at least one of discipline, weight, limit"),
    ("PATCH", "/v1/queues/q", {"limit": "x"}, 400, "invalid", "limit must be a whole number"),
    ("DELETE", "/v1/queues/none", None, 404, "not_found", "there is no queue none"),
    ("DELETE", "/v1/queues/default", None, 409, "not_empty", "queue default has tasks"),
    ("POST", "/v1/queues/a%2Fb/pause", None, 400, "invalid", "name must not hold '/'"),
    ("POST", "/v1/queues/q/resume?x=1", None, 400, "unknown_field", "x is not a known parameter"),
    ("POST", "/v1/queues/none/purge", None, 404, "not_found", "there is no queue none"),
    ("POST", "/v1/queues/default/purge", {"states": []}, 400, "invalid", "states must have 1 to 6 items"),
    ("POST", "/v1/queues/default/purge", {"states": ["running"]}, 400, "invalid", "states[0] must be one of sched"),
    ("POST", "/v1/queues/default/purge", {"state": "failed"}, 400, "unknown_field", "did you mean states?"),
    ("GET", "/v1/classes?x=1", None, 400, "unknown_field", "x is not a known parameter"),
    ("GET", "/v1/classes/none", None, 404, "not_found", "there is no class none"),
    ("PUT", "/v1/classes/c", {"parent": "none"}, 400, "invalid", "the class does not fit into the tree"),
    ("PUT", "/v1/classes/c", {"rate": -1}, 400, "invalid", "rate must be a number of slots, or a rate such as 100/m"),
    ("PUT", "/v1/classes/c", {"rate": "1/d"}, 400, "invalid", "rate must be at least one in a thousand seconds"),
    ("PUT", "/v1/classes/c", {"rate": 5, "ceil": 4}, 400, "invalid", "ceil must not be below the rate"),
    (
        "PUT",
        "/v1/classes/c",
        {"rate": 5, "ceil": 6},
        400,
        "invalid",
        "ceil must not be above the rate where there is no",
    ),
    ("PUT", "/v1/classes/c", {"ceil": 6}, 400, "invalid", "ceil must not be above the rate where there is no parent"),
    ("PUT", "/v1/classes/c", {"rate": 0.0004}, 400, "invalid", "rate must be 0, or at least 0.001, not 0.0004"),
    ("PATCH", "/v1/classes/c", {"ceil": 0.0001}, 400, "invalid", "ceil must be 0, or at least 0.001, not 0.0001"),
    ("PUT", "/v1/classes/c", {"of": "bytes"}, 400, "invalid", "of must be one of slots, starts"),
    ("PATCH", "/v1/classes/c", {}, 400, "invalid", "must name at least one of parent, rate"),
    ("DELETE", "/v1/classes/none", None, 404, "not_found", "there is no class none"),
    ("POST", "/v1/events", _one(tags=["!"]), 400, "invalid", "must name a tag behind the '!'"),
    ("POST", "/v1/events", _one(work=WORK | {"rlimits": {"nofil": 3}}), 400, "unknown_field", "nofile"),
    ("POST", "/v1/events", _one(work=WORK | {"cwd": 5}), 400, "invalid", "must be text, and absolute"),
    ("GET", "/v1/workers?x=1", None, 400, "unknown_field", "x is not a known parameter"),
    ("GET", "/v1/workers/two", None, 404, "not_found", "there is no worker two"),
    ("GET", "/v1/workers/two/load", None, 404, "not_found", "there is no worker two"),
    ("GET", "/v1/workers/a%2Fb", None, 404, "not_found", "there is no worker 'a/b'"),
    ("PATCH", "/v1/workers/two", {"slots": 1}, 404, "not_found", "there is no worker two"),
    ("PATCH", "/v1/workers/one", {}, 400, "invalid", "must name at least one of tags, queues, slots"),
    ("PATCH", "/v1/workers/one", {"slots": -1}, 400, "invalid", "slots must be a whole number from 0"),
    ("PATCH", "/v1/workers/one", {"tags": ["a", "!b"]}, 400, "invalid", "tags[1] must not begin with '!'"),
    ("PATCH", "/v1/workers/one", {"tags": ["=x"]}, 400, "invalid", "tags[0] must be a tag such as gpu"),
    ("PATCH", "/v1/workers/one", {"queues": ["*", "!slow"]}, 400, "invalid", "queues[1] must not begin with '!'"),
    ("PATCH", "/v1/workers/one", {"slot": 1}, 400, "unknown_field", "did you mean slots?"),
    ("POST", "/v1/workers/two/drain", None, 404, "not_found", "there is no worker two"),
    ("POST", "/v1/workers/two/reload", None, 404, "not_found", "there is no worker two"),
    ("POST", "/v1/workers/two/undrain", None, 404, "not_found", "there is no worker two"),
    ("GET", "/v1/policies?x=1", None, 400, "unknown_field", "x is not a known parameter"),
    ("GET", "/v1/policies/p", None, 404, "not_found", "there is no policy p"),
    ("DELETE", "/v1/policies/p", None, 404, "not_found", "there is no policy p"),
    ("PUT", "/v1/policies/p", {}, 400, "invalid", "source is required"),
    ("PUT", "/v1/policies/p", {"source": "function("}, 400, "invalid", "line 1, column 9"),
    ("PUT", "/v1/policies/a%2Fb", {"source": "x"}, 400, "invalid", "name must not hold '/'"),
    ("POST", "/v1/policies/test", {"source": "x"}, 400, "invalid", "task is required"),
    ("POST", "/v1/policies/test", {"source": "x", "task": "a", "states": [{}]}, 400, "invalid", "worker.name must be"),
    ("POST", "/v1/policies/test", {"source": "x", "task": "a", "states": []}, 400, "invalid", "must have 1 to 100"),
    ("POST", "/v1/policies/test", {"source": "x", "task": "none"}, 404, "not_found", "there is no task none"),
    ("POST", "/v1/policies/test", {"source": "x", "task": {"wrk": 1}}, 400, "invalid", "task.wrk is not a known field"),
    ("POST", "/v1/policies/test", {"source": "x", "task": "a", "worker": "two"}, 404, "not_found", "no worker two"),
    ("GET", "/v1/schedules?x=1", None, 400, "unknown_field", "x is not a known parameter"),
    ("GET", "/v1/schedules/s", None, 404, "not_found", "there is no schedule named s"),
    ("GET", "/v1/schedules/a%2Fb", None, 404, "not_found", "there is no schedule named 'a/b'"),
    ("PUT", "/v1/schedules/a%2Fb", CRON, 400, "invalid", "name must not hold '/'"),
    ("PUT", "/v1/schedules/s", {"cron": "@daily"}, 400, "invalid", "task is required"),
    ("PUT", "/v1/schedules/s", {"task": {"work": WORK}}, 400, "invalid", "must have exactly one of cron, every"),
    ("PUT", "/v1/schedules/s", CRON | {"every": "5s"}, 400, "invalid", "must have exactly one of cron, every"),
    ("PUT", "/v1/schedules/s", CRON | {"cron": "61 * * * *"}, 400, "invalid", "cron minute '61' cannot be: it takes 0"),
    ("PUT", "/v1/schedules/s", CRON | {"cron": "0 0 31 4 *"}, 400, "invalid", "cron never fires: no month of '4' has"),
    ("PUT", "/v1/schedules/s", CRON | {"cron": "* * * * * *"}, 400, "invalid", "cron must have five fields"),
    ("PUT", "/v1/schedules/s", CRON | {"cron": "@every 5x"}, 400, "invalid", "cron after @every must be a duration"),
    ("PUT", "/v1/schedules/s", CRON | {"cron": "@every 5ms"}, 400, "invalid", "cron after @every must be 1s or more"),
    ("PUT", "/v1/schedules/s", CRON | {"zone": "Berlin"}, 400, "invalid", "did you mean Europe/Berlin?"),
    (
        "PUT",
        "/v1/schedules/s",
        {"every": "5s", "zone": "Europe/Berlin", "task": {"work": WORK}},
        400,
        "invalid",
        "zone",
    ),
    ("PUT", "/v1/schedules/s", {"every": 0.5, "task": {"work": WORK}}, 400, "invalid", "every must be 1s or more"),
    ("PUT", "/v1/schedules/s", CRON | {"catchup": "most"}, 400, "invalid", "catchup must be one of skip, last, all"),
    ("PUT", "/v1/schedules/s", CRON | {"overlap": 1}, 400, "invalid", "overlap must be one of allow, skip, queue, rep"),
    (
        "PUT",
        "/v1/schedules/s",
        MANY | {"overlap": "queue"},
        400,
        "invalid",
        "task.limit must be left out: under overlap",
    ),
    (
        "PUT",
        "/v1/schedules/s",
        MANY | {"catchup": "all"},
        400,
        "invalid",
        "task.limit must be left out: under catchup: all",
    ),
    ("PUT", "/v1/schedules/s", CRON | {"jitter": "-1s"}, 400, "invalid", "jitter must be a duration"),
    ("PUT", "/v1/schedules/s", CRON | {"jitter": "24h"}, 400, "invalid", "jitter must be shorter than the 86400s from"),
    ("PUT", "/v1/schedules/s", CRON | {"crn": 1}, 400, "unknown_field", "did you mean cron?"),
    ("PUT", "/v1/schedules/s", CRON | {"task": {"wrk": 1}}, 400, "invalid", "task.wrk is not a known field"),
    ("PUT", "/v1/schedules/s", CRON | {"task": {"work": WORK, "id": "a"}}, 400, "invalid", "task.id is made anew for"),
    ("PUT", "/v1/schedules/s", CRON | {"task": {"work": WORK, "delay": "5s"}}, 400, "invalid", "task.delay is for the"),
    ("PUT", "/v1/schedules/s", CRON | {"task": {"work": WORK, "at": "5s"}}, 400, "invalid", "task.at is for the sched"),
    (
        "PUT",
        "/v1/schedules/s",
        CRON | {"task": {"work": WORK, "expires": "2030-01-01T00:00:00Z"}},
        400,
        "invalid",
        "task.expires must be a duration",
    ),
    ("DELETE", "/v1/schedules/s", None, 404, "not_found", "there is no schedule named s"),
    ("POST", "/v1/schedules/s/run", None, 404, "not_found", "there is no schedule named s"),
    ("POST", "/v1/schedules/s/pause", None, 404, "not_found", "there is no schedule named s"),
    ("POST", "/v1/schedules/s/resume", None, 404, "not_found", "there is no schedule named s"),
    ("GET", "/v1/schedules/s/ledger", None, 404, "not_found", "there is no schedule named s"),
    ("GET", "/v1/schedules/s/ledger?limit=0", None, 400, "invalid", "limit must be a whole number from 1 to 1000"),
    ("GET", "/v1/actions?grup=g", None, 400, "unknown_field", "did you mean group?"),
    ("GET", "/v1/actions?group_by=key", None, 400, "invalid", "group_by must be one of worker, group, queue"),
    ("GET", "/v1/actions?kind=cron", None, 400, "invalid", "kind must be one of job, service"),
    ("GET", "/v1/announcements?grup=g", None, 400, "unknown_field", "did you mean group?"),
    ("POST", "/v1/tasks/dleete", {"ids": ["a"]}, 404, "not_found", "takes GET, HEAD, not POST"),
    ("POST", "/v1/work/claim", {"worker": "w", "wiat": 0}, 400, "unknown_field", "did you mean wait?"),
    ("POST", "/v1/work/claim", {"worker": "w", "wait": "1m"}, 400, "invalid", "wait must be shorter than lease, 30s"),
    ("POST", "/v1/work/renew", {"action": "a1"}, 400, "invalid", "token is required"),
    (
        "POST",
        "/v1/work/progress",
        [{"action": "a1", "token": 1}],
        400,
        "invalid",
        "[0] must name at least one of percent",
    ),
    ("POST", "/v1/work/finish", {"action": "a1", "token": 0}, 400, "invalid", "token must be a whole number from 1"),
    ("POST", "/v1/work/fail", {"action": "a1", "token": 1, "retry_after": -1}, 400, "invalid", "retry_after must be"),
    ("GET", "/v1/bulk/b9", None, 404, "not_found", "there is no bulk b9"),
    ("GET", "/v1/tasks?state=done", None, 400, "invalid", "state must be one of"),
    ("GET", "/v1/tasks?limit=0", None, 400, "invalid", "limit must be a whole number from 1 to 1000"),
    ("GET", "/v1/tasks?limit=1&limit=2", None, 400, "invalid", "limit must be given once"),
    ("GET", "/v1/tasks?sort=size", None, 400, "invalid", "sort must be one of"),
    ("GET", "/v1/tasks?cursor=x", None, 400, "invalid", "the cursor is none of this list"),
    ("GET", "/v1/tasks?cursor=%20", None, 400, "invalid", "cursor must be a cursor"),
    ("GET", "/v1/tasks?created_after=now", None, 400, "invalid", "created_after must be a time"),
    ("GET", "/v1/tasks?quue=x", None, 400, "unknown_field", "did you mean queue?"),
    ("GET", "/v1/tasks?queue=%ff", None, 400, "bad_request", "not UTF-8"),
    ("GET", "/v1/tasks?queue=a%00b", None, 400, "invalid", "queue must not hold control characters"),
    ("GET", "/v1/tasks?deadline=0", None, 400, "invalid", "deadline must be from 1ms to 5m, not '0'"),
    ("GET", "/v1/tasks?consistent=yes", None, 400, "invalid", "consistent must be 1 or 0"),
    ("GET", "/v1/tasks/none", None, 404, "not_found", "there is no task none"),
    ("GET", "/v1/tasks/a%20b", None, 404, "not_found", "there is no task 'a b'"),
    ("GET", "/v1/tasks/a?wait=x", None, 400, "invalid", "wait must be a duration"),
    ("GET", "/v1/tasks/none/actions", None, 404, "not_found", "there is no task none"),
    ("GET", "/v1/tasks/none/log", None, 404, "not_found", "there is no task none"),
    ("GET", "/v1/tasks/a/log?stream=x", None, 400, "invalid", "stream must be one of stdout, stderr"),
    ("GET", "/v1/tasks/a/log?action=zz", None, 404, "not_found", "has no action zz"),
    ("GET", "/v1/tasks/a/log?offset=-1", None, 400, "invalid", "offset must be a number of bytes"),
    ("GET", "/v1/tasks/a/result", None, 409, "conflict", "has no result"),
    ("GET", "/v1/work/connect", None, 400, "bad_request", "a worker connects with a WebSocket"),
    ("GET", "/v1/stream?since=x", None, 400, "invalid", "since must be an index"),
    ("GET", "/v1/stream?event=A", None, 400, "invalid", "event must be kinds of events"),
    ("GET", "/v1/cluster?x=1", None, 400, "unknown_field", "x is not a known parameter"),
    ("POST", "/v1/cluster/members", {"id": "n2"}, 400, "invalid", "peer is required"),
    ("POST", "/v1/cluster/members", {"id": "n2", "peer": "nowhere"}, 400, "invalid", "peer must be host:port"),
    ("POST", "/v1/cluster/members", {"id": "n2", "peer": "0.0.0.0:1"}, 400, "invalid", "other nodes can dial"),
    ("DELETE", "/v1/cluster/members/n9", None, 404, "not_found", "there is no member n9"),
    ("GET", "/v1/cluster/backup?x=1", None, 400, "unknown_field", "x is not a known parameter"),
    ("GET", "/v1/tokens?x=1", None, 400, "unknown_field", "x is not a known parameter"),
    ("GET", "/v1/tokens/x", None, 404, "not_found", "there is no token x"),
    ("POST", "/v1/tokens", {"name": "ci"}, 400, "invalid", "role is required"),
    ("POST", "/v1/tokens", {"name": "ci", "role": "root"}, 400, "invalid", "role must be one of admin, operator, prod"),
    ("POST", "/v1/tokens", {"name": "a/b", "role": "viewer"}, 400, "invalid", "name must not hold '/'"),
    (
        "POST",
        "/v1/tokens",
        {"name": "n" * 201, "role": "viewer"},
        400,
        "invalid",
        "name must be at most 200 characters",
    ),
    ("POST", "/v1/tokens", {"name": "root", "role": "viewer"}, 409, "conflict", "another token named root"),
    ("POST", "/v1/tokens", {"name": "c", "role": "viewer", "queue": "q"}, 400, "unknown_field", "did you mean queues?"),
    ("POST", "/v1/tokens", {"name": "c", "role": "viewer", "queues": []}, 400, "invalid", "queues must have 1 to 100"),
    (
        "POST",
        "/v1/tokens",
        {"name": "c", "role": "viewer", "queues": ["[a]"]},
        400,
        "invalid",
        "queues[0] may hold * and",
    ),
    ("POST", "/v1/tokens", {"name": "c", "role": "admin", "queues": ["q"]}, 400, "invalid", "queues must be left out"),
    ("POST", "/v1/tokens", {"name": "c", "role": "worker", "groups": ["g"]}, 400, "invalid", "groups must be left out"),
    (
        "POST",
        "/v1/tokens",
        {"name": "c", "role": "viewer", "expires": "soon"},
        400,
        "invalid",
        "expires must be a time",
    ),
    ("POST", "/v1/tokens", {"name": "c", "role": "viewer", "expires": "-5"}, 400, "invalid", "expires must be a time"),
    (
        "POST",
        "/v1/tokens",
        {"name": "c", "role": "viewer", "expires": 0},
        400,
        "invalid",
        "expires must be later than now",
    ),
    (
        "POST",
        "/v1/tokens",
        {"name": "c", "role": "viewer", "expires": "99999999d"},
        400,
        "invalid",
        "expires is longer than any time there is",
    ),
    (
        "POST",
        "/v1/tokens",
        {"name": "c", "role": "viewer", "expires": "2020-01-01T00:00:00Z"},
        400,
        "invalid",
        "expires is over already",
    ),
    ("DELETE", "/v1/tokens/x", None, 404, "not_found", "there is no token x"),
    ("DELETE", "/v1/tokens/root", None, 409, "conflict", "root is the last token of role admin"),
    ("DELETE", "/v1/tokens/a%2Fb", None, 404, "not_found", "there is no token 'a/b'"),
    ("GET", "/metrics?x=1", None, 400, "unknown_field", "x is not a known parameter"),
    ("GET", "/openapi.json?x=1", None, 400, "unknown_field", "x is not a known parameter"),
    ("GET", "/healthz?x=1", None, 400, "unknown_field", "x is not a known parameter"),
    ("GET", "/readyz?x=1", None, 400, "unknown_field", "x is not a known parameter"),
    ("GET", "/v1/stream?every=1ms", None, 400, "invalid", "every must be from 100ms"),
    ("GET", "/v1/stream?every=1s&queue=q&id=a", None, 400, "invalid", "queue does not go together with every"),
    ("GET", "/v1/history?x=1", None, 400, "unknown_field", "x is not a known parameter"),
    ("GET", "/v1/session?x=1", None, 400, "unknown_field", "x is not a known parameter"),
    ("POST", "/v1/session?x=1", None, 400, "unknown_field", "x is not a known parameter"),
    ("DELETE", "/v1/session?x=1", None, 400, "unknown_field", "x is not a known parameter"),
    ("POST", "/v1/session/link?x=1", None, 400, "unknown_field", "x is not a known parameter"),
    ("GET", "/login?once=a%20b", None, 400, "invalid", "once must be what follows"),
    ("GET", "/web/0/app.js", None, 404, "not_found", "no such file of the dashboard"),
    ("GET", "/web/0/views/app.js", None, 404, "not_found", "no such file of the dashboard"),
    ("GET", "/?x=1", None, 400, "unknown_field", "x is not a known parameter"),
    ("GET", "/nowhere", None, 404, "not_found", "there is nothing at '/nowhere'"),
    ("GET", "/v1/tasks/", None, 404, "not_found", "there is nothing at '/v1/tasks/'"),
    ("PATCH", "/v1/tasks", {}, 404, "not_found", "takes GET, HEAD, not PATCH"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "code", "words"), BAD)
async def test_a_bad_request_is_told_what_is_wrong_and_changes_nothing(
    node: Node, method: str, path: str, body: Any, status: int, code: str, words: str
) -> None:
    await node.client.add({"work": WORK, "id": "a"})
    before = (
        dict(node.pool.records["a"]),
        dict(node.pool.crew),
        dict(node.pool.queueing.settings),
        dict(node.pool.queueing.tree),
        node.pool.index,
        len(node.pool.records),
        len(node.pool.members),
        dict(node.pool.planned),
    )
    answer = await node.client.ask(method, path, body)
    assert (answer.status, answer.code) == (status, code)
    problem = answer.json
    assert words in problem["detail"]
    assert (problem["status"], problem["type"]) == (status, f"urn:quvatlh:problem:{code}")
    assert problem.keys() == {"type", "title", "status", "code", "detail", "errors"}
    pool, queues = node.pool, node.pool.queueing
    queues.settings.pop("default", None)  # made on first use, by whoever looks
    known = (pool.records["a"], pool.crew, queues.settings, queues.tree)
    assert before == (*known, pool.index, len(pool.records), len(pool.members), pool.planned)
    assert not node.broken


def test_the_table_of_bad_requests_names_every_route() -> None:
    def leads_to(path: str, pattern: str) -> bool:
        parts, wanted = path.split("?", maxsplit=1)[0].split("/"), pattern.split("/")
        return len(parts) == len(wanted) and all(w[:1] == "{" or w == p for p, w in zip(parts, wanted, strict=True))

    for route in ROUTES:
        assert any(method == route.method and leads_to(path, route.path) for method, path, *_ in BAD), route.path


YAML = {"Content-Type": "application/yaml"}
RAW: list[tuple[bytes, dict[str, str], int, str, str]] = [
    (b"", JSON, 400, "bad_request", "the body is empty, where JSON is needed"),
    (b"{", JSON, 400, "bad_request", "the body is malformed JSON"),
    (b'{"event":"ADD","event":"ADD"}', JSON, 400, "bad_request", "names 'event' twice"),
    (b'{"event":NaN}', JSON, 400, "bad_request", "the body is malformed JSON"),
    (b'{"event":"\xff"}', JSON, 400, "bad_request", "the body is not UTF-8"),
    (b"[" * 100_000, JSON, 400, "bad_request", "the body is nested deeper than 64 levels"),
    (b" " * (BODY_BYTES_MAX + 1), JSON, 413, "too_large", "the body is over 4194304 bytes"),
    (b"{}", {"Content-Type": "text/plain"}, 400, "bad_request", "Content-Type must be application/json or"),
    (b"a: [", YAML, 400, "bad_request", "the body: line 2, column 1: did not find"),
    (b"work: {command: [a]}\nwork: 7", YAML, 400, "bad_request", "line 2, column 1: 'work' stands twice"),
    (b"a: &a [*a]", YAML, 400, "bad_request", "the body: "),
    (b"[" * 60_000, YAML, 400, "bad_request", "is nested more than 64 levels deep"),
    (b"# nothing", YAML, 400, "invalid", "the body holds no task"),
    (b"{event: ADD}", YAML, 400, "invalid", "tasks[0].event is not a known field"),
    (b"#" * 65_537, YAML, 413, "too_large", "a body of YAML may have 65536 bytes"),
    (b"{}", {"Content-Type": "application/json; charset=latin-1"}, 400, "bad_request", "in UTF-8"),
    (b"{}", JSON | {"Content-Encoding": "gzip"}, 400, "bad_request", "compressed bodies are not taken"),
]


@pytest.mark.parametrize(("raw", "headers", "status", "code", "words"), RAW)
async def test_a_bad_body_is_told_what_is_wrong(
    client: Client, raw: bytes, headers: dict[str, str], status: int, code: str, words: str
) -> None:
    answer = await client.ask("POST", "/v1/events", raw=raw, headers=headers)
    assert (answer.status, answer.code) == (status, code)
    assert words in answer.json["detail"]


async def test_a_body_without_length_is_bounded_too(node: Node) -> None:
    head = node.head("POST", "/v1/events", "Content-Type: application/json", "Transfer-Encoding: chunked")
    piece = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    reader, writer = await node.dial()
    writer.write(head + piece * 65)
    assert (await reader.readline()).startswith(b"HTTP/1.1 413")
    writer.close()


async def test_the_largest_event_is_taken(client: Client) -> None:
    answer = await client.add(*[{"work": WORK}] * 5000)
    assert (answer.status, len(answer.json["ids"])) == (201, 5000)
