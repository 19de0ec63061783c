"""Where pi keeps sessions: the folder of all, and what a file's path says of the session in it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Final

from sessionref.protocol.jsontext import as_object
from sessionref.server.stores.folders import OpenFile
from sessionref.server.stores.folds import Log

__all__ = ("log_at", "sessions_folder")

SETTINGS_BYTES: Final = 1024 * 1024
"""The longest settings file that is looked into: real ones have a few hundred bytes."""

_SESSION: Final = re.compile(r"(?:[^/]+/)?[^/_]+_([^/]+)\.jsonl")
_SUBAGENT: Final = re.compile(r"(?:[^/]+/)?[^/_]+_([^/]+/[^/]+/run-[0-9]+)/session\.jsonl")


def sessions_folder(home: Path) -> Path:
    """The folder of sessions of an agent folder: that of its settings, else its own; or the folder itself."""
    named = _named_in_settings(home / "settings.json")
    if named is not None:
        return Path(home, os.path.expanduser(named))
    own = home / "sessions"
    return own if os.path.isdir(own) or not os.path.isdir(home) else home


def log_at(key: str) -> Log | None:
    """The session that a path below the folder of sessions is.

    Sub-agents' are three folders below their parent's, where one file is called as the other: they are told by it.
    """
    if match := _SESSION.fullmatch(key):
        return Log(key, match[1])
    if match := _SUBAGENT.fullmatch(key):
        return Log(key, match[1], is_subagent=True)
    return None


def _named_in_settings(path: Path) -> str | None:
    try:
        # Settings may lie behind a link, as people keep theirs; what is no file must not block.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with OpenFile(descriptor) as file:
            settings = as_object(json.loads(file.part(0, SETTINGS_BYTES)))
        named = (settings or {}).get("sessionDir")
        return named if isinstance(named, str) and named and b"\0" not in os.fsencode(named) else None
    except (OSError, ValueError, RecursionError):
        return None
