"""The limits of one connection, each a named field with its default and its reason."""

from __future__ import annotations

import msgspec

__all__ = ("Limits",)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one peer may make this service hold or wait for; the defaults are those of contract section 5."""

    max_message_bytes: int = 33_554_432
    """A prompt with images in base64 fits; what is longer was not typed by a person."""

    skip_factor: int = 4
    """A message that is too long is skipped up to this many times the limit; past that the peer has gone wrong."""

    max_header_bytes: int = 8192
    """Two headers are meant to be here; real clients send below 100 bytes."""

    max_batch: int = 100
    """Members of one batch, which are answered together and so are held together."""

    max_concurrent_requests: int = 16
    """Requests of one connection that run at once; more would only wait for the same disk."""

    max_queued_requests: int = 1024
    """Requests of one connection that wait; beyond it a peer is told to come again."""

    request_timeout_seconds: float = 60.0
    """After this a request is answered as cancelled by the server, whatever its storage does."""

    drain_seconds: float = 3.0
    """How long requests in flight may go on after the end of input or a signal."""

    exit_grace_seconds: float = 1.0
    """From the end of the drain to the end of the process, hung reads or not."""

    write_high_water_bytes: int = 8_388_608
    """Answers waiting for the peer; above it, no more requests are read until it takes some."""

    read_chunk_bytes: int = 262_144
    """One read from a byte stream: some pipe buffers' worth, small beside a message's limit."""
