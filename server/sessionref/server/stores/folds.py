"""Folds: what a store makes of a log's records one by one, for its list row and for its conversation.

A fold is a Struct whose members are all there is to it, so that saving it is encoding it, and it goes on with the
records that were appended since.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from sessionref.server.store import Capture, ConversationItem, Diagnostic, SessionHeader
from sessionref.server.stores.position import encode_state
from sessionref.server.stores.records import Record, ScanCounts

__all__ = ("ConversationFold", "LabelFold", "Log", "SavedFold", "capture_of", "saved_fold", "scan_diagnostics")

Fold = TypeVar("Fold", bound=msgspec.Struct)


class Log(msgspec.Struct, frozen=True):
    """A log file: its path below the store's home, and what its name says of the session in it."""

    key: str
    native_id: str
    is_subagent: bool = False


class LabelFold(msgspec.Struct, Generic[Record]):
    """What a list row needs; small, since it is kept for every session."""

    def feed(self, record: Record) -> None:
        """Take the next record. Raises Unreadable for one that makes the log unreadable."""
        raise NotImplementedError

    def header(self, log: Log, session_id: str, updated_at: int) -> SessionHeader:
        """The row from the records so far. `updated_at` is the log's modification time in Unix ms.

        Raises Unreadable if these are no records of a session.
        """
        raise NotImplementedError

    @property
    def has_prompt(self) -> bool:
        """Whether there is anything that a person has typed, or an agent in a person's place."""
        raise NotImplementedError


class ConversationFold(msgspec.Struct, Generic[Record], kw_only=True):
    """A conversation; `text_bytes` bounds the UTF-8 of its items, `unknown_records` counts what it does not know."""

    text_bytes: int = 0
    unknown_records: int = 0

    def feed(self, record: Record) -> None:
        """Take the next record. Raises Unreadable for one that makes the log unreadable."""
        raise NotImplementedError

    @property
    def cwd(self) -> str | None:
        """The working directory as the records name it."""
        raise NotImplementedError

    def items(self) -> list[ConversationItem]:
        """The conversation as the agent would go on with it. Raises Unreadable if this is no session."""
        raise NotImplementedError


class SavedFold(msgspec.Struct, frozen=True, array_like=True):
    """A fold as it is kept, and how far its log was read."""

    counts: ScanCounts
    fold: msgspec.Raw


def saved_fold(counts: ScanCounts, fold: msgspec.Struct) -> SavedFold | None:
    """What to keep of a fold; None if it cannot be encoded, as `encode_state` says."""
    encoded = encode_state(fold)
    return None if encoded is None else SavedFold(counts, msgspec.Raw(encoded))


def capture_of(session_id: str, fold: ConversationFold[Record], counts: ScanCounts, *, is_torn: bool) -> Capture:
    """What a fold comes to once all records were fed to it. Raises Unreadable if this is no session."""
    return Capture(
        session_id=session_id,
        cwd=fold.cwd,
        format_version=None,
        captured_through_seq=counts.last_record,
        items=fold.items(),
        diagnostics=scan_diagnostics(counts, is_torn=is_torn, unknown_records=fold.unknown_records),
    )


def scan_diagnostics(counts: ScanCounts, *, is_torn: bool, unknown_records: int) -> list[Diagnostic]:
    """What had to be left out of a capture, counted."""
    found: list[Diagnostic] = []
    if is_torn:
        found.append(Diagnostic("torn-tail", "1 unfinished write at the end of the log was left out."))
    if counts.skipped:
        found.append(Diagnostic("skipped-lines", f"{_count(counts.skipped, 'damaged line')} left out."))
    if unknown_records:
        found.append(
            Diagnostic("unknown-events", f"{_count(unknown_records, 'record')} of unknown types were passed over.")
        )
    return found


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
