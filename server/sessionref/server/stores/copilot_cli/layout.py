"""Where Copilot CLI keeps sessions, and has kept them: what a path says of the session in it."""

from __future__ import annotations

import re
from typing import Final

from sessionref.server.stores.folds import Log

__all__ = ("EVENTS", "FOLDERS", "SUFFIX", "WORKSPACE", "log_at", "newer_places", "workspace_of")

FOLDERS: Final = ("session-state", "history-session-state")
"""The folders of sessions, the one in use first."""

EVENTS: Final = "events.jsonl"
"""The log in the folder of a session."""

WORKSPACE: Final = "workspace.yaml"
"""What the agent notes of the session, beside its log."""

SUFFIX: Final = ".jsonl"
"""How logs end that have no folder of their own."""

_FOLDER: Final = re.compile(rf"(?:{'|'.join(FOLDERS)})/([^/]+)/{re.escape(EVENTS)}")
_FILE: Final = re.compile(rf"(?:{'|'.join(FOLDERS)})/([^/]+){re.escape(SUFFIX)}")


def log_at(key: str) -> Log | None:
    """The session that a path below the home is: a folder's log, or a log alone as before 0.0.342."""
    match = _FOLDER.fullmatch(key) or _FILE.fullmatch(key)
    return Log(key, match[1]) if match else None


def newer_places(log: Log) -> list[Log]:
    """Where the session is if an update has moved it: the older place is left as it was."""
    places = [
        place
        for folder in FOLDERS
        for place in (f"{folder}/{log.native_id}/{EVENTS}", f"{folder}/{log.native_id}{SUFFIX}")
    ]
    return [Log(place, log.native_id) for place in places[: places.index(log.key)]]


def workspace_of(log: Log) -> str | None:
    """The path of what the agent notes beside a log; None for a log alone."""
    folder, _, name = log.key.rpartition("/")
    return f"{folder}/{WORKSPACE}" if name == EVENTS and folder not in FOLDERS else None
