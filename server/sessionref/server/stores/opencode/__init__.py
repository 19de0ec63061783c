"""Sessions of OpenCode: the databases of 1.x and 2.x and the JSON files before them, read only (agent-stores 6)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sessionref.server.store import SessionStore

__all__ = ("homes", "open_store")

_NAME: Final = "opencode"
_DATABASE: Final = "OPENCODE_DB"
_IN_MEMORY: Final = ":memory:"


def homes(environment: Mapping[str, str]) -> list[Path]:
    """The data folder, as the environment says or as of old; if none is there, the folder of the database it names."""
    given = environment.get("XDG_DATA_HOME")
    found = [Path(given).expanduser().absolute() / _NAME if given else Path.home() / ".local" / "share" / _NAME]
    if local := environment.get("LOCALAPPDATA"):
        found.append(Path(local).absolute() / _NAME)
    named = _named(environment, found[0])
    if named is not None and not any(home.exists() for home in found):
        found.append(named.parent)
    return found


def open_store(home: Path) -> SessionStore:
    """The store of a data folder; of the agent's own, with the database that the environment names, too."""
    from sessionref.server.stores.opencode.store import OpencodeStore

    return OpencodeStore(home, named=_named(os.environ, home) if _is_agents_own(home) else None)


def _is_agents_own(home: Path) -> bool:
    """Whether a data folder is the one that the agent uses, and no other that somebody has named."""
    try:
        return home in homes(os.environ)
    except RuntimeError:
        # A home directory of nobody.
        return False


def _named(environment: Mapping[str, str], home: Path) -> Path | None:
    """The database that the agent would use with that data folder, if it is told to use another than its own."""
    given = environment.get(_DATABASE)
    return home / given if given and given != _IN_MEMORY else None
