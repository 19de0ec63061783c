"""The seam between this service and the places where agents keep their sessions.

A store lists sessions and captures one. How its files become conversation is the store's own affair; everything after
it (projection limits, retention, rendering, spill, errors) is the same for every agent. Stores are synchronous and
run in worker threads: they call `check` about once a mebibyte or a file, and `check` raises when the request was
cancelled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

__all__ = (
    "Capture",
    "CheckCancelled",
    "ConversationItem",
    "Diagnostic",
    "Listing",
    "SessionHeader",
    "SessionStore",
    "Unlisted",
)

CheckCancelled = Callable[[], None]
"""Raises the caller's cancellation exception once the request was cancelled; cheap enough for every chunk read."""


class SessionHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a list row needs to know of one session, without a word of its conversation.

    `created_at` and `updated_at` are Unix milliseconds; `title` is the latest title, verbatim;
    `agent_label` a sub-agent's durable creation label, verbatim.
    """

    session_id: str
    created_at: int
    updated_at: int | None = None
    cwd: str | None = None
    title: str | None = None
    agent_label: str | None = None
    is_subagent: bool = False


class Unlisted(msgspec.Struct, frozen=True):
    """One session that could not be listed: where inside its store (never an absolute path), and why."""

    place: str
    reason: str


class Listing(msgspec.Struct, frozen=True):
    """All sessions of a store in no promised order, each id once, and what had to be left out."""

    sessions: list[SessionHeader]
    unlisted: list[Unlisted]


class ConversationItem(msgspec.Struct, frozen=True):
    """One projected message: its text blocks joined by a newline, never empty."""

    role: Literal["user", "assistant"]
    text: str
    checkpoint: bool = False


class Diagnostic(msgspec.Struct, frozen=True):
    """Something a reader should know about a capture that the source record cannot say."""

    kind: Literal["torn-tail", "skipped-lines", "interrupted-turn", "unknown-events"]
    detail: str


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """One consistent read of one session.

    `captured_through_seq` is a position in the store's own numbering, None for an empty log; `format_version` the
    numbering's generation, 0 where the store has none.
    """

    session_id: str
    cwd: str | None
    format_version: int
    captured_through_seq: int | None
    items: list[ConversationItem]
    diagnostics: list[Diagnostic]


class SessionStore(Protocol):
    """A place where one kind of agent keeps its sessions; read only, thread-safe, synchronous."""

    @property
    def kind(self) -> str:
        """The store's kind, shown as `origin`."""
        ...

    @property
    def lists_subagents(self) -> bool:
        """Whether sessions of sub-agents are listed unless a request says otherwise."""
        ...

    def list_sessions(self, check: CheckCancelled) -> Listing:
        """List every session with its title; one unreadable session costs its own row only.

        Raises SessionReferenceError READ_FAILED if the store as a whole cannot be read.
        """
        ...

    def capture(self, session_id: str, check: CheckCancelled) -> Capture:
        """Read one session once. Raises SessionReferenceError READ_FAILED with its reason."""
        ...
