"""The store of DSH sessions: lists the logs of one home and captures one of them, read only."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from sessionref.protocol.errors import ReadFailedReason, SessionReferenceError
from sessionref.server.store import (
    Capture,
    CheckCancelled,
    Diagnostic,
    Lesson,
    Listing,
    SavedCapture,
    SessionHeader,
    Unlisted,
)
from sessionref.server.stores.dsh.fold import Fold, FoldState
from sessionref.server.stores.dsh.folders import Folder
from sessionref.server.stores.dsh.header import LogHeader
from sessionref.server.stores.dsh.layout import SEGMENT_BYTES, session_segment
from sessionref.server.stores.dsh.limits import DshLimits
from sessionref.server.stores.dsh.position import LogPosition, decode_state, encode_state
from sessionref.server.stores.dsh.problems import Unreadable, from_os_error
from sessionref.server.stores.dsh.records import EventDecoder
from sessionref.server.stores.dsh.scan import LogScan
from sessionref.server.stores.dsh.sessions import (
    KnownLog,
    Place,
    has_stamp,
    is_session_at,
    open_log,
    places_of,
    project_folders,
    session_names,
    shown_key,
)
from sessionref.server.stores.dsh.titles import Labels, find_labels

__all__ = ("DshStore",)


class _SavedState(msgspec.Struct, frozen=True, array_like=True):
    """What is kept of a captured session: how far its log was read, and what that came to."""

    position: LogPosition
    header: LogHeader
    fold: FoldState


class _LearntState(msgspec.Struct, frozen=True, array_like=True):
    """What is kept of a listed session: how far its log was read, and the labels up to there."""

    position: LogPosition
    header: LogHeader
    labels: Labels


class DshStore:
    """The sessions below one DSH home; a CataloguedStore. Nothing is written, locked or kept open.

    A session's key is the names of its two folders, its group the first of them.
    """

    lists_subagents = True
    """DSH itself lists the sessions of its sub-agents."""

    def __init__(self, root: Path, *, kind: str = "dsh", limits: DshLimits | None = None) -> None:
        self.kind = kind
        self._sessions = root / "sessions"
        self._limits = limits or DshLimits()

    @property
    def location(self) -> str:
        """The sessions folder, links resolved."""
        return os.path.realpath(self._sessions)

    def list_sessions(self, check: CheckCancelled) -> Listing:
        """List every session with its title; a home without sessions is an empty list.

        Raises SessionReferenceError READ_FAILED if the sessions folder cannot be read.
        """
        found: dict[str, list[str]] = defaultdict(list)
        rows: dict[str, SessionHeader] = {}
        problems: dict[str, str] = {}
        for group in self.groups():
            try:
                keys = self.keys(group, check)
            except SessionReferenceError as failure:
                problems[group] = str(failure.reason)
                continue
            for key in keys:
                check()
                try:
                    lesson = self.learn(key, None, check, with_title=True)
                except SessionReferenceError as failure:
                    problems[key] = str(failure.reason)
                else:
                    if lesson is None:
                        continue
                    rows[key] = lesson.header
                found[self.identity(key)].append(key)
        for keys in found.values():
            if len(keys) > 1:
                problems |= dict.fromkeys(keys, str(ReadFailedReason.DUPLICATE_ID))
        listed = [row for key, row in rows.items() if key not in problems]
        return Listing(listed, [Unlisted(shown_key(key), reason) for key, reason in problems.items()])

    def capture(self, session_id: str, check: CheckCancelled) -> Capture:
        """Read one session once. Raises SessionReferenceError READ_FAILED with its reason."""
        return self.capture_again(session_id, _nothing_saved, check).capture

    def groups(self) -> dict[str, int]:
        """The project folders with the time of their last change in ns.

        Raises SessionReferenceError READ_FAILED if the sessions folder cannot be read.
        """
        with _failures_of(None):
            try:
                root = self._open_root()
            except FileNotFoundError:
                return {}
            with root:
                return {name: facts.st_mtime_ns for name, facts in project_folders(root)}

    def keys(self, group: str, check: CheckCancelled) -> list[str]:
        """The keys of all folders and links in a project. Raises SessionReferenceError READ_FAILED."""
        with _failures_of(None), self._open_root() as root, root.folder(group) as project:
            check()
            return [f"{group}/{segment}" for segment in session_names(project)]

    def identity(self, key: str) -> str:
        """The folder name of the session id."""
        return _place(key).segment

    def changed(self, stamps: Mapping[str, bytes], check: CheckCancelled) -> Iterator[str]:
        """The keys whose logs no longer have these stamps, be they changed or gone."""
        with _failures_of(None):
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
        place = _place(key)
        with _failures_of(None), self._open_root() as root:
            try:
                return self._lesson(root, place, _learnt(known), check, with_title=with_title)
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
        segment = session_segment(session_id) if session_id else ""
        with _failures_of(session_id):
            if not 0 < len(segment) <= SEGMENT_BYTES:
                raise Unreadable(ReadFailedReason.NOT_FOUND)
            with self._open_root() as root:
                places = places_of(root, segment, check)
                if len(places) != 1:
                    raise Unreadable(ReadFailedReason.DUPLICATE_ID if places else ReadFailedReason.NOT_FOUND)
                key = f"{places[0].project}/{places[0].segment}"
                saved = decode_state(saved_state(key), _SavedState)
                return self._capture_at(root, places[0], key, session_id, saved, check)

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

    def _capture_at(
        self,
        root: Folder,
        place: Place,
        key: str,
        session_id: str,
        saved: _SavedState | None,
        check: CheckCancelled,
    ) -> SavedCapture:
        known = None if saved is None else KnownLog(saved.position, saved.header)
        with open_log(root, place, self._limits, check, known) as log:
            if log is None:
                raise Unreadable(ReadFailedReason.NOT_FOUND)
            version = log.header.version
            if saved is not None and log.is_continued:
                fold = Fold.resume(saved.fold, self._limits)
            else:
                fold = Fold(version, self._limits)
            scan = LogScan(EventDecoder(version, self._limits), fold)
            for block in log.blocks:
                scan.feed(block)
            capture = Capture(
                session_id=session_id,
                cwd=log.header.cwd,
                format_version=version,
                captured_through_seq=fold.captured_through_seq,
                items=fold.items(),
                diagnostics=_diagnostics(log.reader.torn, scan.skipped_lines, fold),
            )
            state: bytes | None = None
            is_news = saved is None or not log.is_continued or log.reader.position != saved.position.offset
            # A damaged log has an end that only a full read finds again, and a short one is read as fast as a state.
            if is_news and not scan.skipped_lines and log.file.facts.st_size >= self._limits.saved_from_bytes:
                position = log.position()
                if position is not None:
                    state = encode_state(_SavedState(position, log.header, fold.state()))
            return SavedCapture(capture=capture, key=key, state=state)

    def _lesson(
        self, root: Folder, place: Place, learnt: _LearntState | None, check: CheckCancelled, *, with_title: bool
    ) -> Lesson | None:
        known = None if learnt is None else KnownLog(learnt.position, learnt.header)
        with open_log(root, place, self._limits, check, known) as log:
            if log is None:
                return None
            before = learnt.labels if learnt is not None and log.is_continued else Labels()
            labels, resume = before, b""
            with_title = with_title or log.file.facts.st_size <= self._limits.whole_bytes
            if with_title:
                labels = find_labels(log.blocks, EventDecoder(log.header.version, self._limits), before)
                position = log.position()
                resume = (position and encode_state(_LearntState(position, log.header, labels))) or b""
            return Lesson(
                header=SessionHeader(
                    session_id=log.header.session_id,
                    created_at=log.header.created_at,
                    updated_at=log.updated_at,
                    cwd=log.header.cwd,
                    title=labels.title,
                    agent_label=labels.agent_label,
                    is_subagent=log.header.is_subagent,
                ),
                stamp=log.stamp,
                resume=resume,
                has_title=with_title,
            )

    def _open_root(self) -> Folder:
        try:
            return Folder.root(self._sessions)
        except NotADirectoryError:
            # Below the root this means that the root would be left; here, that there is none.
            raise Unreadable(ReadFailedReason.IO) from None


def _nothing_saved(key: str) -> None:
    return None


def _learnt(known: Lesson | None) -> _LearntState | None:
    return None if known is None else decode_state(known.resume, _LearntState)


def _place(key: str) -> Place:
    project, _, segment = key.partition("/")
    return Place(project, segment)


@contextmanager
def _failures_of(session_id: str | None) -> Generator[None]:
    """Turn every failure of reading into the one that callers know."""
    try:
        yield
    except (OSError, Unreadable) as error:
        raise _problem(error).about(session_id) from error


def _problem(error: OSError | Unreadable) -> Unreadable:
    return from_os_error(error) if isinstance(error, OSError) else error


def _diagnostics(torn: bool, skipped_lines: int, fold: Fold) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    if torn:
        found.append(Diagnostic("torn-tail", "1 unfinished write at the end of the log was left out."))
    if skipped_lines:
        lines = "1 line" if skipped_lines == 1 else f"{skipped_lines} lines"
        found.append(Diagnostic("skipped-lines", f"{lines} from the first damaged one on were left out."))
    if fold.turn_open:
        calls = "1 tool call" if fold.pending_calls == 1 else f"{fold.pending_calls} tool calls"
        found.append(Diagnostic("interrupted-turn", f"1 turn was unfinished, with {calls} open."))
    if fold.unknown_events:
        events = "1 event" if fold.unknown_events == 1 else f"{fold.unknown_events} events"
        found.append(Diagnostic("unknown-events", f"{events} of unknown types were passed over."))
    return found
