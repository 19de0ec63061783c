"""What tests of every kind of store are given."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from store_fixtures import StoreFixture, open_fixture


@pytest.fixture
def agent(kind: str, tmp_path: Path) -> StoreFixture:
    """An agent of the kind that the test is run for; its home is not there yet."""
    return open_fixture(kind, tmp_path / "secret-place")


@pytest.fixture
def bytes_read_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], int]:
    """Counts the bytes that an action reads."""
    total, really_read = 0, os.read

    def counted(descriptor: int, length: int, /) -> bytes:
        nonlocal total
        data = really_read(descriptor, length)
        total += len(data)
        return data

    def measure(action: Callable[[], object]) -> int:
        before = total
        action()
        return total - before

    monkeypatch.setattr(os, "read", counted)
    return measure
