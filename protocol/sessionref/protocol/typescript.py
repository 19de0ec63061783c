"""The TypeScript declarations of methods, messages and errors, made from the same Structs that encode and decode."""

from __future__ import annotations

import inspect as python_inspect
import json
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

import msgspec
from msgspec import NODEFAULT, inspect

from sessionref.protocol.errors import (
    CODE_NUMBERS,
    SERVER_CANCELLED,
    ErrorCode,
    ErrorData,
    ProtocolCode,
    ReadFailedReason,
    WireError,
)
from sessionref.protocol.methods import METHODS, PROTOCOL_VERSION, MethodSpecification

__all__ = ("typescript_declarations",)

_HEADER: Final = f"""\
// What crosses the wire between a host and sessionref, protocol version {PROTOCOL_VERSION}.
// Generated from the Structs of sessionref.protocol: change those, not this.
"""

_PRIMITIVES: Final[dict[type[inspect.Type], str]] = {
    inspect.AnyType: "unknown",
    inspect.NoneType: "null",
    inspect.BoolType: "boolean",
    inspect.IntType: "number",
    inspect.FloatType: "number",
    inspect.StrType: "string",
}
_SCHEMA_PRIMITIVES: Final = {
    "null": "null",
    "boolean": "boolean",
    "integer": "number",
    "number": "number",
    "string": "string",
    "object": "object",
}


def typescript_declarations() -> str:
    """The text of a declaration file: two interfaces of all methods, and every type that they and errors need."""
    return _Declarations().text()


class _Declarations:
    """Declares types in the order in which they are first named."""

    def __init__(self) -> None:
        self._blocks = [_HEADER]
        self._declared: set[type] = set()
        self._waiting: list[tuple[inspect.StructType | inspect.EnumType, bool]] = []

    def text(self) -> str:
        self._method_table(
            "SessionReferenceMethods",
            "Every request by its method: what it takes, by name, and what its result is.",
            (row for row in METHODS.values() if not row.is_notification),
        )
        self._method_table(
            "SessionReferenceNotifications",
            "Every notification by its method; none is answered.",
            (row for row in METHODS.values() if row.is_notification),
        )
        self._errors()
        # What a host sends comes first: an optional member of it may be null, one of an answer is absent.
        for row in METHODS.values():
            self._named(inspect.type_info(row.params), is_input=True)
            self._declare_waiting()
        for row in METHODS.values():
            self._named(inspect.type_info(row.result), is_input=False)
            self._declare_waiting()
        return "\n".join(self._blocks)

    def _method_table(self, name: str, doc: str, rows: Iterable[MethodSpecification]) -> None:
        members: list[str] = []
        for row in rows:
            params = row.params.__name__
            takes = f"params: {params}" if _needs_params(row) else f"params?: {params} | null"
            gives = "" if row.is_notification else f"; result: {self._shown(inspect.type_info(row.result))}"
            members.append(f"{_comment(row.summary, '  ')}  {json.dumps(row.name)}: {{ {takes}{gives} }};\n")
        self._interface(name, doc, members)

    def _errors(self) -> None:
        doc = "The integer of each stable code; a CANCELLED has its second one when the server decided on it."
        numbers = {code: str(number) for code, number in CODE_NUMBERS.items()}
        numbers[ErrorCode.CANCELLED] += f" | {SERVER_CANCELLED}"
        self._interface("ErrorNumbers", doc, [f"  {code}: {number};\n" for code, number in numbers.items()])
        for kind in (ErrorCode, ReadFailedReason, ProtocolCode):
            self._enumeration(kind)
        known = {"code": "ErrorNumbers[ErrorCode] | ProtocolCode", "data": ErrorData.__name__}
        self._structure(WireError, known, is_input=False)
        self._structure(ErrorData, {}, is_input=False)

    def _declare_waiting(self) -> None:
        while self._waiting:
            waiting, is_input = self._waiting.pop(0)
            if isinstance(waiting, inspect.EnumType):
                self._enumeration(waiting.cls)
            else:
                self._structure(waiting.cls, {}, is_input=is_input)

    def _enumeration(self, kind: type[Enum]) -> None:
        if kind not in self._declared:
            self._declared.add(kind)
            values = "".join(f"\n  | {json.dumps(member.value)}" for member in kind)
            self._blocks.append(f"{_comment(_doc(kind))}export type {kind.__name__} ={values};\n")

    def _structure(self, kind: type, known: Mapping[str, str], *, is_input: bool) -> None:
        """Declare a Struct; `known` has types of members that say more than the Struct's own."""
        described = inspect.type_info(kind)
        if kind in self._declared or not isinstance(described, inspect.StructType):
            return
        self._declared.add(kind)
        names = {field.name: field.encode_name for field in described.fields}
        # A docstring speaks of fields as Python names them.
        doc = re.sub("`([a-z_]+)`", lambda found: f"`{names.get(found[1], found[1])}`", _doc(kind))
        if not described.fields:
            anything = "{ [name: string]: never }" if described.forbid_unknown_fields else "unknown"
            self._blocks.append(f"{_comment(doc)}export type {kind.__name__} = {anything};\n")
            return
        members: list[str] = []
        for field in described.fields:
            shown, mark = known.get(field.encode_name), "?"
            is_left_out = described.cls.__struct_config__.omit_defaults
            if field.required or not (is_input or is_left_out or field.default is NODEFAULT):
                # What has a default is there all the same in what is encoded.
                mark = ""
            if shown is None:
                self._named(field.type, is_input=is_input)
                shown = self._shown(field.type if is_input or not mark else _without_null(field.type))
            members.append(f"{_comment(_description(field.type), '  ')}  {field.encode_name}{mark}: {shown};\n")
        self._interface(kind.__name__, doc, members)

    def _interface(self, name: str, doc: str, members: Iterable[str]) -> None:
        self._blocks.append(f"{_comment(doc)}export interface {name} {{\n{''.join(members)}}}\n")

    def _named(self, kind: inspect.Type, *, is_input: bool) -> None:
        """Let the Structs and enumerations that a type names be declared later."""
        if isinstance(kind, inspect.StructType | inspect.EnumType):
            self._waiting.append((kind, is_input))
        for inner in _inner(kind):
            self._named(inner, is_input=is_input)

    def _shown(self, kind: inspect.Type) -> str:
        """A type as TypeScript spells it."""
        if isinstance(kind, inspect.Metadata):
            return _shown_by_schema(_schema(kind)) or self._shown(kind.type)
        if isinstance(kind, inspect.StructType | inspect.EnumType):
            return kind.cls.__name__
        if isinstance(kind, inspect.LiteralType):
            return _union(json.dumps(value) for value in kind.values)
        if isinstance(kind, inspect.UnionType):
            return _union(map(self._shown, kind.types))
        if isinstance(kind, inspect.ListType):
            return _array(self._shown(kind.item_type))
        if isinstance(kind, inspect.DictType):
            return f"{{ [name: string]: {self._shown(kind.value_type)} }}"
        return _PRIMITIVES[type(kind)]


