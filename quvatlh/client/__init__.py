"""The library of producers: the calls of DESIGN.md section 9 as coroutines, and the same for code without a loop; functions
as tasks. Each name is loaded when it is used: whoever has tasks and enqueues none needs no network.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quvatlh.client.app import App, Call, Task
    from quvatlh.client.calls import Added, Balanced, Client, Cut, Done, Event, Log
    from quvatlh.client.errors import Broken, Fault, Problem, Rejected, Unavailable, Unknown, Unreachable
    from quvatlh.client.handles import Handle, RemoteTraceback, ResultElsewhere, TaskFailed
    from quvatlh.client.http import Options
    from quvatlh.client.places import URL_DEFAULT, Token, find_token, parse_urls
    from quvatlh.client.sync import BlockingClient
    from quvatlh.client.taskoptions import TaskOptions

__all__ = [
    "URL_DEFAULT",
    "Added",
    "App",
    "Balanced",
    "BlockingClient",
    "Broken",
    "Call",
    "Client",
    "Cut",
    "Done",
    "Event",
    "Fault",
    "Handle",
    "Log",
    "Options",
    "Problem",
    "Rejected",
    "RemoteTraceback",
    "ResultElsewhere",
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
    "app": ("App", "Call", "Task"),
    "calls": ("Added", "Balanced", "Client", "Cut", "Done", "Event", "Log"),
    "errors": ("Broken", "Fault", "Problem", "Rejected", "Unavailable", "Unknown", "Unreachable"),
    "handles": ("Handle", "RemoteTraceback", "ResultElsewhere", "TaskFailed"),
    "http": ("Options",),
    "places": ("URL_DEFAULT", "Token", "find_token", "parse_urls"),
    "sync": ("BlockingClient",),
    "taskoptions": ("TaskOptions",),
}
_PLACES = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    return found
