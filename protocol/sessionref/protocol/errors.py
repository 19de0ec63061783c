"""The error table, both ways: typed failures built from facts, and the JSON-RPC errors they are on the wire.

Messages are made here and nowhere else, from constants and counts only: no path, no conversation text, one line
of at most 200 characters (contract section 1, Errors).
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Any, Final

import msgspec

__all__ = (
    "CODE_NUMBERS",
    "SERVER_CANCELLED",
    "ErrorCode",
    "ErrorData",
    "ProtocolCode",
    "ProtocolError",
    "ReadFailedReason",
    "RpcError",
    "SessionReferenceError",
    "WireError",
    "budget_exceeded",
    "busy",
    "cancelled",
    "duplicate_request_id",
    "internal_error",
    "invalid_config",
    "invalid_params",
    "invalid_reference",
    "invalid_request",
    "message_too_long",
    "method_not_found",
    "parse_error",
    "read_failed",
    "self_reference",
    "too_many_references",
)

MAX_MESSAGE_CHARACTERS: Final = 200


class ErrorCode(StrEnum):
    """The seven stable codes that `data.code` carries."""

    INVALID_CONFIG = "SESSION_REFERENCE_INVALID_CONFIG"
    INVALID_REFERENCE = "SESSION_REFERENCE_INVALID_REFERENCE"
    SELF_REFERENCE = "SESSION_REFERENCE_SELF_REFERENCE"
    TOO_MANY = "SESSION_REFERENCE_TOO_MANY"
    READ_FAILED = "SESSION_REFERENCE_READ_FAILED"
    BUDGET_EXCEEDED = "SESSION_REFERENCE_BUDGET_EXCEEDED"
    CANCELLED = "SESSION_REFERENCE_CANCELLED"


CODE_NUMBERS: Final[dict[ErrorCode, int]] = {
    ErrorCode.INVALID_CONFIG: -32011,
    ErrorCode.INVALID_REFERENCE: -32012,
    ErrorCode.SELF_REFERENCE: -32013,
    ErrorCode.TOO_MANY: -32014,
    ErrorCode.READ_FAILED: -32015,
    ErrorCode.BUDGET_EXCEEDED: -32016,
    ErrorCode.CANCELLED: -32800,
}

SERVER_CANCELLED: Final = -32802
"""The number of a CANCELLED that the server decided on: shutdown, or `requestTimeoutSeconds`."""


class ProtocolCode(IntEnum):
    """Failures of the protocol itself: the JSON-RPC codes, and one of the server's own."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    BUSY = -32000


class ReadFailedReason(StrEnum):
    """Why a source could not be read; a READ_FAILED always carries one."""

    NOT_FOUND = "not-found"
    CORRUPT = "corrupt"
    NEWER_FORMAT = "newer-format"
    PERMISSION = "permission"
    DUPLICATE_ID = "duplicate-id"
    OUTSIDE_ROOT = "outside-root"
    TOO_LARGE = "too-large"
    IO = "io"
    MODEL_LOOKUP = "model-lookup"


class ErrorData(msgspec.Struct, omit_defaults=True, rename="camel", frozen=True, kw_only=True):
    """The typed facts of an error; absent facts are absent members."""

    code: ErrorCode | None = None
    reason: ReadFailedReason | None = None
    session_id: str | None = None
    input_index: int | None = None
    message_index: int | None = None
    limit: int | None = None
    actual: int | None = None
    retryable: bool | None = None
    id: str | int | float | None = None
    incident: str | None = None


class WireError(msgspec.Struct, omit_defaults=True, frozen=True):
    """The `error` member of a JSON-RPC response."""

    code: int
    message: str
    data: Any = None


class RpcError(Exception):
    """Anything that is answered as a JSON-RPC error: the base of both families.

    Attributes: `number`, the JSON-RPC integer; `message`, one line; `facts`, typed.
    """

    def __init__(self, number: int, message: str, facts: ErrorData) -> None:
        self.message = message[:MAX_MESSAGE_CHARACTERS]
        super().__init__(self.message)
        self.number = number
        self.facts = facts

    @property
    def data(self) -> dict[str, Any]:
        """The facts as they stand in `error.data`."""
        built: dict[str, Any] = msgspec.to_builtins(self.facts)
        return built

    def to_wire(self) -> WireError:
        """The `error` member of the response."""
        return WireError(self.number, self.message, self.data or None)


class SessionReferenceError(RpcError):
    """A domain failure with one of the seven stable codes (contract section 1, Errors)."""

    def __init__(
        self, code: ErrorCode, message: str, facts: ErrorData | None = None, *, number: int | None = None
    ) -> None:
        given = facts or ErrorData()
        super().__init__(
            CODE_NUMBERS[code] if number is None else number,
            message,
            msgspec.structs.replace(given, code=code),
        )
        self.code = code

    @property
    def reason(self) -> ReadFailedReason | None:
        """Why reading failed, for READ_FAILED."""
        return self.facts.reason

    def at(
        self,
        *,
        session_id: str | None = None,
        input_index: int | None = None,
        message_index: int | None = None,
    ) -> SessionReferenceError:
        """The same failure with its place in the request added where it is not yet known."""
        facts = msgspec.structs.replace(
            self.facts,
            session_id=self.facts.session_id if self.facts.session_id is not None else session_id,
            input_index=self.facts.input_index if self.facts.input_index is not None else input_index,
            message_index=self.facts.message_index if self.facts.message_index is not None else message_index,
        )
        return SessionReferenceError(self.code, self.message, facts, number=self.number)


class ProtocolError(RpcError):
    """A failure of the protocol: malformed, unknown, refused or our own fault."""

    def __init__(self, code: ProtocolCode, message: str, facts: ErrorData | None = None) -> None:
        super().__init__(int(code), message, facts or ErrorData())
        self.code = code


