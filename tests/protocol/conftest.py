"""What the tests of the protocol share: a fail-safe against endless work."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

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
