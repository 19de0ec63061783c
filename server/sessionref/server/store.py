"""The seam between this service and the places where agents keep their sessions.

A store lists sessions and captures one. How its files become conversation is the store's own affair; everything after
it (projection limits, retention, rendering, spill, errors) is the same for every agent. Stores are synchronous and
run in worker threads: they call `check` about once a mebibyte or a file, and `check` raises when the request was
cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import msgspec

__all__ = (
    "Capture",
    "CataloguedStore",
    "CheckCancelled",
    "ConversationItem",
    "Diagnostic",
    "Lesson",
    "Listing",
    "SavedCapture",
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


class ConversationItem(msgspec.Struct, frozen=True, gc=False):
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
    numbering's generation, None where the store has none.
    """

    session_id: str
    cwd: str | None
    format_version: int | None
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


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """What reading a session taught about its list row.

    `stamp` tells the stored bytes that it was learnt from, `resume` is where the store goes on when they have grown;
    both are the store's own. Without its title a lesson is not complete. `has_prompt` is false if there are records,
    but none that a person typed: a store in which that holds for every session is not understood.
    """

    header: SessionHeader
    stamp: bytes
    resume: bytes = b""
    has_title: bool = True
    has_prompt: bool = True


class SavedCapture(msgspec.Struct, frozen=True, kw_only=True):
    """A capture, and what the store wants to be given when it captures the session again.

    `state` is None if what was given is still all that there is to know, or if nothing is worth keeping.
    """

    capture: Capture
    key: str
    state: bytes | None


@runtime_checkable
class CataloguedStore(SessionStore, Protocol):
    """A store from which one can learn in parts, so that what was learnt once need not be read again.

    Sessions lie under keys, which say where in the store, in groups whose own stamp changes when a session comes or
    goes. A key is unique in its store and no absolute path.
    """

    @property
    def location(self) -> str:
        """What tells this store's root from others of its kind, across processes."""
        ...

    @property
    def groups_tell_all(self) -> bool:
        """Whether the time of a group changes with every session in it, as that of a database does."""
        ...

    def exists(self) -> bool:
        """Whether there is anything where this store should be."""
        ...

    def groups(self) -> dict[str, int]:
        """The groups with the time of their last change in ns. Raises SessionReferenceError READ_FAILED."""
        ...

    def keys(self, group: str, check: CheckCancelled) -> list[str]:
        """The keys of everything in a group that may be a session. Raises SessionReferenceError READ_FAILED."""
        ...

    def identity(self, key: str, header: SessionHeader | None) -> str:
        """What is the same for two keys only if they name the same session id; the row says it, if there is one."""
        ...

    def changed(self, stamps: Mapping[str, bytes], check: CheckCancelled) -> Iterator[str]:
        """The keys whose sessions no longer have these stamps, be they changed or gone."""
        ...

    def learn(self, key: str, known: Lesson | None, check: CheckCancelled, *, with_title: bool) -> Lesson | None:
        """Learn a session's row, from where the known lesson ended if it still holds; None if there is no session.

        Raises SessionReferenceError READ_FAILED with the reason for which it cannot be listed.
        """
        ...

    def capture_again(
        self, session_id: str, saved_state: Callable[[str], bytes | None], check: CheckCancelled
    ) -> SavedCapture:
        """Capture a session, reading only what is not in the state that was saved for its key, if that still holds.

        Raises SessionReferenceError READ_FAILED.
        """
        ...

    def watched_folders(self) -> list[Path]:
        """The folders below which sessions change."""
        ...

    def key_of(self, path: Path) -> str | None:
        """The key of the session that a changed path below a watched folder belongs to, if it belongs to one."""
        ...
