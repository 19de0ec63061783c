"""DSH's own envelope for candidates, so that its existing clients can be pointed at this service (facts section 9)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sessionref.protocol.envelope import encode_request
from sessionref.protocol.errors import CODE_NUMBERS, SERVER_CANCELLED, ErrorCode, ProtocolCode
from sessionref.protocol.jsontext import as_array, as_object, decode_json, encode_json
from sessionref.protocol.methods import CANDIDATES

__all__ = ("CANDIDATES_PATH", "BadEnvelope", "ClientRequest", "read_envelope", "write_envelope")

CANDIDATES_PATH: Final = "/api/sessionReferenceResolver/candidates"

_ARGUMENTS: Final = frozenset({"agentId", "query"})
_ROW_MEMBERS_OF_OURS: Final = frozenset({"origin", "updatedAt"})
_CANCELLED_NUMBERS: Final = (CODE_NUMBERS[ErrorCode.CANCELLED], SERVER_CANCELLED)


class ClientRequest(msgspec.Struct, frozen=True):
    """A call that DSH's clients make: its own id, and the JSON-RPC request that it means."""

    rpc_id: str
    request: bytes


class BadEnvelope(Exception):
    """The body is JSON but no call; `answer` is what the client is told, with status 200."""

    def __init__(self, rpc_id: str, code: str, message: str) -> None:
        super().__init__(message)
        self.answer = _failure(rpc_id, code, message)


def read_envelope(body: bytes) -> ClientRequest:
    """Take the envelope off a call. Raises JsonError for what is no JSON, BadEnvelope for what is no call."""
    envelope = as_object(decode_json(body)) or {}
    given = envelope.get("rpcId")
    rpc_id = given if isinstance(given, str) else "invalid-request"
    payload = as_object(envelope.get("payload")) or {}
    arguments = as_object(payload.get("args"))
    if not isinstance(given, str) or envelope.get("type") != "client-request" or set(payload) != {"args"}:
        raise BadEnvelope(rpc_id, "gateway/bad-request", "the body is not a client request")
    if envelope.get("method") != CANDIDATES:
        raise BadEnvelope(rpc_id, "gateway/bad-request", "the method is not the endpoint's")
    if arguments is None or not {"agentId"} <= set(arguments) <= _ARGUMENTS:
        raise BadEnvelope(rpc_id, "gateway/arguments-invalid", "the arguments are agentId and query")
    if not all(isinstance(value, str) for value in arguments.values()):
        raise BadEnvelope(rpc_id, "gateway/arguments-invalid", "the arguments must be strings")
    return ClientRequest(rpc_id, encode_request(0, CANDIDATES, arguments))


def write_envelope(rpc_id: str, response: bytes) -> bytes:
    """Put a JSON-RPC response into DSH's envelope, its rows without the members that DSH does not know."""
    answer = as_object(decode_json(response)) or {}
    rows = as_array(answer.get("result"))
    if rows is not None:
        value = [_row(as_object(row) or {}) for row in rows]
        return encode_json(_response(rpc_id, {"ok": True, "value": value}))
    error = as_object(answer.get("error")) or {}
    number = error.get("code")
    if number in _CANCELLED_NUMBERS:
        code = "gateway/cancelled"
    elif number == ProtocolCode.INVALID_PARAMS:
        code = "gateway/arguments-invalid"
    else:
        code = "gateway/internal"
    return _failure(rpc_id, code, str(error.get("message", "")))


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _ROW_MEMBERS_OF_OURS}


def _failure(rpc_id: str, code: str, message: str) -> bytes:
    error: dict[str, Any] = {"code": code, "message": message, "details": {}}
    return encode_json(_response(rpc_id, {"ok": False, "error": error}))


def _response(rpc_id: str, result: dict[str, Any]) -> dict[str, Any]:
    return {"type": "server-response", "rpcId": rpc_id, "result": result}
