"""The log files below an agent's home: finding them by their names, and opening them without leaving the home."""

from __future__ import annotations

import os
import stat
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import CheckCancelled, SessionHeader
from sessionref.server.stores.agent import AgentStore
from sessionref.server.stores.file_states import file_state
from sessionref.server.stores.folders import Folder
from sessionref.server.stores.folds import Log
from sessionref.server.stores.problems import Unreadable, failures_of

__all__ = ("LogFiles",)


class LogFiles(AgentStore):
    """The part of a store of log files that looks at folders and names. Nothing is written, locked or kept open.

    A session's key is the path of its log below the home, its group the folder of that.
    """

    watched: ClassVar[Sequence[str]] = ("sessions",)
    """The folders of the home below which logs grow; a dot is the home itself."""

    follows_links: ClassVar[bool] = False
    """Whether the folders of a group may be links; a log itself never may."""

    @abstractmethod
    def group_folders(self, home: Folder) -> Iterator[str]:
        """The paths below the home of all folders that may hold logs; one that is not there does no harm.

        The empty path is the home itself.
        """

    @abstractmethod
    def log_at(self, key: str) -> Log | None:
        """The log that a path is by its names alone, be it there or not; None if it is none."""

    def beside(self, home: Folder, log: Log) -> bytes:
        """What tells the files beside the log that its row depends on from other states of them. Raises nothing."""
        return b""

    def groups(self) -> dict[str, int]:
        """The folders that may hold logs, with the time of their last change in ns.

        Raises SessionReferenceError READ_FAILED if the home cannot be read.
        """
        changed: dict[str, int] = {}
        with failures_of(None):
            try:
                home = self.open_home()
            except FileNotFoundError:
                return changed
            with home:
                for group in self.group_folders(home):
                    try:
                        # The dot looks at what a link leads to, where links are followed.
                        changed[group] = home.facts(f"{group}/." if group else ".").st_mtime_ns
                    except (FileNotFoundError, NotADirectoryError):
                        continue
                    except OSError:
                        # A folder that is closed to us costs its own sessions, and is said when it is listed.
                        changed[group] = 0
        return changed

    def keys(self, group: str, check: CheckCancelled) -> list[str]:
        """The keys of all logs in a folder. Raises SessionReferenceError READ_FAILED."""
        with failures_of(None), self.open_home() as home:
            check()
            return [log.key for log in self.logs_in(home, group)]

    def identity(self, key: str, header: SessionHeader | None) -> str:
        """The session id: that of the row, if there is one, else the one that the log's name says."""
        if header is not None:
            return header.session_id
        log = self.log_at(key)
        return key if log is None else self.session_id(log.native_id)

    def changed(self, stamps: Mapping[str, bytes], check: CheckCancelled) -> Iterator[str]:
        """The keys whose rows no longer have these stamps, be they changed or gone."""
        with failures_of(None):
            try:
                home = self.open_home()
            except FileNotFoundError:
                yield from stamps
                return
            with home:
                for key, stamp in stamps.items():
                    check()
                    if not self._has_stamp(home, key, stamp):
                        yield key

    def find(self, home: Folder, native_id: str, check: CheckCancelled) -> list[Log]:
        """The logs that are a session by their names, and not empty.

        Raises OSError or Unreadable if there is none, but not every folder could be looked into.
        """
        return self.logs_where(home, lambda log: log.native_id == native_id, check)

    def logs_where(self, home: Folder, is_wanted: Callable[[Log], bool], check: CheckCancelled) -> list[Log]:
        """The logs that are wanted, by their names, and not empty. Raises as `find` does."""
        found: list[Log] = []
        problem: OSError | Unreadable | None = None
        for group in self.group_folders(home):
            check()
            try:
                logs = self.logs_in(home, group)
            except FileNotFoundError:
                continue
            except (OSError, Unreadable) as error:
                problem = error
            else:
                found += [log for log in logs if is_wanted(log) and self.has_content(home, log)]
        if not found and problem is not None:
            raise problem
        return found

    def logs_in(self, home: Folder, group: str) -> list[Log]:
        """The logs in a folder, by their names. Raises OSError, Unreadable."""
        with self.open_folder(home, group) as folder:
            paths = (f"{group}/{name}" if group else name for name in folder.names())
            return [log for path in paths if (log := self.log_at(path)) is not None]

    def has_content(self, home: Folder, log: Log) -> bool:
        """Whether there is anything in a log, or where it should be; an empty file is no session."""
        try:
            facts = home.facts(log.key)
            # What is no file was put there by somebody, and is not passed over in silence.
            return facts.st_size > 0 or not stat.S_ISREG(facts.st_mode)
        except FileNotFoundError:
            return False
        except OSError:
            return True

    def open_home(self) -> Folder:
        """Open the agent's home. Raises OSError, and Unreadable (io) where something else is."""
        try:
            return Folder.root(self.home)
        except NotADirectoryError:
            # Below the home this means that the home would be left; here, that there is none.
            raise Unreadable(ReadFailedReason.IO) from None

    @contextmanager
    def open_folder(self, home: Folder, path: str) -> Generator[Folder]:
        """Open a folder below the home, part by part. Raises OSError, Unreadable (outside-root) for a link."""
        with ExitStack() as stack:
            folder = home
            for name in path.split("/") if path else ():
                folder = stack.enter_context(folder.folder(name, follow_link=self.follows_links))
            yield folder

    def watched_folders(self) -> list[Path]:
        """The folders below which logs grow, where they exist."""
        return [folder for name in self.watched if os.path.isdir(folder := self.home / name)]

    def key_of(self, path: Path) -> str | None:
        """The key of the log that a changed path is."""
        for home in (self.home, Path(self.location)):
            if path.is_relative_to(home):
                log = self.log_at(path.relative_to(home).as_posix())
                return None if log is None else log.key
        return None

    def _has_stamp(self, home: Folder, key: str, stamp: bytes) -> bool:
        log = self.log_at(key)
        if log is None:
            return False
        try:
            facts = home.facts(key)
        except OSError:
            return False
        return file_state(facts) + self.beside(home, log) == stamp
