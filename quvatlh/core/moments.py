"""Times as people read them, by arithmetic alone: the core asks no calendar that a system might have otherwise."""

from __future__ import annotations

from quvatlh.core.limits import DAY_MS

_ERA_DAYS = 146_097
"""Of 400 years; they begin on a first of March, so that the leap day is the last of a year."""
_EPOCH_DAYS = 719_468
"""From the first of March of the year 0 to the first of January 1970."""


def rfc3339(ms: int) -> str:
    """UTC, with milliseconds."""
    days, ms_of_day = divmod(ms, DAY_MS)
    year, month, day = _date(days)
    seconds, millis = divmod(ms_of_day, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z"


def _date(days: int) -> tuple[int, int, int]:
    """Of the Gregorian calendar, from days since 1970."""
    era, day_of_era = divmod(days + _EPOCH_DAYS, _ERA_DAYS)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    return year_of_era + era * 400 + (month <= 2), month, day
