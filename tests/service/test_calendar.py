"""The slots of a schedule, against a model that looks at every minute."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from quvatlh.core.model import ScheduleSpec, TaskSpec, Work
from quvatlh.service import calendar
from quvatlh.service.calendar import BadRule, check, cron_rule, rule_of, slots_of
from tests.examples import examples

MINUTE = timedelta(minutes=1)
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Havana",  # changes at midnight
    "America/Santiago",
    "Australia/Lord_Howe",  # by half an hour
    "Africa/Casablanca",  # twice a year, around Ramadan
    "Asia/Kathmandu",  # never, at an odd offset
)
CHANGES = {
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "America/Havana": ("2026-03-08", "2026-11-01"),
    "America/Santiago": ("2026-04-05", "2026-09-06"),
    "Australia/Lord_Howe": ("2026-04-05", "2026-10-04"),
    "Africa/Casablanca": ("2026-02-15", "2026-03-22"),
}


class Model:
    """Cron as one would explain it: each minute the clock is read, and compared with the fields."""

    def __init__(self, text: str, zone: str) -> None:
        minute, hour, day, month, weekday = text.split()
        self.zone = zoneinfo.ZoneInfo(zone)
        self.minutes, self.hours = _set(minute, 0, 59), _set(hour, 0, 23)
        self.days, self.months = _set(day, 1, 31), _set(month, 1, 12)
        self.weekdays = {n % 7 for n in _set(weekday, 0, 7)}
        self.is_both = day.startswith("*") or weekday.startswith("*")
        self.is_fixed = not minute.startswith("*") and not hour.startswith("*")

    def matches(self, wall: datetime) -> bool:
        day, weekday = wall.day in self.days, wall.isoweekday() % 7 in self.weekdays
        return (
            wall.minute in self.minutes
            and wall.hour in self.hours
            and wall.month in self.months
            and ((day and weekday) if self.is_both else (day or weekday))
        )

    def slots(self, after: datetime, minutes: int) -> Iterator[datetime]:
        """`after` begins a minute. A fixed time is due when the clock shows it for the first time, or has passed it."""
        seen = max(_readings(self.zone, after - timedelta(hours=3), 181))
        for n in range(1, minutes + 1):
            now = after + n * MINUTE
            wall = now.astimezone(self.zone).replace(tzinfo=None)
            if not self.is_fixed:
                if self.matches(wall):
                    yield now
                continue
            due = False
            while seen < wall:
                seen += MINUTE
                due = due or self.matches(seen)
            if due:
                yield now


def _readings(zone: zoneinfo.ZoneInfo, start: datetime, minutes: int) -> list[datetime]:
    return [(start + n * MINUTE).astimezone(zone).replace(tzinfo=None) for n in range(minutes)]


def _set(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = (str(low), "", str(high)) if span == "*" else span.partition("-")
        end = int(last or (high if step else first))
        found.update(range(int(first), end + 1, int(step or 1)))
    return found


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    # cronsim takes a range of one, such as 3-3/2, for 3/2: nobody writes that, and the model need not know.
    wide = st.tuples(st.integers(low, high - 1), number).filter(lambda pair: pair[0] < pair[1])
    stepped = st.tuples(wide, st.integers(1, high)).map(lambda pair: f"{pair[0][0]}-{pair[0][1]}/{pair[1]}")
    single = st.one_of(number.map(str), span, stepped)
    some = st.lists(single, min_size=1, max_size=3).map(",".join)
    return st.one_of(st.just("*"), st.integers(1, high).map(lambda step: f"*/{step}"), some)


EXPRESSIONS = st.tuples(field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 7)).map(" ".join)
DAILY = st.tuples(field(0, 59), field(0, 3)).map(lambda pair: f"{pair[0]} {pair[1]} * * *")


@st.composite
def near_changes(draw: st.DrawFn) -> tuple[str, datetime]:
    zone = draw(st.sampled_from(sorted(CHANGES)))
    day = datetime.fromisoformat(draw(st.sampled_from(CHANGES[zone]))).replace(tzinfo=zoneinfo.ZoneInfo(zone))
    return zone, day.astimezone(UTC) + timedelta(minutes=draw(st.integers(-600, 300)))


@settings(max_examples=examples(100))
@given(near_changes(), DAILY)
@example(("Europe/Berlin", datetime(2026, 3, 28, 12, tzinfo=UTC)), "30 2 * * *")
@example(("Europe/Berlin", datetime(2026, 10, 25, 0, 40, tzinfo=UTC)), "50 2 * * *")
@example(("Europe/Berlin", datetime(2026, 10, 25, 1, 40, tzinfo=UTC)), "50 2 * * *")
@example(("Australia/Lord_Howe", datetime(2026, 4, 4, 15, 10, tzinfo=UTC)), "*/5 5 * * *")
def test_around_a_change_of_the_clock_slots_are_those_of_every_minute(place: tuple[str, datetime], text: str) -> None:
    zone, start = place
    compare(text, zone, start, 900)


@settings(max_examples=examples(60))
@given(EXPRESSIONS, st.sampled_from(ZONES), st.integers(0, 365 * 24 * 60))
def test_slots_are_those_of_every_minute(text: str, zone: str, minute: int) -> None:
    compare(text, zone, datetime(2026, 1, 1, tzinfo=UTC) + minute * MINUTE, 2000)


def compare(text: str, zone: str, start: datetime, minutes: int) -> None:
    try:
        rule = cron_rule(text, zone)
    except BadRule:
        return  # of these expressions only such as never fire
    end = start + minutes * MINUTE
    found: list[datetime] = []
    slot = rule.after(_ms(start))
    while slot is not None and slot <= _ms(end):
        found.append(datetime.fromtimestamp(slot / 1000, UTC))
        slot = rule.after(slot)
    assert found == list(Model(text, zone).slots(start, minutes))


@pytest.mark.parametrize(
    ("text", "zone", "after", "expected"),
    [
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00+01:00", ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"]),
        ("15,45 2 29 3 *", "Europe/Berlin", "2026-01-01T00:00+01:00", ["2026-03-29T03:00+02:00", "2027-03-29T02:15+02:00"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:00+02:00", ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]),
        ("*/30 2 25 10 *", "Europe/Berlin", "2026-10-25T02:00+02:00",
         ["2026-10-25T02:30+02:00", "2026-10-25T02:00+01:00", "2026-10-25T02:30+01:00"]),
        ("0 0 29 2 *", "UTC", "2096-03-01T00:00+00:00", ["2104-02-29T00:00+00:00"]),
        ("0 12 29 2 */7", "Europe/Berlin", "2026-01-01T00:00+00:00", ["2032-02-29T12:00+01:00", "2060-02-29T12:00+01:00"]),
        ("0 9 1 * MON", "America/New_York", "2026-06-01T12:00+00:00", ["2026-06-01T09:00-04:00", "2026-06-08T09:00-04:00"]),
        ("0 9 LW * *", "UTC", "2026-05-01T00:00+00:00", ["2026-05-29T09:00+00:00"]),
        ("@weekly", "UTC", "2026-05-01T00:00+00:00", ["2026-05-03T00:00+00:00"]),
    ],
)  # fmt: skip
def test_slots_that_people_ask_about(text: str, zone: str, after: str, expected: list[str]) -> None:
    found = slots_of(cron_rule(text, zone), _ms(datetime.fromisoformat(after)), len(expected))
    assert found == [_ms(datetime.fromisoformat(each)) for each in expected]


def test_every_counts_from_1970_on() -> None:
    rule = rule_of(ScheduleSpec(TaskSpec(Work()), every_ms=5000))
    assert slots_of(rule, 12_345, 3) == [15_000, 20_000, 25_000]
    assert rule.after(15_000) == 20_000


@pytest.mark.parametrize(
    ("text", "zone", "field", "words"),
    [
        ("0 0 30 2 *", "UTC", "cron", "never fires: no month of '2' has day 30"),
        ("0 0 31 4,6,9 *", "UTC", "cron", "never fires: no month of '4,6,9' has day 31"),
        ("61 * * * *", "UTC", "cron", "minute '61' cannot be: it takes 0 to 59"),
        ("* * * * 8", "UTC", "cron", "day of week '8' cannot be: it takes 0 to 7"),
        ("* * * FOO *", "UTC", "cron", "month 'FOO' cannot be"),
        ("*/0 * * * *", "UTC", "cron", "minute '*/0' cannot be"),
        ("5-1 * * * *", "UTC", "cron", "minute '5-1' cannot be"),
        ("* * * *", "UTC", "cron", "must have five fields"),
        ("* * * * * *", "UTC", "cron", "for seconds there is `every`"),
        ("", "UTC", "cron", "must have five fields"),
        ("@reboot", "UTC", "cron", "is none of @hourly"),
        ("@daily", "Europe/Berln", "zone", "did you mean Europe/Berlin?"),
        ("@daily", "berlin", "zone", "did you mean Europe/Berlin?"),
        ("@daily", "CET/../UTC", "zone", "is no time zone"),
        ("@daily", "/etc/passwd", "zone", "is no time zone"),
        ("@daily", "localtime", "zone", "is no time zone"),
        ("@daily", "Europe", "zone", "is no time zone"),
    ],
)  # fmt: skip
def test_what_is_no_rule_is_told_with_its_field(text: str, zone: str, field: str, words: str) -> None:
    with pytest.raises(BadRule) as caught:
        cron_rule(text, zone)
    assert caught.value.field == field
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "apart_ms", "words"),
    [
        ({"every_ms": 2000}, 2000, "2s"),
        ({"every_ms": 1500}, 1500, "1500ms"),
        ({"cron": "* * * * *"}, 60_000, "60s"),
        ({"cron": "13,15,40 * * * *"}, 120_000, "120s"),
        ({"cron": "@daily", "zone": "Europe/Berlin"}, 86_400_000, "86400s"),
    ],
)
def test_jitter_is_shorter_than_the_time_between_two_slots(rule: dict[str, Any], apart_ms: int, words: str) -> None:
    task, now_ms = TaskSpec(Work()), 1_700_000_000_000
    check(ScheduleSpec(task, jitter_ms=apart_ms - 1, **rule), now_ms)
    with pytest.raises(BadRule, match=f"shorter than the {words} from one slot") as caught:
        check(ScheduleSpec(task, jitter_ms=apart_ms, **rule), now_ms)
    assert caught.value.field == "jitter"


@given(st.text(alphabet="0123456789*/-,#L W@MONFEB", max_size=30))
def test_any_text_is_a_rule_or_no_rule(text: str) -> None:
    try:
        rule = cron_rule(text, "Europe/Berlin")
    except BadRule:
        return
    assert rule.words()
    slot = rule.after(1_800_000_000_000)
    assert slot is None or slot > 1_800_000_000_000


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (ScheduleSpec(TaskSpec(Work()), every_ms=1000), "Every second"),
        (ScheduleSpec(TaskSpec(Work()), every_ms=90_000), "Every 90 seconds"),
        (ScheduleSpec(TaskSpec(Work()), every_ms=1500), "Every 1,500 milliseconds"),
        (ScheduleSpec(TaskSpec(Work()), cron="@daily"), "At 00:00 every day"),
        (ScheduleSpec(TaskSpec(Work()), cron="30 2 * * MON-FRI", zone="Europe/Berlin"),
         "At 02:30 on Monday through Friday (Europe/Berlin time)"),
    ],
)  # fmt: skip
def test_rules_in_plain_words(spec: ScheduleSpec, words: str) -> None:
    assert rule_of(spec).words() == words


def test_zones_are_those_of_the_database() -> None:
    assert {"UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires"} <= calendar._zones()


def _ms(when: datetime) -> int:
    return int(when.timestamp() * 1000)
