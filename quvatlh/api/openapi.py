"""OpenAPI 3.1 of the routes that are served, made of their own table and of the kinds that judge what comes in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from quvatlh.api.access import ACCESS, BOUNDS
from quvatlh.api.exchange import JSON, NDJSON, Route
from quvatlh.api.params import Param
from quvatlh.api.routes import ROUTES, params_of
from quvatlh.api.tasks import FIELDS, TASK
from quvatlh.core.limits import ACTIONS_SHOWN_MAX
from quvatlh.service.pool import CODES

PROBLEM: Final = "application/problem+json"
PROBLEMS: Final = sorted(set(CODES.values()))

_AGAIN: Final = {"Retry-After": "seconds until it may go better"}
PROBLEM_HEADERS: Final[Mapping[int, Mapping[str, str]]] = {
    401: {"WWW-Authenticate": "how to prove oneself"},
    404: {"Allow": "the methods that the address takes, where it is the method that is wrong"},
    429: _AGAIN,
    503: _AGAIN,
}

_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_TIME: Final = {"type": ["string", "null"], "format": "date-time"}


def _answer(properties: Mapping[str, Any], required: Sequence[str] | None = None) -> dict[str, Any]:
    """Answers may grow: clients pass over what they do not know."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties if required is None else required),
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(name: str, about: str = "") -> dict[str, Any]:
    note = {"description": about} if about else {}
    return _answer(
        {
            "items": {"type": "array", "items": _ref(name)} | note,
            "next": {"type": ["string", "null"]},
            "total": {"type": ["integer", "null"]},
        }
    )


