"""Classes above queues: a tree in which each is assured a part and may borrow what its siblings leave."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from quvatlh.core.commands import DeleteClass, PatchClass, PutClass
from quvatlh.core.model import HtbClass
from quvatlh.core.rejections import FieldError, Rejection
from quvatlh.core.results import Ok
from quvatlh.core.unit import Unit

_CLASS = msgspec.json.Decoder(HtbClass)
ROOT_CEIL = "must not be above the rate where there is no parent: nobody lends to it"
_DEPTH_MAX = 16
"""Levels of the tree; each is a step of every award that borrows."""


def put_class(unit: Unit, command: PutClass) -> Ok | Rejection:
    return _change(unit, command.name, command.settings)


def patch_class(unit: Unit, command: PatchClass) -> Ok | Rejection:
    changes = {field: getattr(command.changes, field) for field in command.changes.__struct_fields__}
    named = {field: value for field, value in changes.items() if value is not UNSET}
    settings = msgspec.structs.replace(find_class(unit, command.name) or HtbClass(), **named)
    placed = not named.keys().isdisjoint(("parent", "rate_milli", "ceil_milli"))
    if command.judged and placed and settings.parent is None and (settings.ceil_milli or 0) > settings.rate_milli:
        return Rejection("invalid", f"ceil {ROOT_CEIL}", (FieldError("ceil", ROOT_CEIL),))
    return _change(unit, command.name, settings)


def _change(unit: Unit, name: str, settings: HtbClass) -> Ok | Rejection:
    fault = _tree_fault(unit, name, settings)
    if fault is not None:
        return Rejection("invalid", "the class does not fit into the tree", (fault,))
    unit.db.execute("INSERT OR REPLACE INTO class VALUES (?, ?)", (name, msgspec.json.encode(settings).decode()))
    unit.tell("class.changed", name)
    return Ok()


def delete_class(unit: Unit, command: DeleteClass) -> Ok | Rejection:
    if find_class(unit, command.name) is None:
        return Rejection("not_found", f"there is no class named {command.name}")
    if _children(unit, command.name):
        return Rejection("not_empty", f"class {command.name} has children")
    unit.queues.flush()
    sql = "SELECT name FROM queue WHERE settings ->> 'class' = ? LIMIT 1"
    queue = unit.db.execute(sql, (command.name,)).fetchone()
    if queue is not None:
        return Rejection("not_empty", f"queue {queue[0]} is in class {command.name}")
    unit.db.execute("DELETE FROM class WHERE name = ?", (command.name,))
    unit.tell("class.changed", command.name, "deleted")
    return Ok()


def find_class(unit: Unit, name: str) -> HtbClass | None:
    row = unit.db.execute("SELECT settings FROM class WHERE name = ?", (name,)).fetchone()
    return None if row is None else _CLASS.decode(row[0])


def _children(unit: Unit, name: str) -> dict[str, HtbClass]:
    sql = "SELECT name, settings FROM class WHERE settings ->> 'parent' = ? ORDER BY name"
    return {row[0]: _CLASS.decode(row[1]) for row in unit.db.execute(sql, (name,))}


def _tree_fault(unit: Unit, name: str, new: HtbClass) -> FieldError | None:
    """Parents exist, no circle, a ceiling not below the rate, children not assured more than their parent."""
    if new.ceil_milli is not None and new.ceil_milli < new.rate_milli:
        return FieldError("ceil", "is below the rate")
    children = _children(unit, name)
    if sum(child.rate_milli for child in children.values()) > new.rate_milli and children:
        return FieldError("rate", "its children are assured more")
    for child, settings in children.items():
        if settings.of != new.of:
            return FieldError("of", f"its child {child} is one of {settings.of}")
    return None if new.parent is None else _place_fault(unit, name, new, new.parent)


def _place_fault(unit: Unit, name: str, new: HtbClass, above: str) -> FieldError | None:
    parent = find_class(unit, above)
    if parent is None and above != name:
        return FieldError("parent", f"there is no class named {above}")
    line = _ancestors(unit, above)
    if name in line or parent is None:
        return FieldError("parent", "makes a circle")
    if len(line) + _height(unit, name) > _DEPTH_MAX:
        return FieldError("parent", f"makes the tree deeper than {_DEPTH_MAX} levels")
    if parent.of != new.of:
        return FieldError("of", f"its parent {above} is one of {parent.of}")
    siblings = {key: child for key, child in _children(unit, above).items() if key != name}
    if sum(child.rate_milli for child in siblings.values()) + new.rate_milli > parent.rate_milli:
        return FieldError("rate", f"the children of {above} would be assured more than it is")
    return None


def _ancestors(unit: Unit, name: str) -> list[str]:
    """A class and what it hangs on, up to the root."""
    line = [name]
    while (above := find_class(unit, line[-1])) is not None and above.parent is not None:
        line.append(above.parent)
    return line


def _height(unit: Unit, name: str) -> int:
    """Levels of what hangs on a class, with itself."""
    level, height = [name], 0
    while level:
        height += 1
        level = [child for each in level for child in _children(unit, each)]
    return height
