"""What stands within annotations and values that msgspec writes: parts that nothing restores, and sets. Pure.

What is looked at is made of each annotation once; most have no such part, and cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final

import msgspec
from msgspec import inspect

from quvatlh.client import plain

Check = Callable[[str, Any], str | None]
"""Of a place and the value there: what would arrive as something else, in words."""
_Object = inspect.StructType | inspect.DataclassType | inspect.NamedTupleType | inspect.TypedDictType
_UNRESTORED: Final = (inspect.AnyType, inspect.CustomType)
_TIMES: Final = (inspect.DateTimeType, inspect.TimeType)
_MINUTE: Final = timedelta(minutes=1)


def check_of(kind: Any) -> Check | None:
    """None: whatever msgspec takes for it arrives as it is."""
    info = inspect.type_info(kind)
    return _check(info, {}) if _holds(info, set()) else None


def in_order(value: Any, built: Any) -> Any:
    """What msgspec built of a value, its sets in an order that is the same in every process."""
    if isinstance(value, set | frozenset):
        return sorted(map(in_order, value, built), key=msgspec.json.encode)
    if isinstance(value, list | tuple):
        return list(map(in_order, value, built))
    if isinstance(value, Mapping):
        is_whole = len(value) == len(built)  # not where two keys became one
        return dict(zip(built, map(in_order, value.values(), built.values()), strict=True)) if is_whole else built
    written, own = _names(value)
    if isinstance(built, dict):
        names = dict(zip(written, own, strict=True))
        return {name: in_order(getattr(value, names.get(name) or name, None), each) for name, each in built.items()}
    if isinstance(built, list | tuple):  # a struct that is array-like, its tag first
        tag = [None] * (len(built) - len(own))
        return list(map(in_order, [*tag, *(getattr(value, each) for each in own)], built))
    return built


def _names(value: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """As they are written, and as Python has them, where these may differ."""
    return getattr(value, "__struct_encode_fields__", ()), getattr(value, "__struct_fields__", ())


def _holds(info: inspect.Type, seen: set[int]) -> bool:
    """Anything to be looked at. A kind may stand within itself."""
    if id(info) in seen:
        return False
    seen.add(id(info))
    return isinstance(info, _UNRESTORED + _TIMES) or any(_holds(each, seen) for each in _within(info))


def _within(info: inspect.Type) -> Iterator[inspect.Type]:
    match info:
        case inspect.UnionType():
            yield from info.types
        case inspect.TupleType():
            yield from info.item_types
        case inspect.DictType():
            yield from (info.key_type, info.value_type)
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            yield info.item_type
        case inspect.StructType() | inspect.DataclassType() | inspect.NamedTupleType() | inspect.TypedDictType():
            yield from (field.type for field in info.fields)


def _check(info: inspect.Type, made: dict[int, Check | None]) -> Check | None:
    if id(info) in made:
        return lambda place, value: None if (found := made[id(info)]) is None else found(place, value)
    made[id(info)] = None
    made[id(info)] = found = _made_check(info, made)
    return found


def _made_check(info: inspect.Type, made: dict[int, Check | None]) -> Check | None:  # noqa: PLR0911 - a kind a line
    match info:
        case inspect.AnyType() | inspect.CustomType():
            return lambda place, value: plain.fault({place: value})
        case inspect.DateTimeType() | inspect.TimeType():
            return _offset
        case inspect.UnionType():
            return _any_of(info, made)
        case inspect.DictType():
            return _entries(info, made)
        case inspect.TupleType():
            return _parts([_check(each, made) for each in info.item_types])
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return _items(_check(info.item_type, made))
        case inspect.StructType() | inspect.DataclassType() | inspect.NamedTupleType() | inspect.TypedDictType():
            return _fields(info, made)
    return None


def _offset(place: str, value: Any) -> str | None:
    if not isinstance(value, datetime | time) or value.tzinfo is UTC:
        return None
    offset = value.utcoffset()
    if offset is None or not offset % _MINUTE:
        return None
    return f"{place}: its offset from UTC, {offset}, has seconds, which have no form in JSON"


def _any_of(info: inspect.UnionType, made: dict[int, Check | None]) -> Check | None:
    for each in info.types:
        if isinstance(each, _UNRESTORED):
            return _check(each, made)
    several = sum(isinstance(each, _Object) for each in info.types) > 1
    checks = [
        _if_one(each.cls, found) if several and isinstance(each, _Object) else found
        for each in info.types
        if (found := _check(each, made)) is not None
    ]
    return _all_of(checks) if checks else None


def _if_one(cls: type, check: Check) -> Check:
    return lambda place, value: check(place, value) if isinstance(value, cls) else None


def _all_of(checks: list[Check]) -> Check:
    return lambda place, value: _first(check(place, value) for check in checks)


def _items(check: Check | None) -> Check | None:
    def items(place: str, value: Any) -> str | None:
        if check is None or not isinstance(value, list | tuple | set | frozenset):
            return None
        return _first(check(f"{place}[{number}]", each) for number, each in enumerate(value))

    return items if check else None


def _parts(checks: list[Check | None]) -> Check | None:
    def parts(place: str, value: Any) -> str | None:
        if not isinstance(value, list | tuple):
            return None
        pairs = enumerate(zip(checks, value, strict=False))
        return _first(check(f"{place}[{number}]", each) for number, (check, each) in pairs if check is not None)

    return parts if any(checks) else None


def _entries(info: inspect.DictType, made: dict[int, Check | None]) -> Check | None:
    key_is_text = isinstance(info.key_type, _UNRESTORED)
    of_key = None if key_is_text else _check(info.key_type, made)
    of_value = _check(info.value_type, made)

    def entries(place: str, value: Any) -> str | None:
        if not isinstance(value, Mapping):
            return None
        for name, each in value.items():
            if key_is_text and not isinstance(name, str):
                return f"{place}: the key {name!r} is no text"
            found = (of_key and of_key(f"{place}.{name}", name)) or (of_value and of_value(f"{place}.{name}", each))
            if found:
                return found
        return None

    return entries if key_is_text or of_key or of_value else None


def _fields(info: _Object, made: dict[int, Check | None]) -> Check | None:
    checks = [
        (number, field, found)
        for number, field in enumerate(info.fields)
        if (found := _check(field.type, made)) is not None
    ]

    def fields(place: str, value: Any) -> str | None:
        if value is None:  # of a union
            return None
        for number, field, check in checks:
            found = check(f"{place}.{field.name}", _part(value, number, field))
            if found is not None:
                return found
        return None

    return fields if checks else None


def _part(value: Any, number: int, field: inspect.Field) -> Any:
    """Of an object, or of what msgspec takes for one."""
    kind = type(value)
    if kind is list or kind is tuple:
        return value[number] if number < len(value) else None
    if kind is dict:
        return value.get(field.encode_name)
    return getattr(value, field.name, None)


def _first(found: Iterator[str | None]) -> str | None:
    return next((each for each in found if each is not None), None)