_IDS: Final = {"type": "array", "items": _TEXT}
_EXISTING: Final = {"type": "object", "additionalProperties": {"enum": ["id", "unique"]}}
_TASK: Final = {name: {} for name in FIELDS if name not in {"delay", "payload", "payload_base64"}} | {
    "id": _TEXT,
    "state": _TEXT,
    "created_at": _TIME,
    "due_at": _TIME | {"description": "when it may start, while it waits for a time: its `at`, or the next attempt"},
    "started_at": _TIME,
    "finished_at": _TIME,
    "attempts": _COUNT,
    "eta": {"type": ["object", "null"]},
    "error": {"type": ["object", "null"]},
    "result": {},
    "actions": {"type": "array", "items": _ref("Action")},
}
_OF_LISTS: Final = (
    "Without what only /v1/tasks/{id} tells: no payload, `result` is null, and `actions` are the live ones, "
    f"the first {ACTIONS_SHOWN_MAX}."
)
_ACTION: Final = {
    "id": _TEXT,
    "task": _TEXT,
    "worker": _TEXT,
    "token": _COUNT,
    "attempt": _COUNT,
    "state": _TEXT,
    "started_at": _TIME,
    "finished_at": _TIME,
    "exit_code": {"type": ["integer", "null"]},
    "signal": {"type": ["string", "integer", "null"]},
    "error": {"type": ["object", "null"]},
    "progress": {"type": ["object", "null"]},
    "announcement": {},
    "output_tail": {"type": ["string", "null"]},
}
_MOVE: Final = dict.fromkeys(("task", "from", "to"), _TEXT)
_SAID: Final = {
    "name": _TEXT,
    "verdict": _TEXT,
    "detail": {},
    "score": {"type": ["number", "null"], "description": "of its policy's bid"},
}
_EXPLAINED: Final = {
    "state": _TEXT,
    "reason": _TEXT,
    "text": _TEXT,
    "change": {"type": ["string", "null"]},
    "position": {"type": ["integer", "null"]},
    "holders": _IDS,
    "workers": {"type": "array", "items": _answer(_SAID)},
    "eta": {"type": ["object", "null"]},
}
_WORKER: Final = {
    "name": _TEXT,
    "node": _TEXT,
    "role": {"enum": ["node", "worker", "pull"]},
    "state": {"enum": ["up", "draining", "lost"]},
    "tags": _IDS,
    "adapters": _IDS,
    "slots": _COUNT,
    "free": _COUNT,
    "queues": _IDS,
    "facts": {"type": "object"},
    "load": {
        "anyOf": [
            _answer(
                {
                    "cpu_load": {"type": "number", "minimum": 0, "maximum": 1},
                    "memory_free_bytes": _COUNT,
                    "memory_total_bytes": _COUNT,
                    "disk_free_bytes": _COUNT,
                }
            ),
            {"type": "null"},
        ],
        "description": "of its machine now; null where it is not known",
    },
}
_PERCENTS: Final = {"type": "array", "items": {"type": ["integer", "null"], "minimum": 0, "maximum": 100}}
_SPAN: Final = {"type": "string"}
_SPANS: Final = {"anyOf": [_answer(dict.fromkeys(("p50", "p95", "p99"), _SPAN)), {"type": "null"}]}
_PER_S: Final = {"type": "number", "description": "tasks a second, over `span`"}
_KEEP: Final = _answer({"age": _SPAN, "count": _COUNT})
_OR_NONE: Final = {"type": ["integer", "null"], "minimum": 0}
_LACK: Final = {"what": {"enum": ["queue", "adapter", "tag", "worker", "slots", "all"]}, "value": {}, "count": _COUNT}
_UNPLACEABLE: Final = _answer(
    {"count": _COUNT, "at_least": {"type": "boolean"}, "lacks": {"type": "array", "items": _answer(_LACK)}}
) | {"type": ["object", "null"], "description": "waiting tasks that no worker that is up may have, and what none has"}
_QUEUE: Final = {
    "name": _TEXT,
    "discipline": _TEXT,
    "weight": _COUNT,
    "limit": _OR_NONE,
    "limit_per_key": _OR_NONE,
    "limit_per_worker": _OR_NONE,
    "rate": {"type": ["string", "null"], "description": "such as 100/m"},
    "burst": _OR_NONE,
    "paused": {"type": "boolean"},
    "unique": {"type": ["object", "null"]},
    "retry": {"type": ["object", "null"]},
    "lease": {"type": ["string", "null"]},
    "keep": _KEEP,
    "keep_failed": _KEEP,
    "workers": _IDS,
    "class": {"type": ["string", "null"]},
    "key_weights": {"type": "object", "additionalProperties": _COUNT, "description": "under sfq; others have 1"},
    "counts": _answer(dict.fromkeys(("scheduled", "pending", "claimed", "running", "retrying", "failed"), _COUNT)),
    "over": _answer(dict.fromkeys(("succeeded", "deleted"), _COUNT))
    | {"description": "listed still; purged, they are not"},
    "oldest_pending_at": _TIME,
    "oldest_placeable_at": _TIME | {"description": "of those that a worker that is up may have"},
    "unplaceable": _UNPLACEABLE,
    "rates": _answer(
        {**dict.fromkeys(("in", "out", "failed", "retried"), _PER_S), "span": _SPAN, "wait": _SPANS, "run": _SPANS}
    ),
}
_CLASS: Final = {
    "name": _TEXT,
    "parent": {"type": ["string", "null"]},
    "rate": {"type": "number"},
    "ceil": {"type": ["number", "null"]},
    "burst": _COUNT,
    "priority": {"type": "integer"},
    "of": {"enum": ["slots", "starts"]},
}
_JUMP: Final = {
    "type": ["object", "null"],
    "description": "when the clocks were set last by more than a minute, and which way",
    "properties": {"at": _TIME, "way": {"enum": ["ahead", "back"]}, "by": _TEXT, "seen_by": _TEXT},
}
_POLICY: Final = {"name": _TEXT, "version": _COUNT, "digest": _TEXT, "at": _TIME, "source": _TEXT}
_ANNOUNCEMENT: Final = {**dict.fromkeys(("task", "action", "group", "name", "worker"), _TEXT), "at": _TIME, "data": {}}
_SCHEDULE: Final = {
    "name": _TEXT,
    "cron": {"type": ["string", "null"]},
    "every": {"type": ["string", "null"]},
    "zone": {"type": ["string", "null"]},
    "task": {"type": "object"},
    "catchup": {"enum": ["skip", "last", "all"]},
    "overlap": {"enum": ["allow", "skip", "queue", "replace"]},
    "jitter": _TEXT,
    "paused": {"type": "boolean"},
    "text": _TEXT,
    "next": {"type": "array", "items": {"type": "string", "format": "date-time"}},
    "last_slot": _TIME,
    "last_task": {"type": ["string", "null"]},
    "version": _COUNT,
}
_SLOT: Final = {
    "slot": _TIME,
    "at": _TIME,
    "outcome": {"enum": ["ran", "skipped"]},
    "task": {"type": ["string", "null"]},
    "why": {"type": ["string", "null"]},
    "manual": {"type": "boolean"},
}
_NODE: Final = {name: {"type": ["string", "null"]} for name in ("name", "id", "peer", "http", "state")}
_OWN: Final = {
    name: {"type": ["integer", "null"], "description": f"by the node's own word: {about}; null without an answer"}
    for name, about in {
        "term": "its term",
        "index": "the last entry that it has applied",
        "log_bytes": "its log on disk",
        "snapshot_bytes": "its state on disk, which is what a snapshot is a copy of",
    }.items()
}
_CLAIMED: Final = {
    "action": _TEXT,
    "token": _COUNT,
    "lease_ms": {"type": "integer", "description": "from when the claim, or the last renewal, was sent"},
    "task": _ref("Task"),
    "payload": {"description": "the task's, any JSON"},
    "payload_base64": {"type": "string", "description": "instead, where it is bytes"},
}
_REPORTED: Final = {
    "action": _TEXT,
    "ok": {"const": True},
    "code": {"enum": ["stale_token", "gone", "too_large", "invalid"]},
}
_COLUMNS: Final = {
    "type": "object",
    "additionalProperties": {"type": "array", "items": {"type": ["number", "null"]}},
}
_GROUPS: Final = _answer(
    {
        "groups": {
            "type": "array",
            "items": _answer(
                {"value": {}, "count": _COUNT, "parts": {"type": "array", "items": _COUNT}}, ("value", "count")
            ),
        },
        "partial": {"const": True},
    },
    ("groups",),
)
_PACKED: Final = {"type": "string", "contentEncoding": "base64", "description": "a result that JSON has not all of"}
_OVER: Final = _COUNT | {"description": "of those done: were over before, and stay as they are"}
_BULK: Final = {
    "id": _TEXT,
    "matched": _COUNT,
    "done": _COUNT,
    "over": _OVER,
    "state": {"enum": ["working", "done"]},
}
_TOKEN: Final = {
    "name": _TEXT,
    "role": _TEXT,
    "queues": _IDS,
    "groups": _IDS,
    "created_at": _TIME,
    "expires_at": _TIME,
    "expired": {"type": "boolean"},
    "revoked_at": _TIME,
}

