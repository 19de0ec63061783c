"""What OpenCode stores of messages, as far as it matters here: JSON in the rows of a database, or in files."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ("MESSAGE_KINDS", "PART_KINDS", "Message", "Part", "Revert", "SessionFile", "Something", "Times", "is_text")

PART_KINDS: Final = frozenset(
    {
        *("text", "reasoning", "tool", "file", "agent", "subtask", "step-start", "step-finish"),
        *("snapshot", "patch", "retry", "compaction"),
    }
)
"""The types of parts that are known, as of 1.18 and 2.0."""

MESSAGE_KINDS: Final = frozenset(
    {
        *("user", "assistant", "system", "synthetic", "skill", "shell", "compaction", "idle"),
        *("agent-switched", "model-switched", "location-switched"),
    }
)
"""The roles and types of messages that are known, as of 1.18 and 2.0."""


class Something(msgspec.Struct, frozen=True):
    """An object of which it matters only that it is there."""


class Times(msgspec.Struct, frozen=True, gc=False):
    """Points in time, in Unix ms."""

    created: int | float | None = None
    updated: int | float | None = None
    completed: int | float | None = None


class Part(msgspec.Struct, frozen=True, gc=False):
    """A part of a message; the name of its last member is written so."""

    type: str = ""
    text: str = ""
    synthetic: bool = False
    ignored: bool = False
    tail_start_id: str | None = None


class Message(msgspec.Struct, frozen=True, rename={"parent_id": "parentID", "provider_context": "providerContext"}):
    """A message. With a role, its parts are kept apart from it; with a type, or in a row of 2.x, they are in it.

    `summary` is true on the answer that a compaction is, an object on prompts, and a text in the compactions of 2.x.
    """

    id: str | None = None
    role: str = ""
    type: str = ""
    text: str = ""
    content: str | list[Part] = ""
    summary: bool | str | Something | None = None
    finish: str | None = None
    error: str | Something | None = None
    parent_id: str | None = None
    status: str = ""
    recent: str = ""
    provider_context: Something | None = None
    time: Times = Times()

    @property
    def parts(self) -> list[Part]:
        """What is in the message itself."""
        content = [Part("text", self.content)] if isinstance(self.content, str) else self.content
        return [Part("text", self.text), *content]

    @property
    def is_finished(self) -> bool:
        """Whether an answer came to its end."""
        return self.error is None and bool(self.finish or self.time.completed)


class Revert(msgspec.Struct, frozen=True, rename={"message_id": "messageID", "part_id": "partID"}):
    """Up to where a session was taken back: what is left out begins with that message, or in it with that part."""

    message_id: str | None = None
    part_id: str | None = None


class SessionFile(msgspec.Struct, frozen=True, rename={"parent_id": "parentID"}):
    """A session before there were databases."""

    id: str
    title: str | None = None
    directory: str | None = None
    parent_id: str | None = None
    revert: Revert | None = None
    time: Times = Times()


def is_text(part: Part) -> bool:
    """Whether a part is what somebody typed or said."""
    return part.type == "text" and not part.synthetic and not part.ignored
