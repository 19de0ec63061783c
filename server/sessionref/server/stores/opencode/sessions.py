"""What OpenCode says of a session itself, wherever it keeps it."""

from __future__ import annotations

import hashlib
import re
from typing import Final

import msgspec

from sessionref.server.store import SessionHeader
from sessionref.server.stores.opencode.records import Revert

__all__ = ("Session", "session_header", "session_stamp", "whole_number")

MAX_NUMBER: Final = 1 << 53
"""Beyond it JavaScript, whose numbers these are, has no whole ones."""

_STAMP_BYTES: Final = 16
"""Two rows do not share so many bytes of a digest by chance."""

_PLACEHOLDER: Final = re.compile(r"(?:New|Child) session - \d{4}-\d\d-\d\dT[\d:.]+Z")
"""What a session is called until its agent has thought of something (agent-stores section 6)."""


class Session(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A session; times in Unix ms. `newest` is where its messages end, where that costs nothing to know."""

    id: str
    title: str | None = None
    directory: str | None = None
    parent_id: str | None = None
    created_at: int = 0
    updated_at: int | None = None
    revert: Revert | None = None
    newest: int | None = None

    @property
    def own_title(self) -> str | None:
        """The title, unless it is one that every new session has."""
        title = self.title or ""
        return title if title.strip() and not _PLACEHOLDER.fullmatch(title) else None

    @property
    def changed_at(self) -> int:
        """When it was changed last, as far as is known."""
        return self.updated_at or self.created_at

    @property
    def cwd(self) -> str | None:
        """The working directory."""
        return self.directory or None


def session_header(session: Session, session_id: str, prompt: str | None) -> SessionHeader:
    """The row, called by its first prompt where it has no title."""
    return SessionHeader(
        session_id=session_id,
        created_at=session.created_at,
        updated_at=session.updated_at,
        cwd=session.cwd,
        title=session.own_title or prompt,
        is_subagent=bool(session.parent_id),
    )


def session_stamp(session: Session) -> bytes:
    """What changes whenever the row may have."""
    return hashlib.blake2b(repr(session).encode("utf-8", "surrogatepass"), digest_size=_STAMP_BYTES).digest()


def whole_number(value: object) -> int | None:
    """A stored time as Unix ms; None for what is no number of them."""
    return int(value) if isinstance(value, int | float) and abs(value) < MAX_NUMBER else None
