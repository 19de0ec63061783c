"""The JSON-RPC 2.0 envelope: bytes of one message to requests and notifications, and answers to bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from sessionref.protocol.errors import ProtocolError, RpcError, invalid_request, parse_error
from sessionref.protocol.jsontext import (
    MAX_DEPTH,
    JsonError,
    NestingError,
    as_array,
    as_object,
    decode_json,
    encode_json,
)

__all__ = (
    "Batch",
    "Invalid",
    "MessageMember",
    "Notification",
    "Request",
    "RequestId",
    "decode_message",
    "encode_batch",
    "encode_error",
    "encode_notification",
    "encode_request",
    "encode_result",
)

RequestId = str | int | float
Params = dict[str, Any] | list[Any] | None


class Request(msgspec.Struct, frozen=True):
    """A call that must be answered exactly once, with `id` as it came."""

    id: RequestId
    method: str
    params: Params


class Notification(msgspec.Struct, frozen=True):
    """A call without an answer."""

    method: str
    params: Params


class Invalid(msgspec.Struct, frozen=True):
    """What is neither: to be answered with `error`, under `id` where that could be read."""

    error: ProtocolError
    id: RequestId | None


MessageMember = Request | Notification | Invalid


class Batch(msgspec.Struct, frozen=True):
    """Members of an array, in order; at least one."""

    members: list[MessageMember]


def decode_message(data: bytes, *, max_batch: int) -> MessageMember | Batch:
    """Decode one message. Never raises: what is wrong is an Invalid, alone or as a member of the batch."""
    try:
        decoded = decode_json(data)
    except NestingError:
        return Invalid(invalid_request("the message is nested too deep", limit=MAX_DEPTH), None)
    except JsonError:
        return Invalid(parse_error(), None)
    members = as_array(decoded)
    if members is None:
        return _member(decoded)
    if not members:
        return Invalid(invalid_request("the batch is empty"), None)
    if len(members) > max_batch:
        error = invalid_request("the batch has too many members", limit=max_batch, actual=len(members))
        return Invalid(error, None)
    return Batch([_member(member) for member in members])


def encode_request(identity: RequestId, method: str, params: Any) -> bytes:
    """The bytes of a request; raises JsonError for params that JSON cannot hold."""
    return encode_json({"jsonrpc": "2.0", "id": identity, "method": method, "params": params})


def encode_notification(method: str, params: Any) -> bytes:
    """The bytes of a notification; raises JsonError for params that JSON cannot hold."""
    return encode_json({"jsonrpc": "2.0", "method": method, "params": params})


def encode_result(identity: RequestId, result: Any) -> bytes:
    """The bytes of a response that succeeded; raises JsonError for a result that JSON cannot hold."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode_json(identity), encode_json(result))


def encode_error(identity: RequestId | None, error: RpcError) -> bytes:
    """The bytes of a response that failed."""
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (encode_json(identity), encode_json(error.to_wire()))


def encode_batch(responses: Iterable[bytes]) -> bytes:
    """The bytes of the array that answers a batch."""
    return b"[%b]" % b",".join(responses)


def _member(value: Any) -> MessageMember:
    message = as_object(value)
    if message is None:
        return Invalid(invalid_request("a request must be an object"), None)
    identity = message.get("id")
    has_identity = isinstance(identity, str | int | float) and not isinstance(identity, bool)
    known = identity if has_identity else None
    if "id" in message and not has_identity:
        return Invalid(invalid_request("a request id must be a string or a number"), None)
    if message.get("jsonrpc") != "2.0":
        return Invalid(invalid_request('the member "jsonrpc" must be "2.0"'), known)
    method = message.get("method")
    if not isinstance(method, str):
        return Invalid(invalid_request('the member "method" must be a string'), known)
    given = message.get("params")
    params = as_object(given) if isinstance(given, dict) else as_array(given)
    if params is None and given is not None:
        return Invalid(invalid_request('the member "params" must be an object or an array'), known)
    return Notification(method, params) if known is None else Request(known, method, params)
