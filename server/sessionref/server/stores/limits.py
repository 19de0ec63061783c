"""How much of a stored session is read before it is refused as too large (contract section 4, Reading DSH logs)."""

from __future__ import annotations

import msgspec

__all__ = ("ReadingLimits",)


class ReadingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of reading one session, whichever agent wrote it.

    The first three and the window refuse a session, the others say how reading one goes on.
    """

    line_bytes: int = 64 * 1024 * 1024
    """The longest line: a single message with attachments stays far below it."""

    depth: int = 512
    """Levels of JSON nesting: what the codecs can take without a RecursionError."""

    conversation_bytes: int = 256 * 1024 * 1024
    """UTF-8 bytes of projected text held at once: no budget can use more than a small part of it."""

    whole_bytes: int = 64 * 1024
    """Bytes up to which a log is read whole where its header alone was asked for: opening it again costs more."""

    saved_from_bytes: int = 256 * 1024
    """Bytes from which on the state of a captured log is worth saving: a shorter one is read in no time."""

    window_log: int = 27
    """Binary logarithm of the largest zstd window: 128 MiB, what one frame may make the decompressor allocate."""

    piece_bytes: int = 64 * 1024
    """Bytes read or decompressed in one step: they stay in the processor's cache, and their memory with the process."""

    compressed_bytes: int = 64 * 1024
    """Compressed bytes given to zstd in one step: what follows a frame's end in them is copied at every end."""
