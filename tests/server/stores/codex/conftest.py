"""What tests of the Codex store are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from store_fixtures.codex.homes import CodexHome


@pytest.fixture
def home(tmp_path: Path) -> CodexHome:
    """A home without a session."""
    return CodexHome(tmp_path)
