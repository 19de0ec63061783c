"""What every test gets: asyncio as the backend, and an event loop that this package may not block."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import HealthCheck, settings

settings.register_profile(
    "unhurried",
    # How long an example takes says more about the machine than about the code.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # Before a change lands it is judged by the same examples each time; new ones are looked for everywhere else.
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("unhurried")


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of all async tests."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_blocking_call_on_the_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail an async test when code of this package blocks its event loop (`engineering.md` A.1)."""
    if "anyio_backend" not in request.fixturenames:
        yield
        return
    with blockbuster_ctx("sessionref") as detector:
        # The descriptor was waited for: it is readable, blocking or not.
        detector.functions["os.read"].can_block_in("sessionref/server/transports/stdio.py", "receive_some")
        yield
