"""The client of the session reference service: typed calls over any connection, and a server of one's own."""

from sessionref.client.client import Client
from sessionref.client.failures import (
    CloseReason,
    ConnectionClosedError,
    ConnectionRefusedByServerError,
    MissingExtraError,
    PeerEvidence,
    UnexpectedResultError,
)
from sessionref.client.limits import ClientLimits
from sessionref.client.sockets import connect_tcp, connect_unix, connect_websocket
from sessionref.client.streams import LineStream, MessageStream
from sessionref.client.transports import spawn

__all__ = (
    "Client",
    "ClientLimits",
    "CloseReason",
    "ConnectionClosedError",
    "ConnectionRefusedByServerError",
    "LineStream",
    "MessageStream",
    "MissingExtraError",
    "PeerEvidence",
    "UnexpectedResultError",
    "connect_tcp",
    "connect_unix",
    "connect_websocket",
    "spawn",
)
