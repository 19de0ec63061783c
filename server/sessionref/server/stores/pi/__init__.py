"""Sessions of pi and of oh-my-pi: session format versions 1 to 3, read only (agent-stores section 8)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sessionref.server.store import SessionStore

__all__ = ("homes", "open_store")

_DEFAULT_HOMES: Final = (".pi/agent", ".omp/agent")


def homes(environment: Mapping[str, str]) -> list[Path]:
    """The sessions folder or the agent folder that the environment names, else those of pi and oh-my-pi."""
    for name in ("PI_CODING_AGENT_SESSION_DIR", "PI_CODING_AGENT_DIR"):
        if given := environment.get(name):
            return [Path(given).expanduser().absolute()]
    return [Path.home() / folder for folder in _DEFAULT_HOMES]


def open_store(home: Path) -> SessionStore:
    """The store of an agent folder, or of a folder of sessions."""
    from sessionref.server.stores.pi.store import PiStore

    return PiStore(home)
