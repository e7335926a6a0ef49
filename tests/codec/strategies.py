"""Hypothesis strategies for the types of core, read off the types themselves, so that none is forgotten.

Names come from a few, so that commands meet each other's objects; everything else goes to the edges of its type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from msgspec import NODEFAULT, UNSET
from msgspec import inspect as mi

NAMES = ("a", "b", "c", "w1", "s-w1", "default", "queue/1")
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
ODD = st.dictionaries(st.integers(-3, 3) | st.text(max_size=2), JSON | st.binary(max_size=3), max_size=3)
"""What msgpack can say and JSON cannot."""
Strategy = st.SearchStrategy[Any]


def of(kind: Any) -> Strategy:
    """Values of a type that msgspec can decode."""
    return _of(mi.type_info(kind))


def _of(info: mi.Type) -> Strategy:
    return _MAKERS[type(info)](info)


def _text(info: Any) -> Strategy:
    if info.max_length is not None and info.max_length <= 256:
        return st.sampled_from(NAMES)
    return st.text(min_size=info.min_length or 0, max_size=8)


def _integer(info: Any) -> Strategy:
    low = info.ge if info.ge is not None else -(2**63)
    high = info.le if info.le is not None else (info.lt - 1 if info.lt is not None else 2**63 - 1)
    near = st.integers(max(low, 0), min(high, 8)) if low <= 8 and high >= 0 else st.integers(low, high)
    return near | st.sampled_from([low, high]) | st.integers(low, high)


def _struct(info: Any) -> Strategy:
    fields = {field.name: _field(field) for field in info.fields}
    return st.deferred(lambda: st.fixed_dictionaries(fields).map(lambda values: info.cls(**values)))


def _field(field: mi.Field) -> Strategy:
    if field.required:
        return _of(field.type)
    default: Strategy = st.just(UNSET)
    if field.default is not NODEFAULT:
        default = st.just(field.default)
    elif field.default_factory is not NODEFAULT:
        default = st.builds(field.default_factory)
    return default | _of(field.type)


def _tuple(info: Any) -> Strategy:
    least = info.min_length or 0
    return st.lists(_of(info.item_type), min_size=least, max_size=least + 3).map(tuple)


_MAKERS: dict[type, Callable[[Any], Strategy]] = {
    mi.AnyType: lambda _: JSON | ODD,
    mi.NoneType: lambda _: st.none(),
    mi.BoolType: lambda _: st.booleans(),
    mi.IntType: _integer,
    mi.StrType: _text,
    mi.BytesType: lambda info: st.binary(min_size=info.min_length or 0, max_size=max(info.min_length or 0, 6)),
    mi.LiteralType: lambda info: st.sampled_from(sorted(info.values)),
    mi.VarTupleType: _tuple,
    mi.TupleType: lambda info: st.tuples(*map(_of, info.item_types)),
    mi.DictType: lambda info: st.dictionaries(_of(info.key_type), _of(info.value_type), max_size=2),
    mi.UnionType: lambda info: st.one_of(*[_of(each) for each in info.types]),
    mi.StructType: _struct,
    mi.CustomType: lambda _: st.just(UNSET),
}
