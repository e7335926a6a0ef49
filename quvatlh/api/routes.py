"""The table of routes: what is served, what each takes and answers. The OpenAPI document is made of the same table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from quvatlh.api import connect, events, keys, market, meter, ops, pages, pull, queues, schedules, stream, views
from quvatlh.api.checks import choice
from quvatlh.api.exchange import Handler, Route
from quvatlh.api.params import CONSISTENT, DEADLINE, FLAG, LIST_PARAMS, OFFSET, WAIT, Param, decoded
from quvatlh.api.tasks import ID
from quvatlh.service.pool import Verb
from quvatlh.service.pullasks import Verb as ReportVerb

LOG_PARAMS: Final = {
    "follow": Param(FLAG, about="until the action has ended"),
    "stream": Param(choice("stdout", "stderr")),
    "action": Param(ID, about="else the last one"),
    "offset": Param(OFFSET, about="the first byte wanted: to go on where an answer broke off"),
}
IDS_PARAM: Final = {"ids": Param(FLAG, about="NDJSON: 0 leaves ids out of the answers")}
ABOUT_REPORTS: Final[Mapping[ReportVerb, str]] = {
    "renew": "The leases of a pull worker's actions begin anew",
    "progress": "How far they are; renews them too",
    "finish": "They have succeeded",
    "fail": "They have failed",
}
DONE: Final = {200: "Done", 202: "BulkStarted"}
ABOUT_VERBS: Final[Mapping[Verb, str]] = {
    "retry": "Failed tasks begin anew",
    "kill": "Stop runs; their tasks have failed",
    "delete": "Stop and delete tasks",
    "relocate": "Move tasks away from their workers, or to one",
    "update": "Change tasks as they stand",
}


def _route(method: str, path: str, handler: Handler, about: str, answer: str, **more: Any) -> Route:
    """One that answers 200 and nothing else."""
    return Route(method, path, handler, about, {200: answer}, **more)


QUEUES: Final[Sequence[Route]] = (
    _route("GET", "/v1/queues", queues.get_queues, "Queues, sorted", "Queues", params=queues.PAGE_PARAMS),
    _route("GET", "/v1/queues/{name}", queues.get_queue, "One queue", "Queue"),
    _route(
        "PUT",
        "/v1/queues/{name}",
        queues.put_queue,
        "Make a queue, or replace all its settings",
        "Queue",
        body=queues.PUT_QUEUE,
        remembered=True,
    ),
    _route(
        "PATCH",
        "/v1/queues/{name}",
        queues.patch_queue,
        "Change settings; null takes one back",
        "Queue",
        body=queues.PATCH_QUEUE,
        remembered=True,
    ),
    _route("DELETE", "/v1/queues/{name}", queues.delete_queue, "Forget an empty queue", "Deleted", remembered=True),
    _route("POST", "/v1/queues/{name}/pause", queues.pause, "Start nothing of it", "Queue", remembered=True),
    _route("POST", "/v1/queues/{name}/resume", queues.pause, "Start its tasks again", "Queue", remembered=True),
    Route(
        "POST",
        "/v1/queues/{name}/purge",
        queues.purge,
        "Delete what waits, or take off the list what is over",
        DONE,
        {},
        queues.PURGE,
        may_be_empty=True,
        remembered=True,
    ),
    _route("GET", "/v1/classes", queues.get_classes, "Classes of queues", "Classes"),
    _route("GET", "/v1/classes/{name}", queues.get_class, "One class", "Class"),
    _route(
        "PUT",
        "/v1/classes/{name}",
        queues.put_class,
        "Make a class, or replace it",
        "Class",
        body=queues.PUT_CLASS,
        remembered=True,
    ),
    _route(
        "PATCH",
        "/v1/classes/{name}",
        queues.patch_class,
        "Change a class; null takes a setting back",
        "Class",
        body=queues.PATCH_CLASS,
        remembered=True,
    ),
    _route("DELETE", "/v1/classes/{name}", queues.delete_class, "Forget a class", "Deleted", remembered=True),
)

ROUTES: Final[Sequence[Route]] = (
    Route(
        "POST",
        "/v1/events",
        events.post_events,
        "Add, delete or balance tasks",
        {200: "EventDone", 201: "Added", 202: "BulkStarted"},
        IDS_PARAM,
        events.EVENT,
        also=events.EVENT_TYPES,
        remembered=True,
    ),
    _route("GET", "/v1/tasks", views.get_tasks, "List, filter, count", "TasksOrGroups", params=LIST_PARAMS),
    _route("GET", "/v1/tasks/{id}", views.get_task, "One task; wait for its end", "Task", params={"wait": WAIT}),
    _route("GET", "/v1/tasks/{id}/explain", market.get_explain, "Why it is not running", "Explained"),
    _route("GET", "/v1/tasks/{id}/actions", views.get_actions, "Its live runs, and the last 100 that ended", "Actions"),
    _route(
        "GET",
        "/v1/tasks/{id}/log",
        views.get_log,
        "What a run wrote",
        views.TEXT,
        params=LOG_PARAMS,
        headers=views.LOG_HEADERS,
        streams=True,
    ),
    _route(
        "GET",
        "/v1/tasks/{id}/result",
        views.get_result,
        "The value it succeeded with",
        "Anything",
        headers=views.RESULT_HEADERS,
    ),
    *(
        Route("POST", f"/v1/tasks/{verb}", events.post_verb, about, DONE, {}, events.VERB_BODIES[verb], remembered=True)
        for verb, about in ABOUT_VERBS.items()
    ),
    _route("GET", "/v1/bulk/{id}", events.get_bulk, "How far a bulk verb is", "Bulk"),
    *QUEUES,
    _route("GET", "/v1/workers", market.get_workers, "Workers", "Workers"),
    _route("GET", "/v1/workers/{name}", market.get_worker, "One worker", "Worker"),
    _route(
        "GET",
        "/v1/workers/{name}/load",
        market.get_worker_load,
        "The last hour of its machine, for charts",
        "WorkerLoad",
    ),
    _route(
        "PATCH",
        "/v1/workers/{name}",
        market.patch_worker,
        "Change tags, queues, slots",
        "Worker",
        body=market.WORKER,
        remembered=True,
    ),
    _route("POST", "/v1/workers/{name}/drain", market.drain, "Finish, take nothing new", "Worker", remembered=True),
    _route("POST", "/v1/workers/{name}/undrain", market.drain, "Take work again", "Worker", remembered=True),
    _route(
        "POST",
        "/v1/workers/{name}/reload",
        market.reload,
        "Load its programs anew, as their processes finish what they do",
        "Reloaded",
        params=market.ENVIRONMENT_PARAM,
    ),
    _route("GET", "/v1/policies", market.get_policies, "Stored policies, without source", "Policies"),
    _route("GET", "/v1/policies/{name}", market.get_policy, "One policy", "Policy"),
    _route(
        "PUT",
        "/v1/policies/{name}",
        market.put_policy,
        "Store a policy, or a new version of it",
        "Policy",
        body=market.POLICY,
        also=market.SOURCE_TYPES,
        remembered=True,
    ),
    _route("DELETE", "/v1/policies/{name}", market.delete_policy, "Forget a policy", "Deleted", remembered=True),
    _route(
        "POST",
        "/v1/policies/test",
        market.test_policy,
        "What workers, live or recorded, would answer; nothing runs",
        "PolicyTests",
        body=market.POLICY_TEST,
    ),
    _route("GET", "/v1/schedules", schedules.get_schedules, "Schedules, and when each is due", "Schedules"),
    _route("GET", "/v1/schedules/{name}", schedules.get_schedule, "One schedule, and its next ten slots", "Schedule"),
    _route(
        "PUT",
        "/v1/schedules/{name}",
        schedules.put_schedule,
        "Keep a schedule, or give it another rule",
        "Schedule",
        body=schedules.SCHEDULE,
        remembered=True,
    ),
    _route(
        "DELETE", "/v1/schedules/{name}", schedules.delete_schedule, "Forget a schedule", "Deleted", remembered=True
    ),
    _route(
        "GET",
        "/v1/schedules/{name}/ledger",
        schedules.get_ledger,
        "What became of its slots, the latest first",
        "Ledger",
        params=schedules.LEDGER_PARAMS,
    ),
    _route(
        "POST",
        "/v1/schedules/{name}/run",
        schedules.run_schedule,
        "Add its task now, too",
        "ScheduleRun",
        remembered=True,
    ),
    _route("POST", "/v1/schedules/{name}/pause", schedules.pause_schedule, "No slots", "Schedule", remembered=True),
    _route(
        "POST",
        "/v1/schedules/{name}/resume",
        schedules.pause_schedule,
        "Slots from now on",
        "Schedule",
        remembered=True,
    ),
    _route(
        "GET",
        "/v1/actions",
        market.get_actions,
        "Live actions, or how many each worker, group or queue has",
        "ActionsOrGroups",
        params=market.OWNED_PARAMS,
    ),
    _route(
        "GET",
        "/v1/announcements",
        market.get_announcements,
        "What live actions announce",
        "Announcements",
        params=market.GROUP_PARAM,
    ),
    _route(
        "GET",
        "/v1/stream",
        stream.stream,
        "What happens, as server-sent events",
        stream.TYPE,
        params=stream.PARAMS,
        streams=True,
    ),
    _route("GET", "/v1/cluster", views.get_cluster, "Nodes and master", "Cluster"),
    Route(
        "POST",
        "/v1/cluster/members",
        views.post_member,
        "Admit a node",
        {201: "Cluster"},
        {},
        views.MEMBER,
        remembered=True,
    ),
    _route("DELETE", "/v1/cluster/members/{id}", views.delete_member, "Remove a node", "Cluster", remembered=True),
    _route(
        "GET",
        "/v1/cluster/backup",
        views.get_backup,
        "The state, as a file",
        views.BYTES,
        headers=views.BACKUP_HEADERS,
        streams=True,
    ),
    _route("GET", "/v1/tokens", keys.get_tokens, "Tokens, without their secrets", "Tokens"),
    _route("GET", "/v1/tokens/{name}", keys.get_token, "One token, without its secret", "Token"),
    Route(
        "POST",
        "/v1/tokens",
        keys.post_token,
        "Make a token; its secret is told once",
        {201: "NewToken"},
        {},
        keys.TOKEN,
    ),
    _route("DELETE", "/v1/tokens/{name}", keys.delete_token, "Revoke a token, for good", "Deleted"),
    _route(
        "POST",
        "/v1/work/claim",
        pull.post_claim,
        "Actions for a worker in any language; waits for some",
        "Claimed",
        body=pull.CLAIM,
        remembered=True,
    ),
    *(
        _route("POST", f"/v1/work/{verb}", pull.post_report, about, "Reported", body=pull.REPORTS[verb])
        for verb, about in ABOUT_REPORTS.items()
    ),
    _route(
        "GET",
        "/v1/work/connect",
        connect.connect,
        "The WebSocket of a worker without a replica",
        views.BYTES,
        streams=True,
    ),
    _route("GET", "/metrics", ops.metrics, "Numbers for Prometheus", meter.CONTENT_TYPE),
    _route("GET", "/openapi.json", ops.openapi, "This description", "Anything"),
    _route("GET", "/healthz", ops.healthz, "The process answers", "Status", open=True),
    _route("GET", "/readyz", ops.readyz, "It can serve", "Status", open=True),
    _route("GET", "/v1/history", pages.get_history, "The last hour as this node saw it, for charts", "History"),
    _route("GET", "/v1/session", pages.get_session, "Whose token or session this is", "Session"),
    Route("POST", "/v1/session", pages.post_session, "Begin a browser's session: a cookie", {201: "Session"}),
    _route("DELETE", "/v1/session", pages.delete_session, "End a browser's session", "Deleted"),
    Route("POST", "/v1/session/link", pages.post_link, "A link that logs a browser in, once", {201: "Link"}),
    Route(
        "GET", "/login", pages.login, "Begin a session by such a link", {303: pages.HTML}, params=pages.ONCE, open=True
    ),
    _route("GET", "/", pages.shell, "The dashboard", pages.HTML, open=True),
    _route("GET", "/web/{digest}/{file}", pages.asset, "A file of the dashboard", views.BYTES, open=True),
    _route("GET", "/web/{digest}/{folder}/{file}", pages.asset, "A file of the dashboard", views.BYTES, open=True),
)


def params_of(route: Route) -> Mapping[str, Param]:
    """With those that every route takes."""
    if route.open:
        return route.params
    return {**route.params, "deadline": DEADLINE, **({"consistent": CONSISTENT} if route.method == "GET" else {})}


class Table:
    """Finds the route of an address: by its whole path, else part by part."""

    def __init__(self, routes: Sequence[Route] = ROUTES) -> None:
        self.routes = routes
        self.params = {(route.method, route.path): params_of(route) for route in routes}
        self._whole: dict[str, dict[str, Route]] = {}
        self._parted: list[tuple[tuple[str, ...], dict[str, Route]]] = []
        for route in routes:
            methods = self._methods(route)
            methods[route.method] = route
            if route.method == "GET" and not route.streams:
                methods["HEAD"] = route

    def find(self, path: str, method: str) -> tuple[Mapping[str, Route], Mapping[str, str]]:
        """The routes of a path by method, and its varying parts; no routes when it leads nowhere."""
        whole = self._whole.get(path, {})
        if method in whole:
            return whole, {}
        parts = path.split("/")
        found = dict(whole)
        named: dict[str, str] = {}
        for pattern, routes in self._parted:
            if len(pattern) == len(parts) and all(
                p == g or (p[:1] == "{" and g) for p, g in zip(pattern, parts, strict=True)
            ):
                found |= routes
                named |= {p[1:-1]: decoded(g) for p, g in zip(pattern, parts, strict=True) if p[:1] == "{"}
        return found, named

    def _methods(self, route: Route) -> dict[str, Route]:
        if "{" not in route.path:
            return self._whole.setdefault(route.path, {})
        pattern = tuple(route.path.split("/"))
        for known, methods in self._parted:
            if known == pattern:
                return methods
        self._parted.append((pattern, {}))
        return self._parted[-1][1]
