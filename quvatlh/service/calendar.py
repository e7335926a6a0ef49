"""When a schedule is due: its slots, one after the other, and its rule in plain words.

cronsim matches cron's fields against a wall clock without a zone; what a zone does to that clock is done here. Between two
changes of a zone's offset its wall clock runs evenly, so the walk goes from one change to the next:
- a fixed time (neither minute nor hour begins with `*`) that a change jumps over is due at once after it; one that comes
  twice is due the first time;
- any other rule follows the clock that one sees: what is jumped over is not there, what comes twice is due twice.
Slots of `every` are the multiples of its span since 1970, on every node and after every change the same ones.
"""

from __future__ import annotations

import copy
import functools
import itertools
import zoneinfo
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol

from cronsim import CronSim, CronSimError

from quvatlh.core.limits import SECOND_MS, TIME_MS_MAX
from quvatlh.core.model import ScheduleSpec

EVERY_MS_MIN: Final = SECOND_MS
JUDGED: Final = 10
"""Slots of a cron rule that its jitter is measured by."""
NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock without a zone, in which cronsim walks
_DAY_S: Final = 86_400
_FAR_S: Final = 2 * _DAY_S
"""Further than any change of a zone's offset moves its clock."""
_FIELDS: Final = {
    "minute": (0, "0 to 59"),
    "hour": (1, "0 to 23"),
    "day-of-month": (2, "1 to 31, L or LW, and a day that its months have"),
    "month": (3, "1 to 12 or JAN to DEC"),
    "day-of-week": (4, "0 to 7 or SUN to SAT, MON#2, 5L"),
}


