"""The sessions that ship with the package: a small home of DSH, to try sessionref with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sessionref.protocol.errors import invalid_config
from sessionref.server.store import SessionStore

__all__ = ("homes", "open_store")

_HOME: Final = Path(__file__).parent


def homes(environment: Mapping[str, str]) -> list[Path]:
    """The folder in the package."""
    return [_HOME]


def open_store(home: Path) -> SessionStore:
    """Open the store. Raises SessionReferenceError INVALID_CONFIG for another folder."""
    from sessionref.server.stores.dsh import DshStore

    if home != _HOME:
        raise invalid_config("store sample", "named without a path; it ships with the package", "--store")
    return DshStore(home, kind="sample")
