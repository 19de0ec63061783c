"""The kinds of stores that `--store KIND[:PATH]` can name; a new kind is a module and a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from sessionref.protocol.errors import invalid_config
from sessionref.server.store import SessionStore

__all__ = ("DEFAULT_STORES", "STORE_KINDS", "open_stores")

DEFAULT_STORES: Final = ("dsh",)

OpenStore = Callable[[Path | None, Mapping[str, str]], SessionStore]
"""Makes a store from the path that was named, if one was, and the environment; reads nothing yet."""


def _dsh(path: Path | None, environment: Mapping[str, str]) -> SessionStore:
    from sessionref.server.stores.dsh import DshStore, home_folder

    return DshStore(path or home_folder(environment))


def _sample(path: Path | None, environment: Mapping[str, str]) -> SessionStore:
    from sessionref.server.stores.dsh import DshStore

    if path is not None:
        raise invalid_config("store sample", "named without a path; it ships with the package", "--store")
    return DshStore(Path(__file__).parent / "sample", kind="sample")


STORE_KINDS: Final[dict[str, OpenStore]] = {"dsh": _dsh, "sample": _sample}


def open_stores(named: Sequence[str], environment: Mapping[str, str]) -> list[SessionStore]:
    """Open stores by their `KIND` or `KIND:PATH`, in order; none named means DSH's.

    Raises SessionReferenceError INVALID_CONFIG for an unknown kind or an empty path.
    """
    stores: list[SessionStore] = []
    for name in named or DEFAULT_STORES:
        kind, colon, path = name.partition(":")
        if kind not in STORE_KINDS:
            raise invalid_config("the kind of a store", f"one of {', '.join(STORE_KINDS)}", "--store")
        if colon and not path:
            raise invalid_config("the path of a store", "given after the colon", "--store")
        stores.append(STORE_KINDS[kind](Path(path).expanduser().absolute() if path else None, environment))
    return stores
