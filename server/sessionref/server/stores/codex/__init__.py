"""Sessions of OpenAI Codex (CLI, desktop, IDE): rollout files to version 0.171, read only (agent-stores section 5)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sessionref.server.store import SessionStore

__all__ = ("homes", "open_store")


def homes(environment: Mapping[str, str]) -> list[Path]:
    """The folder that the environment names, else the user's."""
    given = environment.get("CODEX_HOME")
    return [Path(given).expanduser().absolute() if given else Path.home() / ".codex"]


def open_store(home: Path) -> SessionStore:
    """The store of a folder; the environment may name another one for its databases."""
    from sessionref.server.stores.codex.store import CodexStore

    given = os.environ.get("CODEX_SQLITE_HOME")
    return CodexStore(home, database_home=Path(given).absolute() if given else None)
