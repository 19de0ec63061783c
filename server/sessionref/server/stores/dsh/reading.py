"""Reading one log: all of it for a capture, its labels for a list row; from where an earlier reading ended if it can.

Imported when the first log is read, so that a server which is only started starts sooner.
"""

from __future__ import annotations

import msgspec

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import Capture, CheckCancelled, Diagnostic, Lesson, SavedCapture, SessionHeader
from sessionref.server.stores.dsh.fold import Fold, FoldState
from sessionref.server.stores.dsh.header import LogHeader
from sessionref.server.stores.dsh.records import EventDecoder
from sessionref.server.stores.dsh.scan import LogScan
from sessionref.server.stores.dsh.sessions import KnownLog, Place, open_log
from sessionref.server.stores.dsh.titles import Labels, find_labels
from sessionref.server.stores.folders import Folder
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.position import LogPosition, decode_state, encode_state
from sessionref.server.stores.problems import Unreadable

__all__ = ("capture_log", "learn_labels")


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


def capture_log(
    root: Folder,
    place: Place,
    session_id: str,
    saved_state: bytes | None,
    limits: ReadingLimits,
    check: CheckCancelled,
) -> SavedCapture:
    """Capture the session at a place, reading only what is not in a saved state that still holds.

    Raises OSError, Unreadable, and what `check` raises.
    """
    saved = decode_state(saved_state, _SavedState)
    known = None if saved is None else KnownLog(saved.position, saved.header)
    with open_log(root, place, limits, check, known) as log:
        if log is None:
            raise Unreadable(ReadFailedReason.NOT_FOUND)
        version = log.header.version
        is_continued = saved is not None and log.is_continued
        fold = Fold.resume(saved.fold, limits) if saved is not None and is_continued else Fold(version, limits)
        scan = LogScan(EventDecoder(version, limits), fold)
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
        is_news = saved is None or not is_continued or log.reader.position != saved.position.offset
        state: bytes | None = None
        # A short log is read as fast as a state, and a damaged one has an end that only a full read finds again.
        is_long = is_continued or log.reader.block_bytes >= limits.saved_from_bytes
        if is_news and is_long and not scan.skipped_lines:
            position = log.position()
            if position is not None:
                state = encode_state(_SavedState(position, log.header, fold.state()))
        return SavedCapture(capture=capture, key=f"{place.project}/{place.segment}", state=state)


def learn_labels(
    root: Folder, place: Place, known: Lesson | None, limits: ReadingLimits, check: CheckCancelled, *, with_title: bool
) -> Lesson | None:
    """Learn the row of the session at a place; None if there is no log.

    Raises OSError, Unreadable, and what `check` raises.
    """
    learnt = None if known is None else decode_state(known.resume, _LearntState)
    known_log = None if learnt is None else KnownLog(learnt.position, learnt.header)
    with open_log(root, place, limits, check, known_log) as log:
        if log is None:
            return None
        labels = learnt.labels if learnt is not None and log.is_continued else Labels()
        resume: bytes | None = None
        with_title = with_title or log.file.facts.st_size <= limits.whole_bytes
        if with_title:
            labels = find_labels(log.blocks, EventDecoder(log.header.version, limits), labels)
            # A short log is read again as fast as a position in it is checked.
            is_short = log.file.facts.st_size <= limits.whole_bytes
            position = None if is_short else log.position()
            resume = None if position is None else encode_state(_LearntState(position, log.header, labels))
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
            resume=resume or b"",
            has_title=with_title,
        )


def _diagnostics(torn: bool, skipped_lines: int, fold: Fold) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    if torn:
        found.append(Diagnostic("torn-tail", "1 unfinished write at the end of the log was left out."))
    if skipped_lines:
        lines = _count(skipped_lines, "line")
        found.append(Diagnostic("skipped-lines", f"{lines} from the first damaged one on were left out."))
    if fold.turn_open:
        calls = _count(fold.pending_calls, "tool call")
        found.append(Diagnostic("interrupted-turn", f"1 turn was unfinished, with {calls} open."))
    if fold.unknown_events:
        events = _count(fold.unknown_events, "event")
        found.append(Diagnostic("unknown-events", f"{events} of unknown types were passed over."))
    return found


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
