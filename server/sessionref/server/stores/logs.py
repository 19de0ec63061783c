"""Stores whose sessions are log files with a record a line: finding them, and reading them once and consistently.

The store of an agent names its folders and files and folds their records; everything else is here. A log that ends
in a whole record without a line feed has that record; one that ends in anything else is torn.
"""

from __future__ import annotations

import os
import stat
import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar, Final, Generic, NamedTuple

import msgspec

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import Capture, CheckCancelled, Lesson, SavedCapture, SessionHeader
from sessionref.server.stores.agent import AgentStore
from sessionref.server.stores.folders import Folder, OpenFile
from sessionref.server.stores.folds import ConversationFold, LabelFold, Log, SavedFold, saved_fold, scan_diagnostics
from sessionref.server.stores.frames import LogReader
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.position import LogPosition, continues, decode_state, encode_state, position_after
from sessionref.server.stores.problems import Unreadable, corrupt, failures_of, too_large
from sessionref.server.stores.records import Record, RecordDecoder, RecordScan, ScanCounts
from sessionref.server.stores.times import milliseconds_of

__all__ = ("LogReading", "LogStore", "file_state")

FRESH_NANOSECONDS: Final = 2_000_000_000
"""The coarsest grain of time that a file system in use has: a change within it leaves no trace in a file's time."""

_COMPRESSED: Final = ".zst"


class LogReading(NamedTuple):
    """A log that is open: its reader, and where that began if it goes on where an earlier reading ended."""

    file: OpenFile
    name: str
    reader: LogReader
    began_at: LogPosition | None

    def position(self) -> LogPosition | None:
        """Where another reading can go on, once all blocks were taken; None if it must begin anew."""
        return position_after(self.reader, self.began_at, self.name, self.file)


class _State(msgspec.Struct, frozen=True, array_like=True):
    """What is kept of a session: where its log goes on, and what it came to up to there."""

    position: LogPosition
    saved: SavedFold