class BadRule(ValueError):
    """No calendar can keep it. `field` is the part of the schedule that is at fault."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class Rule(Protocol):
    def after(self, ms: int) -> int | None:
        """The first slot later than that; None when there is none any more."""
        ...

    def words(self) -> str: ...


def rule_of(spec: ScheduleSpec) -> Rule:
    """Raises BadRule. The same texts give the same object."""
    if spec.every_ms is not None:
        if spec.every_ms < EVERY_MS_MIN:
            raise BadRule("every", f"must be {EVERY_MS_MIN}ms or more")
        return Every(spec.every_ms)
    return cron_rule(spec.cron or "", spec.zone)


def check(spec: ScheduleSpec, now_ms: int) -> None:
    """Raises BadRule for what no calendar can keep, what never comes, and runs that could not wait for each other."""
    if (spec.cron is None) == (spec.every_ms is None):
        raise BadRule("", "must have exactly one of cron, every")
    if spec.every_ms is not None and spec.zone != "UTC":
        raise BadRule("zone", "goes with cron: `every` is a span of time, the same in all zones")
    if rule_of(spec).after(0) is None:
        raise BadRule("cron", f"never fires: {spec.cron!r} names days that do not come")
    if spec.in_turn and (spec.task.limit or 1) > 1:
        why = "overlap: queue" if spec.overlap == "queue" else "catchup: all"
        raise BadRule("task.limit", f"must be left out: under {why} one runs after the other; or give overlap: allow")
    apart_ms = _apart_ms(spec, now_ms) if spec.jitter_ms else None
    if apart_ms is not None and spec.jitter_ms >= apart_ms:
        span = f"{apart_ms}ms" if apart_ms % SECOND_MS else f"{apart_ms // SECOND_MS}s"
        raise BadRule("jitter", f"must be shorter than the {span} from one slot to the next")


def _apart_ms(spec: ScheduleSpec, now_ms: int) -> int | None:
    """From one slot to the next; of cron the least of what comes."""
    if spec.every_ms is not None:
        return spec.every_ms
    slots = slots_of(rule_of(spec), now_ms, JUDGED)
    return min((late - early for early, late in itertools.pairwise(slots)), default=None)


def slots_of(rule: Rule, after_ms: int, count: int) -> list[int]:
    """The next ones."""
    found: list[int] = []
    while len(found) < count:
        slot = rule.after(found[-1] if found else after_ms)
        if slot is None:
            break
        found.append(slot)
    return found


@functools.lru_cache(maxsize=10_000)
def cron_rule(text: str, zone: str) -> Cron:
    return Cron(text, zone)


class Every(NamedTuple):
    span_ms: int

    def after(self, ms: int) -> int | None:
        slot = (ms // self.span_ms + 1) * self.span_ms
        return slot if slot <= TIME_MS_MAX else None

    def words(self) -> str:
        for unit, size in (("day", _DAY_S * 1000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000)):
            if self.span_ms % size == 0:
                n = self.span_ms // size
                return f"Every {unit}" if n == 1 else f"Every {n:,} {unit}s"
        return f"Every {self.span_ms:,} milliseconds"


class Cron:
    """Five fields, or a nickname, in a zone."""

    def __init__(self, text: str, zone: str) -> None:
        self._zone = find_zone(zone)
        self._is_utc = zone == "UTC"
        self._zone_name = zone
        fields = _fields(text)
        try:
            self._sim = CronSim(" ".join(fields), _EPOCH)
        except CronSimError as error:
            raise BadRule("cron", _fault(str(error), fields)) from None
        self._is_fixed = not fields[0].startswith("*") and not fields[1].startswith("*")

    def after(self, ms: int) -> int | None:
        found = self._after(ms // SECOND_MS)
        return None if found is None or found * SECOND_MS > TIME_MS_MAX else found * SECOND_MS

    def words(self) -> str:
        try:
            words = str(self._sim.explain())
        except (ValueError, LookupError, TypeError, AssertionError):  # its words are not worth a refusal
            words = "By the clock"
        return words if self._is_utc else f"{words} ({self._zone_name} time)"

    def _after(self, second: int) -> int | None:
        """From one change of the offset to the next; seconds since 1970."""
        wall = second + self._offset(second)
        if self._is_fixed:
            wall = max(wall, self._seen_before(second))
        while True:
            offset = self._offset(second)
            match = self._match(wall)
            if match is None:
                return None
            until = match - offset
            change = self._change(second, min(until, second + _FAR_S))
            if change is None and until - second > 2 * _FAR_S:
                # No reading of the clock on the way matches, whatever becomes of the offset: that is looked at near the end.
                second = until - _FAR_S
                wall = second + self._offset(second)
                continue
            if change is None:
                change = self._change(second, until)
            if change is None:
                return until
            before, after = change + offset, change + self._offset(change)
            if self._is_fixed and match < after:
                return change
            # The second of the change itself is looked at as well. What has been due at a fixed time is not due again.
            wall = max(before, after) - 1 if self._is_fixed else after - 1
            second = change

    def _seen_before(self, second: int) -> int:
        """The last reading of the clock before a change within the last day: up to there a fixed time has been due."""
        change = self._change(second - _DAY_S, second)
        return -_DAY_S if change is None else change + self._offset(second - _DAY_S) - 1

    def _match(self, wall: int) -> int | None:
        """The first match later than this reading of the wall clock."""
        sim = copy.copy(self._sim)
        try:
            sim.dt = _EPOCH + timedelta(seconds=wall)
            found = next(sim)
        except (StopIteration, OverflowError, ValueError):
            return None
        return int((found - _EPOCH) // timedelta(seconds=1))

    def _offset(self, second: int) -> int:
        if self._is_utc:
            return 0
        try:
            found = datetime.fromtimestamp(second, self._zone).utcoffset()
        except (OverflowError, ValueError):
            return 0
        return 0 if found is None else int(found.total_seconds())

    def _change(self, after: int, until: int) -> int | None:
        """The first second in (after, until] whose offset is another; a change and its opposite are days apart."""
        offset = self._offset(after)
        low = until if self._is_utc else after
        while low < until:
            high = min(low + _DAY_S, until)
            if self._offset(high) != offset:
                while high - low > 1:
                    middle = (low + high) // 2
                    low, high = (middle, high) if self._offset(middle) == offset else (low, middle)
                return high
            low = high
        return None


def find_zone(name: str) -> zoneinfo.ZoneInfo:
    """By its IANA name."""
    try:
        if name not in _zones():
            raise zoneinfo.ZoneInfoNotFoundError
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise BadRule("zone", f"{name[:60]!r} is no time zone that this node knows{_near(name)}") from None


@functools.cache
def _zones() -> frozenset[str]:
    """Without `localtime` and the like, which mean something else on each machine."""
    return frozenset(name for name in zoneinfo.available_timezones() if name[:1].isupper()) - {"Factory"}


def _near(name: str) -> str:
    import difflib  # noqa: PLC0415 - only for who mistyped

    by_lower = {zone.lower(): zone for zone in _zones()} | {zone.lower().split("/")[-1]: zone for zone in _zones()}
    nearest = difflib.get_close_matches(name[:60].lower().replace(" ", "_"), list(by_lower), n=1, cutoff=0.75)
    return f"; did you mean {by_lower[nearest[0]]}?" if nearest else ", such as Europe/Berlin"


def _fields(text: str) -> list[str]:
    given = text.split()
    if len(given) == 1 and given[0].startswith("@"):
        nickname = NICKNAMES.get(given[0].lower())
        if nickname is None:
            known = ", ".join(NICKNAMES)
            raise BadRule("cron", f"{given[0]!r} is none of {known}; for spans of time there is `every`")
        return nickname.split()
    if len(given) != 5:
        seconds = "; for seconds there is `every`" if len(given) == 6 else ""
        raise BadRule(
            "cron", f"must have five fields (minute, hour, day of month, month, day of week), not {len(given)}{seconds}"
        )
    return given


def _fault(words: str, fields: list[str]) -> str:
    """cronsim says which field; people want to know what may stand there."""
    name = words.removeprefix("Bad ")
    place, allowed = _FIELDS.get(name, (None, ""))
    if place is None:
        return f"is no cron expression: {words}"
    if name == "day-of-month" and _is_day(fields[2]):
        return f"never fires: no month of {fields[3]!r} has day {fields[2]}"
    return (
        f"{name.replace('-', ' ')} {fields[place]!r} cannot be: it takes {allowed}, lists a,b, ranges a-b and steps /n"
    )


def _is_day(field: str) -> bool:
    """Right as such, so that it is the month that has not got it."""
    try:
        CronSim(f"0 0 {field} * *", _EPOCH)
    except CronSimError:
        return False
    return True
