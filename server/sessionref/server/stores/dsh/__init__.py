"""Sessions of DeepSeek Harness (DSH): its folders, log files and event formats 0 to 4, read only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sessionref.server.stores.dsh.layout import home_folder, project_key, session_segment
from sessionref.server.stores.dsh.store import DshStore
from sessionref.server.stores.limits import ReadingLimits

__all__ = ("DshStore", "ReadingLimits", "home_folder", "homes", "open_store", "project_key", "session_segment")


def homes(environment: Mapping[str, str]) -> list[Path]:
    """`$DSH_HOME`, else `~/.dsh`."""
    return [home_folder(environment)]


def open_store(home: Path) -> DshStore:
    """The store of a DSH home."""
    return DshStore(home)