class LogStore(AgentStore, Generic[Record]):
    """A CataloguedStore of log files below one home. Thread-safe; nothing is written, locked or kept open.

    A session's key is the path of its log below the home, its group the folder of that.
    """

    watched: ClassVar[Sequence[str]] = ("sessions",)
    """The folders of the home below which logs grow; a dot is the home itself."""

    follows_links: ClassVar[bool] = False
    """Whether the folders of a group may be links; a log itself never may."""

    def __init__(self, home: Path, record_kind: type[Record], *, limits: ReadingLimits | None = None) -> None:
        super().__init__(home, limits=limits)
        self.decoder = RecordDecoder(record_kind, self.limits)

    @abstractmethod
    def group_folders(self, home: Folder) -> Iterator[str]:
        """The paths below the home of all folders that may hold logs; one that is not there does no harm.

        The empty path is the home itself.
        """

    @abstractmethod
    def log_at(self, key: str) -> Log | None:
        """The log that a path is by its names alone, be it there or not; None if it is none."""

    @abstractmethod
    def new_labels(self) -> LabelFold[Record]:
        """The fold of a log's list row, before the first record."""

    @abstractmethod
    def new_conversation(self, log: Log) -> ConversationFold[Record]:
        """The fold of a log's conversation, before the first record."""

    def beside(self, home: Folder, log: Log) -> bytes:
        """What tells the files beside the log that its row depends on from other states of them. Raises nothing."""
        return b""

    def with_beside(self, home: Folder, log: Log, header: SessionHeader) -> SessionHeader:
        """The row, completed from the files beside the log. Raises nothing."""
        return header

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

    def learn(self, key: str, known: Lesson | None, check: CheckCancelled, *, with_title: bool) -> Lesson | None:
        """Learn a session's row, from where the known lesson ended if it still holds; None if there is no session.

        Raises SessionReferenceError READ_FAILED with the reason for which it cannot be listed.
        """
        log = self.log_at(key)
        if log is None:
            return None
        with failures_of(self.session_id(log.native_id)), self.open_home() as home:
            try:
                return self._learn(home, log, known, check, with_title=with_title)
            except (OSError, Unreadable):
                if self.has_content(home, log):
                    raise
                # It vanished meanwhile, which is no problem.
                return None

    def capture_again(
        self, session_id: str, saved_state: Callable[[str], bytes | None], check: CheckCancelled
    ) -> SavedCapture:
        """Read one session once, behind the state that was saved for it if that still holds.

        Raises SessionReferenceError READ_FAILED with its reason.
        """
        with failures_of(session_id):
            native_id = self.native_id(session_id)
            with self.open_home() as home:
                logs = self.find(home, native_id, check)
                if len(logs) != 1:
                    raise Unreadable(ReadFailedReason.DUPLICATE_ID if logs else ReadFailedReason.NOT_FOUND)
                return self.capture_log(home, logs[0], session_id, saved_state(logs[0].key), check)

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

    def capture_log(
        self, home: Folder, log: Log, session_id: str, saved_state: bytes | None, check: CheckCancelled
    ) -> SavedCapture:
        """Capture the session in one log. Raises OSError, Unreadable, and what `check` raises."""
        fold, counts = self.new_conversation(log), ScanCounts()
        known = decode_state(saved_state, _State)
        known_fold = None if known is None else decode_state(bytes(known.saved.fold), type(fold))
        position = None if known is None or known_fold is None else known.position
        with self.open_log(home, log, check, position) as reading:
            is_continued = reading.began_at is not None
            if known is not None and known_fold is not None and is_continued:
                fold, counts = known_fold, known.saved.counts
            is_torn = not self.scan(reading, fold, counts)
            capture = Capture(
                session_id=session_id,
                cwd=fold.cwd,
                format_version=None,
                captured_through_seq=counts.last_record,
                items=fold.items(),
                diagnostics=scan_diagnostics(counts, is_torn=is_torn, unknown_records=fold.unknown_records),
            )
            is_news = known is None or not is_continued or reading.reader.position != known.position.offset
            # A short log is read as fast as a state.
            is_long = is_continued or reading.reader.block_bytes >= self.limits.saved_from_bytes
            state = _state_after(reading, fold, counts, is_torn=is_torn) if is_news and is_long else None
            return SavedCapture(capture=capture, key=log.key, state=state)

    def scan(self, reading: LogReading, fold: ConversationFold[Record], counts: ScanCounts) -> bool:
        """Feed what is left of an open log to a fold; false if the log ends in an unfinished write.

        Raises OSError, Unreadable, and what the reading's `check` raises.
        """
        scan = RecordScan(self.decoder, fold.feed, counts)
        for block in reading.reader.blocks():
            scan.feed(block)
            if fold.text_bytes > self.limits.conversation_bytes:
                raise too_large(self.limits.conversation_bytes)
        is_whole = _feed_end(reading.reader, scan)
        if counts.last_record is None:
            raise corrupt()
        return is_whole

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

    @contextmanager
    def open_log(
        self, home: Folder, log: Log, check: CheckCancelled, known: LogPosition | None = None, *, end: int | None = None
    ) -> Generator[LogReading]:
        """Open a log, behind a known position if that still holds, and up to an offset in bytes if one is given.

        Raises OSError, Unreadable.
        """
        group, _, name = log.key.rpartition("/")
        with self.open_folder(home, group) as folder, folder.file(name) as file:
            tail = None if known is None else continues(known, name, file)
            began_at = None if tail is None else known
            reader = LogReader(
                file.descriptor,
                file.facts.st_size if end is None else min(end, file.facts.st_size),
                compressed=name.endswith(_COMPRESSED),
                limits=self.limits,
                check=check,
                start=0 if began_at is None else began_at.offset,
                tail=tail or b"",
                frames_hold_lines=False,
            )
            yield LogReading(file, name, reader, began_at)

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

    def _learn(
        self, home: Folder, log: Log, known: Lesson | None, check: CheckCancelled, *, with_title: bool
    ) -> Lesson | None:
        fold, counts = self.new_labels(), ScanCounts()
        learnt = None if known is None else decode_state(known.resume, _State)
        learnt_fold = None if learnt is None else decode_state(bytes(learnt.saved.fold), type(fold))
        position = None if learnt is None or learnt_fold is None else learnt.position
        beside = self.beside(home, log)
        with self.open_log(home, log, check, position) as reading:
            if learnt is not None and learnt_fold is not None and reading.began_at is not None:
                fold, counts = learnt_fold, learnt.saved.counts
            size = reading.file.facts.st_size
            if not size:
                return None
            is_all = with_title or size <= self.limits.whole_bytes
            scan = RecordScan(self.decoder, fold.feed, counts)
            for block in reading.reader.blocks():
                scan.feed(block)
                is_enough = counts.last_record is not None and reading.reader.block_bytes >= self.limits.whole_bytes
                if is_enough and not is_all:
                    break
            else:
                is_all = True
            is_torn = is_all and not _feed_end(reading.reader, scan)
            if counts.last_record is None:
                raise corrupt()
            state = _state_after(reading, fold, counts, is_torn=is_torn) if is_all else None
            header = fold.header(log, self.session_id(log.native_id), milliseconds_of(reading.file.facts.st_mtime_ns))
            return Lesson(
                header=self.with_beside(home, log, header),
                stamp=_stamp(reading.file.facts, beside),
                resume=state if state is not None and size > self.limits.whole_bytes else b"",
                has_title=is_all,
                has_prompt=fold.has_prompt,
            )

    def _has_stamp(self, home: Folder, key: str, stamp: bytes) -> bool:
        log = self.log_at(key)
        if log is None:
            return False
        try:
            facts = home.facts(key)
        except OSError:
            return False
        return _stamp(facts, self.beside(home, log)) == stamp


def _feed_end(reader: LogReader, scan: RecordScan[Record]) -> bool:
    """Take the end of a log that has no line feed; false if it is an unfinished write."""
    # More may follow in a frame that is incomplete, also where it breaks off behind a whole record.
    return scan.feed_open(reader.open_line) and not reader.frame_is_open


def _state_after(reading: LogReading, fold: msgspec.Struct, counts: ScanCounts, *, is_torn: bool) -> bytes | None:
    """What to keep of a log that was read to its end; None if another reading cannot go on from there."""
    if reading.reader.open_line and not is_torn:
        # Its last record has no line feed yet, and so is behind the position, but in the fold.
        return None
    position, saved = reading.position(), saved_fold(counts, fold)
    return None if position is None or saved is None else encode_state(_State(position, saved))


def file_state(facts: os.stat_result) -> bytes:
    """What tells a file's state from any other; none is equal to one that was looked at too soon after a change."""
    is_fresh = facts.st_mtime_ns > time.time_ns() - FRESH_NANOSECONDS
    looked_at = time.time_ns() if is_fresh else 0
    # Some file systems take times that are no 64 bits of nanoseconds.
    return msgspec.msgpack.encode((facts.st_ino, facts.st_size, str(facts.st_mtime_ns), looked_at))


def _stamp(facts: os.stat_result, beside: bytes) -> bytes:
    """What changes whenever a session's row may have."""
    return file_state(facts) + beside
