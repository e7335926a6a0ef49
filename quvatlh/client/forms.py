"""A function's arguments and result between Python and JSON, by its annotations.

What JSON knows passes as it is, unlooked at, as Python passes arguments. What it does not know (times, UUIDs, Decimal,
bytes, tuples, sets, enums, dataclasses, structs) is written as msgspec writes it and becomes again what the annotation
says; so an argument needs one, or is refused before anything is sent. A result without one is written all the same, since
refusing it would throw the work away, and read as JSON.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Literal, NewType, TypeVar, Union

import msgspec

from quvatlh.client import parts, plain

_BARE: Final = frozenset({Any, object, None, type(None), bool, int, float, str, list, dict, inspect.Parameter.empty})
_LISTS: Final = frozenset({list, collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Iterable})
_MAPS: Final = frozenset({dict, collections.abc.Mapping, collections.abc.MutableMapping})
_KEYS: Final = frozenset({str, Any})
_PASSED: Final = frozenset({type(None), bool, int, float, str})


class Unfit(Exception):
    """Words about values that are not what their annotations say."""


class ResultUnfit(TypeError):
    """What a task returned cannot be made again what its function's annotation says. `value` has it as JSON does. Looked at is
    only an annotation in which something stands that JSON does not know, and msgspec does: a text from a function that
    says `-> int` is returned as it is."""

    def __init__(self, task: str, value: object, why: str) -> None:
        super().__init__(f"task {task}: what it returned is not what its annotation says: {why}")
        self.task = task
        self.value = value


class Slot:
    """A parameter, or the result, whose values are restored; or whose annotation cannot restore any, and why."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.why = ""
        try:
            msgspec.json.Decoder(kind)
        except (TypeError, NameError) as error:
            self.why = str(error)

    def written(self, place: str, value: object) -> object:
        """In JSON's own types. Raises Unfit."""
        if self.why:
            found = plain.fault({place: value})
            if found is not None:
                raise Unfit(f"{found}, and its annotation cannot restore it: {self.why}")
            return value
        try:
            built = msgspec.to_builtins(value, str_keys=True)
            msgspec.convert(built, self.kind, str_keys=True)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise Unfit(f"{place}: {error}") from None
        found = plain.fault({place: built}) or (self._check and self._check(place, value))
        if found:
            raise Unfit(found)
        return built

    def ordered(self, place: str, value: object) -> object:
        """As `written`, the same in every process that says the same."""
        built = self.written(place, value)
        return built if self.why else parts.in_order(value, built)

    @functools.cached_property
    def _check(self) -> parts.Check | None:
        return parts.check_of(self.kind)

    def read(self, place: str, value: object) -> Any:
        """Raises Unfit."""
        if self.why:
            return value
        try:
            return msgspec.convert(value, self.kind, str_keys=True)
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise Unfit(f"{place}: {error}") from None


class Form:
    """Of one function. Annotations are looked at when they are first needed: they may name what is defined later."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.signature = inspect.signature(function)
        kinds = [each.kind for each in self.signature.parameters.values()]
        needed = [each.default for each in self.signature.parameters.values()].count(inspect.Parameter.empty)
        is_simple = all(kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for kind in kinds)
        self._counts = range(needed, len(kinds) + 1) if is_simple else range(0)
        """So many positional arguments fit, whatever they are."""

    def written(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """As they are sent. TypeError where they do not fit the function; Unfit where they cannot be sent."""
        if not kwargs and not self.slots and len(args) in self._counts:
            found = plain.fault(dict(zip(self.signature.parameters, args, strict=False))) if args else None
            if found is not None:
                raise Unfit(found)
            return args, kwargs
        bound = self.signature.bind(*args, **kwargs)
        if not self.slots:
            found = plain.fault(bound.arguments)
            if found is not None:
                raise Unfit(found)
            return args, kwargs
        for name, value in bound.arguments.items():
            slot = self.slots.get(name)
            if slot is not None:
                bound.arguments[name] = self._each(name, value, slot.written)
            elif (found := plain.fault({name: value})) is not None:
                raise Unfit(found)
        return bound.args, bound.kwargs

    def alike(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """As `written`, in the one form that all calls with these arguments have: by place what can be, defaults where they can
        be sent, sets in order."""
        given = self.signature.bind(*args, **kwargs)
        made: dict[str, Any] = {}
        has_gap = False
        for name, parameter in self.signature.parameters.items():
            is_unnamed = parameter.kind is inspect.Parameter.POSITIONAL_ONLY
            if name in given.arguments:
                made[name] = self._ordered(name, given.arguments[name])
            elif parameter.default is not inspect.Parameter.empty and not (is_unnamed and has_gap):
                try:
                    made[name] = self._ordered(name, parameter.default)
                except Unfit:  # nobody can send it: so whoever leaves it out means the same
                    has_gap = True
        given.arguments = made
        return given.args, given.kwargs

    def _ordered(self, name: str, value: Any) -> Any:
        slot = self.slots.get(name)
        if slot is not None:
            return self._each(name, value, slot.ordered)
        found = plain.fault({name: value})
        if found is not None:
            raise Unfit(found)
        return value

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """As the function wants them. Raises as `written`."""
        bound = self.signature.bind(*args, **kwargs)
        for name, slot in self.slots.items():
            if name in bound.arguments:
                bound.arguments[name] = self._each(name, bound.arguments[name], slot.read)
        return bound.args, bound.kwargs

    def result(self, task: str, value: object) -> Any:
        """What a task returned, as it was before it was sent. Raises ResultUnfit."""
        slot = self._result
        if slot is None:
            return value
        try:
            return slot.read("it", value)
        except Unfit as error:
            raise ResultUnfit(task, value, str(error)) from None

    @functools.cached_property
    def slots(self) -> dict[str, Slot]:
        """Of the parameters whose values JSON does not know, by name."""
        kinds = self._kinds
        return {name: Slot(kinds[name]) for name in self.signature.parameters if _is_rich(kinds.get(name))}

    @functools.cached_property
    def _result(self) -> Slot | None:
        kind = self._kinds.get("return")
        return Slot(kind) if _is_rich(kind) else None

    @functools.cached_property
    def _kinds(self) -> Mapping[str, Any]:
        """Annotations that can be understood here; a name that only a type checker knows spoils no other."""
        try:
            return typing.get_type_hints(self._function, include_extras=True)
        except Exception:  # noqa: BLE001 - an annotation may be any code
            return {name: _understood(self._function, given) for name, given in _annotations(self._function).items()}

    def _each(self, name: str, value: Any, turn: Callable[[str, object], Any]) -> Any:
        """Of `*args` and `**kwargs`, what is in them: their annotation says of what kind each is."""
        kind = self.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            return tuple(turn(f"{name}[{number}]", each) for number, each in enumerate(value))
        if kind is inspect.Parameter.VAR_KEYWORD:
            return {key: turn(f"{name}.{key}", each) for key, each in value.items()}
        return turn(name, value)


def packed(value: object) -> object:
    """A result in JSON's own types. TypeError where msgspec does not know it."""
    return value if type(value) in _PASSED else msgspec.to_builtins(value, str_keys=True)


def in_msgpack(value: object) -> bytes:
    """A result with its bytes, times and keys as they are. TypeError where msgspec does not know it."""
    return msgspec.msgpack.encode(value)


def _annotations(function: Callable[..., Any]) -> Mapping[str, Any]:
    return getattr(inspect.unwrap(function), "__annotations__", {})


def _understood(function: Callable[..., Any], given: Any) -> Any:
    names = getattr(inspect.unwrap(function), "__globals__", {})
    holder = types.SimpleNamespace(__annotations__={"it": given})
    try:
        return typing.get_type_hints(holder, names, names, include_extras=True)["it"]
    except Exception:  # noqa: BLE001 - as above
        return Any


def _is_rich(kind: Any) -> bool:
    """Whether it can hold anything that JSON does not."""
    try:
        if kind in _BARE:
            return False
    except TypeError:  # it has no hash
        return True
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return any(type(part) not in _PASSED for part in parts)
    if origin in _MAPS and parts:
        return parts[0] not in _KEYS or _is_rich(parts[1])
    inner = _within(kind, origin, parts)
    return not isinstance(kind, TypeVar) if inner is None else any(map(_is_rich, inner))


def _within(kind: Any, origin: Any, parts: tuple[Any, ...]) -> Collection[Any] | None:
    """Of what is plain where all that stands in it is; None for others."""
    if origin is typing.Annotated:
        return parts[:1]
    if origin in {Union, types.UnionType} or origin in _LISTS or origin in _MAPS:
        return parts
    if kind in _LISTS or kind in _MAPS:
        return ()
    if isinstance(kind, NewType):
        return (kind.__supertype__,)
    return typing.get_type_hints(kind).values() if typing.is_typeddict(kind) else None
