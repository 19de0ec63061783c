"""The JSON files in which OpenCode kept sessions before its databases, in two dialects (agent-stores section 6)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import CheckCancelled
from sessionref.server.stores.file_states import file_state
from sessionref.server.stores.folders import Folder, folders_below
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.opencode.conversation import Conversation
from sessionref.server.stores.opencode.records import Message, Part, SessionFile, Times, is_text
from sessionref.server.stores.opencode.sessions import Session, whole_number
from sessionref.server.stores.problems import Unreadable, corrupt, too_large
from sessionref.server.stores.records import RecordDecoder

__all__ = ("SESSIONS", "Tree", "stem_of")

SESSIONS: Final = "storage/session"
"""The folder below which sessions lie, in a folder for each project."""

_MESSAGES: Final = "storage/message"
_PARTS: Final = "storage/part"
_SUFFIX: Final = ".json"


class Dated(msgspec.Struct, frozen=True):
    """A message as far as its place among the others depends on it."""

    time: Times = Times()


class Tree:
    """The files below a data folder: one for each session, message and part. Thread-safe; raises OSError, Unreadable.

    A session's key is the path of its file. Its id is what the file says, or its name if that says nothing.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._ids: dict[str, tuple[bytes, str, int]] = {}

    def changed_ns(self) -> int:
        """When a session last came or went; 0 if there are none, or that cannot be told."""
        with Folder.root(self._home) as home:
            try:
                return max(home.facts(folder).st_mtime_ns for folder in (SESSIONS, *folders_below(home, SESSIONS, 1)))
            except OSError:
                return 0

    def places(self, limits: ReadingLimits, check: CheckCancelled) -> dict[str, str]:
        """The key of each id; of several files the one that was updated last. A folder that is none is its own key."""
        found: dict[str, tuple[int, str]] = {}
        with Folder.root(self._home) as home:
            try:
                with home.below(SESSIONS) as folder:
                    projects = [f"{SESSIONS}/{name}" for name in folder.folders_and_links()]
            except FileNotFoundError:
                return {}
            except (OSError, Unreadable):
                return {SESSIONS: SESSIONS}
            for project in projects:
                check()
                try:
                    with home.below(project) as folder:
                        names = [name for name in folder.names() if name.endswith(_SUFFIX)]
                        rows = [(*self._id_in(folder, project, name, limits), f"{project}/{name}") for name in names]
                except FileNotFoundError:
                    continue
                except (OSError, Unreadable):
                    rows = [(project, 0, project)]
                for native_id, updated_at, key in rows:
                    found[native_id] = max(found.get(native_id, (-1, "")), (updated_at, key))
        return {native_id: key for native_id, (_, key) in found.items()}

    def state(self, key: str) -> bytes:
        """What changes whenever a session's file does."""
        with Folder.root(self._home) as home:
            return file_state(home.facts(key))

    def session(self, key: str, limits: ReadingLimits) -> Session:
        """The session in a file."""
        place, _, name = key.rpartition("/")
        with Folder.root(self._home) as home, home.below(place) as folder:
            found = RecordDecoder(SessionFile, limits).decode(_content(folder, name, limits))
        if found is None or not found.id:
            raise corrupt()
        return Session(
            id=found.id,
            title=found.title,
            directory=found.directory,
            parent_id=found.parent_id,
            created_at=whole_number(found.time.created) or 0,
            updated_at=whole_number(found.time.updated),
            revert=found.revert,
        )

    def conversation(self, native_id: str, limits: ReadingLimits, check: CheckCancelled) -> Conversation:
        """A session's messages."""
        conversation = Conversation(limits)
        for message_id, message in self._messages(native_id, limits, check):
            conversation.add_message(message_id, message)
            for part_id, data in self._parts(message_id, limits, check):
                conversation.add_part(message_id, part_id, data)
        return conversation

    def prompts(self, session: Session, limits: ReadingLimits, check: CheckCancelled) -> Iterator[str]:
        """What was typed in a session, up to where that was taken back."""
        decoder = RecordDecoder(Part, limits)
        for message_id, message in self._messages(session.id, limits, check):
            if session.revert is not None and message_id == session.revert.message_id:
                return
            if message is None or (message.role or message.type) != "user":
                continue
            stored = (decoder.decode(data) for _, data in self._parts(message_id, limits, check))
            yield from (part.text for part in chain(message.parts, stored) if part is not None and is_text(part))

    def has_messages(self, native_id: str) -> bool:
        """Whether there are any messages of a session."""
        with Folder.root(self._home) as home:
            return bool(self._names(home, _MESSAGES, native_id))

    def _id_in(self, folder: Folder, project: str, name: str, limits: ReadingLimits) -> tuple[str, int]:
        key = f"{project}/{name}"
        try:
            state = file_state(folder.facts(name))
            known = self._ids.get(key)
            if known is None or known[0] != state:
                session = self.session(key, limits)
                known = self._ids[key] = (state, session.id, session.updated_at or 0)
            return known[1:]
        except (OSError, Unreadable):
            # It shows itself when the session is learnt.
            return stem_of(name), 0

    def _messages(
        self, native_id: str, limits: ReadingLimits, check: CheckCancelled
    ) -> Iterator[tuple[str, Message | None]]:
        """The messages in the order of their times, those without one behind that before them by name."""
        dates, messages = RecordDecoder(Dated, limits), RecordDecoder(Message, limits)
        with Folder.root(self._home) as home:
            names = self._names(home, _MESSAGES, native_id)
            if not names:
                return
            with home.below(f"{_MESSAGES}/{native_id}") as folder:
                order: list[tuple[float, str]] = []
                for name in names:
                    check()
                    dated = dates.decode(_content(folder, name, limits))
                    created = None if dated is None else dated.time.created
                    order.append((created if created is not None else order[-1][0] if order else 0, name))
                for _, name in sorted(order):
                    check()
                    message = messages.decode(_content(folder, name, limits))
                    yield (message.id if message and message.id else stem_of(name)), message

    def _parts(self, message_id: str, limits: ReadingLimits, check: CheckCancelled) -> Iterator[tuple[str, bytes]]:
        with Folder.root(self._home) as home:
            names = self._names(home, _PARTS, message_id)
            if not names:
                return
            with home.below(f"{_PARTS}/{message_id}") as folder:
                for name in names:
                    check()
                    yield stem_of(name), _content(folder, name, limits)

    def _names(self, home: Folder, place: str, name: str) -> list[str]:
        """The files in the folder of a session or message; none where there is no such folder."""
        if not _is_name(name):
            raise Unreadable(ReadFailedReason.OUTSIDE_ROOT)
        try:
            with home.below(f"{place}/{name}") as folder:
                return [name for name in folder.names() if name.endswith(_SUFFIX)]
        except FileNotFoundError:
            return []


def stem_of(key: str) -> str:
    """The name of a file without its folder and its ending, which is the id of what it holds as a rule."""
    return key.rpartition("/")[2].removesuffix(_SUFFIX)


def _is_name(text: str) -> bool:
    """Whether an id that a file holds can be the name of a folder, and nothing but that."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return text not in ("", ".", "..") and not any(character in text for character in "/\\\0")


def _content(folder: Folder, name: str, limits: ReadingLimits) -> bytes:
    with folder.file(name) as file:
        if file.facts.st_size > limits.line_bytes:
            raise too_large(limits.line_bytes)
        return file.part(0, file.facts.st_size)
