"""Messages as hosts hold them: the context message, its source record, and the forms a source may declare.

A form says how a person is shown a message (contract section 4, The context). Building a form without its facts
raises; reading one from a peer or a log never does: what does not hold its facts is opaque.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal

import msgspec

from sessionref.protocol.jsontext import as_object, convert

__all__ = (
    "Catalog",
    "ContextForm",
    "ContextMessage",
    "Instructions",
    "Notice",
    "Opaque",
    "Recall",
    "ReferenceRecord",
    "Relay",
    "Section",
    "SessionReferenceSource",
    "Snapshot",
    "TextBlock",
    "decode_form",
)

SUMMARY_CHARACTERS: Final = 120


class TextBlock(msgspec.Struct, frozen=True):
    """A content block of text."""

    text: str
    type: Literal["text"] = "text"


class ReferenceRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is durably known of one reference; exactly the keys that DSH accepts in its logs.

    `captured_format_version` is absent for 0; `omitted_bytes` counts UTF-8 text bytes that are not shown.
    """

    session_id: str
    label: str
    captured_format_version: int | msgspec.UnsetType = msgspec.UNSET
    captured_through_seq: int | None
    compacted: bool
    original_messages: int
    retained_messages: int
    omitted_messages: int
    omitted_bytes: int
    truncated: bool
    input_index: int


class SessionReferenceSource(msgspec.Struct, frozen=True, kw_only=True):
    """The source record of a context message: one record a reference."""

    kind: Literal["session-reference"] = "session-reference"
    form: Literal["recall"] = "recall"
    version: Literal[1] = 1
    references: list[ReferenceRecord]


class ContextMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The one message that carries all snapshots, to be put right after the user's."""

    id: str
    role: Literal["user"] = "user"
    content: list[TextBlock]
    source: SessionReferenceSource


class Instructions(msgspec.Struct, frozen=True):
    """Standing instructions."""

    form: ClassVar[str] = "instructions"


class Catalog(msgspec.Struct, frozen=True):
    """A list of things that can be used."""

    form: ClassVar[str] = "catalog"


class Section(msgspec.Struct, frozen=True):
    """What one subsystem contributes to a snapshot."""

    name: str
    text: str


class Snapshot(msgspec.Struct, frozen=True):
    """Current state by contributing subsystem. Raises ValueError without a section."""

    form: ClassVar[str] = "snapshot"
    sections: list[Section]

    def __post_init__(self) -> None:
        if not self.sections:
            raise ValueError("a snapshot needs at least one section")


class Notice(msgspec.Struct, frozen=True):
    """Something that happened, in one line. Raises ValueError for a blank, long or broken line."""

    form: ClassVar[str] = "notice"
    summary: str

    def __post_init__(self) -> None:
        is_one_line = self.summary.splitlines() == [self.summary]
        if not is_one_line or not self.summary.strip() or len(self.summary) > SUMMARY_CHARACTERS:
            raise ValueError(f"a notice needs a summary: one line of at most {SUMMARY_CHARACTERS} characters")


class Relay(msgspec.Struct, frozen=True, rename="camel"):
    """A message from another agent."""

    form: ClassVar[str] = "relay"
    sender_session_id: str | None = None


class Recall(msgspec.Struct, frozen=True):
    """Lifted from other sessions. Raises ValueError without a reference."""

    form: ClassVar[str] = "recall"
    references: list[ReferenceRecord]

    def __post_init__(self) -> None:
        if not self.references:
            raise ValueError("a recall needs at least one reference")


class Opaque(msgspec.Struct, frozen=True):
    """No form, an unknown one, or one without its facts."""


ContextForm = Instructions | Catalog | Snapshot | Notice | Relay | Recall | Opaque

_FORMS: Final[dict[str, type[Instructions | Catalog | Snapshot | Notice | Relay | Recall]]] = {
    kind.form: kind for kind in (Instructions, Catalog, Snapshot, Notice, Relay, Recall)
}


def decode_form(source: Any) -> ContextForm:
    """The form that a message's `source` declares, as decoded JSON; Opaque where it does not hold its facts."""
    members = as_object(source) or {}
    form = members.get("form")
    kind = _FORMS.get(form) if isinstance(form, str) else None
    if kind is None:
        return Opaque()
    try:
        return convert(members, kind)
    except msgspec.ValidationError:
        return Opaque()
