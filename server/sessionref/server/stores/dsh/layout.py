"""Where DSH keeps a session: its home, the two folder names of a log, and the names of the log itself.

Folder names are made of UTF-16 units, as JavaScript counts them (dsh-format section 1).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from sessionref.protocol.errors import ReadFailedReason
from sessionref.protocol.mention import directory_segment
from sessionref.server.stores.problems import Unreadable, corrupt

__all__ = (
    "NEWEST_VERSION",
    "SEGMENT_BYTES",
    "LogName",
    "choose_log",
    "home_folder",
    "project_key",
    "session_segment",
)

NEWEST_VERSION: Final = 4
"""The newest format that this store knows."""

SEGMENT_BYTES: Final = 255
"""The longest file name of common file systems; a longer segment cannot exist."""

_PROJECT_CHARACTERS: Final = 251
"""What DSH keeps of a working directory, so that the key with its four dashes is a file name."""

_NO_WORKING_DIRECTORY: Final = "_no-cwd"
_SEPARATORS: Final = re.compile(r"[/\\:]+")
_LOG_NAME: Final = re.compile(r"session(?:\.v([1-9][0-9]*))?\.jsonl(\.zstd)?")


class LogName(NamedTuple):
    """A canonical log file name: its format generation, and whether it is zstd."""

    version: int
    compressed: bool
    name: str


def home_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The DSH home: `$DSH_HOME` unless blank, else `~/.dsh`; absolute and normalised (dsh-format section 1.1)."""
    given = environment.get("DSH_HOME", "")
    if not given.strip():
        return Path.home() / ".dsh"
    if given == "~" or given.startswith(("~/", "~\\")):
        given = str(Path.home() / given[2:])
    return Path(os.path.abspath(given))


def project_key(cwd: str | None) -> str:
    """The folder name of a working directory; not injective. Raises ValueError for an empty one."""
    if cwd is None:
        return _NO_WORKING_DIRECTORY
    if not cwd:
        raise ValueError("a working directory is never empty")
    # The dash in front keeps "." and ".." literal, as they are here, and goes again with the others.
    key = directory_segment("-" + _SEPARATORS.sub("-", cwd)).lstrip("-") or "root"
    return f"--{key[:_PROJECT_CHARACTERS]}--"


def session_segment(session_id: str) -> str:
    """The folder name of a session id; injective, and never a path. Raises ValueError for an empty id."""
    if not session_id:
        raise ValueError("a stored session id is never empty")
    return directory_segment(session_id)


def choose_log(names: Iterable[str]) -> LogName | None:
    """The authoritative log among the names in a session's folder, None where there is none.

    Raises Unreadable: corrupt for the highest generation in both encodings, newer-format for an unknown generation.
    """
    matches = [match for match in map(_LOG_NAME.fullmatch, names) if match]
    logs = [LogName(int(match[1] or 0), match[2] is not None, match[0]) for match in matches]
    if not logs:
        return None
    highest = max(logs)
    if highest.version > NEWEST_VERSION:
        raise Unreadable(ReadFailedReason.NEWER_FORMAT)
    if sum(log.version == highest.version for log in logs) > 1:
        raise corrupt()
    return highest
