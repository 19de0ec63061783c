"""Sessions of GitHub Copilot CLI: event format version 1, read only (agent-stores section 7)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sessionref.server.store import SessionStore

__all__ = ("homes", "open_store")


def homes(environment: Mapping[str, str]) -> list[Path]:
    """The folder that the environment names, else the user's; then the one that editors may keep for it."""
    given = environment.get("COPILOT_HOME")
    found = [Path(given).expanduser().absolute() if given else Path.home() / ".copilot"]
    if state := environment.get("XDG_STATE_HOME"):
        found.append(Path(state, ".copilot").expanduser().absolute())
    return list(dict.fromkeys(found))


def open_store(home: Path) -> SessionStore:
    """The store of a folder."""
    from sessionref.server.stores.copilot_cli.store import CopilotCliStore

    return CopilotCliStore(home)
