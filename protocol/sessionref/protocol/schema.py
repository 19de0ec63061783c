"""The published documents, made from the same Structs that encode and decode: JSON Schema and OpenRPC."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from sessionref.protocol.errors import CODE_NUMBERS, ErrorCode, ErrorData, ProtocolCode, ReadFailedReason
from sessionref.protocol.messages import ContextMessage
from sessionref.protocol.methods import METHODS, PROTOCOL_VERSION, MethodSpecification

__all__ = ("documents", "json_schema", "openrpc_document")

OPENRPC_VERSION: Final = "1.3.2"
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_CODE_MEANINGS: Final[dict[ErrorCode, str]] = {
    ErrorCode.INVALID_CONFIG: "A setting is out of range; never on the wire: stderr, exit code 2.",
    ErrorCode.INVALID_REFERENCE: "A malformed mention, reference or limit.",
    ErrorCode.SELF_REFERENCE: "A reference to the target session itself.",
    ErrorCode.TOO_MANY: "More distinct sessions than maxReferences.",
    ErrorCode.READ_FAILED: "A source is unknown, unreadable, corrupt or of a newer format; data.reason says which.",
    ErrorCode.BUDGET_EXCEEDED: "The fixed fields of a source do not fit its budget.",
    ErrorCode.CANCELLED: "The client cancelled; -32802 if the server did.",
}


def json_schema() -> dict[str, Any]:
    """One JSON Schema document whose `$defs` hold every type that crosses the wire."""
    _, components = _components("#/$defs/{name}")
    return {"$schema": DIALECT, "title": "sessionref", "$defs": components}


@cache
def openrpc_document() -> dict[str, Any]:
    """The OpenRPC document: methods with params and results, errors, and shared schemas. Do not change it."""
    schemas, components = _components("#/components/schemas/{name}")
    return {
        "openrpc": OPENRPC_VERSION,
        "info": {
            "title": "sessionref",
            "version": PROTOCOL_VERSION,
            "description": "Finds earlier AI-coding sessions and turns mentions of them into bounded context.",
            "license": {"name": "MIT"},
        },
        "methods": [_method(row, schemas) for row in METHODS.values()],
        "components": {"schemas": components, "errors": _errors()},
    }


def documents() -> dict[str, dict[str, Any]]:
    """All published documents by file name."""
    return {"sessionref.schema.json": json_schema(), "openrpc.json": openrpc_document()}


def _components(template: str) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    types: dict[str, Any] = {"ContextMessage": ContextMessage, "ErrorData": ErrorData}
    for row in METHODS.values():
        types[f"{row.name} params"] = row.params
        types[f"{row.name} result"] = row.result
    schemas, components = msgspec.json.schema_components(types.values(), ref_template=template)
    return dict(zip(types, schemas, strict=True)), components


def _method(row: MethodSpecification, schemas: dict[str, dict[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": row.name,
        "summary": row.summary,
        "paramStructure": "either",
        "params": [
            {"name": field.encode_name, "required": field.required, "schema": _member(row, field.encode_name)}
            for field in msgspec.structs.fields(row.params)
        ],
    }
    if not row.is_notification:
        document["result"] = {"name": "result", "schema": schemas[f"{row.name} result"]}
        document["errors"] = [
            {"$ref": f"#/components/errors/{code}"} for code in ErrorCode if code is not ErrorCode.INVALID_CONFIG
        ]
    return document


def _member(row: MethodSpecification, name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{row.params.__name__}/properties/{name}"}


def _errors() -> dict[str, Any]:
    domain = {
        str(code): {
            "code": number,
            "message": _CODE_MEANINGS[code],
            "data": {"code": str(code), **({"reason": list(map(str, ReadFailedReason))} if "READ" in code else {})},
        }
        for code, number in CODE_NUMBERS.items()
        if code is not ErrorCode.INVALID_CONFIG
    }
    protocol = {code.name: {"code": int(code), "message": code.name.replace("_", " ").lower()} for code in ProtocolCode}
    return domain | protocol