SCHEMAS: Final[Mapping[str, Any]] = {
    "NewTask": dict(TASK.schema),
    "Added": _answer({"ids": _IDS, "index": _COUNT, "existing": _EXISTING}),
    "AddedLine": _answer(
        {"from": _COUNT, "to": _COUNT, "ids": _IDS, "index": _COUNT, "existing": _EXISTING, "problem": _ref("Problem")},
        ("from", "to"),
    ),
    "Done": _answer({"matched": _COUNT, "done": _COUNT, "index": _COUNT, "over": _OVER}, ("matched", "done", "index")),
    "Balanced": _answer({"moves": {"type": "array", "items": _answer(_MOVE)}, "index": {"type": ["integer", "null"]}}),
    "EventDone": {"oneOf": [_ref("Added"), _ref("Done"), _ref("Balanced")]},
    "BulkStarted": _answer({"bulk": _TEXT}),
    "Bulk": _answer(_BULK, ("id", "matched", "done", "state")),
    "Task": _answer(_TASK | {"result_msgpack": _PACKED}, tuple(_TASK)),
    "Tasks": _list("Task", _OF_LISTS),
    "TasksOrGroups": {"oneOf": [_ref("Tasks"), _GROUPS]},
    "Action": _answer(_ACTION),
    "Actions": _list("Action"),
    "Live": _answer(_ACTION | dict.fromkeys(("name", "group", "queue", "kind"), _TEXT)),
    "ActionsOrGroups": {"oneOf": [_list("Live"), _GROUPS]},
    "Explained": _answer(_EXPLAINED),
    "Queue": _answer(_QUEUE),
    "Queues": _list("Queue"),
    "Class": _answer(_CLASS),
    "Classes": _list("Class"),
    "Worker": _answer(_WORKER),
    "Workers": _list("Worker"),
    "WorkerLoad": _answer({"step": _SPAN, "cpu": _PERCENTS, "memory": _PERCENTS}),
    "Policy": _answer(_POLICY, ("name", "version", "digest", "at")),
    "Policies": _list("Policy"),
    "PolicyTest": _answer(
        {
            "worker": _TEXT,
            "verdict": _TEXT,
            "score": {"type": ["number", "null"]},
            "text": {"type": ["string", "null"]},
            "state": {
                "type": ["object", "null"],
                "description": "as the policy saw it, to be kept and asked with in `states`; null to a narrowed token",
            },
        }
    ),
    "PolicyTests": _list("PolicyTest"),
    "Schedule": _answer(_SCHEDULE),
    "Schedules": _list("Schedule"),
    "Slot": _answer(_SLOT),
    "Ledger": _list("Slot"),
    "ScheduleRun": _answer({"task": {"type": ["string", "null"]}, "why": {"type": ["string", "null"]}}),
    "Reloaded": _answer({"worker": _TEXT, "environments": _IDS}),
    "Announcement": _answer(_ANNOUNCEMENT),
    "Announcements": _list("Announcement"),
    "Claimed": _answer(
        {"actions": {"type": "array", "items": _answer(_CLAIMED, ("action", "token", "lease_ms", "task", "payload"))}}
    ),
    "Reported": _answer({"results": {"type": "array", "items": _answer(_REPORTED, ("action",))}}),
    "Deleted": _answer({"name": _TEXT}),
    "Cluster": _answer(
        {
            "master": {"type": ["string", "null"]},
            "term": _COUNT,
            "index": _COUNT,
            "node": _TEXT,
            "nodes": {"type": "array", "items": _answer(_NODE | {"lag": {}} | _OWN)},
            "clock": _answer({"at": _TIME, "behind": _TEXT, "jumped": _JUMP}),
            "warning": {"type": ["string", "null"]},
        }
    ),
    "Token": _answer(_TOKEN, ("name", "role", "queues", "groups")),
    "NewToken": _answer(_TOKEN | {"secret": _TEXT}, ("name", "role", "queues", "groups", "secret")),
    "Tokens": _list("Token"),
    "Session": _answer(
        {"name": _TEXT, "role": _TEXT, "queues": _IDS, "groups": _IDS, "until": _TIME, "web": _TEXT, "may": _IDS},
    ),
    "Link": _answer({"url": _TEXT}),
    "History": _answer({"step": _TEXT, "from": _TIME, **dict.fromkeys(("counts", "waits", "tasks", "live"), _COLUMNS)}),
    "Status": _answer({"status": _TEXT}),
    "Anything": {},
    "Problem": _answer(
        {
            "type": _TEXT,
            "title": _TEXT,
            "status": {"enum": PROBLEMS},
            "code": {"enum": list(CODES)},
            "detail": _TEXT,
            "errors": {"type": "array", "items": _answer({"path": _TEXT, "message": _TEXT})},
        }
    ),
}


