"""The title and the label of a session, found without folding its log.

A list shows nothing else of a log: only lines that can hold one of the two are decoded, the others cost a search for
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from sessionref.server.stores.dsh.descriptors import agent_label, title
from sessionref.server.stores.dsh.events import SubagentDescriptor, TitleEvent
from sessionref.server.stores.dsh.records import EventDecoder

__all__ = ("Labels", "find_labels")

# Without the quote in front: a search for something that begins with a frequent byte takes twice as long.
_TITLE: Final = b'session/title"'
_DESCRIPTOR: Final = b'subagent/descriptor"'


class Labels(NamedTuple):
    """The latest title of a session, and the label that its sub-agent was made with; verbatim."""

    title: str | None = None
    agent_label: str | None = None


def find_labels(blocks: Iterator[bytes], decoder: EventDecoder, before: Labels | None = None) -> Labels:
    """The last valid title and the last descriptor's label in blocks of complete lines, or those before them.

    Raises what `blocks` does.
    """
    found_title, found_label = before or Labels()
    for block in blocks:
        for line in _lines_with(_TITLE, block):
            event = decoder.decode(line)
            if isinstance(event, TitleEvent) and (given := title(event)):
                found_title = given
                break
        for line in _lines_with(_DESCRIPTOR, block):
            event = decoder.decode(line)
            if isinstance(event, SubagentDescriptor):
                found_label = agent_label(event)
                break
    return Labels(found_title, found_label)


def _lines_with(marker: bytes, block: bytes) -> Iterator[bytes]:
    """The lines of a block that hold the marker, last line first."""
    # Searching forwards is much faster, and most blocks hold none.
    at = block.rfind(marker) if marker in block else -1
    while at >= 0:
        start = block.rfind(b"\n", 0, at) + 1
        yield block[start : block.index(b"\n", at)]
        at = block.rfind(marker, 0, start)
