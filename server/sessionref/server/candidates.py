"""Candidates: which sessions can be mentioned, filtered, ranked and cut (contract section 3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, islice
from typing import Any, Final

import msgspec
from msgspec import UNSET

from sessionref.protocol.errors import invalid_reference
from sessionref.protocol.mention import clean_label, format_session_reference_mention
from sessionref.protocol.methods import MAX_CANDIDATES, Candidate
from sessionref.server.store import CheckCancelled, SessionHeader

__all__ = ("ListedSession", "check_limit", "list_session", "row_order", "select_candidates")

_WINDOWS_PATH: Final = re.compile(r"[A-Za-z]:[\\/]|\\\\")
"""A drive and a separator, or a share; without a separator a drive's current directory is meant, which nobody knows."""

_BETWEEN: Final = "\0"
"""Stands between the texts that are searched; a query that holds it needs a closer look."""


class ListedSession(msgspec.Struct, frozen=True, gc=False):
    """A session as it can be listed: cleaned labels, and the lower-cased text in which a query is looked for."""

    header: SessionHeader
    origin: str
    lists_subagents: bool
    workspace: str | None
    label: str
    display_title: str
    searched: str
    title_pending: bool
    key: str


def list_session(
    header: SessionHeader, *, origin: str, lists_subagents: bool, title_pending: bool = False, key: str = ""
) -> ListedSession:
    """Make a row of a header; `key` is the store's own, for whoever made the row."""
    label = clean_label(header.title, header.session_id)
    texts = [header.session_id, header.cwd or "", label]
    display_title = label
    if header.agent_label:
        display_title = clean_label(header.agent_label, header.session_id)
        texts.append(display_title)
    return ListedSession(
        header,
        origin,
        lists_subagents,
        _workspace(header.cwd),
        label,
        display_title,
        # In one go: what stands between them is no letter, so that each is lower-cased as if it stood alone.
        _BETWEEN.join(texts).lower(),
        title_pending,
        key,
    )


def row_order(row: ListedSession) -> tuple[int, str]:
    """The order inside a rank: the newest first, ties by id."""
    return -row.header.created_at, row.header.session_id


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
    rows: Sequence[ListedSession],
    *,
    agent_id: str,
    cwd: str | None,
    query: str,
    limit: int,
    include_subagents: bool | None,
    check: CheckCancelled,
) -> list[tuple[ListedSession, Candidate]]:
    """Every session but the target that matches, best first, at most `limit`; `rows` must be in `row_order`.

    Rank: same working directory, then none, then another.
    """
    if cwd is None:
        cwd = next((row.header.cwd for row in rows if row.header.session_id == agent_id), None)
    needle = query.lower()
    matching = [row for row in rows if needle in row.searched] if needle else rows
    check()
    if _BETWEEN in needle:
        matching = [row for row in matching if _matches(row, needle)]

    def is_shown(row: ListedSession) -> bool:
        shown = row.lists_subagents if include_subagents is None else include_subagents
        return row.header.session_id != agent_id and (shown or not row.header.is_subagent)

    here = _workspace(cwd)
    same = [row for row in matching if row.workspace == here] if here is not None else []
    none = [row for row in matching if row.workspace is None]
    other = (row for row in matching if row.workspace is not None and row.workspace != here)
    check()
    chosen = list(islice(filter(is_shown, chain(same, none, other)), limit))
    return [(row, _candidate(row, same_workspace=here is not None and row.workspace == here)) for row in chosen]


def _workspace(cwd: str | None) -> str | None:
    """A working directory in the one form in which it is compared: only on Windows one directory has several."""
    if cwd is None or not _WINDOWS_PATH.match(cwd):
        return cwd
    drive, rest = cwd[:1].lower(), cwd[1:].replace("/", "\\")
    trimmed = rest.rstrip("\\")
    # The separator behind a drive is its root's.
    return drive + (trimmed + "\\" if trimmed == ":" else trimmed)


def _matches(row: ListedSession, needle: str) -> bool:
    header = row.header
    texts = (header.session_id, header.cwd or "", row.label, row.display_title)
    return any(needle in text.lower() for text in texts)


def _candidate(row: ListedSession, *, same_workspace: bool) -> Candidate:
    header = row.header
    return Candidate(
        session_id=header.session_id,
        label=row.label,
        display_title=row.display_title,
        cwd=UNSET if header.cwd is None else header.cwd,
        same_workspace=same_workspace,
        created_at=header.created_at,
        updated_at=UNSET if header.updated_at is None else header.updated_at,
        origin=row.origin,
        mention=format_session_reference_mention(header.session_id, row.display_title),
        title_pending=row.title_pending or UNSET,
    )
