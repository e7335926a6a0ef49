"""How long a task waits for its next attempt."""

from __future__ import annotations

import msgspec
import pytest

from quvatlh.core import limits
from quvatlh.core.backoff import delay_ms
from quvatlh.core.limits import DAY_MS, HOUR_MS
from quvatlh.core.model import Retry


@pytest.mark.parametrize(
    ("retry", "delays"),
    [
        (Retry(first_ms=100, factor_milli=3000, max_ms=1000), [100, 300, 900, 1000, 1000]),
        (Retry(first_ms=100, backoff="linear", max_ms=250), [100, 200, 250, 250, 250]),
        (Retry(first_ms=100, backoff="constant"), [100] * 5),
        (Retry(delays_ms=(5, 50), backoff="list"), [5, 50, 50, 50, 50]),
        (Retry(delays_ms=(5, 50), backoff="list", max_ms=20), [5, 20, 20, 20, 20]),
        (Retry(delays_ms=(9, DAY_MS), backoff="list"), [9, DAY_MS, DAY_MS, DAY_MS, DAY_MS]),
        (Retry(first_ms=1_000_000), [1_000_000, 2_000_000, HOUR_MS, HOUR_MS, HOUR_MS]),
        (Retry(first_ms=1, factor_milli=1001, max_ms=4), [1, 2, 3, 4, 4]),
        (Retry(first_ms=0), [0] * 5),
    ],
)
def test_backoff_is_as_asked(retry: Retry, delays: list[int]) -> None:
    assert [delay_ms(retry, n, 2**31) for n in range(1, 6)] == delays
    assert delay_ms(retry, limits.ATTEMPTS_MAX, 2**31) == delays[-1]


def test_jitter_is_a_share_to_either_side() -> None:
    retry = Retry(first_ms=1000, jitter_permille=100)
    assert (delay_ms(retry, 1, 0), delay_ms(retry, 1, 2**31), delay_ms(retry, 1, 2**32 - 1)) == (900, 1000, 1099)


def test_jitter_makes_no_wait_longer_than_the_longest() -> None:
    for retry, most in (
        (Retry(first_ms=HOUR_MS), HOUR_MS),
        (Retry(first_ms=100, backoff="constant", max_ms=100, jitter_permille=1000), 100),
        (Retry(delays_ms=(100,), backoff="list", max_ms=100), 100),
    ):
        assert delay_ms(retry, 1, 2**32 - 1) == delay_ms(retry, 1, 2**31) == most > delay_ms(retry, 1, 0)


def test_a_retry_that_was_stored_before_a_list_had_a_longest_wait_reads_as_it_did() -> None:
    assert msgspec.json.decode('{"backoff":"list","delays_ms":[90000000]}', type=Retry).max_ms is None
    assert delay_ms(msgspec.json.decode("{}", type=Retry), limits.ATTEMPTS_MAX, 2**31) == HOUR_MS
