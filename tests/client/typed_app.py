"""A user's module, as mypy --strict and a worker's child see it: every kind of value that passes between them."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, assert_type

import msgspec

from quvatlh import App, Attempt, Handle
from quvatlh.client import Outcome

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]

app = App()


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct, frozen=True):
    x: Decimal
    when: datetime | None = None


@dataclass(frozen=True)
class Order:
    id: uuid.UUID
    points: tuple[Point, ...] = ()
    raw: bytes = b""
    tags: set[str] = field(default_factory=set)


@dataclass
class Event:
    name: str
    data: dict[str, Any]


class Marks(msgspec.Struct, rename="camel"):
    colors_of: set[Color]
    parts: set[frozenset[str]]


@app.task(unique=True)
def marked(names: set[str], marks: list[Marks]) -> None: ...


@app.task
def echo(order: Order, at: datetime, *, color: Color = Color.RED, span: timedelta | None = None) -> Order:
    assert isinstance(order, Order)
    assert isinstance(at, datetime)
    assert isinstance(color, Color)
    assert isinstance(span, timedelta | None)
    print(span)
    return order


@app.task(queue="typed", retry=1)
async def days(*on: date, **named: Decimal) -> dict[date, Decimal]:
    return dict(zip(on, named.values(), strict=True))


@app.task
def anything(value: object, more: Unknown | None = None) -> Any:
    return value


@app.task
def unsaid(second: int) -> Any:
    return datetime.fromtimestamp(second, UTC)


@app.task
def lies() -> datetime:
    return "yesterday"  # type: ignore[return-value]


@app.task
def either(when: str | datetime) -> str:
    return str(when)


@app.schedule("*/5 * * * *", zone="Europe/Berlin")
@app.task(queue="typed")
def tidy() -> None: ...


@app.schedule(every=3600, name="hourly", args=[1])
def again(second: int) -> int:
    return second


@app.task(result="msgpack")
def packed(size: int):  # type: ignore[no-untyped-def]  # noqa: ANN201 - nothing restores it
    return {1: [b"\0\xff" * size, datetime(2026, 1, 2, tzinfo=UTC), float("inf")]}


@app.task(result="msgpack")
async def packed_days(**amounts: Decimal) -> dict[date, Decimal]:
    return {date(2026, 1, 2): sum(amounts.values(), Decimal(0))}


@app.task
def unbounded() -> list[float]:
    return [float("-inf")]


heard: list[str] = []


@app.before
def opens(attempt: Attempt) -> None:
    attempt.kept["n"] = len(heard)


@app.after
async def closes(attempt: Attempt) -> None:
    how = "well" if attempt.error is None else type(attempt.error).__name__
    heard.append(f"{attempt.target.partition(':')[2]} ended {how}")
    print(f"closed {attempt.kept['n']}", file=sys.stderr)


def types() -> None:
    """What a type checker knows; not called."""
    order = Order(uuid.uuid4())
    assert_type(echo.enqueue(order, datetime.now(UTC)), Handle[Order])
    assert_type(echo.delay("5m", order, datetime.now(UTC)).result(), Order)
    assert_type(days.enqueue(date(2026, 1, 2), a=Decimal(1)).result(), dict[date, Decimal])
    assert_type(again(1), int)
    assert_type(again.handle("id").result(timeout=1), int)
    assert_type(tidy.enqueue().result(), None)
    found: Sequence[Outcome[int]] = list(app.results([again.enqueue(1)]))
    assert_type(found[0].result(), int)
    echo.enqueue(1, 2)  # type: ignore[arg-type]
    echo.delay("5m", order)  # type: ignore[call-arg]
    again.enqueue("x")  # type: ignore[arg-type]


async def coroutines() -> None:
    order = Order(uuid.uuid4())
    assert_type(await (await echo.aenqueue(order, datetime.now(UTC))).aresult(), Order)
    assert_type(await days(date(2026, 1, 2)), dict[date, Decimal])
    async for outcome in app.results([await again.aat(datetime.now(UTC), 1)]):
        assert_type(await outcome.aresult(), int)
