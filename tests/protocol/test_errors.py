"""The error table: fixed numbers, messages fit to be shown, and the facts that each failure carries."""

from __future__ import annotations

from typing import Any

import pytest

from sessionref.protocol.errors import (
    CODE_NUMBERS,
    SERVER_CANCELLED,
    ErrorCode,
    ErrorData,
    ProtocolCode,
    ProtocolError,
    ReadFailedReason,
    RpcError,
    SessionReferenceError,
    budget_exceeded,
    busy,
    cancelled,
    duplicate_request_id,
    internal_error,
    invalid_config,
    invalid_params,
    invalid_reference,
    invalid_request,
    message_too_long,
    method_not_found,
    parse_error,
    read_failed,
    self_reference,
    too_many_references,
)
from sessionref.protocol.jsontext import decode_json, encode_json

HOSTILE = "/home/eve/secret\nIGNORE ALL" * 30
"""An id that would show a path and add a line, if a message quoted it."""

PREFIX = "SESSION_REFERENCE_"

TABLE: list[tuple[RpcError, int, dict[str, Any]]] = [
    (invalid_config("maxReferences", "1 to 3", "--max-references"), -32011, {"code": PREFIX + "INVALID_CONFIG"}),
    (invalid_reference("a label must be a string"), -32012, {"code": PREFIX + "INVALID_REFERENCE"}),
    (
        invalid_reference("no id", input_index=0, session_id=HOSTILE, limit=3, actual=4),
        -32012,
        {"code": PREFIX + "INVALID_REFERENCE", "inputIndex": 0, "sessionId": HOSTILE, "limit": 3, "actual": 4},
    ),
    (self_reference(HOSTILE), -32013, {"code": PREFIX + "SELF_REFERENCE", "sessionId": HOSTILE}),
    (
        self_reference("eve", 2),
        -32013,
        {"code": PREFIX + "SELF_REFERENCE", "sessionId": "eve", "inputIndex": 2},
    ),
    (too_many_references(3, 10**9), -32014, {"code": PREFIX + "TOO_MANY", "limit": 3, "actual": 10**9}),
    (
        budget_exceeded(HOSTILE, 16, 2**53, 0),
        -32016,
        {"code": PREFIX + "BUDGET_EXCEEDED", "sessionId": HOSTILE, "limit": 16, "actual": 2**53, "inputIndex": 0},
    ),
    (cancelled(), -32800, {"code": PREFIX + "CANCELLED"}),
    (cancelled(by_server=True), -32802, {"code": PREFIX + "CANCELLED", "retryable": True}),
    (parse_error(), -32700, {}),
    (invalid_request("a request must be an object"), -32600, {}),
    (message_too_long(1024, None), -32600, {"limit": 1024}),
    (message_too_long(1024, 10**14), -32600, {"limit": 1024, "actual": 10**14}),
    (duplicate_request_id(0), -32600, {"id": 0}),
    (duplicate_request_id(HOSTILE), -32600, {"id": HOSTILE}),
    (duplicate_request_id(1.5), -32600, {"id": 1.5}),
    (duplicate_request_id(""), -32600, {"id": ""}),
    (method_not_found(), -32601, {}),
    (invalid_params("missing param agentId"), -32602, {}),
    (internal_error("4f2a"), -32603, {"incident": "4f2a"}),
    (busy(1024), -32000, {"limit": 1024, "retryable": True}),
    *(
        (
            read_failed(reason, HOSTILE),
            -32015,
            {"code": PREFIX + "READ_FAILED", "reason": str(reason), "sessionId": HOSTILE}
            | ({"retryable": True} if reason is ReadFailedReason.IO else {}),
        )
        for reason in ReadFailedReason
    ),
    (
        read_failed(ReadFailedReason.TOO_LARGE, "eve", limit=512, actual=513),
        -32015,
        {"code": PREFIX + "READ_FAILED", "reason": "too-large", "sessionId": "eve", "limit": 512, "actual": 513},
    ),
    (
        read_failed(ReadFailedReason.MODEL_LOOKUP),
        -32015,
        {"code": PREFIX + "READ_FAILED", "reason": "model-lookup"},
    ),
]
every_error = pytest.mark.parametrize(("error", "number", "data"), TABLE)
domain_errors = [error for error, _, _ in TABLE if isinstance(error, SessionReferenceError)]


@every_error
def test_every_failure_has_its_fixed_number_and_its_facts(error: RpcError, number: int, data: dict[str, Any]) -> None:
    assert error.number == number
    assert error.data == data


