"""Which lines each format has, as one typed decoder for all of them (dsh-format sections 2.3, 2.4, 2.7)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Final, NamedTuple, TypeVar, Union, cast

import msgspec
from msgspec import UNSET, UnsetType

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

__all__ = ("LineFormat", "Record", "line_format")

Record = Event | PackedTexts | PackedArguments
"""What a line holds."""

_STRICT_VERSION: Final = 2
"""From this format on a line has no members but the known ones, and packed rows are gone."""

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
_Kind = TypeVar("_Kind", bound=Event)
_SafeInteger = Annotated[int, msgspec.Meta(ge=-(2**53) + 1, le=2**53 - 1)]


class LineFormat(NamedTuple):
    """The lines of one format: `union` of all known ones, their types, and those whose `data` is looked at.

    `unknown` is what a line of any other type is; `decode` takes a known line's bytes.
    """

    union: Any
    unknown: type[UnknownEvent]
    known_types: frozenset[str]
    types_with_data: frozenset[str]
    decode: Callable[[bytes], Record]


@cache
def line_format(version: int) -> LineFormat:
    """The lines of a format; made once, since listing asks for every log."""
    kinds: list[type[Event]] = [*_ALL_VERSIONS]
    if version == 0:
        kinds.append(SteeringMessage)
    if version >= 3:
        kinds.append(SystemMessage)
    if version >= 4:
        kinds.append(DeveloperMessage)
    packed = (PackedTexts, PackedReasoning, PackedArguments) if version < _STRICT_VERSION else ()
    with_data = [kind for kind in (*kinds, *packed) if "data" in kind.__struct_fields__]
    log_only: type[Event] = LogOnlyEvent
    unknown: type[UnknownEvent] = UnknownEvent
    if version >= _STRICT_VERSION:
        kinds = [_strict(kind) for kind in kinds]
        log_only, unknown = _strict(LogOnlyEvent), _strict(UnknownEvent)
    kinds += [_named(name, log_only) for name in LOG_ONLY_TYPES]
    lines: list[type[msgspec.Struct]] = [*kinds, *packed]
    union: Any = Union[tuple(lines)]  # noqa: UP007
    return LineFormat(
        union=union,
        unknown=unknown,
        known_types=frozenset(map(_tag, lines)),
        types_with_data=frozenset(map(_tag, with_data)),
        decode=msgspec.json.Decoder(union).decode,
    )


def _named(name: str, kind: type[Event]) -> type[Event]:
    """The same event, under the name of one of the types that it stands for."""
    return cast("type[Event]", msgspec.defstruct("LogOnly", [], bases=(kind,), tag=name, kw_only=True))


def _strict(kind: type[_Kind]) -> type[_Kind]:
    """The same event, refusing members that no line has."""
    skipped: list[tuple[str, Any, Any]] = [("data", msgspec.Raw | UnsetType, UNSET)]
    strict = msgspec.defstruct(
        kind.__name__,
        [("time", _SafeInteger), *(skipped if "data" not in kind.__struct_fields__ else ())],
        bases=(kind,),
        tag=_tag(kind),
        kw_only=True,
        forbid_unknown_fields=True,
    )
    return cast("type[_Kind]", strict)


def _tag(kind: type[msgspec.Struct]) -> str:
    return str(kind.__struct_config__.tag)
