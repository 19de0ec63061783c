"""Sessions of DeepSeek Harness (DSH): its folders, log files and event formats 0 to 4, read only."""

from __future__ import annotations

from sessionref.server.stores.dsh.layout import home_folder, project_key, session_segment
from sessionref.server.stores.dsh.store import DshStore
from sessionref.server.stores.limits import ReadingLimits

__all__ = ("DshStore", "ReadingLimits", "home_folder", "project_key", "session_segment")
