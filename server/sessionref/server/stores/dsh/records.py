"""One event line to one event: a typed decoder in front, the standard library behind it.

The typed decoder refuses what JavaScript wrote legally (lone surrogates, `1.0`) and what DSH replaces (bytes that are
no UTF-8). Such a line goes the slow way to the same events (dsh-format sections 2.1, 2.3 and 12).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, Any, Final, Union, cast

import msgspec
from msgspec import UNSET, UnsetType

from sessionref.protocol.jsontext import JsonError, NestingError, check_depth, decode_json_slowly
from sessionref.server.stores.dsh.events import (
    LOG_ONLY_TYPES,
    AssistantMessage,
    DeveloperMessage,
    Event,
    LogOnlyEvent,
    PackedArguments,
    PackedReasoning,
    PackedTexts,
    SteeringMessage,
    StepEnd,
    StepStart,
    SubagentDescriptor,
    SystemMessage,
    TitleEvent,
    ToolResult,
    TurnEnd,
    TurnStart,
    UnknownEvent,
    UserMessage,
)
from sessionref.server.stores.dsh.header import safe_integer
from sessionref.server.stores.dsh.limits import DshLimits
from sessionref.server.stores.dsh.problems import too_large

__all__ = ("EventDecoder", "Record", "line_type")

Record = Event | PackedTexts | PackedArguments
"""What a line holds."""

_STRICT_VERSION: Final = 2
"""From this format on a line has no members but the known ones."""

_ALL_VERSIONS: Final[tuple[type[Event], ...]] = (
    UserMessage,
    AssistantMessage,
    ToolResult,
    TurnStart,
    TurnEnd,
    StepStart,
    StepEnd,
    TitleEvent,
    SubagentDescriptor,
)
_NUMBERS: Final = ("seq", "time", "seq0", "time0")
_Time = Annotated[int, msgspec.Meta(ge=-(2**53) + 1, le=2**53 - 1)]


class EventDecoder:
    """Decodes the event lines of one log, by the rules of its format."""

    def __init__(self, version: int, limits: DshLimits) -> None:
        self._union: Any = _union(version)
        self._unknown = _strict(UnknownEvent, "unknown") if version >= _STRICT_VERSION else UnknownEvent
        self._known, self._read = _known_types(version)
        self._decode: Callable[[bytes], Record] = msgspec.json.Decoder(self._union).decode
        self._depth = limits.depth
        self._line_bytes = limits.line_bytes

    def decode(self, line: bytes) -> Record | None:
        """The event of a line without its line feed; None if the line is no event. Raises Unreadable, too-large."""
        if len(line) > self._line_bytes:
            raise too_large(self._line_bytes)
        try:
            check_depth(line, self._depth)
            return self._decode(line)
        except NestingError:
            raise too_large(self._depth) from None
        except (msgspec.DecodeError, RecursionError):
            return self._decode_slowly(line)

    def _decode_slowly(self, line: bytes) -> Record | None:
        try:
            fields = _members(line)
        except NestingError:
            raise too_large(self._depth) from None
        kind = fields.get("type")
        if not isinstance(kind, str):
            return None
        for name in _NUMBERS:
            if isinstance(fields.get(name), float):
                fields[name] = safe_integer(fields[name])
        if "data" in fields and kind not in self._read:
            fields["data"] = msgspec.Raw()
        if "sourceEventSeqs" in fields:
            fields["sourceEventSeqs"] = msgspec.Raw(json.dumps(fields["sourceEventSeqs"]).encode())
        try:
            if kind in self._known:
                converted: Record = msgspec.convert(fields, self._union)
                return converted
            return msgspec.convert({**fields, "type": "unknown"}, self._unknown)
        except msgspec.ValidationError:
            return None


def line_type(line: bytes) -> object:
    """The `type` of a line that is a JSON object, else None; for lines behind the end of the usable log."""
    try:
        return _members(line).get("type")
    except NestingError:
        return None


def _members(line: bytes) -> dict[str, Any]:
    """The members of the object that the line is; none if it is no object. Raises NestingError."""
    try:
        value = decode_json_slowly(line.decode("utf-8", "replace").encode())
        return msgspec.convert(value, dict[str, Any])
    except NestingError:
        raise
    except (JsonError, msgspec.ValidationError):
        return {}


@cache
def _union(version: int) -> Any:
    """The tagged union of all lines of a format: what is not in it is unknown to that format."""
    kinds = [*_event_types(version)]
    if version < _STRICT_VERSION:
        return Union[(*kinds, PackedTexts, PackedReasoning, PackedArguments)]
    return Union[tuple(_strict(kind, _tag(kind)) for kind in kinds)]  # noqa: UP007


@cache
def _known_types(version: int) -> tuple[frozenset[str], frozenset[str]]:
    """The names of all types of a format, and of those of which the data is looked at."""
    packed = (PackedTexts, PackedReasoning, PackedArguments) if version < _STRICT_VERSION else ()
    kinds: list[type[msgspec.Struct]] = [*_event_types(version), *packed]
    read = [kind for kind in kinds if "data" in kind.__struct_fields__]
    return frozenset(map(_tag, kinds)), frozenset(map(_tag, read))


@cache
def _event_types(version: int) -> tuple[type[Event], ...]:
    return tuple(_iterate_event_types(version))


def _iterate_event_types(version: int) -> Iterator[type[Event]]:
    yield from _ALL_VERSIONS
    if version == 0:
        yield SteeringMessage
    if version >= 3:
        yield SystemMessage
    if version >= 4:
        yield DeveloperMessage
    for name in LOG_ONLY_TYPES:
        kind = msgspec.defstruct("LogOnly", [], bases=(LogOnlyEvent,), tag=name, kw_only=True)
        yield cast("type[Event]", kind)


def _strict(kind: type[Event], tag: str) -> type[Event]:
    """The same event, refusing members that no line has."""
    skipped: list[tuple[str, Any, Any]] = [("data", msgspec.Raw | UnsetType, UNSET)]
    strict = msgspec.defstruct(
        kind.__name__,
        [("time", _Time), *(skipped if "data" not in kind.__struct_fields__ else ())],
        bases=(kind,),
        tag=tag,
        kw_only=True,
        forbid_unknown_fields=True,
    )
    return cast("type[Event]", strict)


def _tag(kind: type[msgspec.Struct]) -> str:
    return str(kind.__struct_config__.tag)
