"""Lossless JSON: a fast codec in front, the standard library where a lone surrogate forces it.

JavaScript writes unpaired UTF-16 halves as escapes (`\\ud83d`); msgspec refuses them in both directions, the standard
library takes them. Everything that is measured or framed is serialised as `JSON.stringify` would write it
(contract sections 1 and 4; RFC 8259).
"""

from __future__ import annotations

import json
import math
import re
from itertools import accumulate
from typing import Any, Final, TypeGuard

import msgspec

__all__ = (
    "JsonError",
    "NestingError",
    "as_array",
    "as_object",
    "check_depth",
    "decode_json",
    "decode_json_slowly",
    "encode_json",
    "join_surrogates",
    "nesting_depth",
    "replace_surrogates",
    "serialised_length",
    "stringify",
    "tag_safe",
    "utf8_length",
)

MAX_DEPTH: Final = 512
"""Levels of nesting: well inside what every codec here can take back and forth without a RecursionError."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
# A string that never ends is one all the same: looking for its end again from every quote in it would take for ever.
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_DOUBLE_DIGITS: Final = 308
_LONG_NUMBER: Final = re.compile(rb"[0-9]{309}")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEPS: Final = bytes(1 if byte in b"[{" else 255 if byte in b"]}" else 0 for byte in range(256))


class JsonError(ValueError):
    """The text is not JSON (RFC 8259), or holds a number that no double can hold."""


class NestingError(JsonError):
    """The value is nested deeper than the limit."""


def join_surrogates(text: str) -> str:
    """Make one character of every two halves that meet, as JavaScript strings do; lone halves stay."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def replace_surrogates(text: str) -> str:
    """Join halves that meet and replace each lone one by U+FFFD, so that the text can be UTF-8."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return _SURROGATE.sub("\ufffd", join_surrogates(text))


def utf8_length(text: str) -> int:
    """Bytes of the text as UTF-8, a lone surrogate counting as U+FFFD (three)."""
    return len(text) if text.isascii() else len(replace_surrogates(text).encode())


def as_object(value: Any) -> dict[str, Any] | None:
    """The value if it is a JSON object, None if it is anything else."""
    return value if _is_object(value) else None


def as_array(value: Any) -> list[Any] | None:
    """The value if it is a JSON array, None if it is anything else."""
    return value if _is_array(value) else None


def nesting_depth(data: bytes) -> int:
    """Levels of brackets outside strings; meaningful for JSON text only. Linear."""
    brackets = _STRING.sub(b"", data).translate(None, _NOT_BRACKETS)
    return max(accumulate(memoryview(brackets.translate(_STEPS)).cast("b")), default=0)


def check_depth(data: bytes, limit: int = MAX_DEPTH) -> None:
    """Raise NestingError if the JSON text nests deeper than `limit` levels."""
    if len(data) > 2 * limit and data.count(b"[") + data.count(b"{") > limit and nesting_depth(data) > limit:
        raise NestingError(f"nested deeper than {limit} levels")


def decode_json(data: bytes, *, max_depth: int = MAX_DEPTH) -> Any:
    """Decode one JSON text (UTF-8, no BOM) into builtins; escaped lone surrogates are kept as such.

    Raises JsonError, and NestingError beyond `max_depth` levels.
    """
    check_depth(data, max_depth)
    try:
        return _within_doubles(data, msgspec.json.decode(data))
    except RecursionError:
        raise NestingError("nested too deep") from None
    except msgspec.DecodeError as error:
        if not _SURROGATE_ESCAPE.search(data):
            raise JsonError(str(error)) from None
    return decode_json_slowly(data)


def decode_json_slowly(data: bytes) -> Any:
    """Decode with the standard library, made as strict as the fast codec. Raises JsonError, NestingError."""
    try:
        return json.loads(data.decode(), parse_constant=_refuse_constant, parse_float=_finite, parse_int=_integer)
    except RecursionError:
        raise NestingError("nested too deep") from None
    except ValueError as error:
        raise JsonError(str(error)) from None


def encode_json(value: Any) -> bytes:
    """Encode builtins and Structs as compact UTF-8 JSON; lone surrogates become escapes.

    Raises JsonError for what JSON cannot hold.
    """
    try:
        try:
            return msgspec.json.encode(value)
        except UnicodeEncodeError:
            return stringify(msgspec.to_builtins(value)).encode()
    except (RecursionError, TypeError, ValueError) as error:
        raise JsonError(type(error).__name__) from None


def stringify(value: Any) -> str:
    """Serialise builtins as JavaScript's `JSON.stringify` does, floats apart. Raises JsonError for infinite numbers."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        pass
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise JsonError(type(error).__name__) from None
    return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", join_surrogates(text))


def tag_safe(value: Any) -> str:
    """Serialise like `stringify`, with every `<` as `\\u003c`, so that no data can spell a tag."""
    return stringify(value).replace("<", "\\u003c")


def serialised_length(text: str) -> int:
    """UTF-8 bytes of the text as a tag-safe JSON string, without its quotes."""
    written = stringify(text)
    return (len(written) if written.isascii() else len(written.encode())) - 2 + 5 * text.count("<")


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_array(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _integer(digits: str) -> int:
    if len(digits) > _DOUBLE_DIGITS:
        _finite(digits)
    return int(digits)


def _within_doubles(data: bytes, value: Any) -> Any:
    """The decoded value. Raises JsonError for an integer that no double can hold, which only a long one can be."""
    if _LONG_NUMBER.search(data):
        return decode_json_slowly(data)
    return value


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("number out of range")
    return number
