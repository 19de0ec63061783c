"""What a record says that a person typed or the assistant answered, and how sure that is.

Codex writes the same words up to three times: as what the model is given, as an event, and as an item of the
interface. What the model is given also holds much that nobody typed.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from sessionref.server.stores.codex.records import CodexRecord, HistoryItem, Part, TurnItem

__all__ = ("EVENT", "ITEM", "RESPONSE", "Said", "is_summary", "joined", "said_in", "said_of")

Role = Literal["user", "assistant"]

RESPONSE: Final = 1
EVENT: Final = 2
ITEM: Final = 4
"""The three families of records, as bits."""

_TYPED_KIND: Final = "user.text"
_SUMMARY_KIND: Final = "compaction.summary"
_UNTOLD_KINDS: Final = (None, "unknown")
_TEXT_TYPES: Final = frozenset({"text", "input_text", "output_text"})

_ITEM_ROLES: Final[dict[str, Role]] = {"UserMessage": "user", "AgentMessage": "assistant"}

_INJECTED: Final = (
    *("# agents.md", "<environment_context>", "<instructions>", "<user_instructions>", "<turn_aborted>", "<skill>"),
    *("<subagent_notification>", "<goal_context>", "<codex_internal_context", "<recommended_plugins>"),
    *("<local-command", "<user_shell_command>", "<user_action>", "<hook_prompt", "<model_switch>"),
    *("<permissions instructions>", "<additional_context>"),
)
"""What texts begin with, in small letters, that the model was given as a user's and nobody typed."""

_LONGEST_MARK: Final = max(map(len, _INJECTED))

_IMAGE_TAG: Final = re.compile(r"\s*</?image\b[^>]*>\s*")
"""What stands before and behind a picture in a prompt."""

_REQUEST: Final = re.compile(r"^## My request for Codex:[ \t]*\n*", re.MULTILINE)
"""What editors put between their context and what was typed."""

_SUMMARY_PREFIX: Final = "Another language model started to solve this problem and produced a summary"


class Said(NamedTuple):
    """A text, `family` the bit of where it stands; one that is not certain may have been injected."""

    role: Role
    text: str
    family: int
    is_certain: bool = True
    id: str | None = None


def said_in(record: CodexRecord, *, is_of_subagent: bool) -> Said | None:
    """What a record says that somebody typed or the assistant answered."""
    message, payload = record.message, record.payload
    if message is not None:
        return said_of(message, is_of_subagent=is_of_subagent)
    if record.type != "event_msg":
        return None
    if payload.type == "item_completed" and payload.item is not None:
        return _item_said(payload.item, is_of_subagent=is_of_subagent)
    # Builds of 2025 also wrote events of what they had injected, of other kinds.
    if payload.type == "user_message" and payload.kind in (None, "plain"):
        return _said("user", payload.message or "", EVENT, is_of_subagent=is_of_subagent)
    if payload.type == "agent_message":
        return _said("assistant", payload.message or "", EVENT, is_of_subagent=is_of_subagent)
    return None


def said_of(message: HistoryItem, *, is_of_subagent: bool) -> Said | None:
    """What somebody typed or the assistant answered in a message; the kinds of its parts tell for users alone."""
    if message.role == "assistant":
        text = joined(message.parts)
        return _said("assistant", text, RESPONSE, is_of_subagent=is_of_subagent, id=message.id)
    if message.role != "user":
        return None
    kinds = [*message.kinds[: len(message.parts)], *[None] * (len(message.parts) - len(message.kinds))]
    typed = [
        part
        for part, kind in zip(message.parts, kinds, strict=True)
        if kind == _TYPED_KIND or (kind in _UNTOLD_KINDS and not _is_injected(part.text))
    ]
    is_certain = _TYPED_KIND in kinds
    return _said("user", joined(typed), RESPONSE, is_of_subagent=is_of_subagent, is_certain=is_certain, id=message.id)


def is_summary(message: HistoryItem, summary: str) -> bool:
    """Whether a message of a history after its compaction is the summary, which the record of that may hold, too."""
    if message.role != "user" or _TYPED_KIND in message.kinds:
        return False
    text = joined(message.parts).strip()
    return _SUMMARY_KIND in message.kinds or text.startswith(_SUMMARY_PREFIX) or text == summary.strip() != ""


def joined(parts: list[Part]) -> str:
    """The texts, a line feed between them; blank ones and those around pictures count for nothing."""
    texts = (part.text for part in parts if part.type.lower() in _TEXT_TYPES)
    return "\n".join(text for text in texts if text.strip() and not _IMAGE_TAG.fullmatch(text))


def _item_said(item: TurnItem, *, is_of_subagent: bool) -> Said | None:
    role = _ITEM_ROLES.get(item.type)
    if role is None:
        return None
    parts = [Part("text", item.content)] if isinstance(item.content, str) else item.content or []
    return _said(role, joined(parts), ITEM, is_of_subagent=is_of_subagent, id=item.id)


def _said(
    role: Role, text: str, family: int, *, is_of_subagent: bool, is_certain: bool = True, id: str | None = None
) -> Said | None:
    # What a sub-agent is given may hold a whole transcript, with requests that were others'.
    if role == "user" and not is_of_subagent and (request := _REQUEST.search(text)):
        text = text[request.end() :]
    return Said(role, text, family, is_certain, id) if text.strip() else None


def _is_injected(text: str) -> bool:
    return text.lstrip()[:_LONGEST_MARK].lower().startswith(_INJECTED)
