"""The library of producers: the calls of DESIGN.md section 9 as coroutines, and the same for code without a loop."""

from quvatlh.client.calls import Added, Balanced, Client, Cut, Done, Event, Log
from quvatlh.client.errors import Broken, Fault, Problem, Rejected, Unavailable, Unknown, Unreachable
from quvatlh.client.http import Options
from quvatlh.client.places import URL_DEFAULT, Token, find_token, parse_urls
from quvatlh.client.sync import BlockingClient

__all__ = [
    "URL_DEFAULT",
    "Added",
    "Balanced",
    "BlockingClient",
    "Broken",
    "Client",
    "Cut",
    "Done",
    "Event",
    "Fault",
    "Log",
    "Options",
    "Problem",
    "Rejected",
    "Token",
    "Unavailable",
    "Unknown",
    "Unreachable",
    "find_token",
    "parse_urls",
]
