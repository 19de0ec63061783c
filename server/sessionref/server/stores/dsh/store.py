"""The store of DSH sessions: lists the logs of one home and captures one of them, read only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import (
    Capture,
    CheckCancelled,
    Diagnostic,
    Listing,
    SessionHeader,
    Unlisted,
)
from sessionref.server.stores.dsh.fold import Fold
from sessionref.server.stores.dsh.folders import Folder
from sessionref.server.stores.dsh.layout import SEGMENT_BYTES, session_segment
from sessionref.server.stores.dsh.limits import DshLimits
from sessionref.server.stores.dsh.problems import Unreadable, from_os_error
from sessionref.server.stores.dsh.records import EventDecoder
from sessionref.server.stores.dsh.scan import LogScan
from sessionref.server.stores.dsh.sessions import (
    Place,
    is_session,
    open_log,
    places_of,
    project_names,
    session_names,
)
from sessionref.server.stores.dsh.titles import find_labels

__all__ = ("DshStore",)


class DshStore:
    """The sessions below one DSH home; a SessionStore. Nothing is written, locked or kept open."""

    lists_subagents = True
    """DSH itself lists the sessions of its sub-agents."""

    def __init__(self, root: Path, *, kind: str = "dsh", limits: DshLimits | None = None) -> None:
        self.kind = kind
        self._sessions = root / "sessions"
        self._limits = limits or DshLimits()

    def list_sessions(self, check: CheckCancelled) -> Listing:
        """List every session with its title; a home without sessions is an empty list.

        Raises SessionReferenceError READ_FAILED if the sessions folder cannot be read.
        """
        found: dict[str, list[Place]] = defaultdict(list)
        rows: dict[str, SessionHeader] = {}
        problems: dict[Place, ReadFailedReason] = {}
        with _failures_of(None):
            try:
                root = self._open_root()
            except FileNotFoundError:
                return Listing([], [])
            with root:
                for place in self._places(root, problems):
                    check()
                    try:
                        row = self._row(root, place, check)
                    except (OSError, Unreadable) as error:
                        if _is_session_at(root, place):
                            found[place.segment].append(place)
                            problems[place] = _problem(error).reason
                        continue
                    if row is not None:
                        found[place.segment].append(place)
                        rows[place.segment] = row
        for segment, places in found.items():
            if len(places) > 1:
                rows.pop(segment, None)
                problems |= dict.fromkeys(places, ReadFailedReason.DUPLICATE_ID)
        unlisted = [Unlisted(str(place), reason) for place, reason in problems.items()]
        return Listing(list(rows.values()), unlisted)

    def capture(self, session_id: str, check: CheckCancelled) -> Capture:
        """Read one session once. Raises SessionReferenceError READ_FAILED with its reason."""
        segment = session_segment(session_id) if session_id else ""
        with _failures_of(session_id):
            if not 0 < len(segment) <= SEGMENT_BYTES:
                raise Unreadable(ReadFailedReason.NOT_FOUND)
            with self._open_root() as root:
                places = places_of(root, segment, check)
                if len(places) != 1:
                    raise Unreadable(ReadFailedReason.DUPLICATE_ID if places else ReadFailedReason.NOT_FOUND)
                return self._capture_at(root, places[0], session_id, check)

    def _capture_at(self, root: Folder, place: Place, session_id: str, check: CheckCancelled) -> Capture:
        with open_log(root, place, self._limits, check) as log:
            if log is None:
                raise Unreadable(ReadFailedReason.NOT_FOUND)
            version = log.header.version
            fold = Fold(version, self._limits)
            scan = LogScan(EventDecoder(version, self._limits), fold)
            for block in log.blocks:
                scan.feed(block)
            return Capture(
                session_id=session_id,
                cwd=log.header.cwd,
                format_version=version,
                captured_through_seq=fold.captured_through_seq,
                items=fold.items(),
                diagnostics=_diagnostics(log.reader.torn, scan.skipped_lines, fold),
            )

    def _open_root(self) -> Folder:
        try:
            return Folder.root(self._sessions)
        except NotADirectoryError:
            # Below the root this means that the root would be left; here, that there is none.
            raise Unreadable(ReadFailedReason.IO) from None

    def _places(self, root: Folder, problems: dict[Place, ReadFailedReason]) -> Iterator[Place]:
        """Everything that may be a session; projects that cannot be looked at are noted."""
        for name in project_names(root):
            try:
                with root.folder(name) as project:
                    names = session_names(project)
            except (OSError, Unreadable) as error:
                problems[Place(name, "")] = _problem(error).reason
                continue
            yield from (Place(name, segment) for segment in names)

    def _row(self, root: Folder, place: Place, check: CheckCancelled) -> SessionHeader | None:
        with open_log(root, place, self._limits, check) as log:
            if log is None:
                return None
            labels = find_labels(log.blocks, EventDecoder(log.header.version, self._limits))
            return SessionHeader(
                session_id=log.header.session_id,
                created_at=log.header.created_at,
                updated_at=log.updated_at,
                cwd=log.header.cwd,
                title=labels.title,
                agent_label=labels.agent_label,
                is_subagent=log.header.is_subagent,
            )


@contextmanager
def _failures_of(session_id: str | None) -> Generator[None]:
    """Turn every failure of reading into the one that callers know."""
    try:
        yield
    except (OSError, Unreadable) as error:
        raise _problem(error).about(session_id) from error


def _problem(error: OSError | Unreadable) -> Unreadable:
    return from_os_error(error) if isinstance(error, OSError) else error


def _is_session_at(root: Folder, place: Place) -> bool:
    """Whether a session that could not be read is still there: one that vanished meanwhile is no problem."""
    try:
        with root.folder(place.project) as project:
            return is_session(project, place.segment)
    except OSError:
        return False


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
