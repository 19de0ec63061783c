"""The limits of one client, each a named field with its default and its reason."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ("DEFAULT_LIMITS", "ClientLimits")


class ClientLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a server may make this client hold or wait for; sizes in bytes, times in seconds."""

    max_answer_bytes: int = 268_435_456
    """Answers outgrow requests: three contexts of a wide window, or `prepareMessages` on a long history."""

    read_chunk_bytes: int = 262_144
    """One read from a byte stream: some pipe buffers' worth, small beside an answer's limit."""

    stderr_tail_bytes: int = 16_384
    """The end of a server's log that is kept: a deep traceback fits."""

    log_line_bytes: int = 65_536
    """A longer line of a server's log is handed on in pieces, since it may never end."""

    max_unsent_frames: int = 1024
    """WebSocket frames owed to a server that sends pings but reads nothing; more end the connection."""

    connect_seconds: float = 5.0
    """From the call to a server that is there already to its answer to `initialize`; its event loop may be busy."""

    cancel_seconds: float = 1.0
    """How long a cancelled call may go on in order to tell the server; a server that reads needs no time at all."""

    flush_seconds: float = 1.0
    """How long leaving the connection waits for what was already sent to be taken."""

    close_seconds: float = 1.0
    """How long closing a stream may take, with whatever its carrier says at the end, the server's own end included."""

    reap_seconds: float = 1.0
    """From the end of a server's output to its exit code, which comes at once unless the server lives on."""

    goodbye_seconds: float = 2.0
    """How long a server may take to answer `shutdown`."""

    exit_seconds: float = 5.0
    """From the end of its input to a server's own end: a drain of three seconds, one of grace, one to spare."""

    terminate_seconds: float = 2.0
    """From the signal to terminate to the one that kills."""

    kill_seconds: float = 2.0
    """From the signal that kills to giving a process up as one that the system cannot end."""


DEFAULT_LIMITS: Final = ClientLimits()
