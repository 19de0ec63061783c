"""The store of OpenCode's sessions."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import Capture, CheckCancelled, Lesson, SavedCapture, SessionHeader
from sessionref.server.stores.agent import AgentStore, first_line
from sessionref.server.stores.folders import Folder
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.opencode.database import Database, databases_in
from sessionref.server.stores.opencode.sessions import Session, session_header, session_stamp
from sessionref.server.stores.opencode.tables import Tables
from sessionref.server.stores.opencode.tree import SESSIONS, Tree, stem_of
from sessionref.server.stores.problems import Unreadable, failures_of

__all__ = ("OpencodeStore",)

_GROUP: Final = "sessions"
_NAMED: Final = "$OPENCODE_DB"

_AGAIN_NANOSECONDS: Final = 5_000_000_000
"""How often what cannot be looked into is tried again: what is wrong with it need not be in any file's time."""


class OpencodeStore(AgentStore):
    """The databases of a data folder, the one that the environment names, and the files that were before them.

    A session's key is its database's name and its id, or the path of its file. Where an id is in several places, the
    first one counts: databases before files, the named one before that of released versions before the others. What
    cannot be looked into has its own name as its key, so that it is said.
    """

    kind = "opencode"
    groups_tell_all = True

    def __init__(self, home: Path, *, named: Path | None = None, limits: ReadingLimits | None = None) -> None:
        super().__init__(home, limits=limits)
        self._named = named
        self._tree = Tree(home)
        self._opened: dict[str, Database] = {}
        self._problems: Mapping[str, Unreadable] = {}

    @property
    def location(self) -> str:
        """The data folder and the named database, links resolved."""
        folder = super().location
        return folder if self._named is None else f"{folder} with {os.path.realpath(self._named)}"

    def groups(self) -> dict[str, int]:
        """One group, with the time in ns of the last change to any database, or to a folder of files.

        Raises SessionReferenceError READ_FAILED if the data folder cannot be read.
        """
        with failures_of(None):
            try:
                folder_changed = self.home.stat().st_mtime_ns
            except FileNotFoundError:
                return {}
            databases_changed = (database.changed_ns() for database in self._databases().values())
            changed = max(folder_changed, self._tree.changed_ns(), *databases_changed)
            # The time alone would leave what cannot be looked into untried until something changes.
            tries = time.monotonic_ns() // _AGAIN_NANOSECONDS if self._problems else 0
            return {_GROUP: changed - tries}

    def keys(self, group: str, check: CheckCancelled) -> list[str]:
        """The keys of all sessions, and of what cannot be looked into. Raises SessionReferenceError READ_FAILED."""
        found: dict[str, str] = {}
        problems: dict[str, Unreadable] = {}
        with failures_of(None):
            for name, database in self._databases().items():
                try:
                    for native_id in database.sessions(self.limits, check):
                        found.setdefault(native_id, f"{name}/{native_id}")
                except Unreadable as problem:
                    problems[name] = problem
            if not any(map(_may_hide_newer, problems.values())):
                found = self._tree.places(self.limits, check) | found
        self._problems = problems
        return [*found.values(), *problems]

    def identity(self, key: str, header: SessionHeader | None) -> str:
        """The session id: that of the row, if there is one, else the one that the key says."""
        if header is not None:
            return header.session_id
        name, _, native_id = key.partition("/")
        native_id = stem_of(key) if _is_file(key) else native_id
        return self.session_id(native_id) if native_id else name

    def changed(self, stamps: Mapping[str, bytes], check: CheckCancelled) -> Iterator[str]:
        """The keys whose rows no longer have these stamps, be they changed or gone."""
        in_databases: dict[str, list[str]] = defaultdict(list)
        with failures_of(None):
            for key, stamp in stamps.items():
                if not _is_file(key):
                    in_databases[key.partition("/")[0]].append(key)
                elif self._file_stamp(key) != stamp:
                    yield key
            for name, keys in in_databases.items():
                sessions = self._sessions_if_readable(name, check)
                for key in keys:
                    session = sessions.get(key.partition("/")[2])
                    if session is None or session_stamp(session) != stamps[key]:
                        yield key

    def learn(self, key: str, known: Lesson | None, check: CheckCancelled, *, with_title: bool) -> Lesson | None:
        """Learn a session's row; None if there is no session.

        Raises SessionReferenceError READ_FAILED with the reason for which it cannot be listed.
        """
        with failures_of(self.identity(key, None)):
            try:
                if _is_file(key):
                    return self._learn_file(key, check)
                name, _, native_id = key.partition("/")
                database = self._databases().get(name)
                if database is None:
                    return None
                if not native_id:
                    if name in self._problems:
                        # It may be all right by now, but what is in it is not in the list.
                        raise self._problems[name]
                    return None
                if not with_title and (session := database.latest.get(native_id)) is not None:
                    header = session_header(session, self.session_id(native_id), None)
                    return Lesson(header=header, stamp=session_stamp(session), has_title=False)
                is_new = known is None or not known.has_title
                return database.learn(native_id, self._learn_row, self.limits, check, ahead=is_new)
            except FileNotFoundError:
                # It vanished meanwhile, which is no problem.
                return None

    def capture_again(
        self, session_id: str, saved_state: Callable[[str], bytes | None], check: CheckCancelled
    ) -> SavedCapture:
        """Read one session once; no state is kept, since rows are read as fast.

        Raises SessionReferenceError READ_FAILED with its reason.
        """
        with failures_of(session_id):
            native_id = self.native_id(session_id)
            if not _is_text(native_id):
                raise Unreadable(ReadFailedReason.NOT_FOUND)
            problems: list[Unreadable] = []
            for name, database in self._databases().items():
                capture = self._capture_rows(database, native_id, session_id, problems, check)
                if capture is not None:
                    return SavedCapture(capture=capture, key=f"{name}/{native_id}", state=None)
            if not any(map(_may_hide_newer, problems)):
                key = self._tree.places(self.limits, check).get(native_id) if self.exists() else None
                if key is not None:
                    return SavedCapture(capture=self._capture_file(key, session_id, check), key=key, state=None)
            raise next(iter(problems), Unreadable(ReadFailedReason.NOT_FOUND))

    def watched_folders(self) -> list[Path]:
        """The folder of files; a look at databases costs less than to follow all that is written beside them."""
        folder = self.home / SESSIONS
        return [folder] if folder.is_dir() else []

    def key_of(self, path: Path) -> str | None:
        """The key of the session that a changed file is."""
        for home in (self.home, Path(os.path.realpath(self.home))):
            if path.is_relative_to(home):
                key = path.relative_to(home).as_posix()
                return key if _is_file(key) else None
        return None

    def _databases(self) -> dict[str, Database]:
        """The databases by their names, the most important first. Raises OSError, Unreadable (io) without a folder."""
        try:
            with Folder.root(self.home) as home:
                names = databases_in(home.names())
        except FileNotFoundError:
            names = []
        except NotADirectoryError:
            raise Unreadable(ReadFailedReason.IO) from None
        paths = {name: self.home / name for name in names}
        if self._named is not None and self._named.exists():
            name = next((name for name, path in paths.items() if path == self._named), _NAMED)
            paths = {name: self._named} | paths
        # Of two threads that meet here both get the one that stays.
        return {name: self._opened.setdefault(name, Database(path)) for name, path in paths.items()}

    def _file_stamp(self, key: str) -> bytes | None:
        try:
            return self._tree.state(key)
        except OSError:
            return None

    def _sessions_if_readable(self, name: str, check: CheckCancelled) -> Mapping[str, Session]:
        try:
            database = self._databases().get(name)
            return {} if database is None else database.sessions(self.limits, check)
        except Unreadable:
            return {}

    def _learn_row(self, tables: Tables, native_id: str) -> Lesson | None:
        session = tables.session(native_id)
        if session is None:
            return None
        prompt = _first(tables.prompts(session))
        return self._lesson(session, session_stamp(session), prompt, has_messages=tables.has_messages(native_id))

    def _learn_file(self, key: str, check: CheckCancelled) -> Lesson:
        stamp = self._tree.state(key)
        session = self._tree.session(key, self.limits)
        prompt = _first(self._tree.prompts(session, self.limits, check))
        return self._lesson(session, stamp, prompt, has_messages=self._tree.has_messages(session.id))

    def _lesson(self, session: Session, stamp: bytes, prompt: str | None, *, has_messages: bool) -> Lesson:
        return Lesson(
            header=session_header(session, self.session_id(session.id), prompt),
            stamp=stamp,
            has_prompt=prompt is not None or not has_messages,
        )

    def _capture_rows(
        self,
        database: Database,
        native_id: str,
        session_id: str,
        problems: list[Unreadable],
        check: CheckCancelled,
    ) -> Capture | None:
        """A session of a database; None if it is not there, or adds the problem why that cannot be told."""
        found: list[Session] = []

        def capture(tables: Tables) -> Capture | None:
            session = tables.session(native_id)
            if session is None:
                return None
            found.append(session)
            return tables.conversation(native_id).capture(session_id, session.cwd, session.revert)

        try:
            return database.read(capture, self.limits, check)
        except Unreadable as problem:
            if found:
                raise
            problems.append(problem)
            return None

    def _capture_file(self, key: str, session_id: str, check: CheckCancelled) -> Capture:
        session = self._tree.session(key, self.limits)
        conversation = self._tree.conversation(session.id, self.limits, check)
        return conversation.capture(session_id, session.cwd, session.revert)


def _is_file(key: str) -> bool:
    return key == SESSIONS or key.startswith(f"{SESSIONS}/")


def _is_text(text: str) -> bool:
    """Whether a database could hold it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _first(prompts: Iterator[str]) -> str | None:
    """The first line of the first prompt that is not blank."""
    return next(filter(None, map(first_line, prompts)), None)


def _may_hide_newer(problem: Unreadable) -> bool:
    """Whether there may be newer forms of sessions behind a problem than in the files that were before databases."""
    return problem.reason is not ReadFailedReason.CORRUPT
