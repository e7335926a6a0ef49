"""How long a retry waits, and when an end is final: arithmetic in integers, the same on every machine."""

from __future__ import annotations

from collections.abc import Sequence

from quvatlh.core import limits
from quvatlh.core.commands import EndDetail
from quvatlh.core.model import Retry

_HALF = 2**31
_PYTHONS_OWN = "builtins."


def delay_ms(retry: Retry, failures: int, chance: int) -> int:
    """The wait after the `failures`-th failure (from 1), with jitter: half the chances give less, half more, but none more
    than `max_ms`."""
    most = max_ms(retry)
    base = min(_base_ms(retry, failures, most), most)
    spread = base * retry.jitter_permille // 1000
    return max(0, min(base + spread * (chance - _HALF) // _HALF, most))


def max_ms(retry: Retry) -> int:
    """The longest wait there is."""
    if retry.max_ms is not None:
        return retry.max_ms
    return limits.TIME_MS_MAX if retry.backoff == "list" else limits.BACKOFF_MS_MAX_DEFAULT


BEYOND = "must not be longer than max, which is 1h where it is not given"


def first_is_beyond(retry: Retry) -> bool:
    """The first wait that was asked for is one that there cannot be."""
    return retry.backoff != "list" and retry.first_ms > max_ms(retry)


def _base_ms(retry: Retry, failures: int, most: int) -> int:
    if retry.backoff == "list":
        return retry.delays_ms[min(failures, len(retry.delays_ms)) - 1] if retry.delays_ms else 0
    delay = retry.first_ms
    if retry.backoff == "linear":
        delay *= failures
    elif retry.backoff == "exponential" and retry.factor_milli > 1000:
        for _ in range(failures - 1):
            if delay >= most or delay == 0:
                break
            delay = max(delay + 1, delay * retry.factor_milli // 1000)
    return delay


def is_permanent(retry: Retry, detail: EndDetail | None) -> bool:
    """Whether a failure is not worth another attempt, by the action's word or the task's rules."""
    return detail is not None and (
        detail.permanent
        or (detail.exit_code is not None and detail.exit_code in retry.permanent_exit_codes)
        or (detail.exception is not None and _is_named(detail.exception, retry.permanent_exceptions))
        or (detail.status is not None and detail.status in retry.permanent_statuses)
    )


def _is_named(exception: str, names: Sequence[str]) -> bool:
    """By its full name; one of Python's own also as it is shown, without its module."""
    return exception in names or exception.removeprefix(_PYTHONS_OWN) in names


def rest_ms(streak: int) -> int:
    """The wait before an instance of a service is replaced, after `streak` early ends in a row (from 1)."""
    return min(limits.SERVICE_REST_FIRST_MS << min(streak - 1, 16), limits.SERVICE_REST_MAX_MS)
