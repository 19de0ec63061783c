"""Stores whose sessions are log files with a record a line: reading them once and consistently.

The store of an agent names its folders and files and folds their records; everything else is here and in `log_files`.
A log that ends in a whole record without a line feed has that record; one that ends in anything else is torn.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Generic, NamedTuple

import msgspec

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import CheckCancelled, Lesson, SavedCapture, SessionHeader
from sessionref.server.stores.file_states import file_state
from sessionref.server.stores.folders import Folder, OpenFile
from sessionref.server.stores.folds import ConversationFold, LabelFold, Log, SavedFold, capture_of, saved_fold
from sessionref.server.stores.frames import LogReader
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.log_files import LogFiles
from sessionref.server.stores.position import LogPosition, continues, decode_state, encode_state, position_after
from sessionref.server.stores.problems import Unreadable, corrupt, failures_of, too_large
from sessionref.server.stores.records import Record, RecordDecoder, RecordScan, ScanCounts
from sessionref.server.stores.times import milliseconds_of

__all__ = ("LogReading", "LogStore")

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


class LogStore(LogFiles, Generic[Record]):
    """A CataloguedStore of log files below one home. Thread-safe."""

    def __init__(self, home: Path, record_kind: type[Record], *, limits: ReadingLimits | None = None) -> None:
        super().__init__(home, limits=limits)
        self.decoder = RecordDecoder(record_kind, self.limits)

    @abstractmethod
    def new_labels(self) -> LabelFold[Record]:
        """The fold of a log's list row, before the first record."""

    @abstractmethod
    def new_conversation(self, log: Log) -> ConversationFold[Record]:
        """The fold of a log's conversation, before the first record."""

    def with_beside(self, home: Folder, log: Log, header: SessionHeader) -> SessionHeader:
        """The row, completed from the files beside the log. Raises nothing."""
        return header

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
            capture = capture_of(session_id, fold, counts, is_torn=is_torn)
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

    def records_in(self, reading: LogReading) -> Iterator[Record]:
        """The records of an open log one by one, damaged lines passed by. Raises OSError, Unreadable."""
        for block in reading.reader.blocks():
            for line in block.split(b"\n"):
                if line and (record := self.decoder.decode(line)) is not None:
                    yield record
        if (record := self.decoder.decode(reading.reader.open_line)) is not None:
            yield record

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
                stamp=file_state(reading.file.facts) + beside,
                resume=state if state is not None and size > self.limits.whole_bytes else b"",
                has_title=is_all,
                has_prompt=fold.has_prompt,
            )


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
