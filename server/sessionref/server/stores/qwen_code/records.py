"""The lines of a Qwen Code session, as far as they matter here.

The shapes are those of the agent's own source, up to the logs of its managed engine, which hold something else.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import msgspec

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.problems import Unreadable

__all__ = (
    "Content",
    "QwenRecord",
    "check_engine",
    "content_text",
    "is_answered_locally",
    "is_known",
    "is_prompt",
    "prompt_text",
    "summary_of",
)

_MANAGED: Final = "managed_session_"
"""How the records of the managed engine begin, whose logs are a newer format."""

_TYPES: Final = frozenset({"user", "assistant", "tool_result", "system"})

_TYPED: Final = (None, "mid_turn_user_message", "realtime_message")
"""The subtypes of what a person says: as usual, while the agent is busy, and aloud."""

_INJECTED: Final = frozenset({"notification", "cron", "goal_runtime", "agent_mention", "agent_message"})
"""The subtypes of what has the role of the user and is nobody's."""

_REAL_USER: Final = (None, "real_user")
"""The provenance of a person's text; older builds write none."""

_NOTIFICATION: Final = "notification"

_ACKNOWLEDGED: Final = "Got it. Thanks for the additional context!"
"""What a compression lets the model say to its summary: without it nothing was summarised, only tools' output cut."""


class Part(msgspec.Struct, frozen=True, gc=False):
    """One part of a content; calls and results of tools have no text."""

    text: str = ""
    thought: Any = False
    """Whatever is no no is a yes, so that a thought is never taken for an answer."""


class Content(msgspec.Struct, frozen=True):
    """A message as the model's interface has it."""

    role: str = ""
    parts: list[Part] | None = None


class Shown(msgspec.Struct, frozen=True, gc=False):
    """What the agent has shown of a command."""

    type: str = ""


class Payload(msgspec.Struct, frozen=True, rename="camel"):
    """What a record tells beside its message; each subtype has members of its own."""

    custom_title: str | None = None
    parent_session_id: str | None = None
    display_text: str | None = None
    phase: str | None = None
    raw_command: str | None = None
    sent_to_model: bool = False
    output_history_items: list[Shown] = []
    user_text: str | None = None
    compressed_history: list[Content] = []


class QwenRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A line: an entry of the session's tree."""

    type: str
    uuid: str | None = None
    parent_uuid: Any = None
    """Null for a root; what is neither that nor a text is an id that no record has."""

    subtype: str | None = None
    provenance: str | None = None
    timestamp: str | None = None
    cwd: str | None = None
    message: Content | None = None
    system_payload: Payload = Payload()
    is_sidechain: bool = False
    external_input_kind: str | None = None


def check_engine(record: QwenRecord) -> None:
    """Raise Unreadable (newer-format) for a log of the managed engine, whose messages are elsewhere."""
    if (record.subtype or "").startswith(_MANAGED):
        raise Unreadable(ReadFailedReason.NEWER_FORMAT)


def is_known(record: QwenRecord) -> bool:
    """Whether a record is one whose meaning is known, be it none for a conversation."""
    if record.type == "user":
        return record.subtype in _TYPED or record.subtype in _INJECTED
    return record.type in _TYPES


def is_prompt(record: QwenRecord) -> bool:
    """Whether a record is what a person typed or said, or an agent in a person's place."""
    return (
        record.type == "user"
        and record.subtype in _TYPED
        and record.provenance in _REAL_USER
        and record.external_input_kind != _NOTIFICATION
    )


def content_text(content: Content | None) -> str:
    """The texts of a message, a line feed between them; thoughts are none."""
    parts = () if content is None else content.parts or ()
    return "\n".join(part.text for part in parts if part.text and not part.thought)


def prompt_text(record: QwenRecord) -> str:
    """A prompt as it was shown to whoever typed it, without what hooks and files added."""
    shown = record.system_payload.display_text
    return content_text(record.message) if shown is None else shown


def is_answered_locally(payload: Payload) -> bool:
    """Whether a command has had its answer from the agent, and the model has never seen it."""
    shown = payload.output_history_items
    return (
        payload.phase == "result"
        and not payload.sent_to_model
        and bool(shown)
        and all(item.type == "assistant" for item in shown)
    )


def summary_of(history: list[Content]) -> tuple[str, list[str]] | None:
    """The summary in a compressed history, and the texts of what that kept; None if there is none.

    Behind the summary, in parts of their own, stand reminders.
    """
    for at, (content, answer) in enumerate(pairwise(history)):
        if content.role == "user" and answer.role == "model" and content_text(answer).startswith(_ACKNOWLEDGED):
            summary = next((part.text for part in content.parts or () if part.text.strip()), None)
            kept = [text for content in history[at + 2 :] if (text := content_text(content))]
            return None if summary is None else (summary, kept)
    return None
