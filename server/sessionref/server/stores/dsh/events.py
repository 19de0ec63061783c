"""The events of a log as far as this store looks at them; everything else in a line is skipped, never kept.

Members whose shape does not matter for reading on are `Any`: an odd value there is no reason to lose the line
(dsh-format sections 2.3, 2.4, 3.1).
"""

# Annotations are not postponed here: each of the many types of events would have them compiled again.

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

__all__ = (
    "LOG_ONLY_TYPES",
    "AssistantMessage",
    "Block",
    "DeveloperMessage",
    "Event",
    "LogOnlyEvent",
    "Message",
    "NamedReplace",
    "PackedArguments",
    "PackedReasoning",
    "PackedTexts",
    "Replace",
    "Source",
    "SteeringMessage",
    "StepEnd",
    "StepStart",
    "SubagentDescriptor",
    "SurfaceEvent",
    "SystemMessage",
    "TitleEvent",
    "ToolResult",
    "TurnEnd",
    "TurnStart",
    "UnknownEvent",
    "UserMessage",
)

LOG_ONLY_TYPES: Final = (
    "agent/inbox/spliced",
    "approval/asked",
    "approval/decided",
    "approval/policy",
    "assistant/attempt",
    "assistant/chunk",
    "command/done",
    "command/run",
    "compact/end",
    "compact/prune",
    "compact/start",
    "compact/summary",
    "compaction/end",
    "compaction/prune",
    "compaction/start",
    "compaction/summary",
    "context/message",
    "goal/change",
    "hook/invoked",
    "hook/result",
    "image/offload",
    "llm/retry",
    "llm/retry-started",
    "mode/set",
    "permission/preset",
    "plan/mode",
    "request/context",
    "request/header",
    "request/header-delta",
    "sandbox/mode",
    "session/end-seed",
    "session/title-llm-request",
    "subagent/catalog",
    "todo/write",
    "tool-workflow/agent-end",
    "tool-workflow/agent-start",
    "tool-workflow/run-end",
    "tool-workflow/run-start",
    "tool/call",
    "tool/code-dispatch",
    "tool/code-dispatch-start",
    "tool/ptc-dispatch",
    "tool/ptc-dispatch-start",
)
"""Types that never change the surface and that nothing here reads."""


class Source(msgspec.Struct, gc=False):
    """Who made a message."""

    kind: Any = None
    plugin: Any = None


class Block(msgspec.Struct, gc=False):
    """One content block; `text` counts only where `type` is `text`, `id` only where it is `tool-call`."""

    type: Any = None
    text: Any = None
    id: Any = None


class Display(msgspec.Struct, rename="camel", gc=False):
    """The envelope of early prompts: what the person typed, apart from what was baked into the content."""

    display_content: list[Block] | None = None


class Message(msgspec.Struct, gc=False):
    """What the projection reads of a message."""

    content: list[Block] | None = None
    source: Source | None = None
    envelope: Display | None = None


class SteeringData(Message, gc=False):
    """A message, or one that holds it."""

    message: Message | None = None


class AssistantData(msgspec.Struct, gc=False):
    """The message; its content at the top is the early shape."""

    message: Message | None = None
    content: list[Block] | None = None


class CallSource(msgspec.Struct, rename="camel", gc=False):
    """The tool call that a result is for."""

    call_id: Any = None


class ResultBlock(msgspec.Struct, rename="camel", gc=False):
    """The tool call that a result block is for."""

    tool_call_id: Any = None


class ResultMessage(msgspec.Struct, rename="camel", gc=False):
    """The message of a tool result without its output."""

    tool_call_id: Any = None
    content: list[ResultBlock] | None = None
    source: CallSource | None = None


class ResultData(msgspec.Struct, rename="camel", gc=False):
    """The message; the call id at the top is the early shape."""

    message: ResultMessage | None = None
    call_id: Any = None


class TitleData(msgspec.Struct, gc=False):
    """What a title event says."""

    title: Any = None


