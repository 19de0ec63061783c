"""The store of DSH sessions: lists the logs of one home and captures one of them, read only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import (
    Capture,
    CheckCancelled,
    Lesson,
    Listing,
    SavedCapture,
    SessionHeader,
)
from sessionref.server.stores.agent import list_by_learning, nothing_saved
from sessionref.server.stores.dsh.layout import SEGMENT_BYTES, session_segment
from sessionref.server.stores.dsh.sessions import (
    Place,
    has_stamp,
    is_session_at,
    places_of,
    project_folders,
    session_names,
)
from sessionref.server.stores.folders import Folder
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.problems import Unreadable, failures_of

__all__ = ("DshStore",)


class DshStore:
    """The sessions below one DSH home; a CataloguedStore. Nothing is written, locked or kept open.

    A session's key is the names of its two folders, its group the first of them.
    """

    lists_subagents = True
    """DSH itself lists the sessions of its sub-agents."""

    groups_tell_all = False
    """Logs grow without a trace in their folders."""

    def __init__(self, root: Path, *, kind: str = "dsh", limits: ReadingLimits | None = None) -> None:
        self.kind = kind
        self._sessions = root / "sessions"
        self._limits = limits or ReadingLimits()

    @property
    def location(self) -> str:
        """The sessions folder, links resolved."""
        return os.path.realpath(self._sessions)

    def list_sessions(self, check: CheckCancelled) -> Listing:
        """List every session with its title; a home without sessions is an empty list.

        Raises SessionReferenceError READ_FAILED if the sessions folder cannot be read.
        """
        return list_by_learning(self, check)

    def capture(self, session_id: str, check: CheckCancelled) -> Capture:
        """Read one session once. Raises SessionReferenceError READ_FAILED with its reason."""
        return self.capture_again(session_id, nothing_saved, check).capture

    def exists(self) -> bool:
        """Whether there is a sessions folder."""
        return self._sessions.is_dir()

    def groups(self) -> dict[str, int]:
        """The project folders with the time of their last change in ns.

        Raises SessionReferenceError READ_FAILED if the sessions folder cannot be read.
        """
        with failures_of(None):
            try:
                root = self._open_root()
            except FileNotFoundError:
                return {}
            with root:
                return {name: facts.st_mtime_ns for name, facts in project_folders(root)}

    def keys(self, group: str, check: CheckCancelled) -> list[str]:
        """The keys of all folders and links in a project. Raises SessionReferenceError READ_FAILED."""
        with failures_of(None), self._open_root() as root, root.folder(group) as project:
            check()
            return [f"{group}/{segment}" for segment in session_names(project)]

    def identity(self, key: str, header: SessionHeader | None) -> str:
        """The folder name of the session id."""
        return _place(key).segment

    def changed(self, stamps: Mapping[str, bytes], check: CheckCancelled) -> Iterator[str]:
        """The keys whose logs no longer have these stamps, be they changed or gone."""
        with failures_of(None):
            try:
                root = self._open_root()
            except FileNotFoundError:
                yield from stamps
                return
            with root:
                for key, stamp in stamps.items():
                    check()
                    if not has_stamp(root, key, stamp):
                        yield key

    def learn(self, key: str, known: Lesson | None, check: CheckCancelled, *, with_title: bool) -> Lesson | None:
        """Learn a session's row, the labels from where the known lesson ended; None if there is no session.

        Raises SessionReferenceError READ_FAILED with the reason for which it cannot be listed.
        """
        from sessionref.server.stores.dsh.reading import learn_labels

        place = _place(key)
        with failures_of(None), self._open_root() as root:
            try:
                return learn_labels(root, place, known, self._limits, check, with_title=with_title)
            except (OSError, Unreadable):
                if is_session_at(root, place):
                    raise
                # It vanished meanwhile, which is no problem.
                return None

    def capture_again(
        self, session_id: str, saved_state: Callable[[str], bytes | None], check: CheckCancelled
    ) -> SavedCapture:
        """Read one session once, behind the state that was saved for it if that still holds.

        Raises SessionReferenceError READ_FAILED with its reason.
        """
        from sessionref.server.stores.dsh.reading import capture_log

        segment = session_segment(session_id) if session_id else ""
        with failures_of(session_id):
            if not 0 < len(segment) <= SEGMENT_BYTES:
                raise Unreadable(ReadFailedReason.NOT_FOUND)
            with self._open_root() as root:
                places = places_of(root, segment, check)
                if len(places) != 1:
                    raise Unreadable(ReadFailedReason.DUPLICATE_ID if places else ReadFailedReason.NOT_FOUND)
                key = f"{places[0].project}/{places[0].segment}"
                return capture_log(root, places[0], session_id, saved_state(key), self._limits, check)

    def watched_folders(self) -> list[Path]:
        """The sessions folder, where it exists."""
        return [self._sessions] if self._sessions.is_dir() else []

    def key_of(self, path: Path) -> str | None:
        """The key of the session folder that a path is in or names."""
        for root in (self._sessions, Path(self.location)):
            if path.is_relative_to(root):
                parts = path.relative_to(root).parts
                return "/".join(parts[:2]) if len(parts) > 1 else None
        return None

    def _open_root(self) -> Folder:
        try:
            return Folder.root(self._sessions)
        except NotADirectoryError:
            # Below the root this means that the root would be left; here, that there is none.
            raise Unreadable(ReadFailedReason.IO) from None


def _place(key: str) -> Place:
    project, _, segment = key.partition("/")
    return Place(project, segment)