def document(routes: Sequence[Route] = ROUTES, version: str = "1") -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Qu'vatlh", "version": version},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": dict(SCHEMAS),
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    parameters += [_parameter(name, param) for name, param in params_of(route).items()]
    if route.remembered:
        key = {"type": "string", "minLength": 1, "maxLength": 128, "pattern": r"^[\x21-\x7e]+$"}
        parameters.append({"name": "Idempotency-Key", "in": "header", "schema": key})
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.about,
        "description": _who(route),
        "parameters": parameters,
        "responses": _responses(route),
    }
    if route.body is not None:
        operation["requestBody"] = {"required": not route.may_be_empty, "content": _request(route)}
    if route.open:
        operation["security"] = []
    return operation


def _who(route: Route) -> str:
    need = ACCESS[route.method, route.path]
    if need.least == "open":
        return "Needs no token."
    least = "any" if need.least == "any" else f"{need.least} or more"
    return f"Role: {least}. Scope: {BOUNDS[need.bound]}."


def _operation_id(route: Route) -> str:
    return f"{route.method.lower()}_{'_'.join(re.findall(r'[a-z0-9]+', route.path)) or 'root'}"


def _parameter(name: str, param: Param) -> dict[str, Any]:
    about = {"description": param.about} if param.about else {}
    return {"name": name, "in": "query", "schema": dict(param.kind.schema)} | about


def _request(route: Route) -> dict[str, Any]:
    assert route.body is not None
    content: dict[str, Any] = {JSON: {"schema": dict(route.body.schema)}}
    for content_type, about in route.also.items():
        content[content_type] = {"schema": {"type": "string", "description": about}}
    return content


def _responses(route: Route) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, name in route.answers.items():
        is_type = "/" in name
        content: dict[str, Any] = {name: {"schema": _TEXT}} if is_type else {JSON: {"schema": _ref(name)}}
        if NDJSON in route.also and status == 200:
            content[NDJSON] = {"schema": {"type": "string", "description": "one AddedLine a cut"}}
        responses[str(status)] = {"description": route.about, "content": content}
        if route.headers:
            responses[str(status)]["headers"] = _headers(route.headers)
    return responses | {str(status): _problem(status) for status in PROBLEMS if str(status) not in responses}


def _problem(status: int) -> dict[str, Any]:
    codes = ", ".join(code for code, of in CODES.items() if of == status)
    described: dict[str, Any] = {"description": codes, "content": {PROBLEM: {"schema": _ref("Problem")}}}
    return described | ({"headers": _headers(PROBLEM_HEADERS[status])} if status in PROBLEM_HEADERS else {})


def _headers(headers: Mapping[str, str]) -> dict[str, Any]:
    return {name: {"description": about, "schema": _TEXT} for name, about in headers.items()}