_READ_FAILED_MESSAGES: Final[dict[ReadFailedReason, str]] = {
    ReadFailedReason.NOT_FOUND: "no configured store has the referenced session",
    ReadFailedReason.CORRUPT: "the log of the referenced session is corrupt",
    ReadFailedReason.NEWER_FORMAT: "the referenced session is stored in a format newer than this service knows",
    ReadFailedReason.PERMISSION: "this service may not read the referenced session",
    ReadFailedReason.DUPLICATE_ID: "the store has the referenced session more than once",
    ReadFailedReason.OUTSIDE_ROOT: "the referenced session is not a plain file inside its store",
    ReadFailedReason.TOO_LARGE: "the referenced session crosses a reading limit",
    ReadFailedReason.IO: "reading the referenced session failed",
    ReadFailedReason.MODEL_LOOKUP: "the model catalogue could not be read",
}


def read_failed(
    reason: ReadFailedReason,
    session_id: str | None = None,
    *,
    limit: int | None = None,
    actual: int | None = None,
) -> SessionReferenceError:
    """A source, or the model catalogue, could not be read."""
    return SessionReferenceError(
        ErrorCode.READ_FAILED,
        _READ_FAILED_MESSAGES[reason],
        ErrorData(
            reason=reason,
            session_id=session_id,
            limit=limit,
            actual=actual,
            retryable=True if reason is ReadFailedReason.IO else None,
        ),
    )


def invalid_reference(
    what: str,
    *,
    input_index: int | None = None,
    session_id: str | None = None,
    limit: int | None = None,
    actual: int | None = None,
) -> SessionReferenceError:
    """A malformed mention, reference or limit; `what` is a constant phrase, never a peer's text."""
    facts = ErrorData(input_index=input_index, session_id=session_id, limit=limit, actual=actual)
    return SessionReferenceError(ErrorCode.INVALID_REFERENCE, what, facts)


def self_reference(session_id: str, input_index: int | None = None) -> SessionReferenceError:
    """A reference to the target session itself."""
    return SessionReferenceError(
        ErrorCode.SELF_REFERENCE,
        "a session cannot refer to itself",
        ErrorData(session_id=session_id, input_index=input_index),
    )


def too_many_references(limit: int, actual: int) -> SessionReferenceError:
    """More distinct sessions than `maxReferences`."""
    return SessionReferenceError(
        ErrorCode.TOO_MANY,
        f"{actual} distinct sessions are referenced, at most {limit} may be",
        ErrorData(limit=limit, actual=actual),
    )


def budget_exceeded(session_id: str, limit: int, actual: int, input_index: int) -> SessionReferenceError:
    """The fixed fields of a source do not fit; `limit` and `actual` in serialised bytes."""
    return SessionReferenceError(
        ErrorCode.BUDGET_EXCEEDED,
        f"the fixed fields of a reference take {actual} bytes, its budget is {limit}",
        ErrorData(session_id=session_id, limit=limit, actual=actual, input_index=input_index),
    )


def cancelled(*, by_server: bool = False) -> SessionReferenceError:
    """The request was cancelled, by its client or (shutdown, time-out) by the server."""
    if by_server:
        return SessionReferenceError(
            ErrorCode.CANCELLED,
            "the server cancelled the request",
            ErrorData(retryable=True),
            number=SERVER_CANCELLED,
        )
    return SessionReferenceError(ErrorCode.CANCELLED, "the request was cancelled")


def invalid_config(key: str, rule: str, source: str) -> SessionReferenceError:
    """A setting is out of range; never crosses the wire."""
    return SessionReferenceError(ErrorCode.INVALID_CONFIG, f"{key} (from {source}) must be {rule}")


def parse_error(what: str = "the message is not valid JSON") -> ProtocolError:
    """The bytes are no JSON, or no message."""
    return ProtocolError(ProtocolCode.PARSE_ERROR, what)


def invalid_request(what: str, *, limit: int | None = None, actual: int | None = None) -> ProtocolError:
    """JSON, but no valid request; `what` is a constant phrase."""
    return ProtocolError(ProtocolCode.INVALID_REQUEST, what, ErrorData(limit=limit, actual=actual))


def message_too_long(limit: int, actual: int | None) -> ProtocolError:
    """A message longer than `maxMessageBytes`; `actual` in bytes, where a header told it."""
    return invalid_request(f"the message is longer than {limit} bytes", limit=limit, actual=actual)


def duplicate_request_id(identity: str | int | float) -> ProtocolError:
    """A request whose id is still in flight on its connection."""
    return ProtocolError(
        ProtocolCode.INVALID_REQUEST, "a request with this id is still in flight", ErrorData(id=identity)
    )


def method_not_found() -> ProtocolError:
    """The method is unknown, or not available on this transport."""
    return ProtocolError(ProtocolCode.METHOD_NOT_FOUND, "no such method")


def invalid_params(what: str) -> ProtocolError:
    """A param is unknown, missing, or of the wrong top-level type; `what` names it."""
    return ProtocolError(ProtocolCode.INVALID_PARAMS, what)


def internal_error(incident: str) -> ProtocolError:
    """A fault of ours; `incident` also stands in the log."""
    return ProtocolError(
        ProtocolCode.INTERNAL_ERROR,
        "internal error; see the log for this incident",
        ErrorData(incident=incident),
    )


def busy(limit: int) -> ProtocolError:
    """More requests than may run and wait on one connection."""
    return ProtocolError(
        ProtocolCode.BUSY,
        "too many requests are waiting on this connection",
        ErrorData(limit=limit, retryable=True),
    )
