"""Sessions of Claude Code: logs of 1.0 to 2.1 and what came since, read only (agent-stores section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sessionref.server.store import SessionStore

__all__ = ("homes", "open_store")

_DEFAULT_HOME: Final = ".claude"


def homes(environment: Mapping[str, str]) -> list[Path]:
    """The configuration folder that the environment names, else the one in the person's home."""
    given = environment.get("CLAUDE_CONFIG_DIR")
    return [Path(given).expanduser().absolute() if given else Path.home() / _DEFAULT_HOME]


def open_store(home: Path) -> SessionStore:
    """The store of a configuration folder."""
    from sessionref.server.stores.claude_code.store import ClaudeCodeStore

    return ClaudeCodeStore(home)
