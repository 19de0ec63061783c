"""Where Qwen Code keeps sessions: the folders of a project, and what a path says of the session in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sessionref.server.stores.folders import Folder, folders_below
from sessionref.server.stores.folds import Log

__all__ = ("PROJECTS", "log_at", "log_folders")

PROJECTS: Final = "projects"
_LEGACY: Final = "tmp"
_CHATS: Final = ("chats", "chats/archive")
_SUBAGENTS: Final = "subagents"

_SESSION: Final = re.compile(
    rf"(?:{PROJECTS}/[^/]+/(?:{'|'.join(_CHATS)})|{_LEGACY}/[^/]+/chats)/([0-9A-Fa-f-]{{32,36}})\.jsonl"
)
"""Only logs are called by an id alone: what else is noted of a session has more of a name."""

_SUBAGENT: Final = re.compile(rf"{PROJECTS}/[^/]+/{_SUBAGENTS}/([^/]+/agent-[^/]+)\.jsonl")


def log_folders(home: Folder) -> Iterator[str]:
    """The folders that may hold logs: of each project its sessions', the archived ones', and those of sub-agents.

    Those that all of them lie in hold none. But where they are closed to us, or links, that shows in them alone.
    """
    yield from (PROJECTS, _LEGACY)
    for project in folders_below(home, PROJECTS, 1):
        yield from (f"{project}/{name}" for name in _CHATS)
        yield f"{project}/{_SUBAGENTS}"
        yield from folders_below(home, f"{project}/{_SUBAGENTS}", 1)
    yield from (f"{project}/chats" for project in folders_below(home, _LEGACY, 1))


def log_at(key: str) -> Log | None:
    """The session that a path below the home is; a sub-agent's is told by its parent's id, too."""
    if match := _SESSION.fullmatch(key):
        return Log(key, match[1])
    if match := _SUBAGENT.fullmatch(key):
        return Log(key, match[1], is_subagent=True)
    return None
