"""The ordered nodes of a surface: appended in constant time, replaced at the cost of what is shadowed.

Most logs only append, for which a dictionary keeps the order. The first replacement adds links, as dictionaries of
integers: a ring of objects would be walked by the garbage collector again and again, with everything else waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final, Literal

import msgspec

from sessionref.server.store import ConversationItem

__all__ = ("NodeKind", "Surface", "SurfaceNode")

NodeKind = Literal["message", "tool-result", "system"]

_ENDS: Final = -1
"""Stands before the first node and behind the last, where no position of a log is."""


class SurfaceNode(msgspec.Struct, frozen=True, gc=False):
    """One event on the surface: its position in the log, and what it adds to the conversation, if anything."""

    seq: int
    kind: NodeKind
    item: ConversationItem | None = None


class Surface:
    """Nodes by position in the log, in the order in which they are shown."""

    def __init__(self) -> None:
        self._nodes: dict[int, SurfaceNode] = {}
        self._after: dict[int, int] | None = None
        self._before: dict[int, int] = {}

    def __iter__(self) -> Iterator[SurfaceNode]:
        if self._after is None:
            yield from self._nodes.values()
            return
        seq = self._after[_ENDS]
        while seq != _ENDS:
            yield self._nodes[seq]
            seq = self._after[seq]

    def append(self, node: SurfaceNode) -> None:
        """Add a node behind all others."""
        self._nodes[node.seq] = node
        if self._after is not None:
            self._link(node.seq, _ENDS, self._after)

    def put_first(self, nodes: Sequence[SurfaceNode]) -> None:
        """Add nodes before all others, in their order."""
        self._nodes = {node.seq: node for node in (*nodes, *self)}
        self._after = None

    def is_first(self, node: SurfaceNode) -> bool:
        """Whether a node is shown before all others."""
        return next(iter(self)) is node

    def between(self, first: int, last: int, is_known: Callable[[int], bool]) -> list[SurfaceNode] | None:
        """The nodes from one position to another that is not before it, if all are known; None otherwise."""
        after = self._links()
        if first not in self._nodes or last not in self._nodes:
            return None
        found: list[SurfaceNode] = []
        seq = first
        while seq != _ENDS and is_known(seq):
            found.append(self._nodes[seq])
            if seq == last:
                return found
            seq = after[seq]
        return None

    def replace(self, shadowed: Sequence[SurfaceNode], node: SurfaceNode) -> None:
        """Put a node in the place of adjacent others."""
        after = self._links()
        before, behind = self._before[shadowed[0].seq], after[shadowed[-1].seq]
        for old in shadowed:
            del self._nodes[old.seq], self._before[old.seq], after[old.seq]
        after[before], self._before[behind] = behind, before
        self._nodes[node.seq] = node
        self._link(node.seq, behind, after)

    def _links(self) -> dict[int, int]:
        """The links, made when they are first needed."""
        if self._after is None:
            order = [_ENDS, *self._nodes, _ENDS]
            self._after = dict(pairwise(order))
            self._before = {after: before for before, after in pairwise(order)}
        return self._after

    def _link(self, seq: int, behind: int, after: dict[int, int]) -> None:
        before = self._before[behind]
        after[before], after[seq] = seq, behind
        self._before[seq], self._before[behind] = before, seq
