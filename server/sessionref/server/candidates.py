"""Candidates: which sessions can be mentioned, filtered, ranked and cut (contract section 3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import UNSET

from sessionref.protocol.errors import invalid_reference
from sessionref.protocol.mention import clean_label, format_session_reference_mention
from sessionref.protocol.methods import MAX_CANDIDATES, Candidate
from sessionref.server.store import CheckCancelled, SessionHeader

__all__ = ("ListedSession", "check_limit", "select_candidates")

_CHECK_EVERY: Final = 256


class ListedSession(msgspec.Struct, frozen=True):
    """A session as its store lists it, with the store's kind and its own default for sub-agents."""

    header: SessionHeader
    origin: str
    lists_subagents: bool


def check_limit(limit: Any, default: int) -> int:
    """The number of rows asked for. Raises SessionReferenceError INVALID_REFERENCE out of 1 to 10,000."""
    if limit is None:
        return default
    if isinstance(limit, float) and limit.is_integer():
        limit = int(limit)
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_CANDIDATES:
        raise invalid_reference(f"limit must be an integer from 1 to {MAX_CANDIDATES}", limit=MAX_CANDIDATES)
    return limit


def select_candidates(
    sessions: Iterable[ListedSession],
    *,
    agent_id: str,
    cwd: str | None,
    query: str,
    limit: int,
    include_subagents: bool | None,
    check: CheckCancelled,
) -> list[Candidate]:
    """Every session but the target that matches, best first, at most `limit`.

    Rank: same working directory, then none, then another; inside a rank the newest first, ties by id.
    """
    listed = list(sessions)
    if cwd is None:
        cwd = next((row.header.cwd for row in listed if row.header.session_id == agent_id), None)
    needle = query.lower()
    matching: list[tuple[int, int, str, ListedSession, str, str]] = []
    for number, row in enumerate(listed):
        if number % _CHECK_EVERY == 0:
            check()
        header = row.header
        shown = row.lists_subagents if include_subagents is None else include_subagents
        if header.session_id == agent_id or (header.is_subagent and not shown):
            continue
        label = clean_label(header.title, header.session_id)
        display_title = clean_label(header.agent_label, header.session_id) if header.agent_label else label
        texts = (header.session_id, header.cwd or "", label, display_title)
        if needle and not any(needle in text.lower() for text in texts):
            continue
        rank = 1 if header.cwd is None else 0 if header.cwd == cwd else 2
        matching.append((rank, -header.created_at, header.session_id, row, label, display_title))
    matching.sort(key=lambda found: found[:3])
    return [
        Candidate(
            session_id=row.header.session_id,
            label=label,
            display_title=display_title,
            cwd=UNSET if row.header.cwd is None else row.header.cwd,
            same_workspace=rank == 0,
            created_at=row.header.created_at,
            updated_at=UNSET if row.header.updated_at is None else row.header.updated_at,
            origin=row.origin,
            mention=format_session_reference_mention(row.header.session_id, display_title),
        )
        for rank, _, _, row, label, display_title in matching[:limit]
    ]
