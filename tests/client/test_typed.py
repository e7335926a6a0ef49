"""Values that JSON does not know: written as msgspec does, restored by annotations, refused where nothing says how."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypedDict, cast
from uuid import UUID, uuid4

import msgspec
import pytest

from quvatlh import App, TaskFailed
from quvatlh.client import Call, ResultUnfit, Task
from quvatlh.client.forms import Slot
from quvatlh.client.forms import Unfit as UnfitForm
from quvatlh.client.parts import check_of, in_order
from quvatlh.task import Unfit
from tests.client import typed_app as tasks
from tests.client.typed_app import Color, Event, Order, Point

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _here() -> Iterator[None]:
    with tasks.app.inline():
        yield


def test_arguments_and_results_are_what_their_annotations_say() -> None:
    order = Order(uuid4(), (Point(Decimal("1.10"), NOW), Point(Decimal(2))), b"\0\xff", {"a"})
    assert tasks.echo.enqueue(order, NOW, color=Color.RED, span=timedelta(seconds=2.5)).result() == order
    assert tasks.days.enqueue(date(2026, 1, 2), a=Decimal("0.3")).result() == {date(2026, 1, 2): Decimal("0.3")}


def test_what_json_knows_passes_unlooked_at() -> None:
    given = {"a": [1, 2.5, None, {"b": "c"}]}
    assert tasks.anything.enqueue(given).result() == given
    assert tasks.anything.enqueue(1, "a name that only a type checker knows").result() == 1


@pytest.mark.parametrize(
    ("task", "args", "kwargs", "words"),
    [
        (tasks.anything, (NOW,), {}, "value: datetime.datetime has no form in JSON"),
        (tasks.echo, (1, NOW), {}, "order: Expected `object`, got `int`"),
        (
            tasks.echo,
            (Order(uuid4(), points=(Point(Decimal(1), cast("Any", 5)),)), NOW),
            {},
            "order: Expected `datetime | null`, got `int` - at `$.points[0].when`",
        ),
        (tasks.echo, (Order(uuid4()), object()), {}, "at: Encoding objects of type object is unsupported"),
        (tasks.days, ("today",), {}, "on[0]: Invalid RFC3339 encoded date"),
        (tasks.days, (), {"a": "x"}, "named.a: Invalid decimal string"),
        (
            tasks.either,
            (NOW,),
            {},
            "when: datetime.datetime has no form in JSON, and its annotation cannot restore it: Type unions may not",
        ),
    ],
)
def test_an_argument_that_would_not_arrive_is_refused_and_named(
    task: Task[..., Any, Any], args: Any, kwargs: Any, words: str
) -> None:
    with pytest.raises(TypeError) as caught:
        task.call(*args, **kwargs)
    assert str(caught.value).startswith(f"{task.__name__}(): argument {words}")


ODD = datetime(1930, 1, 1, tzinfo=timezone(timedelta(minutes=19, seconds=32)))


class Any1(msgspec.Struct, tag=True, rename="camel"):
    the_data: Any
    more: Any1 | None = None


class Time1(msgspec.Struct, tag=True, rename="camel"):
    the_data: datetime


class Pair(NamedTuple):
    a: int
    b: Any


class Row(msgspec.Struct, array_like=True):
    a: int
    b: Any


class Tagged(msgspec.Struct, array_like=True, tag=True):
    a: int
    b: set[str]


class Said(TypedDict):
    at: datetime
    data: object


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (Event, Event("x", {"at": NOW}), ".data.at: datetime.datetime has no form"),
        (Event, {"name": "x", "data": {"at": NOW}}, ".data.at: datetime.datetime has no form"),
        (Any1, Any1(1, Any1([Color.RED])), ".more.the_data[0]: tests.client.typed_app.Color has no form"),
        (Any1 | Time1, Any1(NOW), ".the_data: datetime.datetime has no form"),
        (dict[int, Any], {1: {2}}, ".1: set has no form"),
        (dict[Any, datetime], {1: NOW}, ": the key 1 is no text"),
        (tuple, (1, NOW), "[1]: datetime.datetime has no form"),
        (tuple[Any, datetime], (NOW, NOW), "[0]: datetime.datetime has no form"),
        (list[Any] | datetime, [NOW], "[0]: datetime.datetime has no form"),
        (Pair, Pair(1, NOW), ".b: datetime.datetime has no form"),
        (Row, Row(1, NOW), ".b: datetime.datetime has no form"),
        (Row, [1, NOW], ".b: datetime.datetime has no form"),
        (Said, {"at": NOW, "data": NOW}, ".data: datetime.datetime has no form"),
        (datetime, ODD, ": its offset from UTC, 0:19:32, has seconds"),
        (time | None, ODD.timetz(), ": its offset from UTC, 0:19:32, has seconds"),
        (dict[str, list[datetime]], {"a": [NOW, ODD]}, ".a[1]: its offset from UTC, 0:19:32, has seconds"),
        (dict[datetime, int], {ODD: 1}, f".{ODD}: its offset from UTC, 0:19:32, has seconds"),
    ],
)
def test_what_nothing_restores_within_an_annotation_is_refused_as_where_it_is_all(
    kind: Any, value: object, words: str
) -> None:
    with pytest.raises(UnfitForm) as caught:
        Slot(kind).written("it", value)
    assert str(caught.value).startswith(f"it{words}")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Event, Event("x", {"at": [1, None, "y"]})),
        (Any1 | Time1, Time1(NOW)),
        (Any1, Any1(1, Any1({"a": "b"}))),
        (Said, {"at": NOW, "data": 1}),
        (list[datetime], [NOW, NOW.astimezone(timezone(timedelta(hours=5, minutes=30)))]),
        (Order, Order(uuid4())),
        (tuple, (1, [2])),
    ],
)
def test_what_is_restored_within_an_annotation_arrives(kind: Any, value: object) -> None:
    slot = Slot(kind)
    assert slot.read("it", slot.written("it", value)) == value


def test_where_all_is_restored_nothing_is_looked_at_twice() -> None:
    for kind in (UUID, set[str], Color, tuple[Decimal, ...], date):
        assert check_of(kind) is None


def test_arguments_that_others_sent_and_do_not_fit_cannot_be_called() -> None:
    with pytest.raises(Unfit, match=r"^its arguments do not fit: order: Expected `object`, got `int`"):
        tasks.echo.__quvatlh_run__(1, "2026-01-01T00:00:00Z")
    with pytest.raises(Unfit, match=r"^its arguments do not fit: missing a required argument: 'at'"):
        tasks.echo.__quvatlh_run__({})
    with pytest.raises(Unfit, match=r"^its arguments do not fit: .*takes 0 positional arguments but 1 was given"):
        App().task(lambda: None).__quvatlh_run__(1)


def test_a_result_without_annotation_is_what_json_makes_of_it_and_a_false_one_is_named() -> None:
    assert tasks.unsaid.enqueue(0).result() == "1970-01-01T00:00:00Z"
    with pytest.raises(ResultUnfit, match="is not what its annotation says: it: Invalid RFC3339") as caught:
        tasks.lies.enqueue().result()
    assert caught.value.value == "yesterday"


@pytest.mark.parametrize("kind", [int, list[int], int | None, Literal[1], object, str | datetime])
def test_a_result_of_plain_kinds_or_of_one_that_cannot_be_told_apart_is_not_looked_at(kind: Any) -> None:
    def says() -> Any:
        return "else"

    says.__annotations__["return"] = kind
    assert App(inline=True).task(says).enqueue().result() == "else"


@pytest.mark.parametrize("kind", [datetime | None, list[Decimal], tuple[int, ...], dict[int, str], date, Color])
def test_a_result_in_whose_annotation_stands_what_json_does_not_know_is_looked_at(kind: Any) -> None:
    def says() -> Any:
        return "else"

    says.__annotations__["return"] = kind
    with pytest.raises(ResultUnfit):
        App(inline=True).task(says).enqueue().result()


def test_a_result_that_nothing_can_write_fails_for_good() -> None:
    app = App(inline=True)

    @app.task(retry=3)
    def task() -> object:
        return object()

    with pytest.raises(
        TaskFailed, match="what it returned has no form in JSON: Encoding objects of type object"
    ) as caught:
        task.enqueue().result()
    assert (caught.value.code, caught.value.attempts) == ("unrunnable", 1)


def test_a_handle_that_is_made_of_an_id_knows_what_the_task_returns() -> None:
    order = Order(uuid4())
    name = tasks.echo.enqueue(order, NOW).id
    assert tasks.app.handle(name).result() == tasks.echo.handle(name).result() == order
    assert [each.result() for each in tasks.app.results([name])] == [order]


def test_what_is_annotated_with_plain_json_costs_nothing_more() -> None:
    app = App(inline=True)

    @app.task
    def plain(a: int, b: list[str] | None, *c: dict[str, float], **d: bool) -> None: ...

    assert plain.form.slots == {}


def test_results_in_msgpack_are_the_very_same_values() -> None:
    whole = {1: [b"\0\xff", datetime(2026, 1, 2, tzinfo=UTC), float("inf")]}
    handle = tasks.packed.enqueue(1)
    assert handle.result() == whole
    assert next(iter(tasks.app.results([handle]))).result() == whole
    assert tasks.packed_days.enqueue(a=Decimal("0.3")).result() == {date(2026, 1, 2): Decimal("0.3")}
    assert tasks.unbounded.enqueue().result() == [float("-inf")]


def test_how_a_result_is_written_is_said_once() -> None:
    with pytest.raises(TypeError, match=r"^result: belongs to @app\.task"):
        tasks.packed.options(result="json")
    with pytest.raises(ValueError, match=r"^result: json or msgpack"):
        tasks.app.task(result=cast("Any", "yaml"))(_nothing)


def _nothing() -> None:
    pass


def test_unique_calls_with_the_same_arguments_are_the_same_however_they_are_written() -> None:
    app, missing = App(), object()

    @app.task(unique=True)
    def task(a: int, b: int = 2, *rest: int, c: object = missing, at: datetime = NOW, **more: int) -> None: ...

    def works(*calls: Call[None]) -> list[Any]:
        return [json.loads(each.body)["work"] for each in calls]

    plain = works(task.call(1), task.call(1, 2), task.call(1, b=2), task.call(a=1, b=2), task.call(1, at=NOW))
    assert plain == [plain[0]] * 5
    assert plain[0] | {"python": ""} == {"python": "", "args": [1, 2], "kwargs": {"at": "2026-03-04T05:06:07Z"}}
    one, two, other = works(task.call(1, 2, 3, c=4, x=5), task.call(1, 2, 3, x=5, c=4), task.call(1, 2, 3, c=5, x=5))
    assert one == two != other
    with pytest.raises(TypeError, match="argument c: object has no form in JSON"):
        task.call(1, c=object())
    keyed = works(task.options(unique="k").call(1), task.options(unique=False).call(1, b=2))
    assert [(each["args"], each["kwargs"]) for each in keyed] == [([1], {}), ([1, 2], {})]
    assert works(task.options(unique={"while": "active"}).call(1)) == plain[:1]


def test_a_default_that_cannot_be_sent_leaves_the_others_callable() -> None:
    def by_place(a: object = object(), b: int = 2, /, *rest: int) -> None: ...

    task = App().task(unique=True)(by_place)
    work = json.loads(task.call().body)["work"]
    assert task.__quvatlh_run__(*work["args"], **work["kwargs"]) is None
    assert json.loads(task.call(1).body)["work"]["args"] == [1, 2]


def test_sets_of_unique_calls_have_one_order() -> None:
    code = (
        "from tests.client import typed_app as tasks\n"
        "print(tasks.marked.call({'a', 'b', 'c', 'd'}, [tasks.Marks({tasks.Color.RED, tasks.Color.BLUE}, {frozenset('xyz')})])"
        ".body.decode())"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, env=os.environ | {"PYTHONHASHSEED": seed}
        ).stdout
        for seed in "123"
    }
    assert len(said) == 1
    args = json.loads(said.pop())["work"]["args"]
    assert args == [["a", "b", "c", "d"], [{"colorsOf": ["blue", "red"], "parts": [["x", "y", "z"]]}]]


@pytest.mark.parametrize(
    ("value", "built"),
    [
        ({1: {"b", "a"}, "1": set()}, {"1": []}),
        (Tagged(1, {"b", "a"}), ["Tagged", 1, ["a", "b"]]),
        (Pair(1, {"b", "a"}), [1, ["a", "b"]]),
        (Order(UUID(int=1), tags={"b", "a"}), {"id": str(UUID(int=1)), "points": [], "raw": "", "tags": ["a", "b"]}),
    ],
)
def test_sets_are_put_in_order_wherever_they_stand(value: object, built: object) -> None:
    assert in_order(value, msgspec.to_builtins(value, str_keys=True)) == built
