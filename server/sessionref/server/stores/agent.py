"""What the stores of all agents but DSH have in common: ids with the kind in front, and listing by learning."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Final

from sessionref.protocol.errors import ReadFailedReason, SessionReferenceError
from sessionref.server.printable import printable
from sessionref.server.store import (
    Capture,
    CataloguedStore,
    CheckCancelled,
    Listing,
    SessionHeader,
    Unlisted,
)
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.problems import Unreadable

__all__ = ("AgentStore", "first_line", "list_by_learning", "nothing_saved")

TITLE_CHARACTERS: Final = 400
"""What is kept of a prompt as a title: labels show 80 of what is left of it once it is cleaned."""


class AgentStore:
    """The part of a CataloguedStore that is the same for every agent; `kind` and its home folder make it one."""

    kind: str

    lists_subagents: bool = False
    """Agents hide the sessions that their sub-agents had."""

    groups_tell_all: bool = False
    """Logs grow without a trace in their folders."""

    def __init__(self, home: Path, *, limits: ReadingLimits | None = None) -> None:
        self.home = home
        self.limits = limits or ReadingLimits()

    @property
    def location(self) -> str:
        """The agent's home, links resolved."""
        return os.path.realpath(self.home)

    def exists(self) -> bool:
        """Whether the agent has a home here."""
        return os.path.isdir(self.home)

    def list_sessions(self: CataloguedStore, check: CheckCancelled) -> Listing:
        """List every session with its title. Raises SessionReferenceError READ_FAILED."""
        return list_by_learning(self, check)

    def capture(self: CataloguedStore, session_id: str, check: CheckCancelled) -> Capture:
        """Read one session once. Raises SessionReferenceError READ_FAILED with its reason."""
        return self.capture_again(session_id, nothing_saved, check).capture

    def session_id(self, native_id: str) -> str:
        """The id under which the agent's own id is known here."""
        return f"{self.kind}:{native_id}"

    def native_id(self, session_id: str) -> str:
        """The agent's own id. Raises Unreadable (not-found) for an id of another kind."""
        kind, _, native_id = session_id.partition(":")
        if kind != self.kind or not native_id:
            raise Unreadable(ReadFailedReason.NOT_FOUND)
        return native_id


def list_by_learning(store: CataloguedStore, check: CheckCancelled) -> Listing:
    """List a store by learning every session of it anew; one that cannot be read costs its own row only.

    Raises SessionReferenceError READ_FAILED if the store as a whole cannot be read.
    """
    found: dict[str, list[str]] = defaultdict(list)
    rows: dict[str, SessionHeader] = {}
    problems: dict[str, str] = {}
    for group in store.groups():
        try:
            keys = store.keys(group, check)
        except SessionReferenceError as failure:
            problems[group] = str(failure.reason)
            continue
        for key in keys:
            check()
            header: SessionHeader | None = None
            try:
                lesson = store.learn(key, None, check, with_title=True)
            except SessionReferenceError as failure:
                problems[key] = str(failure.reason)
            else:
                if lesson is None:
                    continue
                header = rows[key] = lesson.header
            found[store.identity(key, header)].append(key)
    for keys in found.values():
        if len(keys) > 1:
            problems |= dict.fromkeys(keys, str(ReadFailedReason.DUPLICATE_ID))
    listed = [row for key, row in rows.items() if key not in problems]
    return Listing(listed, [Unlisted(printable(key), reason) for key, reason in problems.items()])


def nothing_saved(key: str) -> None:
    """The state of a session that nobody has saved."""
    return


def first_line(text: str) -> str | None:
    """The first line of a prompt that holds anything, as a title; None for a blank text."""
    stripped = text.lstrip()
    return stripped[:TITLE_CHARACTERS].splitlines()[0].strip() if stripped else None
