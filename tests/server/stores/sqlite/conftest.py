"""What tests of foreign databases are given."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sqlite_doubles import Writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home" / "a ?#%ü.db"


@pytest.fixture
def writer(path: Path) -> Iterator[Writer]:
    """An agent that has one row in the database, and it open; what it has written is in its log alone."""
    writer = Writer(path)
    writer.do("PRAGMA journal_mode = WAL", "CREATE TABLE said (text)", "INSERT INTO said VALUES ('first')")
    yield writer
    writer.kill()


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where private copies are made."""
    folder = tmp_path / "private"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder
