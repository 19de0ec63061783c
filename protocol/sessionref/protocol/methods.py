"""The methods: names, params and results; the one table that dispatch, schemas and the client are made from."""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from sessionref.protocol.errors import invalid_params
from sessionref.protocol.jsontext import as_object, convert
from sessionref.protocol.messages import ContextMessage

__all__ = (
    "ASSEMBLED",
    "CANCEL_REQUEST",
    "CANDIDATES",
    "DIAGNOSTIC_KINDS",
    "DISCOVER",
    "EXIT",
    "INITIALIZE",
    "MAX_CANDIDATES",
    "METHODS",
    "PREPARE",
    "PREPARE_MESSAGES",
    "PROTOCOL_VERSION",
    "SHUTDOWN",
    "AssembledParams",
    "CancelParams",
    "Candidate",
    "CandidatesParams",
    "DiagnosticRecord",
    "InitializeResult",
    "MethodSpecification",
    "NoParams",
    "PrepareMessagesParams",
    "PrepareMessagesResult",
    "PrepareParams",
    "PrepareResult",
    "Route",
    "ServerInformation",
    "bind_params",
)

CANDIDATES: Final = "sessionReferenceResolver/candidates"
PREPARE: Final = "sessionReferenceResolver/prepare"
PREPARE_MESSAGES: Final = "sessionReferenceResolver/prepareMessages"
ASSEMBLED: Final = "sessionReferenceResolver/assembled"
INITIALIZE: Final = "initialize"
DISCOVER: Final = "rpc.discover"
SHUTDOWN: Final = "shutdown"
EXIT: Final = "exit"
CANCEL_REQUEST: Final = "$/cancelRequest"

PROTOCOL_VERSION: Final = "1"
MAX_CANDIDATES: Final = 10_000
"""The largest `limit`: as many rows as a person could ever scroll through."""

DIAGNOSTIC_KINDS: Final = ("torn-tail", "skipped-lines", "interrupted-turn", "unknown-events")

_ContextWindow = Annotated[
    int, Meta(ge=1, le=100_000_000, description="The model's context window in tokens; four bytes each.")
]
_AgentId = Annotated[str, Meta(description="The id of the target session; it need not exist in any store.")]
_WorkingDirectory = Annotated[str, Meta(description="The target's working directory.")]

_LIMIT_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [{"type": "integer", "minimum": 1, "maximum": MAX_CANDIDATES}, {"type": "null"}],
    "description": "Rows at most; any other value is INVALID_REFERENCE.",
}
_CONTENT_BLOCKS_SCHEMA: Final[dict[str, Any]] = {
    "items": {"type": "object"},
    "description": "Content blocks; the text of those of type `text` is parsed, everything else passes through.",
}
_CONTENT_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}],
    "description": "In the shape in which it came.",
}
_REFERENCES_SCHEMA: Final[dict[str, Any]] = {
    "items": {
        "type": "object",
        "required": ["sessionId"],
        "properties": {"sessionId": {"type": "string"}, "label": {"type": "string"}},
    },
    "description": "Known references; further members of an element are ignored. Given, the content is not parsed.",
}
_MESSAGES_SCHEMA: Final[dict[str, Any]] = {
    "items": {"type": "object"},
    "description": "Messages; those whose source.kind is `user` are prepared, the others come back as they came.",
}


