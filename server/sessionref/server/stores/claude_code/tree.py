"""The tree of a session's records, and the branch of it that Claude Code goes on with (agent-stores section 4, b).

Records name their parents. A rewind makes a second child, or a second root; a compaction makes a root. What a damaged
line, a cycle, or a version without uuids leaves open is taken from the order of the file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from sessionref.server.stores.claude_code.records import KeptSegment

__all__ = ("Entry", "EntryKind", "branch_of")

EntryKind = Literal["user", "assistant", "summary", "continued", "boundary", "other"]
"""What a record is: `continued` is a summary without a mark, `boundary` where a compaction begins."""

MAX_SEGMENTS: Final = 32
"""Kept segments that are followed, the last ones: what an earlier compaction kept is long gone from the branch."""

_LEAVES: Final = ("user", "assistant", "summary", "continued")
_NONE: Final = -1


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A record in the tree; `reply` is the same in all records of one reply, `is_aside` tells those between agents."""

    uuid: str | None
    parent: str | None
    kind: EntryKind
    text: str = ""
    reply: str | None = None
    is_aside: bool = False


def branch_of(entries: Sequence[Entry], kept: Sequence[KeptSegment]) -> list[Entry]:
    """The entries of the conversation in its order, from its last compaction on.

    `kept` are the segments that compactions kept, in the order of the file.
    """
    shown, places = _without_doubles(entries)
    if any(entry.kind == "assistant" and entry.parent in places for entry in shown):
        parents = _parents(shown, places)
        for segment in kept[-MAX_SEGMENTS:]:
            _keep(parents, [places.get(uuid, _NONE) for uuid in _ends(segment)])
        branch = [shown[at] for at in _with_rest(shown, parents, _path(parents, _leaf(shown, parents)))]
    else:
        branch = shown
    boundaries = [at for at, entry in enumerate(branch) if entry.kind == "boundary"]
    summaries = [at for at, entry in enumerate(branch) if entry.kind == "summary"]
    return branch[(boundaries or summaries or [0])[-1] :]


def _without_doubles(entries: Iterable[Entry]) -> tuple[list[Entry], dict[str, int]]:
    """The entries without repeated ones, and the places of their uuids; of two with one uuid that with a text stays."""
    shown: list[Entry] = []
    places: dict[str, int] = {}
    for entry in entries:
        at = _NONE if entry.uuid is None else places.setdefault(entry.uuid, len(shown))
        if at in (_NONE, len(shown)):
            shown.append(entry)
        elif entry.text and not shown[at].text:
            shown[at] = entry
    return shown, places


def _parents(shown: Sequence[Entry], places: dict[str, int]) -> list[int]:
    """The place of each entry's parent; of one that has lost its own, that of the entry before it."""
    found: list[int] = []
    for at, entry in enumerate(shown):
        # A reply always has something before it, and what has no uuid has never begun anything.
        is_root = entry.parent is None and entry.uuid is not None and entry.kind != "assistant"
        found.append(_NONE if is_root else at - 1 if entry.parent is None else places.get(entry.parent, at - 1))
    return found


def _ends(segment: KeptSegment) -> tuple[str, str, str]:
    return segment.head_uuid, segment.anchor_uuid, segment.tail_uuid


def _keep(parents: list[int], ends: Sequence[int]) -> None:
    """Hang a kept segment on its anchor, and what hung there on the segment's end."""
    head, anchor, tail = ends
    if _NONE in ends:
        return
    path = _path(parents, tail, to=head)
    if path[0] != head or anchor in path:
        return
    for at, parent in enumerate(parents):
        if parent == anchor:
            parents[at] = tail
    parents[head] = anchor


def _leaf(shown: Sequence[Entry], parents: Sequence[int]) -> int:
    """The last entry of the conversation: the latest in the file of those that are nearest to an end of the tree."""
    latest = _NONE
    passed: set[int] = set()
    for at in _tips(parents):
        while at not in passed and at != _NONE:
            passed.add(at)
            if shown[at].kind in _LEAVES:
                latest = max(latest, at)
                break
            at = parents[at]
    return len(shown) - 1 if latest == _NONE else latest


def _tips(parents: Sequence[int]) -> list[int]:
    """The places that are nobody's parent, and the last one of each cycle that none of them leads to."""
    named = set(parents)
    backwards = range(len(parents) - 1, -1, -1)
    reached: set[int] = {_NONE}
    found: list[int] = []
    for at in (*(at for at in backwards if at not in named), *backwards):
        if at not in reached:
            found.append(at)
        while at not in reached:
            reached.add(at)
            at = parents[at]
    return found


def _path(parents: Sequence[int], leaf: int, *, to: int = _NONE) -> list[int]:
    """The places from the root, or from another place, to a leaf; a cycle is left for what is before it in the file."""
    path: list[int] = []
    passed: set[int] = {_NONE}
    first = at = leaf
    while at not in passed:
        path.append(at)
        passed.add(at)
        first = min(first, at)
        if at == to:
            break
        at = parents[at] if parents[at] == _NONE or parents[at] not in passed else first - 1
    return path[::-1]


def _with_rest(shown: Sequence[Entry], parents: Sequence[int], path: Sequence[int]) -> list[int]:
    """The path with what belongs to its entries: records without uuids, and the rest of replies with several calls."""
    taken = set(path)
    replies = {shown[at].reply for at in path} - {None}
    rest: dict[int, list[int]] = defaultdict(list)
    for at, entry in enumerate(shown):
        # What is before all others, and has no uuid, has nothing that it could be left with.
        belongs = parents[at] in taken or (parents[at] == _NONE and entry.uuid is None)
        if at not in taken and belongs and (entry.uuid is None or entry.reply in replies):
            taken.add(at)
            rest[parents[at]].append(at)
    found: list[int] = []
    waiting = [*reversed(path), *reversed(rest.get(_NONE, ()))]
    while waiting:
        at = waiting.pop()
        found.append(at)
        waiting += reversed(rest.get(at, ()))
    return found
