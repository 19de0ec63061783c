"""Retention: what of a conversation fits its budget, with exact counts of what does not (contract section 4).

All sizes are UTF-8 bytes of tag-safe compact JSON. A shortened text is measured as it will be written, so that text
full of `<` or quotes is not wiped out. The cost is linear in the conversation, a logarithm aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import msgspec

from sessionref.protocol.jsontext import replace_surrogates, serialised_length, tag_safe, utf8_length
from sessionref.server.store import Capture, CheckCancelled, ConversationItem

__all__ = ("Retained", "RetentionError", "retain", "snapshot_object")

_ONE_MORE_BYTE: Final = b'"\\\b\t\n\f\r'
_FIVE_MORE_BYTES: Final = b"<" + bytes(set(range(0x20)) - set(_ONE_MORE_BYTE))
_BLOCK_BYTES: Final = 4096
"""Distance of the measured marks in a long text; a length between two marks costs one short scan."""

_NOTICE_SLACK: Final = 16
"""How much a common length can grow beyond the even share: what cutting at characters leaves over, generously."""

_SHORTEST_NOTICE_BYTES: Final = 40
"""Below this length every shortened text is empty, so the common length may jump from zero to here."""


class Retained(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that are shown, and the facts about those that are not; bytes are UTF-8 text bytes."""

    items: list[ConversationItem]
    compacted: bool
    original_messages: int
    omitted_messages: int
    omitted_bytes: int

    @property
    def truncated(self) -> bool:
        """Whether anything is not shown."""
        return self.omitted_messages > 0 or self.omitted_bytes > 0