def _needs_params(row: MethodSpecification) -> bool:
    return any(field.required for field in msgspec.structs.fields(row.params))


def _inner(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    if isinstance(kind, inspect.Metadata):
        return (kind.type,)
    if isinstance(kind, inspect.UnionType):
        return kind.types
    if isinstance(kind, inspect.ListType):
        return (kind.item_type,)
    return (kind.value_type,) if isinstance(kind, inspect.DictType) else ()


def _without_null(kind: inspect.Type) -> inspect.Type:
    if not isinstance(kind, inspect.UnionType):
        return kind
    return inspect.UnionType(tuple(inner for inner in kind.types if not isinstance(inner, inspect.NoneType)))


def _shown_by_schema(schema: Mapping[str, Any]) -> str | None:
    """The type that a schema of our own describes, or None where it only adds words to the type."""
    if "anyOf" in schema:
        return _union(_shown_by_schema(choice) or "unknown" for choice in schema["anyOf"])
    if "items" in schema:
        return _array(_shown_by_schema(schema["items"]) or "unknown")
    if "examples" in schema:
        # An open set: the examples are offered, and any other string is taken.
        return _union([*map(json.dumps, schema["examples"]), "(string & {})"])
    if "properties" in schema:
        needed = schema.get("required", ())
        members = (
            f"{name}{'' if name in needed else '?'}: {_shown_by_schema(member) or 'unknown'}"
            for name, member in schema["properties"].items()
        )
        return f"{{ {'; '.join(members)} }}"
    return _SCHEMA_PRIMITIVES.get(schema.get("type", ""))


def _union(choices: Iterable[str]) -> str:
    return " | ".join(dict.fromkeys(choices))


def _array(item: str) -> str:
    return f"({item})[]" if " | " in item else f"{item}[]"


def _schema(kind: inspect.Metadata) -> dict[str, Any]:
    found: Any = getattr(kind, "extra_json_schema", None)  # Its declared type does not say what it holds.
    return found or {}


def _description(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.Metadata):
        return str(_schema(kind).get("description", "")) or _description(kind.type)
    if isinstance(kind, inspect.UnionType):
        return next((found for inner in kind.types if (found := _description(inner))), "")
    return ""


def _doc(kind: type) -> str:
    return python_inspect.cleandoc(kind.__doc__ or "")


def _comment(doc: str, indent: str = "") -> str:
    """A documentation comment on lines of its own, or nothing."""
    lines = doc.replace("*/", "* /").splitlines()
    if len(lines) < 2:
        return f"{indent}/** {lines[0]} */\n" if lines else ""
    body = "".join(f"{indent} * {line}".rstrip() + "\n" for line in lines)
    return f"{indent}/**\n{body}{indent} */\n"
