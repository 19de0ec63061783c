"""What tests of OpenCode's sessions are given."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A data folder that is not there yet."""
    return tmp_path / "opencode"