class RetentionError(Exception):
    """Even with empty texts the object does not fit; `size` in serialised bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the smallest object takes {size} bytes")
        self.size = size


def snapshot_object(capture: Capture, label: str, items: Sequence[ConversationItem]) -> dict[str, object]:
    """One reference as the model sees it; the keys in this order are what the budget measures."""
    return {
        "sessionId": capture.session_id,
        "label": label,
        "cwd": capture.cwd,
        "capturedThroughSeq": capture.captured_through_seq,
        "conversation": [{"role": item.role, "text": item.text} for item in items],
    }


def retain(capture: Capture, label: str, budget: int, check: CheckCancelled) -> Retained:
    """Fit a capture into `budget` serialised bytes.

    Drops the oldest messages first, never a checkpoint nor the newest; then shortens the longest texts to one common
    length. Raises RetentionError if that does not suffice, and what `check` raises when the request is cancelled.
    """
    items = capture.items
    frame = len(tag_safe(snapshot_object(capture, label, ())).encode())
    lengths: list[int] = []
    for item in items:
        check()
        lengths.append(serialised_length(item.text))
    size = frame + sum(map(_item_size, items, lengths)) + max(0, len(items) - 1)

    kept = list(range(len(items)))
    omitted_bytes = 0
    if size > budget:
        kept.clear()
        for index, item in enumerate(items):
            if size > budget and not item.checkpoint and index < len(items) - 1:
                size -= _item_size(item, lengths[index]) + 1
                omitted_bytes += utf8_length(item.text)
            else:
                kept.append(index)
    shown = [items[index] for index in kept]
    if size > budget:
        texts = [_Text(items[index].text, lengths[index]) for index in kept]
        fixed = size - sum(text.length for text in texts)
        shortened = _shorten(texts, budget - fixed, check)
        if shortened is None:
            raise RetentionError(fixed)
        omitted_bytes += sum(omitted for _, omitted in shortened)
        shown = [msgspec.structs.replace(item, text=text) for item, (text, _) in zip(shown, shortened, strict=True)]
    return Retained(
        items=shown,
        compacted=any(item.checkpoint for item in items),
        original_messages=len(items),
        omitted_messages=len(items) - len(kept),
        omitted_bytes=omitted_bytes,
    )


def _item_size(item: ConversationItem, length: int) -> int:
    return len('{"role":"","text":""}') + len(item.role) + length


def _shorten(texts: list[_Text], room: int, check: CheckCancelled) -> list[tuple[str, int]] | None:
    """Cut the longest texts to the largest common length at which all fit into `room`; None if even empty ones do not.

    Returns each text with the number of its UTF-8 bytes that are not shown.
    """
    if room < 0:
        return None

    def total(length: int) -> int:
        check()
        return sum(text.length if text.length <= length else text.cut_length(length) for text in texts)

    # An even share of the room always fits, and nothing much above it can: cutting leaves only a few bytes unused,
    # except that a length too short for its notice leaves a text empty.
    low = _even_share([text.length for text in texts], room)
    high = max(low + _NOTICE_SLACK, _SHORTEST_NOTICE_BYTES + _NOTICE_SLACK)
    if any(text.shrinks for text in texts):
        # Lone surrogates are shorter once a text is cut, so that cutting may leave much unused.
        high = max(high, min(room, max(text.length for text in texts)))
    for text in texts:
        text.reach = high
    while low < high:
        middle = (low + high + 1) // 2
        if total(middle) <= room:
            low = middle
        else:
            high = middle - 1
    return [text.whole() if text.length <= low else text.cut(low) for text in texts]


def _even_share(lengths: list[int], room: int) -> int:
    """The largest length L such that the lengths, each capped at L, sum to at most `room`."""
    remaining = room
    ordered = sorted(lengths)
    for index, length in enumerate(ordered):
        share = remaining // (len(ordered) - index)
        if length > share:
            return share
        remaining -= length
    return ordered[-1] if ordered else 0


class _Text:
    """One text that can be cut to a head and a tail, in logarithmic time once its ends have been measured."""

    def __init__(self, text: str, length: int) -> None:
        self._text = text
        self.length = length
        """Serialised bytes of the whole text."""
        self.reach = 0
        """The largest length that the text will be cut to."""
        self._raw: bytes | None = None
        self._head = _Marks(b"", 0)
        self._tail = _Marks(b"", 0)

    @property
    def shrinks(self) -> bool:
        """Whether the text would be shorter as UTF-8: it holds lone surrogates, which are escapes otherwise."""
        return not self._text.isascii() and replace_surrogates(self._text) is not self._text

    def whole(self) -> tuple[str, int]:
        """The text as it is, nothing omitted."""
        return self._text, 0

    def cut_length(self, length: int) -> int:
        """Serialised bytes of the text cut to at most `length`."""
        raw = self._measured()
        kept = self._kept(raw, length)
        return 0 if kept is None else self._size(raw, kept)

    def cut(self, length: int) -> tuple[str, int]:
        """The text cut to at most `length` serialised bytes, and its UTF-8 bytes that are not shown."""
        raw = self._measured()
        kept = self._kept(raw, length)
        if kept is None:
            return "", len(raw)
        head, tail = _ends(raw, kept)
        omitted = tail - head
        return f"{raw[:head].decode()}{raw[tail:].decode()}{_notice(omitted)}", omitted

    def _measured(self) -> bytes:
        if self._raw is None:
            self._raw = replace_surrogates(self._text).encode()
            # A serialised byte holds at most one byte of text, so nothing beyond these ends can ever be shown.
            reach = min(len(self._raw), self.reach)
            self._head = _Marks(self._raw[:reach], reach)
            self._tail = _Marks(self._raw[len(self._raw) - reach :][::-1], reach)
        return self._raw

    def _kept(self, raw: bytes, length: int) -> int | None:
        """The most bytes of text that fit with their notice, or None if not even the notice fits."""
        low, high = 0, min(len(raw) - 1, length)
        if high < 0 or self._size(raw, 0) > length:
            return None
        while low < high:
            middle = (low + high + 1) // 2
            if self._size(raw, middle) <= length:
                low = middle
            else:
                high = middle - 1
        return low

    def _size(self, raw: bytes, kept: int) -> int:
        head, tail = _ends(raw, kept)
        omitted = tail - head
        return self._head.length(head) + self._tail.length(len(raw) - tail) + _NOTICE_BYTES + len(str(omitted))


class _Marks:
    """Serialised lengths of the prefixes of some bytes."""

    def __init__(self, data: bytes, reach: int) -> None:
        self._data = data
        blocks = (data[at : at + _BLOCK_BYTES] for at in range(0, reach, _BLOCK_BYTES))
        self._marks = [0, *accumulate(map(_written_bytes, blocks))]

    def length(self, count: int) -> int:
        """Serialised bytes of the first `count` bytes."""
        block, rest = divmod(count, _BLOCK_BYTES)
        return self._marks[block] + _written_bytes(self._data[count - rest : count])


def _written_bytes(data: bytes) -> int:
    """Bytes that a part of a UTF-8 text takes inside a tag-safe JSON string; additive over any split."""
    ones = len(data) - len(data.translate(None, _ONE_MORE_BYTE))
    fives = len(data) - len(data.translate(None, _FIVE_MORE_BYTES))
    return len(data) + ones + 5 * fives


def _ends(raw: bytes, kept: int) -> tuple[int, int]:
    """Where the head ends and the tail begins if `kept` bytes may be shown, both moved to character boundaries."""
    head = (kept + 1) // 2
    while head > 0 and _continues(raw, head):
        head -= 1
    tail = len(raw) - kept // 2
    while tail < len(raw) and _continues(raw, tail):
        tail += 1
    return head, tail


def _continues(raw: bytes, position: int) -> bool:
    return position < len(raw) and raw[position] & 0xC0 == 0x80


def _notice(omitted: int) -> str:
    return f"\n[… omitted {omitted} UTF-8 bytes …]"


_NOTICE_BYTES: Final = serialised_length(_notice(0)) - 1
"""Serialised bytes of the notice line without its digits."""
