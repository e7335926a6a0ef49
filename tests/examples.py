"""How many examples a property is given: a fifth in the quick suite, all of them with `--long`.

The same ones every time: what a run has shown, the next one shows again. `--hypothesis-profile fresh` looks where nobody has.
"""

from __future__ import annotations

from typing import Final

from hypothesis import HealthCheck, settings

USUAL: Final = 100
"""Of a property that says nothing."""


def register() -> None:
    # No timing is asserted: a machine with other work on it is no fault of a property.
    always = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
    settings.register_profile("quick", always, max_examples=USUAL // 5)
    settings.register_profile("long", always, max_examples=USUAL)
    settings.register_profile("fresh", always, max_examples=USUAL * 10, derandomize=False)
    settings.load_profile("quick")


def examples(count: int) -> int:
    """For the settings of a property that is worth more than the usual number, or costs too much for it."""
    return max(1, count * settings().max_examples // USUAL)
