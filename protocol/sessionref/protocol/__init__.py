"""What crosses the wire: sans-IO Structs, codecs, the error table and framing."""

from sessionref.protocol.errors import (
    ErrorCode,
    ProtocolError,
    ReadFailedReason,
    RpcError,
    SessionReferenceError,
)
from sessionref.protocol.mention import (
    decode_session_reference_uri,
    encode_session_reference_uri,
    format_session_reference_mention,
    parse_session_reference_text,
)

__all__ = (
    "ErrorCode",
    "ProtocolError",
    "ReadFailedReason",
    "RpcError",
    "SessionReferenceError",
    "decode_session_reference_uri",
    "encode_session_reference_uri",
    "format_session_reference_mention",
    "parse_session_reference_text",
)
