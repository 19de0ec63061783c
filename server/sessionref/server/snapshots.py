"""Snapshots: every reference of every message fitted into its budget, and what is durably known of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET

from sessionref.protocol.errors import budget_exceeded
from sessionref.protocol.mention import ParsedReference
from sessionref.protocol.messages import ReferenceRecord
from sessionref.server.references import ReferringMessage
from sessionref.server.retention import Retained, RetentionError, retain, snapshot_object
from sessionref.server.store import Capture, CheckCancelled

__all__ = ("Snapshot", "fit_snapshots")


class Snapshot(msgspec.Struct, frozen=True):
    """One reference as it will be shown: what was captured, what of it fits, under which label."""

    reference: ParsedReference
    capture: Capture
    retained: Retained
    object: dict[str, object]

    def record(self, at: int) -> ReferenceRecord:
        """The source record of the reference, which is the one at that place of its message."""
        return ReferenceRecord(
            session_id=self.reference.session_id,
            label=self.reference.label,
            captured_format_version=self.capture.format_version or UNSET,
            captured_through_seq=self.capture.captured_through_seq,
            compacted=self.retained.compacted,
            original_messages=self.retained.original_messages,
            retained_messages=len(self.retained.items),
            omitted_messages=self.retained.omitted_messages,
            omitted_bytes=self.retained.omitted_bytes,
            truncated=self.retained.truncated,
            input_index=at,
        )


def fit_snapshots(
    messages: Sequence[ReferringMessage], captures: Mapping[str, Capture], budget: int, check: CheckCancelled
) -> list[list[Snapshot]]:
    """Fit every reference of every message into `budget` serialised bytes; for worker threads.

    Raises SessionReferenceError BUDGET_EXCEEDED, and what `check` raises.
    """
    return [
        [_fit(message, at, captures, budget, check) for at in range(len(message.references))] for message in messages
    ]


def _fit(
    message: ReferringMessage, at: int, captures: Mapping[str, Capture], budget: int, check: CheckCancelled
) -> Snapshot:
    reference = message.references[at]
    capture = captures[reference.session_id]
    try:
        retained = retain(capture, reference.label, budget, check)
    except RetentionError as error:
        failure = budget_exceeded(reference.session_id, budget, error.size, at)
        raise failure.at(message_index=message.index) from None
    return Snapshot(reference, capture, retained, snapshot_object(capture, reference.label, retained.items))
