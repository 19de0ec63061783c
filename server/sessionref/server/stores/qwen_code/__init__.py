"""Sessions of Qwen Code: its own logs and those of its sub-agents, read only (agent-stores section 9.3)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sessionref.server.store import SessionStore

__all__ = ("homes", "open_store")

_VARIABLES: Final = ("QWEN_RUNTIME_DIR", "QWEN_HOME", "QWEN_DATA_DIR")
"""What may name the folder, in the agent's order; the last is known to other readers alone."""


def homes(environment: Mapping[str, str]) -> list[Path]:
    """The folder that the environment names, else the user's."""
    given = next((environment[name] for name in _VARIABLES if environment.get(name)), None)
    return [Path(given).expanduser().absolute() if given else Path.home() / ".qwen"]


def open_store(home: Path) -> SessionStore:
    """The store of a folder."""
    from sessionref.server.stores.qwen_code.store import QwenCodeStore

    return QwenCodeStore(home)
