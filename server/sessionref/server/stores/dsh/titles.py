"""The title and the label of a session, found without folding its log.

A list shows nothing else of a log: only lines that can hold one of the two are decoded, the others cost a look at
their beginning, or a search if they are short.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO
from typing import Final, NamedTuple

from sessionref.server.stores.dsh.descriptors import agent_label, title
from sessionref.server.stores.dsh.events import SubagentDescriptor, TitleEvent
from sessionref.server.stores.dsh.records import EventDecoder

__all__ = ("Labels", "find_labels")

_TITLE: Final = b'session/title"'
_DESCRIPTOR: Final = b'subagent/descriptor"'
_OF_NO_OTHER_TYPE: Final = re.compile(rb'(?!{"type":"(?!session/title"|subagent/descriptor"))')
"""Matches a line unless it begins, as DSH's lines do, with another type."""

_SHORT_LINE: Final = 256
"""Bytes that two searches pass in less time than it takes to look at the beginning of a line."""


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
        # The middle of a block tells what most of its lines are like; whatever it tells, nothing is missed.
        middle = len(block) // 2
        if b"\n" in block[middle : middle + _SHORT_LINE] and not _may_hold_label(block):
            continue
        for line in filter(_OF_NO_OTHER_TYPE.match, BytesIO(block)):
            event = decoder.decode(line) if _may_hold_label(line) else None
            if isinstance(event, TitleEvent):
                found_title = title(event) or found_title
            elif isinstance(event, SubagentDescriptor):
                found_label = agent_label(event)
    return Labels(found_title, found_label)


def _may_hold_label(text: bytes) -> bool:
    return _TITLE in text or _DESCRIPTOR in text