class CandidatesParams(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What `candidates` takes; `limit` is checked by the resolver, whose error it is."""

    agent_id: _AgentId
    query: Annotated[str, Meta(description="A substring of id, cwd, label or display title.")] | None = None
    cwd: _WorkingDirectory | None = None
    limit: Annotated[Any, Meta(extra_json_schema=_LIMIT_SCHEMA)] = None
    include_subagents: Annotated[bool, Meta(description="List or hide sub-agents' sessions.")] | None = None


class Route(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The model that a prompt goes to, from which its budget follows."""

    provider: str | None = None
    model: str | None = None
    context_window: _ContextWindow | None = None


class PrepareParams(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What `prepare` takes; elements of `references` are checked by the resolver, whose error they are."""

    agent_id: _AgentId
    content: str | Annotated[list[Any], Meta(extra_json_schema=_CONTENT_BLOCKS_SCHEMA)]
    references: Annotated[list[Any], Meta(extra_json_schema=_REFERENCES_SCHEMA)] | None = None
    cwd: _WorkingDirectory | None = None
    route: Route | None = None
    preview: Annotated[bool, Meta(description="Spill nothing.")] | None = None


class PrepareMessagesParams(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What `prepareMessages` takes."""

    agent_id: _AgentId
    messages: Annotated[list[Any], Meta(extra_json_schema=_MESSAGES_SCHEMA)]
    cwd: _WorkingDirectory | None = None
    route: Route | None = None


class AssembledParams(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What `assembled` takes: the route of the agent's last assembled prompt."""

    agent_id: _AgentId
    provider: str | None = None
    model: str | None = None
    context_window: _ContextWindow | None = None


class CancelParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `$/cancelRequest` takes: the id of a request of the same connection."""

    id: str | int | float


class NoParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No params."""


class AnyParams(msgspec.Struct, frozen=True):
    """Anything; the peer's own account of itself is not needed."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A session that can be mentioned; times in Unix milliseconds, unknown ones absent."""

    session_id: str
    label: str
    display_title: str
    cwd: str | UnsetType = UNSET
    same_workspace: bool
    created_at: int
    updated_at: int | UnsetType = UNSET
    origin: str
    mention: str
    title_pending: bool | UnsetType = UNSET
    """True if the title was not read yet; absent otherwise."""


class DiagnosticRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a reader should know about one source and its record cannot say."""

    session_id: str
    kind: Annotated[str, Meta(extra_json_schema={"examples": list(DIAGNOSTIC_KINDS)})]
    """Not closed: a client must be able to show what a newer server says."""
    detail: str


class PrepareResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The readable content, in the shape it came, and the context if there was a reference."""

    content: Annotated[Any, Meta(extra_json_schema=_CONTENT_SCHEMA)]
    additional_context: ContextMessage | UnsetType = UNSET
    diagnostics: list[DiagnosticRecord] | UnsetType = UNSET


class PrepareMessagesResult(msgspec.Struct, frozen=True, kw_only=True):
    """All messages, each context right after the message that it belongs to."""

    messages: list[Any]
    diagnostics: list[DiagnosticRecord] | UnsetType = UNSET


class ServerInformation(msgspec.Struct, frozen=True):
    """Who answers."""

    name: str
    version: str


class InitializeResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a host may want to know before its first call; asking is optional."""

    protocol_version: str
    server_info: ServerInformation
    capabilities: dict[str, Any]
    limits: dict[str, Any]
    error_codes: dict[str, int]


class MethodSpecification(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the method table; a `result` of None is the JSON null, or no answer for a notification."""

    name: str
    summary: str
    params: type[msgspec.Struct]
    result: Any = None
    is_notification: bool = False


METHODS: Final[dict[str, MethodSpecification]] = {
    row.name: row
    for row in (
        MethodSpecification(
            name=CANDIDATES,
            summary="Find sessions that can be mentioned.",
            params=CandidatesParams,
            result=list[Candidate],
        ),
        MethodSpecification(
            name=PREPARE,
            summary="Turn one message with mentions into readable content and at most one context.",
            params=PrepareParams,
            result=PrepareResult,
        ),
        MethodSpecification(
            name=PREPARE_MESSAGES,
            summary="Prepare every message of a user, all or nothing.",
            params=PrepareMessagesParams,
            result=PrepareMessagesResult,
        ),
        MethodSpecification(
            name=ASSEMBLED,
            summary="Remember the route of an agent's last assembled prompt.",
            params=AssembledParams,
            is_notification=True,
        ),
        MethodSpecification(
            name=INITIALIZE,
            summary="Learn version, capabilities, limits and error codes; optional.",
            params=AnyParams,
            result=InitializeResult,
        ),
        MethodSpecification(name=DISCOVER, summary="Get the OpenRPC document.", params=NoParams, result=dict[str, Any]),
        MethodSpecification(name=SHUTDOWN, summary="Announce the end; `exit` follows.", params=NoParams),
        MethodSpecification(
            name=EXIT, summary="End the process or the connection.", params=NoParams, is_notification=True
        ),
        MethodSpecification(
            name=CANCEL_REQUEST,
            summary="Cancel a request of this connection.",
            params=CancelParams,
            is_notification=True,
        ),
    )
}

ParamsType = TypeVar("ParamsType", bound=msgspec.Struct)
_PRINTABLE_NAME: Final = re.compile(r"[A-Za-z0-9_$.-]{1,40}")
_CONTEXT_WINDOW: Final = "contextWindow"


def bind_params(kind: type[ParamsType], positional: tuple[Any, ...], named: dict[str, Any]) -> ParamsType:
    """Bind params given by position or by name; null is absent, `2.0` is `2`.

    Raises ProtocolError INVALID_PARAMS that names the param (contract section 1, Methods).
    """
    if issubclass(kind, AnyParams):
        return kind()
    fields = kind.__struct_encode_fields__
    while positional and positional[-1] is None:
        positional = positional[:-1]
    if len(positional) > len(fields):
        raise invalid_params(f"at most {len(fields)} params are taken, {len(positional)} were given")
    given = dict(zip(fields, positional, strict=False)) | named
    for name in given:
        if name not in fields:
            raise invalid_params(f"unknown param {_shown(name)}")
    present = {name: value for name, value in given.items() if value is not None}
    for name in _required_names(kind):
        if name not in present:
            raise invalid_params(f"missing param {name}")
    if _CONTEXT_WINDOW in present:
        present[_CONTEXT_WINDOW] = _integral(present[_CONTEXT_WINDOW])
    members = as_object(present.get("route"))
    if members is not None:
        for name in members:
            if name not in Route.__struct_encode_fields__:
                raise invalid_params(f"unknown member {_shown(name)} in param route")
        present["route"] = {
            name: _integral(value) if name == _CONTEXT_WINDOW else value for name, value in members.items()
        }
    try:
        return convert(present, kind)
    except msgspec.ValidationError as error:
        # The text speaks of our own field names and types only: unknown names were refused above.
        raise invalid_params(f"invalid params: {error}") from None


@cache
def _required_names(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(kind) if field.required)


def _integral(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _shown(name: str) -> str:
    return name if _PRINTABLE_NAME.fullmatch(name) else "(its name is not printable here)"