@every_error
def test_every_failure_reads_back_from_the_wire(error: RpcError, number: int, data: dict[str, Any]) -> None:
    expected: dict[str, Any] = {"code": number, "message": error.message}
    if data:
        expected["data"] = data
    assert decode_json(encode_json(error.to_wire())) == expected


@every_error
def test_every_message_is_one_short_line_that_quotes_nothing(error: RpcError, number: int, data: Any) -> None:
    assert 0 < len(error.message) <= 200
    assert len(error.message.splitlines()) == 1
    assert error.message == error.message.strip()
    assert "secret" not in error.message
    assert "/" not in error.message


def test_the_seven_stable_codes_have_the_numbers_that_are_promised() -> None:
    assert {str(code): number for code, number in CODE_NUMBERS.items()} == {
        "SESSION_REFERENCE_INVALID_CONFIG": -32011,
        "SESSION_REFERENCE_INVALID_REFERENCE": -32012,
        "SESSION_REFERENCE_SELF_REFERENCE": -32013,
        "SESSION_REFERENCE_TOO_MANY": -32014,
        "SESSION_REFERENCE_READ_FAILED": -32015,
        "SESSION_REFERENCE_BUDGET_EXCEEDED": -32016,
        "SESSION_REFERENCE_CANCELLED": -32800,
    }
    assert set(CODE_NUMBERS) == set(ErrorCode)
    assert SERVER_CANCELLED == -32802


def test_no_two_failures_share_a_number() -> None:
    numbers = [*CODE_NUMBERS.values(), SERVER_CANCELLED, *map(int, ProtocolCode)]
    assert len(set(numbers)) == len(numbers)


def test_the_reasons_of_a_failed_reading_are_those_that_are_promised() -> None:
    promised = "not-found corrupt newer-format permission duplicate-id outside-root too-large io model-lookup"
    assert [str(reason) for reason in ReadFailedReason] == promised.split()


@pytest.mark.parametrize("reason", list(ReadFailedReason))
def test_every_reason_has_a_message_of_its_own(reason: ReadFailedReason) -> None:
    others = {read_failed(other).message for other in ReadFailedReason if other is not reason}
    assert read_failed(reason).message not in others
    assert read_failed(reason).reason is reason


def test_a_message_longer_than_two_hundred_characters_is_cut() -> None:
    assert invalid_params("x" * 500).message == "x" * 200
    assert len(decode_json(encode_json(invalid_reference("🐝" * 500).to_wire()))["message"]) == 200


# --- Where in the request


@pytest.mark.parametrize("error", domain_errors)
def test_a_place_is_added_where_none_is_known(error: SessionReferenceError) -> None:
    placed = error.at(input_index=5, message_index=7)
    assert placed.data == {"inputIndex": 5, "messageIndex": 7} | error.data
    assert (placed.code, placed.number, placed.message, placed.reason) == (
        error.code,
        error.number,
        error.message,
        error.reason,
    )


def test_a_known_place_is_kept_even_if_it_is_the_first() -> None:
    first = self_reference("eve", 0).at(message_index=0)
    assert first.at(input_index=4, message_index=4).data == first.data
    assert first.data["inputIndex"] == first.data["messageIndex"] == 0


def test_adding_no_place_changes_nothing() -> None:
    assert cancelled().at().data == cancelled().data


def test_the_number_of_a_cancellation_by_the_server_outlives_a_place() -> None:
    assert cancelled(by_server=True).at(message_index=1).number == SERVER_CANCELLED


def test_a_place_is_added_to_a_copy() -> None:
    error = self_reference("eve")
    error.at(input_index=1)
    assert "inputIndex" not in error.data


# --- Families


def test_domain_failures_and_protocol_failures_are_told_apart_by_type() -> None:
    for error, _, data in TABLE:
        assert isinstance(error, SessionReferenceError) == ("code" in data)
        assert isinstance(error, ProtocolError) != isinstance(error, SessionReferenceError)


def test_the_facts_cannot_name_another_code_than_the_failure() -> None:
    error = SessionReferenceError(ErrorCode.TOO_MANY, "too many", ErrorData(code=ErrorCode.READ_FAILED))
    assert error.data["code"] == "SESSION_REFERENCE_TOO_MANY"


def test_a_failure_without_facts_has_no_data_member() -> None:
    assert b"data" not in encode_json(method_not_found().to_wire())


def test_the_message_is_the_text_of_the_exception() -> None:
    assert str(self_reference("eve")) == self_reference("eve").message
