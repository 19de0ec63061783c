"""The events of a Copilot CLI session, as far as they matter here.

The shapes are those of the schema that the makers publish with their SDK; most events tell of tools and limits.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.problems import Unreadable

__all__ = (
    "KNOWN_VERSIONS",
    "CopilotEvent",
    "EventData",
    "check_version",
    "directory_of",
    "is_known",
    "is_of_subagent",
    "is_spoken",
    "is_typed",
)

KNOWN_VERSIONS: Final = (None, 0, 1)
"""The event formats that are known, as of 1.0.86."""

_SKILL: Final = "<skill-context"
_INJECTED: Final = ("skill-", "agent-", "system", "schedule-")
"""How sources begin that are no person: expanded skills, other agents, notices, prompts that come back by the clock."""

_AUTOPILOT: Final = "autopilot"
"""The source of what autopilot says to go on; its objective, which a person typed, has another."""

_THINKING: Final = "thinking"
"""The phase of a message that is no reply yet."""

_SAID: Final = frozenset(
    {
        "user.message",
        "assistant.message",
        "assistant.message_start",
        "assistant.message_delta",
        "assistant.streaming_delta",
        "assistant.tool_call_delta",
        "assistant.turn_start",
        "assistant.turn_end",
        "assistant.intent",
        "assistant.idle",
        "assistant.usage",
        "assistant.reasoning",
        "assistant.reasoning_delta",
        "assistant.server_tool_progress",
        "assistant.fusion_phase_started",
        "assistant.fusion_phase_completed",
        "assistant.fusion_phase_failed",
    }
)
"""All events of the two who talk: what else they might say one day must not be left out unsaid."""

_SILENT: Final = frozenset(
    {
        *("session", "system", "hook", "tool", "external_tool", "subagent", "skill", "permission", "command"),
        *("commands", "capabilities", "abort", "model", "pending_messages", "user_input", "elicitation", "sampling"),
        *("mcp", "mcp_app", "auto_mode_switch", "session_limits_exhausted", "exit_plan_mode", "extensions", "factory"),
        *("ui", "canvas"),
    }
)
"""What events are about that nobody says."""


class Context(msgspec.Struct, frozen=True):
    """Where the agent works."""

    cwd: str | None = None


class CrossSession(msgspec.Struct, frozen=True):
    """Which session another's message comes from: it matters only that this is said."""


class EventData(msgspec.Struct, frozen=True, rename="camel"):
    """What an event tells; each type has members of its own."""

    session_id: str | None = None
    version: Any = None
    start_time: str | None = None
    context: Context | None = None
    cwd: str | None = None
    detached_from_spawning_parent_session_id: str | None = None
    content: str | None = None
    source: str | None = None
    is_autopilot_continuation: bool = False
    cross_session: CrossSession | None = None
    message_id: str | None = None
    delta_content: str | None = None
    phase: str | None = None
    parent_tool_call_id: str | None = None
    success: bool = False
    summary_content: str | None = None
    initial_message: str | None = None
    up_to_event_id: str | None = None


class CopilotEvent(msgspec.Struct, frozen=True, rename="camel"):
    """A line."""

    type: str
    id: str | None = None
    timestamp: str | None = None
    agent_id: str | None = None
    data: EventData = EventData()


def check_version(event: CopilotEvent) -> None:
    """Raise Unreadable (newer-format) for the start of a session in a format that is not known yet."""
    if event.type == "session.start" and event.data.version not in KNOWN_VERSIONS:
        raise Unreadable(ReadFailedReason.NEWER_FORMAT)


def directory_of(event: CopilotEvent) -> str | None:
    """The working directory that an event names, if it does."""
    if event.type in ("session.start", "session.resume"):
        return (event.data.context or Context()).cwd or None
    return event.data.cwd or None if event.type == "session.context_changed" else None


def is_known(event: CopilotEvent) -> bool:
    """Whether an event is one whose meaning is known, be it none for a conversation."""
    return event.type in _SAID or event.type.partition(".")[0] in _SILENT


def is_of_subagent(event: CopilotEvent) -> bool:
    """Whether a sub-agent did this, as newer and older builds mark it: it is no part of the session's conversation."""
    return bool(event.agent_id or event.data.parent_tool_call_id)


def is_typed(data: EventData) -> bool:
    """Whether a user message is a person's."""
    source = data.source or ""
    return not (
        source == _AUTOPILOT
        or source.startswith(_INJECTED)
        or data.is_autopilot_continuation
        or data.cross_session is not None
        or (data.content or "").lstrip().startswith(_SKILL)
    )


def is_spoken(data: EventData) -> bool:
    """Whether a message of the assistant is a reply, and no thought."""
    return data.phase != _THINKING
