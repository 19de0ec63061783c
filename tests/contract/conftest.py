"""The transports that the contract suite runs over, each by its name."""

from __future__ import annotations

import pytest

from transport_doubles import KINDS, Kind


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """The transport."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=[kind for kind in KINDS if kind != "http"])
def lasting(request: pytest.FixtureRequest) -> Kind:
    """A transport whose connections carry many messages; over HTTP each is a connection of its own (contract 1)."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=["stdio", "unix", "tcp"])
def streaming(request: pytest.FixtureRequest) -> Kind:
    """A transport that is a byte stream."""
    return request.param  # type: ignore[no-any-return]
