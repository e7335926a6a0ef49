"""The table of routes: what is served, what each takes and answers. The OpenAPI document is made of the same table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from quvatlh.api import connect, meter, ops, stream, views
from quvatlh.api.checks import choice
from quvatlh.api.exchange import Route
from quvatlh.api.params import CONSISTENT, DEADLINE, FLAG, LIST_PARAMS, WAIT, Param, decoded
from quvatlh.api.tasks import ID

LOG_PARAMS: Final = {
    "follow": Param(FLAG, about="until the action has ended"),
    "stream": Param(choice("stdout", "stderr")),
    "action": Param(ID, about="else the last one"),
}
IDS_PARAM: Final = {"ids": Param(FLAG, about="NDJSON: 0 leaves ids out of the answers")}
DONE: Final = {200: "Done", 202: "BulkStarted"}

ROUTES: Final[Sequence[Route]] = (
    Route(
        "POST",
        "/v1/events",
        views.post_events,
        "Add or delete tasks",
        {200: "AddedOrDone", 201: "Added", 202: "BulkStarted"},
        IDS_PARAM,
        views.EVENT,
        lines=True,
        remembered=True,
    ),
    Route("GET", "/v1/tasks", views.get_tasks, "List, filter, count", {200: "TasksOrGroups"}, LIST_PARAMS),
    Route("GET", "/v1/tasks/{id}", views.get_task, "One task; wait for its end", {200: "Task"}, {"wait": WAIT}),
    Route("GET", "/v1/tasks/{id}/actions", views.get_actions, "All its runs", {200: "Actions"}),
    Route("GET", "/v1/tasks/{id}/log", views.get_log, "What a run wrote", {200: views.TEXT}, LOG_PARAMS, streams=True),
    Route("GET", "/v1/tasks/{id}/result", views.get_result, "The value it succeeded with", {200: "Anything"}),
    Route("POST", "/v1/tasks/delete", views.post_verb, "Delete tasks", DONE, {}, views.VERB, remembered=True),
    Route("GET", "/v1/bulk/{id}", views.get_bulk, "How far a bulk verb is", {200: "Bulk"}),
    Route(
        "GET",
        "/v1/stream",
        stream.stream,
        "What happens, as server-sent events",
        {200: stream.TYPE},
        stream.PARAMS,
        streams=True,
    ),
    Route("GET", "/v1/cluster", views.get_cluster, "Nodes and master", {200: "Cluster"}),
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
    Route(
        "DELETE", "/v1/cluster/members/{id}", views.delete_member, "Remove a node", {200: "Cluster"}, remembered=True
    ),
    Route("GET", "/v1/cluster/backup", views.get_backup, "The state, as a file", {200: views.BYTES}, streams=True),
    Route("GET", "/v1/tokens", views.get_tokens, "Tokens, without their secrets", {200: "Tokens"}),
    Route("GET", "/v1/tokens/{name}", views.get_token, "One token, without its secret", {200: "Token"}),
    Route(
        "GET",
        "/v1/work/connect",
        connect.connect,
        "The WebSocket of a worker without a replica",
        {101: views.BYTES},
        streams=True,
    ),
    Route("GET", "/metrics", ops.metrics, "Numbers for Prometheus", {200: meter.CONTENT_TYPE}),
    Route("GET", "/openapi.json", ops.openapi, "This description", {200: "Anything"}),
    Route("GET", "/healthz", ops.healthz, "The process answers", {200: "Status"}, open=True),
    Route("GET", "/readyz", ops.readyz, "It can serve", {200: "Status"}, open=True),
    Route("GET", "/", ops.shell, "An empty shell", {200: "text/html; charset=utf-8"}, open=True),
)


def params_of(route: Route) -> Mapping[str, Param]:
    """With those that every route takes."""
    if route.open:
        return {}
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
