"""The published documents: up to date, complete, and agreeing with what the Structs take and give."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sessionref.protocol.errors import (
    CODE_NUMBERS,
    ErrorCode,
    ProtocolCode,
    ReadFailedReason,
    RpcError,
    duplicate_request_id,
    read_failed,
    too_many_references,
)
from sessionref.protocol.jsontext import as_array, as_object, decode_json, encode_json
from sessionref.protocol.messages import ContextMessage, ReferenceRecord, SessionReferenceSource, TextBlock
from sessionref.protocol.methods import (
    METHODS,
    Candidate,
    DiagnosticRecord,
    InitializeResult,
    PrepareMessagesResult,
    PrepareResult,
    ServerInformation,
    bind_params,
)
from sessionref.protocol.schema import documents, json_schema, openrpc_document
from sessionref.server.schemas import document_text

Validator: Any = importlib.import_module("jsonschema").Draft202012Validator
"""Comes with jsonrpcserver, and without types."""

SCHEMAS = Path(__file__).parents[2] / "schemas"
RESOLVER = "sessionReferenceResolver/"

SOURCE = SessionReferenceSource(
    references=[
        ReferenceRecord(
            session_id="eve",
            label="Garden plan",
            captured_format_version=4,
            captured_through_seq=None,
            compacted=False,
            original_messages=1,
            retained_messages=1,
            omitted_messages=0,
            omitted_bytes=0,
            truncated=False,
            input_index=0,
        )
    ]
)
CONTEXT = ContextMessage(id="m1", content=[TextBlock("## Referenced sessions")], source=SOURCE)
DIAGNOSTIC = DiagnosticRecord(session_id="eve", kind="torn-tail", detail="1 line was cut short")
CANDIDATE = Candidate(
    session_id="eve",
    label="Garden plan",
    display_title="Garden plan",
    same_workspace=True,
    created_at=1,
    origin="dsh",
    mention="@[Garden plan](dsh-session:ImV2ZSI)",
)
STRUCTS = [
    CONTEXT,
    DIAGNOSTIC,
    CANDIDATE,
    msgspec.structs.replace(CANDIDATE, cwd="/work", updated_at=2),
    PrepareResult(content="hello"),
    PrepareResult(content=[{"type": "text", "text": "a"}], additional_context=CONTEXT, diagnostics=[DIAGNOSTIC]),
    PrepareMessagesResult(messages=[{"id": "m0"}, CONTEXT], diagnostics=[]),
    InitializeResult(
        protocol_version="1",
        server_info=ServerInformation("sessionref", "0"),
        capabilities={},
        limits={"maxBatch": 100},
        error_codes={"PARSE_ERROR": -32700},
    ),
    *(error.facts for error in (read_failed(ReadFailedReason.IO, "eve"), duplicate_request_id(1.5))),
]
PARAMS: list[tuple[str, dict[str, Any]]] = [
    (RESOLVER + "candidates", {"agentId": "eve", "query": None, "cwd": "/work", "limit": 5, "includeSubagents": True}),
    (RESOLVER + "candidates", {"agentId": "eve", "limit": None}),
    (RESOLVER + "prepare", {"agentId": "eve", "content": "hello", "preview": False}),
    (RESOLVER + "prepare", {"agentId": "", "content": [{"type": "text", "text": ""}], "route": {"contextWindow": 1}}),
    (RESOLVER + "prepare", {"agentId": "", "content": "", "references": [{"sessionId": "eve", "mention": "x"}]}),
    (RESOLVER + "prepareMessages", {"agentId": "eve", "messages": [{"id": "m0"}], "route": None}),
    (RESOLVER + "assembled", {"agentId": "eve", "provider": "p", "model": "m", "contextWindow": 100_000_000}),
    ("initialize", {}),
    ("rpc.discover", {}),
    ("shutdown", {}),
    ("exit", {}),
    *(("$/cancelRequest", {"id": identity}) for identity in ("a", 1, 1.5)),
]


def references_in(document: Any) -> Iterator[str]:
    members = as_object(document) or {}
    if "$ref" in members:
        yield str(members["$ref"])
    for inner in [*members.values(), *(as_array(document) or [])]:
        yield from references_in(inner)


def resolved(document: Any, reference: str) -> Any:
    assert reference.startswith("#/")
    for part in reference[2:].split("/"):
        document = document[part.replace("~1", "/").replace("~0", "~")]
    return document


def validator(pointer: str, document: dict[str, Any]) -> Any:
    return Validator(document | {"$ref": pointer})


def method_named(name: str) -> dict[str, Any]:
    methods: list[dict[str, Any]] = openrpc_document()["methods"]
    (method,) = [method for method in methods if method["name"] == name]
    return method


# --- The files


@pytest.mark.parametrize("name", sorted(documents()))
def test_the_published_document_is_up_to_date(name: str) -> None:
    published = (SCHEMAS / name).read_text(encoding="utf-8")
    assert published == document_text(documents()[name]), f"run: python -m sessionref.server.schemas {SCHEMAS.name}"


def test_every_published_document_is_made_from_the_structs() -> None:
    assert {path.name for path in SCHEMAS.glob("*.json")} == set(documents())


@pytest.mark.parametrize("name", sorted(documents()))
def test_every_reference_of_a_document_resolves(name: str) -> None:
    document = documents()[name]
    references = list(references_in(document))
    assert references
    for reference in references:
        assert isinstance(resolved(document, reference), dict)


def test_the_json_schema_is_a_valid_schema() -> None:
    document = json_schema()
    Validator.check_schema(document)
    for definition in document["$defs"].values():
        Validator.check_schema(definition)


# --- OpenRPC


def test_the_openrpc_document_has_every_method_of_the_table_and_no_other() -> None:
    assert [method["name"] for method in openrpc_document()["methods"]] == list(METHODS)


@pytest.mark.parametrize("name", list(METHODS))
def test_a_method_lists_its_params_in_the_order_of_their_positions(name: str) -> None:
    fields = msgspec.structs.fields(METHODS[name].params)
    listed = [(param["name"], param["required"]) for param in method_named(name)["params"]]
    assert listed == [(field.encode_name, field.required) for field in fields]
    required = [is_required for _, is_required in listed]
    assert required == sorted(required, reverse=True)


@pytest.mark.parametrize("name", list(METHODS))
def test_only_a_notification_has_no_result(name: str) -> None:
    assert ("result" in method_named(name)) is not METHODS[name].is_notification


def test_the_errors_have_their_fixed_numbers() -> None:
    listed = {name: error["code"] for name, error in openrpc_document()["components"]["errors"].items()}
    domain = {str(code): number for code, number in CODE_NUMBERS.items() if code is not ErrorCode.INVALID_CONFIG}
    assert listed == domain | {code.name: int(code) for code in ProtocolCode}


@pytest.mark.parametrize(("name", "params"), PARAMS)
def test_params_that_are_bound_are_valid_by_the_document_too(name: str, params: dict[str, Any]) -> None:
    bind_params(METHODS[name].params, (), params)
    schemas = {param["name"]: param["schema"] for param in method_named(name)["params"]}
    for param, value in params.items():
        Validator(openrpc_document() | schemas[param]).validate(value)


@pytest.mark.parametrize(
    ("name", "param", "value"),
    [
        (RESOLVER + "candidates", "limit", 0),
        (RESOLVER + "candidates", "limit", 10_001),
        (RESOLVER + "candidates", "agentId", None),
        (RESOLVER + "prepare", "content", 1),
        (RESOLVER + "prepare", "references", [{"label": "no id"}]),
        (RESOLVER + "prepare", "references", [{"sessionId": "eve", "label": 1}]),
        (RESOLVER + "prepare", "references", ["eve"]),
        (RESOLVER + "prepare", "route", {"contextWindow": 0}),
        (RESOLVER + "prepare", "route", {"window": 1}),
        (RESOLVER + "assembled", "contextWindow", 100_000_001),
        ("$/cancelRequest", "id", None),
    ],
)
def test_params_that_are_refused_are_invalid_by_the_document(name: str, param: str, value: Any) -> None:
    schemas = {listed["name"]: listed["schema"] for listed in method_named(name)["params"]}
    assert not Validator(openrpc_document() | schemas[param]).is_valid(value)


def test_the_document_can_cross_the_wire() -> None:
    assert decode_json(encode_json(openrpc_document())) == openrpc_document()


# --- JSON Schema


@pytest.mark.parametrize("struct", STRUCTS)
def test_what_is_written_is_valid_by_the_schema(struct: msgspec.Struct) -> None:
    validator(f"#/$defs/{type(struct).__name__}", json_schema()).validate(decode_json(encode_json(struct)))


@pytest.mark.parametrize("absent", ["sessionId", "label", "mention", "origin", "createdAt"])
def test_a_candidate_without_a_member_is_invalid_by_the_schema(absent: str) -> None:
    rest = {name: value for name, value in decode_json(encode_json(CANDIDATE)).items() if name != absent}
    assert not validator("#/$defs/Candidate", json_schema()).is_valid(rest)


@pytest.mark.parametrize("error", [read_failed(ReadFailedReason.IO), too_many_references(3, 4)])
def test_the_schema_knows_the_codes_and_reasons_of_errors(error: RpcError) -> None:
    schema = validator("#/$defs/ErrorData", json_schema())
    assert schema.is_valid(error.data)
    assert not schema.is_valid(error.data | {"code": "SESSION_REFERENCE_OTHER"})
    assert not schema.is_valid(error.data | {"reason": "tired"})