class Replace(msgspec.Struct, tag_field="op", tag="replace", forbid_unknown_fields=True):
    """A `surfaceOp` that puts its event in the place of a range of the surface."""

    start: int | float
    end: int | float


class NamedReplace(msgspec.Struct, tag_field="op", tag="replace", forbid_unknown_fields=True):
    """The same from format 3 on."""

    start: int | float = msgspec.field(name="startSeq")
    end: int | float = msgspec.field(name="endSeq")


class Event(msgspec.Struct, tag_field="type", rename="camel", kw_only=True, gc=False):
    """What every line but a packed row has."""

    seq: int
    surface_op: Any = UNSET
    source_event_seqs: msgspec.Raw | UnsetType = UNSET
    ignorable: Any = UNSET


class LogOnlyEvent(Event, tag="log-only"):
    """An event of a known type of which only its place in the log counts; one subclass for each type."""


class SurfaceEvent(Event, tag="surface"):
    """An event that may stand on the surface."""


class UserMessage(SurfaceEvent, tag="user/message"):
    """A prompt, a checkpoint, or what a plugin added."""

    data: Message


class SteeringMessage(SurfaceEvent, tag="steering/message"):
    """A prompt during a turn, in early logs."""

    data: SteeringData


class AssistantMessage(SurfaceEvent, tag="assistant/message"):
    """An answer, and the tool calls that it announces."""

    data: AssistantData


class ToolResult(SurfaceEvent, tag="tool/result"):
    """The end of a tool call."""

    data: ResultData

    def call_ids(self) -> list[Any]:
        """Every place where the id of the call may stand, in all formats."""
        message = self.data.message or ResultMessage()
        found = [self.data.call_id, message.tool_call_id]
        found += [block.tool_call_id for block in message.content or ()]
        return [*found, message.source.call_id] if message.source else found


class SystemMessage(SurfaceEvent, tag="system/message"):
    """The system prompt, on the surface from format 3 on."""


class DeveloperMessage(SurfaceEvent, tag="developer/message"):
    """A developer message, on the surface from format 4 on."""


class TurnStart(Event, tag="turn/start"):
    """A turn begins."""


class TurnEnd(Event, tag="turn/end"):
    """A turn ends."""


class StepStart(Event, tag="step/start"):
    """A step begins."""


class StepEnd(Event, tag="step/end"):
    """A step ends."""


class TitleEvent(Event, tag="session/title"):
    """The session was given a title."""

    data: TitleData


class SubagentDescriptor(Event, tag="subagent/descriptor"):
    """How the session of a sub-agent was made."""

    data: Any


class UnknownEvent(Event, tag="unknown"):
    """An event of a type that this version of the format does not have."""


class _Packed(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    turn: Any
    step: Any
    index: Any
    dt: list[Any]


class PackedTextsData(_Packed, kw_only=True):
    """The pieces of a text."""

    texts: list[Any]


class PackedArgumentsData(_Packed, kw_only=True):
    """The pieces of a tool call's arguments."""

    id: Any
    name: Any = UNSET
    args: list[Any]


class PackedTexts(msgspec.Struct, tag_field="type", tag="text-chunks", forbid_unknown_fields=True):
    """Several chunks of text in one line, in formats 0 and 1; each takes a place in the log."""

    seq0: int
    time0: int
    data: PackedTextsData

    def length(self) -> int:
        """How many events the row stands for; 0 if it is malformed."""
        return _packed_length(self.data.texts, self.data.dt)


class PackedReasoning(PackedTexts, tag="reasoning-chunks"):
    """The same for reasoning."""


class PackedArguments(msgspec.Struct, tag_field="type", tag="tool-call-chunks", forbid_unknown_fields=True):
    """The same for the arguments of a tool call."""

    seq0: int
    time0: int
    data: PackedArgumentsData

    def length(self) -> int:
        """How many events the row stands for; 0 if it is malformed."""
        return _packed_length(self.data.args, self.data.dt)


def _packed_length(pieces: list[Any], steps: list[Any]) -> int:
    return len(pieces) if len(pieces) == len(steps) + 1 else 0
