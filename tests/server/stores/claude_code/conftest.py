"""What tests of the store of Claude Code's sessions are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from store_fixtures.claude_code import Fixture


@pytest.fixture
def home(tmp_path: Path) -> Fixture:
    """A home without a session."""
    made = Fixture(tmp_path / "home")
    made.create()
    return made
