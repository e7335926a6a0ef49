"""What a person has chosen in `quvatlh top`, and how a key changes it. Pure: bytes to keys, keys to states."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

VIEWS: Final = ("overview", "queues", "tasks", "workers")
LETTERS: Final = {"1": "overview", "2": "queues", "3": "tasks", "4": "workers"} | {
    "o": "overview",
    "u": "queues",
    "t": "tasks",
    "w": "workers",
}
"""`q` leaves, as everywhere in a terminal."""
SORTS: Final[Mapping[str, Sequence[str]]] = {
    "queues": ("depth", "name", "running", "failed"),
    "tasks": ("newest", "running", "waiting", "failed"),
    "workers": ("load", "name"),
}
_SHOWN: Final = {"running": "claimed,running", "waiting": "pending", "failed": "failed"}
"""Of tasks: what else than all is shown."""
FILTER_CHARS_MAX: Final = 200
PAGE_ROWS: Final = 10
FILTERS: Final = frozenset({"state", "queue", "group", "name", "worker", "tag", "key", "error", "kind"})
"""`queue:emails`; what is not of this form is looked for as text."""
_SEQUENCES: Final = {
    "[A": "up",
    "[B": "down",
    "OA": "up",
    "OB": "down",
    "[H": "home",
    "[F": "end",
    "OH": "home",
    "OF": "end",
    "[1~": "home",
    "[4~": "end",
    "[5~": "page_up",
    "[6~": "page_down",
}
_CONTROLS: Final = {
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x15": "erase",
    "\x0c": "redraw",
    "\x04": "leave",
}
_STEPS: Final = {"up": -1, "k": -1, "down": 1, "j": 1, "page_up": -PAGE_ROWS, "page_down": PAGE_ROWS} | {
    "home": -1_000_000,
    "g": -1_000_000,
    "end": 1_000_000,
    "G": 1_000_000,
}


@dataclass(frozen=True, slots=True)
class State:
    view: str = "overview"
    marks: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """By view: the row that is marked, by its key, and where it was when it was marked."""
    sorts: Mapping[str, str] = field(default_factory=dict)
    filter: str = ""
    typing: str | None = None
    """A filter that is being typed."""
    opened: tuple[str, str] | None = None
    """`task` or `queue`, and which."""
    scroll: int = 0
    """Lines of what is opened that are above the screen."""
    paused: bool = False
    leaving: bool = False

    @property
    def sort(self) -> str:
        known = SORTS.get(self.view, ("",))
        return self.sorts.get(self.view, known[0])

    @property
    def question(self) -> tuple[object, ...]:
        """What is asked for: an answer to another one is thrown away."""
        return self.view, self.opened, self.filter, self.sort if self.view in {"tasks", "queues"} else ""


def place(state: State, keys: Sequence[str]) -> int:
    """Where the marked row is now; where it was, when it is gone."""
    key, index = state.marks.get(state.view, ("", 0))
    return keys.index(key) if key in keys else max(min(index, len(keys) - 1), 0)


def press(state: State, key: str, keys: Sequence[str] = ()) -> State:
    """`keys` are those of the rows that are shown."""
    if key == "leave":
        return replace(state, leaving=True)
    if state.typing is not None:
        return _typed(state, key)
    if key in LETTERS:
        return replace(state, view=LETTERS[key], opened=None, scroll=0)
    if key in _STEPS:
        return _moved(state, _STEPS[key], keys)
    match key:
        case "q" | "esc":
            state = _back(state, is_quit=key == "q")
        case "p" | " ":
            state = replace(state, paused=not state.paused)
        case "s" if state.view in SORTS and state.opened is None:
            known = SORTS[state.view]
            chosen = known[(known.index(state.sort) + 1) % len(known)]
            state = replace(state, sorts={**state.sorts, state.view: chosen}, marks=_without(state, state.view))
        case "/":
            state = replace(state, view="tasks", opened=None, scroll=0, typing=state.filter)
        case "enter" if keys and state.opened is None:
            state = _opened(state, keys[place(state, keys)])
    return state


def _typed(state: State, key: str) -> State:
    typing = state.typing or ""
    match key:
        case "enter":
            return replace(state, filter=typing.strip(), typing=None, marks=_without(state, "tasks"))
        case "esc":
            return replace(state, typing=None)
        case "backspace":
            return replace(state, typing=typing[:-1])
        case "erase":
            return replace(state, typing="")
    return replace(state, typing=typing + key) if len(key) == 1 and len(typing) < FILTER_CHARS_MAX else state


def _moved(state: State, by: int, keys: Sequence[str]) -> State:
    if state.opened is not None:
        return replace(state, scroll=max(min(state.scroll + by, 1000), 0))
    if not keys:
        return state
    at = max(min(place(state, keys) + by, len(keys) - 1), 0)
    return replace(state, marks={**state.marks, state.view: (keys[at], at)})


def _opened(state: State, key: str) -> State:
    """Of a worker: the tasks that it runs."""
    match state.view:
        case "queues":
            return replace(state, opened=("queue", key), scroll=0)
        case "tasks":
            return replace(state, opened=("task", key), scroll=0)
        case "workers":
            sorts = {**state.sorts, "tasks": "running"}
            return replace(state, view="tasks", filter=f"worker:{key}", sorts=sorts, marks=_without(state, "tasks"))
    return state


def _back(state: State, *, is_quit: bool) -> State:
    """Esc takes back step by step and stays; q leaves where nothing is open."""
    if state.opened is not None:
        return replace(state, opened=None, scroll=0)
    if is_quit:
        return replace(state, leaving=True)
    if state.filter and state.view == "tasks":
        return replace(state, filter="", marks=_without(state, "tasks"))
    return replace(state, view="overview")


def _without(state: State, view: str) -> dict[str, tuple[str, int]]:
    return {each: mark for each, mark in state.marks.items() if each != view}


def queues_sort(state: State) -> Literal["name", "-pending", "-running", "-failed"]:
    """What the order asks of GET /v1/queues."""
    match state.sorts.get("queues"):
        case "name":
            return "name"
        case "running":
            return "-running"
        case "failed":
            return "-failed"
    return "-pending"


def tasks_query(state: State) -> dict[str, str]:
    """What the filter and the order ask of GET /v1/tasks."""
    query: dict[str, str] = {}
    words = []
    for word in state.filter.split():
        name, colon, value = word.partition(":")
        if colon and value and name in FILTERS:
            query[name] = value
        else:
            words.append(word)
    query |= {"q": " ".join(words)} if words else {}
    sort = state.sorts.get("tasks", "newest")
    query = ({"state": _SHOWN[sort]} if sort in _SHOWN else {}) | query
    return query | {"sort": {"failed": "-finished_at", "waiting": "created_at"}.get(sort, "-created_at")}


def tasks_shown(state: State) -> str:
    """By what the tasks of the list are chosen: a state in the filter goes before the key."""
    sort = state.sorts.get("tasks", "newest")
    return "as filtered" if sort in _SHOWN and tasks_query(state)["state"] != _SHOWN[sort] else sort


class Decoder:
    """Keys from bytes as they come. A lone escape is known as a key only when nothing follows it: flush says so."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    @property
    def waits(self) -> bool:
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        text = self._rest + self._decode.decode(data)
        self._rest = ""
        keys: list[str] = []
        while text:
            key, text = self._next(text)
            if key:
                keys.append(key)
            elif key is None:
                self._rest = text
                break
        return keys

    def flush(self) -> list[str]:
        kept, self._rest = self._rest, ""
        return ["esc"] if kept else []

    @staticmethod
    def _next(text: str) -> tuple[str | None, str]:
        """A key and what follows; "" is one that means nothing here, None one that is not whole."""
        first = text[0]
        if first != "\x1b":
            return _CONTROLS.get(first, first if first.isprintable() else ""), text[1:]
        if len(text) == 1:
            return None, text
        if text[1] not in "[O":
            return "esc", text[1:]
        for end in range(2, len(text)):
            if "@" <= text[end] <= "~":
                return _SEQUENCES.get(text[1 : end + 1], ""), text[end + 1 :]
        return (None, text) if len(text) < 32 else ("", "")
