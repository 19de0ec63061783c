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
from typing import Any, Final, TypeGuard, TypeVar, overload

import msgspec

__all__ = (
    "JsonError",
    "NestingError",
    "as_array",
    "as_object",
    "check_depth",
    "convert",
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
_ESCAPED: Final = re.compile(rb"\\.", re.DOTALL)
_PIECE_BYTES: Final = 65_536
Kind = TypeVar("Kind")
_DOUBLE_DIGITS: Final = 308
_LONG_NUMBER: Final = re.compile(rb"[0-9]{309}")
_SPARSE_BYTES: Final = 1024
_NOT_OPENINGS: Final = bytes(set(range(256)) - set(b"[{"))
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


def nesting_depth(data: bytes, limit: int | None = None) -> int:
    """Levels of brackets outside strings; meaningful for JSON text only. Stops at the first level above a limit.

    Linear, and looks at a piece at a time, so that it holds little beside the text whatever that is made of.
    """
    deepest = depth = start = 0
    is_string = False
    while start < len(data) and (limit is None or deepest <= limit):
        end = start + _PIECE_BYTES
        # A piece does not end between a backslash and what it escapes.
        end += (len(data[start:end]) - len(data[start:end].rstrip(b"\\"))) % 2
        parts = _ESCAPED.sub(b"", data[start:end]).split(b'"')
        brackets = b"".join(parts[is_string::2]).translate(None, _NOT_BRACKETS)
        levels = list(accumulate(memoryview(brackets.translate(_STEPS)).cast("b"), initial=depth))
        deepest, depth = max(deepest, *levels), levels[-1]
        is_string = is_string != (len(parts) % 2 == 0)
        start = end
    return deepest


def check_depth(data: bytes, limit: int = MAX_DEPTH) -> None:
    """Raise NestingError if the JSON text nests deeper than `limit` levels."""
    is_candidate = len(data) > 2 * limit and not _has_few_openings(data, limit)
    if is_candidate and nesting_depth(data, limit) > limit:
        raise NestingError(f"nested deeper than {limit} levels")


@overload
def convert(value: Any, kind: type[Kind]) -> Kind: ...
@overload
def convert(value: Any, kind: Any) -> Any: ...
def convert(value: Any, kind: Any) -> Any:
    """Convert decoded JSON to a type, as msgspec does. Raises msgspec.ValidationError, also for a lone surrogate.

    msgspec fails otherwise on one that stands where something else than a text is expected.
    """
    try:
        return msgspec.convert(value, kind)
    except UnicodeEncodeError:
        raise msgspec.ValidationError("a lone surrogate where no text is expected") from None


def decode_json(data: bytes, *, max_depth: int = MAX_DEPTH) -> Any:
    """Decode one JSON text (UTF-8, no BOM) into builtins; escaped lone surrogates are kept as such.

    Raises JsonError, and NestingError beyond `max_depth` levels.
    """
    check_depth(data, max_depth)
    try:
        decoded = msgspec.json.decode(data)
        return decoded if len(data) < _DOUBLE_DIGITS else _within_doubles(data, decoded)
    except RecursionError:
        raise NestingError("nested too deep") from None
    except msgspec.DecodeError as error:
        if not _SURROGATE_ESCAPE.search(data):
            raise JsonError(str(error)) from None
    return decode_json_slowly(data)


def decode_json_slowly(data: bytes, *, repair_names: bool = False) -> Any:
    """Decode with the standard library, made as strict as the fast codec. Raises JsonError, NestingError.

    With `repair_names` the names of members have their lone surrogates replaced, which no typed codec takes.
    """
    try:
        return json.loads(
            data.decode(),
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_integer,
            object_pairs_hook=_with_repaired_names if repair_names else None,
        )
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


def _has_few_openings(data: bytes, limit: int) -> bool:
    """Whether there are too few opening brackets, in strings or not, for more levels than the limit."""
    # Most long texts have next to none, and going from one to the next is much faster than to look at every byte.
    most = min(limit // 2, len(data) // _SPARSE_BYTES)
    if _has_at_most(most, b"{", data) and _has_at_most(most, b"[", data):
        return True
    return len(data.translate(None, _NOT_OPENINGS)) <= limit


def _has_at_most(most: int, byte: bytes, data: bytes) -> bool:
    at = -1
    for _ in range(most + 1):
        at = data.find(byte, at + 1)
        if at < 0:
            return True
    return False


def _with_repaired_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {replace_surrogates(name): value for name, value in pairs}


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
