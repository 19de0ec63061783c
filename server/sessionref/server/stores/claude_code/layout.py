"""Where Claude Code keeps sessions, and what a file's path says of the session in it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ("PROJECTS", "SUBAGENTS", "Place", "is_project", "is_subagent_stem", "place_of")

PROJECTS: Final = "projects"
"""The folder of the home with a folder for each working directory, which may be links."""

SUBAGENTS: Final = "subagents"
"""The folder of a session in which its sub-agents' logs are."""

_SESSION: Final = re.compile(rf"{PROJECTS}/([^/]+)/([^/]+)\.jsonl")
_NESTED: Final = re.compile(rf"{PROJECTS}/[^/]+/([^/]+)/{SUBAGENTS}/(agent-[^/]+)\.jsonl")
_SUBAGENT: Final = re.compile(r"agent-[^/]+")


class Place(NamedTuple):
    """A log by its path: the folder that it is named after, its stem, and whose it is.

    `owner` is the parent's id of a sub-agent in its parent's folder, the project's folder of any other log.
    """

    owner: str
    stem: str
    is_subagent: bool
    is_flat: bool


def place_of(key: str) -> Place | None:
    """The place that a path below the home is; None if no log can be there."""
    if match := _NESTED.fullmatch(key):
        return Place(match[1], match[2], is_subagent=True, is_flat=False)
    if match := _SESSION.fullmatch(key):
        return Place(match[1], match[2], is_subagent=is_subagent_stem(match[2]), is_flat=True)
    return None


def is_project(folder: str) -> bool:
    """Whether a folder of logs is a project's, and not that of a session's sub-agents."""
    return folder.count("/") == 1


def is_subagent_stem(stem: str) -> bool:
    """Whether a file of that stem is a sub-agent's log, wherever it is."""
    return _SUBAGENT.fullmatch(stem) is not None
