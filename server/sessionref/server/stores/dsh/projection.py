"""Which message of a log is conversation, and its text (contract section 4, Projection)."""

from __future__ import annotations

from sessionref.protocol.jsontext import join_surrogates
from sessionref.server.store import ConversationItem
from sessionref.server.stores.dsh.events import (
    AssistantMessage,
    Block,
    Message,
    SteeringMessage,
    SurfaceEvent,
    UserMessage,
)

__all__ = ("project",)


def project(event: SurfaceEvent, version: int) -> ConversationItem | None:
    """The event as conversation, None if it is not; markers count in their own formats only."""
    match event:
        case UserMessage():
            return _from_person(event.data, version)
        case SteeringMessage():
            return _from_person(event.data.message or event.data, version)
        case AssistantMessage(data=data):
            text = _text(data.message.content if data.message else data.content)
            return ConversationItem("assistant", text) if text else None
        case _:
            return None


def _from_person(message: Message, version: int) -> ConversationItem | None:
    source = message.source
    if source is None:
        return None
    if version >= 4:
        checkpoint = source.kind == "compact-checkpoint"
    else:
        checkpoint = source.kind == "plugin" and source.plugin == "compact"
    if not checkpoint and source.kind != "user":
        return None
    # The content of an early prompt with an envelope has context baked into it that nobody typed.
    typed = message.envelope.display_content if message.envelope else None
    text = _text(message.content if typed is None else typed)
    return ConversationItem("user", text, checkpoint) if text else None


def _text(blocks: list[Block] | None) -> str:
    texts = [block.text for block in blocks or () if block.type == "text" and isinstance(block.text, str)]
    return join_surrogates("\n".join(texts))
