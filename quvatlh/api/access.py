"""Who may ask for what: for each route the least role, and what the scope of a token (queue and group globs) means for it.

The one place where roles are judged. A route that does not stand here is nobody's. What scope means for tasks one by one is
the pool's business (service/scoping.py); here is what can be said by looking at the request alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from quvatlh.api.exchange import Route
from quvatlh.service.pool import Principal, Rejected
from quvatlh.service.scoping import listed

Least = Literal["open", "any", "viewer", "producer", "operator", "worker", "admin"]
Bound = Literal["none", "tasks", "queue", "queue whole", "whole"]

ROLES: Final[Mapping[Least, frozenset[str]]] = {
    "open": frozenset(),
    "any": frozenset({"viewer", "producer", "operator", "worker", "admin"}),
    "viewer": frozenset({"viewer", "producer", "operator", "admin"}),
    "producer": frozenset({"producer", "operator", "admin"}),
    "operator": frozenset({"operator", "admin"}),
    "worker": frozenset({"worker", "admin"}),
    "admin": frozenset({"admin"}),
}
"""Each role may what those before it may, but for `worker`, which stands beside them. `open`: no token is asked for."""

BOUNDS: Final[Mapping[Bound, str]] = {
    "none": "the same for every scope: there is nothing of a queue or group in it",
    "tasks": "what is of other queues or groups is not there; what would be of them is refused",
    "queue": "the queue of the address is one of the token's",
    "queue whole": "the queue of the address is one of the token's, and the token is for all groups: a queue is all of its tasks",
    "whole": "the token is for all queues and all groups: what is told or changed is everybody's",
}


class Need(NamedTuple):
    least: Least
    bound: Bound


Key = tuple[str, str]

ACCESS: Final[Mapping[Key, Need]] = {
    ("POST", "/v1/events"): Need("producer", "tasks"),
    ("GET", "/v1/tasks"): Need("viewer", "tasks"),
    ("GET", "/v1/tasks/{id}"): Need("viewer", "tasks"),
    ("GET", "/v1/tasks/{id}/explain"): Need("viewer", "tasks"),
    ("GET", "/v1/tasks/{id}/actions"): Need("viewer", "tasks"),
    ("GET", "/v1/tasks/{id}/log"): Need("viewer", "tasks"),
    ("GET", "/v1/tasks/{id}/result"): Need("viewer", "tasks"),
    ("POST", "/v1/tasks/delete"): Need("producer", "tasks"),
    ("POST", "/v1/tasks/retry"): Need("operator", "tasks"),
    ("POST", "/v1/tasks/kill"): Need("operator", "tasks"),
    ("POST", "/v1/tasks/relocate"): Need("operator", "tasks"),
    ("POST", "/v1/tasks/update"): Need("operator", "tasks"),
    ("GET", "/v1/bulk/{id}"): Need("producer", "none"),
    ("GET", "/v1/queues"): Need("viewer", "tasks"),
    ("GET", "/v1/queues/{name}"): Need("viewer", "queue"),
    ("PUT", "/v1/queues/{name}"): Need("operator", "queue whole"),
    ("PATCH", "/v1/queues/{name}"): Need("operator", "queue whole"),
    ("DELETE", "/v1/queues/{name}"): Need("operator", "queue whole"),
    ("POST", "/v1/queues/{name}/pause"): Need("operator", "queue whole"),
    ("POST", "/v1/queues/{name}/resume"): Need("operator", "queue whole"),
    ("POST", "/v1/queues/{name}/purge"): Need("operator", "queue whole"),
    ("GET", "/v1/classes"): Need("viewer", "none"),
    ("GET", "/v1/classes/{name}"): Need("viewer", "none"),
    ("PUT", "/v1/classes/{name}"): Need("operator", "whole"),
    ("PATCH", "/v1/classes/{name}"): Need("operator", "whole"),
    ("DELETE", "/v1/classes/{name}"): Need("operator", "whole"),
    ("GET", "/v1/workers"): Need("viewer", "none"),
    ("GET", "/v1/workers/{name}"): Need("viewer", "none"),
    ("GET", "/v1/workers/{name}/load"): Need("viewer", "none"),
    ("PATCH", "/v1/workers/{name}"): Need("operator", "whole"),
    ("POST", "/v1/workers/{name}/drain"): Need("operator", "whole"),
    ("POST", "/v1/workers/{name}/undrain"): Need("operator", "whole"),
    ("POST", "/v1/workers/{name}/reload"): Need("operator", "whole"),
    ("GET", "/v1/policies"): Need("viewer", "none"),
    ("GET", "/v1/policies/{name}"): Need("viewer", "none"),
    ("PUT", "/v1/policies/{name}"): Need("operator", "whole"),
    ("DELETE", "/v1/policies/{name}"): Need("operator", "whole"),
    ("POST", "/v1/policies/test"): Need("producer", "tasks"),
    ("GET", "/v1/schedules"): Need("viewer", "tasks"),
    ("GET", "/v1/schedules/{name}"): Need("viewer", "tasks"),
    ("PUT", "/v1/schedules/{name}"): Need("operator", "tasks"),
    ("DELETE", "/v1/schedules/{name}"): Need("operator", "tasks"),
    ("GET", "/v1/schedules/{name}/ledger"): Need("viewer", "tasks"),
    ("POST", "/v1/schedules/{name}/run"): Need("operator", "tasks"),
    ("POST", "/v1/schedules/{name}/pause"): Need("operator", "tasks"),
    ("POST", "/v1/schedules/{name}/resume"): Need("operator", "tasks"),
    ("GET", "/v1/actions"): Need("viewer", "tasks"),
    ("GET", "/v1/announcements"): Need("viewer", "tasks"),
    ("GET", "/v1/stream"): Need("viewer", "tasks"),
    ("GET", "/v1/history"): Need("viewer", "whole"),
    ("GET", "/v1/cluster"): Need("viewer", "none"),
    ("POST", "/v1/cluster/members"): Need("admin", "whole"),
    ("DELETE", "/v1/cluster/members/{id}"): Need("admin", "whole"),
    ("GET", "/v1/cluster/backup"): Need("admin", "whole"),
    ("GET", "/v1/tokens"): Need("admin", "whole"),
    ("GET", "/v1/tokens/{name}"): Need("admin", "whole"),
    ("POST", "/v1/tokens"): Need("admin", "whole"),
    ("DELETE", "/v1/tokens/{name}"): Need("admin", "whole"),
    ("POST", "/v1/work/claim"): Need("worker", "tasks"),
    ("POST", "/v1/work/renew"): Need("worker", "tasks"),
    ("POST", "/v1/work/progress"): Need("worker", "tasks"),
    ("POST", "/v1/work/finish"): Need("worker", "tasks"),
    ("POST", "/v1/work/fail"): Need("worker", "tasks"),
    ("GET", "/v1/work/connect"): Need("worker", "tasks"),
    ("GET", "/metrics"): Need("viewer", "whole"),
    ("GET", "/openapi.json"): Need("any", "none"),
    ("GET", "/v1/session"): Need("any", "none"),
    ("POST", "/v1/session"): Need("viewer", "none"),
    ("DELETE", "/v1/session"): Need("any", "none"),
    ("POST", "/v1/session/link"): Need("viewer", "none"),
    ("GET", "/healthz"): Need("open", "none"),
    ("GET", "/readyz"): Need("open", "none"),
    ("GET", "/login"): Need("open", "none"),
    ("GET", "/"): Need("open", "none"),
    ("GET", "/web/{digest}/{file}"): Need("open", "none"),
    ("GET", "/web/{digest}/{folder}/{file}"): Need("open", "none"),
}


def check(route: Route, who: Principal, parts: Mapping[str, str]) -> None:
    """Rejected(forbidden), with the role or the scope that is needed."""
    need = ACCESS.get((route.method, route.path))
    if need is None:
        raise Rejected("forbidden", f"{route.method} {route.path} is nobody's: it has no row in the table of access")
    if need.least == "open":
        return
    if who.role not in ROLES[need.least]:
        raise Rejected("forbidden", f"token {who.name} has role {who.role}; this needs role {need.least}")
    fault = _outside(need.bound, who, parts)
    if fault:
        raise Rejected("forbidden", f"token {who.name} {fault}")


def _outside(bound: Bound, who: Principal, parts: Mapping[str, str]) -> str:
    """Why it is not within the token's scope; empty: it is, or the pool will see."""
    scope = who.scope
    if scope is None or bound in {"none", "tasks"}:
        return ""
    if bound == "whole":
        where = f"queues {listed(scope.queues)} and groups {listed(scope.groups)}"
        return f"is for {where}; this needs a token for all queues and groups"
    if not scope.has_queue(parts["name"]):
        return f"is for queues {listed(scope.queues)}; {parts['name'][:60]} is none of them"
    if bound == "queue whole" and not scope.has_all_groups:
        return f"is for groups {listed(scope.groups)}; to change a queue needs a token for all groups"
    return ""


def allowed(who: Principal) -> list[str]:
    """The routes that a token may ask, as `METHOD /path`, as far as its role and its scope say by themselves."""
    scope = who.scope

    def may(need: Need) -> bool:
        if who.role not in ROLES[need.least]:
            return False
        if scope is None or need.bound in {"none", "tasks", "queue"}:
            return True
        return need.bound == "queue whole" and scope.has_all_groups

    return [f"{method} {path}" for (method, path), need in ACCESS.items() if may(need)]
