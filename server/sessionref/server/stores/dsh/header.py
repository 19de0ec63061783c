"""The first line of a log: which session it is (dsh-format section 2.2)."""

from __future__ import annotations

import json
import math
from typing import Any, Final, Never

import msgspec

from sessionref.protocol.jsontext import NestingError, as_object, check_depth, join_surrogates
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.problems import corrupt, too_large

__all__ = ("LogHeader", "parse_header", "safe_integer")

_SAFE_INTEGER: Final = 2**53 - 1
_COMMON_KEYS: Final = frozenset(
    {
        "type",
        "version",
        "id",
        "createdAt",
        "cwd",
        "parentSession",
        "origin",
        "delegationDepth",
        "agentPreset",
    }
)
_RETIRED_KEYS: Final = frozenset({"sandboxMode", "approvalPolicy"})


class LogHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a log; `created_at` is in Unix milliseconds."""

    version: int
    session_id: str
    created_at: int
    cwd: str | None = None
    is_subagent: bool = False


def safe_integer(value: object) -> int | None:
    """The value as an integer if JavaScript would take it for a safe one (`2`, `2.0`, not `-0.0`, not `true`)."""
    if isinstance(value, float) and value.is_integer() and not (value == 0.0 and math.copysign(1, value) < 0):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and -_SAFE_INTEGER <= value <= _SAFE_INTEGER:
        return value
    return None


def parse_header(line: bytes, limits: ReadingLimits) -> LogHeader:
    """Check a header line by the rules of the version that it names. Raises Unreadable: corrupt, too-large."""
    try:
        check_depth(line, limits.depth)
        fields = as_object(_HEADERS.decode(line.decode("utf-8", "replace")))
    except (NestingError, RecursionError):
        raise too_large(limits.depth) from None
    except ValueError:
        raise corrupt() from None
    if fields is None:
        raise corrupt()
    return _checked(fields)


def _checked(fields: dict[str, Any]) -> LogHeader:
    version = _count(fields.get("version"))
    _require(fields.get("type") == "session" and not _RETIRED_KEYS & fields.keys())
    if version >= 2:
        _require(isinstance(fields.get("isSeeded"), bool))
    elif "seedLength" in fields:
        _count(fields["seedLength"])
    if version >= 1:
        _require(fields.keys() <= _COMMON_KEYS | {"isSeeded" if version >= 2 else "seedLength"})
    # Recorded logs of format 0 lack the depth.
    if version >= 1 or "delegationDepth" in fields:
        _count(fields.get("delegationDepth"))
    for key in ("cwd", "parentSession", "agentPreset"):
        _require(isinstance(fields.get(key, ""), str))
    _require(fields.get("cwd") != "" and fields.get("origin", "subagent") == "subagent")
    session_id, cwd = fields.get("id"), fields.get("cwd")
    if not isinstance(session_id, str) or not session_id:
        raise corrupt()
    return LogHeader(
        version=version,
        session_id=join_surrogates(session_id),
        created_at=_count(fields.get("createdAt")),
        cwd=None if cwd is None else join_surrogates(cwd),
        is_subagent="origin" in fields,
    )


def _count(value: object) -> int:
    number = safe_integer(value)
    if number is None or number < 0:
        raise corrupt()
    return number


def _require(holds: bool) -> None:
    if not holds:
        raise corrupt()


def _integer(digits: str) -> int:
    if digits == "-0":
        raise ValueError("a negative zero is lost in JSON")
    return int(digits)


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


_HEADERS: Final = json.JSONDecoder(parse_int=_integer, parse_constant=_refuse_constant)
"""The standard library's, which alone shows the sign of a zero; made once, since listing asks for every log."""
