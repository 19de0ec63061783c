"""The envelope: what is a request, what is not and under which id it is refused, and answers that read back."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessionref.protocol.envelope import (
    Batch,
    Invalid,
    MessageMember,
    Notification,
    Request,
    decode_message,
    encode_batch,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)
from sessionref.protocol.errors import (
    ErrorCode,
    ProtocolCode,
    RpcError,
    SessionReferenceError,
    cancelled,
    parse_error,
    read_failed,
)
from sessionref.protocol.errors import ReadFailedReason as Reason
from sessionref.protocol.jsontext import JsonError, decode_json, join_surrogates
from sessionref.protocol.messages import TextBlock

texts = st.text(st.characters(codec=None, exclude_categories=()), max_size=8).map(join_surrogates)
identities = texts | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
)
MEMBERS = ["jsonrpc", "id", "method", "params", "result", "error"]
near_requests = st.dictionaries(
    st.sampled_from(MEMBERS),
    st.sampled_from(["2.0", "1.0", "ping", 1, 1.5, None, True, [], {}, [1], {"a": 1}]) | values,
)


def decoded(message: Any, max_batch: int = 10) -> MessageMember | Batch:
    return decode_message(json.dumps(message).encode(), max_batch=max_batch)


def call(**members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "ping"} | members


def refusal(member: MessageMember | Batch) -> Invalid:
    assert isinstance(member, Invalid)
    return member


# --- Requests and notifications


@pytest.mark.parametrize("identity", ["", "a", "1", "é\U0001f41d", 0, 1, -7, 1.5, -0.5, 2**53, 2**64, 10**30, 1e300])
def test_a_request_keeps_its_id_to_the_letter(identity: str | int | float) -> None:
    request = decoded(call(id=identity, params={"a": 1}))
    assert request == Request(identity, "ping", {"a": 1})
    assert isinstance(request, Request)
    assert type(request.id) is type(identity)
    answered = encode_result(request.id, None)
    assert (
        answered
        == b'{"jsonrpc":"2.0","id":%b,"result":null}'
        % json.dumps(identity, ensure_ascii=False).replace("e+", "e").encode()
    )


def test_an_id_of_another_type_is_another_id() -> None:
    ids = [decoded(call(id=identity)) for identity in (1, "1", 1.5)]
    assert len({member.id for member in ids if isinstance(member, Request)}) == 3


def test_ids_that_are_the_same_number_are_the_same_id() -> None:
    ids = [decode_message(b'{"jsonrpc":"2.0","method":"ping","id":%b}' % text, max_batch=1) for text in (b"1", b"1.0")]
    assert len({member.id for member in ids if isinstance(member, Request)}) == 1


def test_a_lone_half_in_an_id_is_echoed_as_an_escape() -> None:
    request = decode_message(rb'{"jsonrpc":"2.0","method":"ping","id":"\uD800"}', max_batch=1)
    assert isinstance(request, Request)
    assert encode_result(request.id, "\udfff") == rb'{"jsonrpc":"2.0","id":"\ud800","result":"\udfff"}'


def test_a_call_without_an_id_is_a_notification() -> None:
    assert decoded(call(params=[1])) == Notification("ping", [1])


@pytest.mark.parametrize("params", [{}, [], {"a": None}, [None, 1]])
def test_params_are_an_object_or_an_array(params: Any) -> None:
    assert decoded(call(id=1, params=params)) == Request(1, "ping", params)


def test_params_of_null_are_none() -> None:
    assert decoded(call(id=1, params=None)) == decoded(call(id=1)) == Request(1, "ping", None)
    assert decoded(call(params=None)) == Notification("ping", None)


def test_further_members_are_ignored() -> None:
    assert decoded(call(id=1, trace="x")) == Request(1, "ping", None)


# --- Refusals


@pytest.mark.parametrize("identity", [None, True, False, [], [1], {}, {"id": 1}])
@pytest.mark.parametrize("method", ["ping", None])
def test_any_other_id_is_an_invalid_request_without_an_id(identity: Any, method: Any) -> None:
    invalid = refusal(decoded(call(id=identity, method=method)))
    assert (invalid.error.code, invalid.id) == (ProtocolCode.INVALID_REQUEST, None)


@pytest.mark.parametrize(
    "members",
    [
        *({"jsonrpc": None}, {"jsonrpc": "1.0"}, {"jsonrpc": 2.0}, {"jsonrpc": ["2.0"]}, {"jsonrpc": "2.0 "}),
        *({"method": None}, {"method": 1}, {"method": ["ping"]}),
        *({"params": "a"}, {"params": 1}, {"params": True}, {"params": 0}, {"params": ""}),
    ],
)
def test_a_malformed_request_is_refused_under_its_id(members: dict[str, Any]) -> None:
    for identity in (0, "", "a", 1.5):
        invalid = refusal(decoded(call(id=identity, **members)))
        assert (invalid.error.code, invalid.id) == (ProtocolCode.INVALID_REQUEST, identity)
    assert refusal(decoded(call(**members))).id is None


@pytest.mark.parametrize("member", ["jsonrpc", "method"])
def test_a_request_without_a_member_that_it_needs_is_refused_under_its_id(member: str) -> None:
    message = call(id=7)
    del message[member]
    invalid = refusal(decoded(message))
    assert (invalid.error.code, invalid.id) == (ProtocolCode.INVALID_REQUEST, 7)


@pytest.mark.parametrize("message", [None, True, 0, 1.5, "", "ping"])
def test_a_message_that_is_no_object_is_an_invalid_request(message: Any) -> None:
    invalid = refusal(decoded(message))
    assert (invalid.error.code, invalid.id) == (ProtocolCode.INVALID_REQUEST, None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"{",
        b"[",
        b"[{}",
        b"\xff",
        b"{}{}",
        b"\xef\xbb\xbf{}",
        b"NaN",
        b"[1,]",
        b'{"jsonrpc":"2.0","id":1e999}',
    ],
)
def test_what_is_no_json_is_a_parse_error_without_an_id(data: bytes) -> None:
    invalid = refusal(decode_message(data, max_batch=1))
    assert (invalid.error.code, invalid.id) == (ProtocolCode.PARSE_ERROR, None)


def test_a_message_nested_too_deep_is_refused_with_the_limit() -> None:
    data = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 600 + b"]" * 600 + b"}"
    invalid = refusal(decode_message(data, max_batch=1))
    assert (invalid.error.code, invalid.id, invalid.error.data) == (ProtocolCode.INVALID_REQUEST, None, {"limit": 512})


def test_a_refusal_quotes_nothing_of_the_message() -> None:
    for message in (call(id=1, method=None, params="confidential"), call(id={"confidential": 1}), ["confidential"]):
        for member in (decoded(message), *getattr(decoded(message), "members", [])):
            assert "confidential" not in str(getattr(member, "error", ""))
            assert "confidential" not in repr(getattr(getattr(member, "error", None), "data", ""))


# --- Batches


def test_a_batch_keeps_its_members_in_order_whatever_they_are() -> None:
    batch = decoded([call(id=1), call(), 7, call(id="a", params=3), call(id=None), [call(id=2)], []])
    assert isinstance(batch, Batch)
    assert [type(member) for member in batch.members] == [Request, Notification] + [Invalid] * 5
    assert [refusal(member).id for member in batch.members[2:]] == [None, "a", None, None, None]
    assert {refusal(member).error.code for member in batch.members[2:]} == {ProtocolCode.INVALID_REQUEST}


def test_an_empty_batch_is_one_invalid_request() -> None:
    invalid = refusal(decoded([]))
    assert (invalid.error.code, invalid.id) == (ProtocolCode.INVALID_REQUEST, None)


def test_a_batch_of_one_is_a_batch() -> None:
    assert decoded([call(id=1)]) == Batch([Request(1, "ping", None)])


def test_a_batch_may_have_exactly_its_limit_of_members() -> None:
    batch = decoded([call(id=number) for number in range(3)], max_batch=3)
    assert isinstance(batch, Batch)
    assert len(batch.members) == 3
    invalid = refusal(decoded([call(id=number) for number in range(4)], max_batch=3))
    assert (invalid.error.code, invalid.id) == (ProtocolCode.INVALID_REQUEST, None)
    assert invalid.error.data == {"limit": 3, "actual": 4}


# --- Nothing raises


@given(st.binary(max_size=60) | st.text(max_size=30).map(str.encode))
@example(b"[" * 100_000)
@example(b'{"id":' * 100_000)
@example(b"[[]," * 1000)
def test_no_bytes_make_decoding_raise(data: bytes) -> None:
    assert isinstance(decode_message(data, max_batch=5), Request | Notification | Invalid | Batch)


@given(near_requests | st.lists(near_requests | values, max_size=6) | values)
def test_any_json_is_classified_and_can_be_answered(message: Any) -> None:
    outcome = decode_message(json.dumps(message).encode(), max_batch=5)
    for member in outcome.members if isinstance(outcome, Batch) else [outcome]:
        if isinstance(member, Invalid):
            answer = decode_json(encode_error(member.id, member.error))
            assert answer["error"]["code"] in (ProtocolCode.PARSE_ERROR, ProtocolCode.INVALID_REQUEST)
            assert answer["id"] == member.id
        elif isinstance(member, Request):
            assert decode_json(encode_result(member.id, None))["id"] == member.id


# --- Encoding


@given(identities, texts, st.none() | st.lists(values, max_size=3) | st.dictionaries(texts, values, max_size=3))
def test_a_request_reads_back_as_it_was_written(identity: str | int | float, method: str, params: Any) -> None:
    assert decode_message(encode_request(identity, method, params), max_batch=1) == Request(identity, method, params)
    assert decode_message(encode_notification(method, params), max_batch=1) == Notification(method, params)


@given(identities, values)
def test_a_result_reads_back_as_it_was_written(identity: str | int | float, result: Any) -> None:
    assert decode_json(encode_result(identity, result)) == {"jsonrpc": "2.0", "id": identity, "result": result}


def test_structs_may_be_results() -> None:
    answer = decode_json(encode_result(1, [TextBlock("a"), TextBlock("\ud800")]))
    assert answer["result"] == [{"text": "a", "type": "text"}, {"text": "\ud800", "type": "text"}]


@pytest.mark.parametrize(
    "error", [parse_error(), cancelled(), read_failed(Reason.IO, "\ud800\u2028<"), read_failed(Reason.MODEL_LOOKUP)]
)
@pytest.mark.parametrize("identity", [None, 0, "", "\ud800", 1.5])
def test_an_error_reads_back_as_it_was_written(error: RpcError, identity: str | int | float | None) -> None:
    answer = decode_json(encode_error(identity, error))
    expected: dict[str, Any] = {"code": error.number, "message": error.message}
    if error.data:
        expected["data"] = error.data
    assert answer == {"jsonrpc": "2.0", "id": identity, "error": expected}


def test_a_batch_of_answers_is_an_array_in_order() -> None:
    error = SessionReferenceError(ErrorCode.CANCELLED, "the request was cancelled")
    batch = encode_batch([encode_result("a", 1), encode_error(None, error), encode_result("b", [2])])
    assert [answer["id"] for answer in decode_json(batch)] == ["a", None, "b"]
    assert decode_json(encode_batch([encode_result(1, 2)])) == [{"jsonrpc": "2.0", "id": 1, "result": 2}]


@pytest.mark.parametrize("value", [object(), [object()], {("a",): 1}])
def test_what_json_cannot_hold_is_refused_before_anything_is_sent(value: Any) -> None:
    with pytest.raises(JsonError):
        encode_request(1, "ping", value)
    with pytest.raises(JsonError):
        encode_notification("ping", value)
    with pytest.raises(JsonError):
        encode_result(1, value)


def test_a_message_never_holds_a_newline_so_that_it_fits_on_a_line() -> None:
    assert b"\n" not in encode_request("\n", "\n", {"\n": "\r\n", "n": math.pi})
    assert b"\n" not in encode_result("\n", ["\n"])
