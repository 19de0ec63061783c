"""What the tests of the protocol share: generated examples without deadlines, and a fail-safe against endless work."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says more about the machine than about the code.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

FAIL_SAFE_SECONDS = 30


@pytest.fixture
def fail_safe() -> Iterator[None]:
    """Not a measurement: what is linear ends long before this, what is quadratic would take many minutes."""

    def give_up(number: int, frame: object) -> None:
        raise AssertionError("the work grows faster than the input")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(FAIL_SAFE_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
