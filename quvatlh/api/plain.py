"""The commonest ADDs, calls and commands with little around them, read straight into the core's types.

What is read here would be taken as it is by `formats.decode` and `tasks.check`, and become the same; of an event of many tasks
it takes half their time, mostly because nothing of it can be nested deeply. Whatever else there is, all that is wrong included,
is None: those two read it, and say what is wrong with it.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from quvatlh.api import work
from quvatlh.api.checks import addressed, named
from quvatlh.api.formats import may_be_too_large, may_lack_keys
from quvatlh.core.limits import ADD_TASKS_MAX
from quvatlh.core.model import Signed, TaskSpec, Work
from quvatlh.service.pool import NewTask

_Few = Annotated[list[bool | int | float | str | None], Meta(max_length=work.FEW)]


class _Nothing(Struct, forbid_unknown_fields=True):
    """`{}`"""


class _Call(Struct, forbid_unknown_fields=True, gc=False):
    python: Annotated[str, Meta(max_length=work.CALL_CHARS_MAX)] | UnsetType = UNSET
    args: _Few | UnsetType = UNSET
    kwargs: _Nothing | UnsetType = UNSET
    command: Annotated[list[str], Meta(min_length=1, max_length=work.FEW)] | UnsetType = UNSET


class _Task(Struct, forbid_unknown_fields=True, gc=False):
    work: _Call
    name: str | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    group: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    priority: Signed | UnsetType = UNSET


class _Add(Struct, forbid_unknown_fields=True):
    event: Literal["ADD"]
    tasks: Annotated[list[_Task], Meta(min_length=1, max_length=ADD_TASKS_MAX)]


_DECODER: Final = msgspec.json.Decoder(_Add)
_name, _queue, _pathlike = named().check, addressed().check, named(slash=True).check


def tasks_of(raw: bytes) -> list[NewTask] | None:
    """Of an ADD."""
    try:
        found = _DECODER.decode(raw)
        doubtful = may_lack_keys(raw, found) or may_be_too_large(raw)
        return None if doubtful else [_made(each) for each in found.tasks]
    except (ValueError, RecursionError):
        return None


def _made(given: _Task) -> NewTask:
    """ValueError: it is none of the commonest."""
    rest: dict[str, Any] = {}
    if given.name is not UNSET:
        rest["name"] = _pathlike(given.name)
    if given.queue is not UNSET:
        rest["queue"] = _queue(given.queue)
    if given.group is not UNSET:
        rest["group"] = _name(given.group)
    if given.key is not UNSET:
        rest["key"] = _pathlike(given.key)
    if given.priority is not UNSET:
        rest["priority"] = given.priority
    return cast("NewTask", {"spec": TaskSpec(_work(given.work), **rest)})


def _work(given: _Call) -> Work:
    if given.command is not UNSET:
        if (
            given.python is UNSET
            and given.args is UNSET
            and given.kwargs is UNSET
            and work.is_plain_command(given.command)
        ):
            return Work(tuple(given.command))
    elif given.python is not UNSET:
        args = [] if given.args is UNSET else given.args
        if work.is_plain_call(given.python, args):
            return Work(python=given.python, args=tuple(args))
    raise ValueError("none of the commonest")
