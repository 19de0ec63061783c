"""How many serialised bytes one reference may take: settings, assembled routes and the model catalogue (section 4)."""

from __future__ import annotations

import hashlib
import logging
import math
from collections import OrderedDict
from pathlib import Path
from typing import Final

import msgspec

from sessionref.protocol.errors import ReadFailedReason, read_failed
from sessionref.protocol.methods import Route
from sessionref.server.files import open_plain_file

__all__ = ("DEFAULT_BUDGET_BYTES", "ModelCatalogue", "RouteMemory", "budget_bytes")

logger = logging.getLogger(__name__)

DEFAULT_BUDGET_BYTES: Final = 65_536
"""Bytes a reference without a known model, and the least that a model's window gives."""

BYTES_PER_TOKEN: Final = 4
REMEMBERED_AGENTS: Final = 1024
"""Agents whose last route is kept; a host that runs more at once names the route in its call."""

MAX_CONTEXT_WINDOW: Final = 100_000_000
"""Tokens; what a route may name, too."""

MAX_NAME_CHARACTERS: Final = 1024
"""Characters of a provider, a model or an agent id that are remembered as they are."""

MAX_CATALOGUE_BYTES: Final = 16_777_216
"""A catalogue is a page or two; what is larger is some other file."""


class RouteMemory:
    """The last assembled route of each agent, the least recently assembled forgotten first."""

    def __init__(self) -> None:
        self._routes: OrderedDict[str, Route] = OrderedDict()

    def remember(self, agent_id: str, route: Route) -> None:
        """Take the route of a prompt that was assembled just now; an empty one counts too."""
        key = _bounded(agent_id)
        if len(route.provider or "") > MAX_NAME_CHARACTERS or len(route.model or "") > MAX_NAME_CHARACTERS:
            # No catalogue has such names; a route that is not known is remembered as well.
            route = Route(context_window=route.context_window)
        self._routes[key] = route
        self._routes.move_to_end(key)
        if len(self._routes) > REMEMBERED_AGENTS:
            self._routes.popitem(last=False)

    def route_of(self, agent_id: str) -> Route | None:
        """The agent's last assembled route, if one is remembered."""
        return self._routes.get(_bounded(agent_id))


def _bounded(agent_id: str) -> str:
    """The agent's id, or a digest of one that nobody would want to keep."""
    if len(agent_id) <= MAX_NAME_CHARACTERS:
        return agent_id
    return hashlib.sha256(agent_id.encode("utf-8", "surrogatepass")).hexdigest()


class _Model(msgspec.Struct, frozen=True, rename="camel"):
    provider: str
    model: str
    context_window: int | float | None = None

    def __post_init__(self) -> None:
        window = self.context_window
        if window is not None and (not 1 <= window <= MAX_CONTEXT_WINDOW or window != int(window)):
            raise ValueError("a window is a whole number of tokens")


class _Catalogue(msgspec.Struct, frozen=True):
    models: list[_Model] = []


class ModelCatalogue:
    """Context windows by provider and model, from a TOML file of `[[models]]` that is read when first needed."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._windows: dict[tuple[str, str], int | None] | None = None

    @property
    def is_configured(self) -> bool:
        """Whether there is a file to ask."""
        return self._path is not None

    def context_window(self, provider: str, model: str) -> int | None:
        """Tokens of the model's window, None if it is not known; reads the file, so not for the event loop.

        Raises SessionReferenceError READ_FAILED with reason `model-lookup` if the file is missing or malformed.
        """
        if self._path is None:
            return None
        if self._windows is None:
            self._windows = _read_catalogue(self._path)
        return self._windows.get((provider, model))


def _read_catalogue(path: Path) -> dict[tuple[str, str], int | None]:
    import tomllib

    try:
        with open_plain_file(path) as file:
            content = file.read(MAX_CATALOGUE_BYTES + 1)
        if len(content) > MAX_CATALOGUE_BYTES:
            raise ValueError("too large")
        catalogue = msgspec.convert(tomllib.loads(content.decode()), _Catalogue)
    except (OSError, ValueError, RecursionError) as error:
        # The peer is told the reason alone: the path, and what tomllib and msgspec quote, are for the log.
        logger.warning("the model catalogue %s could not be read: %s", path, error)
        raise read_failed(ReadFailedReason.MODEL_LOOKUP) from None
    return {
        (row.provider, row.model): None if row.context_window is None else int(row.context_window)
        for row in catalogue.models
    }


def budget_bytes(context_window: int | None, fraction: float) -> int:
    """Serialised bytes a reference for a model's window in tokens; the default if the window is not known."""
    if context_window is None:
        return DEFAULT_BUDGET_BYTES
    return max(DEFAULT_BUDGET_BYTES, math.floor(context_window * BYTES_PER_TOKEN * fraction))
