"""The library of producers: the calls of DESIGN.md section 9 as coroutines, and the same for code without a loop; functions
as tasks. Each name is loaded when it is used: whoever has tasks and enqueues none needs no network.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quvatlh.client.app import App
    from quvatlh.client.calls import Added, Balanced, Client, Cut, Done, Event, Log
    from quvatlh.client.errors import Broken, Fault, OutputLost, Problem, Rejected, Unavailable, Unknown, Unreachable
    from quvatlh.client.forms import ResultUnfit
    from quvatlh.client.handles import Handle, RemoteTraceback, ResultElsewhere, TaskFailed
    from quvatlh.client.hooks import Attempt, Hook
    from quvatlh.client.http import Options
    from quvatlh.client.outcomes import Outcome, Outcomes
    from quvatlh.client.places import URL_DEFAULT, Token, find_token, parse_urls
    from quvatlh.client.sync import BlockingClient
    from quvatlh.client.taskoptions import TaskOptions
    from quvatlh.client.tasks import Call, Task
    from quvatlh.client.timetable import Changes

__all__ = [
    "URL_DEFAULT",
    "Added",
    "App",
    "Attempt",
    "Balanced",
    "BlockingClient",
    "Broken",
    "Call",
    "Changes",
    "Client",
    "Cut",
    "Done",
    "Event",
    "Fault",
    "Handle",
    "Hook",
    "Log",
    "Options",
    "Outcome",
    "Outcomes",
    "OutputLost",
    "Problem",
    "Rejected",
    "RemoteTraceback",
    "ResultElsewhere",
    "ResultUnfit",
    "Task",
    "TaskFailed",
    "TaskOptions",
    "Token",
    "Unavailable",
    "Unknown",
    "Unreachable",
    "find_token",
    "parse_urls",
]

_HOMES = {
    "app": ("App",),
    "calls": ("Added", "Balanced", "Client", "Cut", "Done", "Event", "Log"),
    "errors": ("Broken", "Fault", "OutputLost", "Problem", "Rejected", "Unavailable", "Unknown", "Unreachable"),
    "handles": ("Handle", "RemoteTraceback", "ResultElsewhere", "TaskFailed"),
    "forms": ("ResultUnfit",),
    "hooks": ("Attempt", "Hook"),
    "http": ("Options",),
    "outcomes": ("Outcome", "Outcomes"),
    "places": ("URL_DEFAULT", "Token", "find_token", "parse_urls"),
    "sync": ("BlockingClient",),
    "taskoptions": ("TaskOptions",),
    "tasks": ("Call", "Task"),
    "timetable": ("Changes",),
}
_PLACES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    return found
