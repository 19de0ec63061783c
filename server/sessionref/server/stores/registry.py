"""The kinds of stores that `--store KIND[:PATH]` can name; a new kind is a module and a line here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol, cast

from sessionref.protocol.errors import invalid_config
from sessionref.server.store import SessionStore

__all__ = ("AUTO", "DEFAULT_STORES", "STORE_KINDS", "open_stores")

AUTO: Final = "auto"
"""Names every store that is found on this machine, in the order of the kinds."""

SAMPLE: Final = "sample"
"""Ships with the package: nobody had these sessions, so they are shown only to whoever names them."""

DEFAULT_STORES: Final = ("dsh",)

STORE_KINDS: Final[dict[str, str]] = {
    "dsh": "sessionref.server.stores.dsh",
    "claude-code": "sessionref.server.stores.claude_code",
    "codex": "sessionref.server.stores.codex",
    "opencode": "sessionref.server.stores.opencode",
    "copilot-cli": "sessionref.server.stores.copilot_cli",
    "pi": "sessionref.server.stores.pi",
    "qwen-code": "sessionref.server.stores.qwen_code",
    SAMPLE: "sessionref.server.stores.sample",
}
"""The module of each kind, imported when it is named; light, so that looking for a store costs next to nothing."""


class StoreModule(Protocol):
    """What the module of a kind offers."""

    def homes(self, environment: Mapping[str, str]) -> Sequence[Path]:
        """Where the agent's homes are, be they there or not: as the environment says, the most important first."""
        ...

    def open_store(self, home: Path) -> SessionStore:
        """Make the store of a home; reads nothing yet. Raises SessionReferenceError INVALID_CONFIG."""
        ...


def open_stores(named: Sequence[str], environment: Mapping[str, str]) -> list[SessionStore]:
    """Open stores by their `KIND` or `KIND:PATH`, in order, or `auto`; none named means DSH's.

    Raises SessionReferenceError INVALID_CONFIG for an unknown kind, an empty path, or one in nobody's home directory.
    """
    stores: list[SessionStore] = []
    for name in named or DEFAULT_STORES:
        if name == AUTO:
            stores += _found(environment)
            continue
        kind, colon, path = name.partition(":")
        if kind not in STORE_KINDS:
            raise invalid_config("the kind of a store", f"{AUTO} or one of {', '.join(STORE_KINDS)}", "--store")
        if colon and not path:
            raise invalid_config("the path of a store", "given after the colon", "--store")
        try:
            stores.append(_opened(kind, path, environment))
        except RuntimeError:
            raise invalid_config("the path of a store", "in a home directory that is known", "--store") from None
    return stores


def _opened(kind: str, path: str, environment: Mapping[str, str]) -> SessionStore:
    """The store at a path, or of the first home that there is. Raises RuntimeError for a home directory of nobody."""
    module = _module(kind)
    if path:
        return module.open_store(Path(path).expanduser().absolute())
    homes = module.homes(environment)
    return module.open_store(next(filter(os.path.exists, homes), homes[0]))


def _found(environment: Mapping[str, str]) -> list[SessionStore]:
    """Every store that there is; DSH's where there is none, so that somebody says so."""
    found: list[SessionStore] = []
    for module in (_module(kind) for kind in STORE_KINDS if kind != SAMPLE):
        # A variable that names a home directory of nobody names no store.
        with suppress(RuntimeError):
            found += [module.open_store(home) for home in module.homes(environment) if os.path.exists(home)]
    return found or open_stores(DEFAULT_STORES, environment)


def _module(kind: str) -> StoreModule:
    return cast("StoreModule", import_module(STORE_KINDS[kind]))
