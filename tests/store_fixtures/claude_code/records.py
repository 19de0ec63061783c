"""Records of Claude Code for tests, in the documented shapes, and what the folds make of them."""

from __future__ import annotations

import json
from typing import Any

from sessionref.server.store import SessionHeader
from sessionref.server.stores.claude_code.conversation import ClaudeConversation
from sessionref.server.stores.claude_code.labels import ClaudeLabels
from sessionref.server.stores.claude_code.records import ClaudeRecord
from sessionref.server.stores.folds import Log
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.records import RecordDecoder

__all__ = (
    "DECODER",
    "boundary",
    "conversation_of",
    "in_a_row",
    "labels_of",
    "queued",
    "result",
    "row_of",
    "said_in",
    "spoken",
    "summary",
    "talk_in",
    "typed",
)

DECODER = RecordDecoder(ClaudeRecord, ReadingLimits())


def typed(content: Any, **more: Any) -> dict[str, Any]:
    """A prompt."""
    return {"type": "user", "message": {"role": "user", "content": content}, **more}


def spoken(*texts: str, reply: str | None = None, model: str = "claude-opus-4-6", **more: Any) -> dict[str, Any]:
    """A reply, or a part of the one with that id."""
    call: dict[str, Any] = {"type": "tool_use", "name": "Bash", "input": {}}
    blocks = [{"type": "text", "text": text} for text in texts] or [call]
    message = {"role": "assistant", "model": model, "content": blocks} | ({"id": reply} if reply else {})
    return {"type": "assistant", "message": message, **more}


def result(text: str = "the output of a tool", **more: Any) -> dict[str, Any]:
    """What a tool gave back."""
    block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": text}]}
    return typed([block], toolUseResult={"stdout": text}, **more)


def queued(prompt: Any, attachment: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A prompt that was typed while the agent was busy."""
    made = {"type": "queued_command", "commandMode": "prompt", "prompt": prompt} | (attachment or {})
    return {"type": "attachment", "attachment": made, **more}


def boundary(**more: Any) -> dict[str, Any]:
    """Where a compaction begins."""
    return {"type": "system", "subtype": "compact_boundary", "content": "Conversation compacted", **more}


def summary(text: str, **more: Any) -> dict[str, Any]:
    """What a compaction leaves."""
    return typed(text, isCompactSummary=True, isVisibleInTranscriptOnly=True, **more)


def in_a_row(*records: dict[str, Any], parent: str | None = None, first: int = 1) -> list[dict[str, Any]]:
    """Records as a chain, with the uuids u1, u2 and so on; what a record says itself goes before that."""
    found: list[dict[str, Any]] = []
    for number, record in enumerate(records, first):
        found.append({"uuid": f"u{number}", "parentUuid": parent} | record)
        parent = found[-1]["uuid"]
    return found


def conversation_of(*records: dict[str, Any], is_subagent: bool = False) -> ClaudeConversation:
    """The fold that has taken records."""
    fold = ClaudeConversation(is_subagent=is_subagent)
    for record in records:
        decoded = DECODER.decode(json.dumps(record).encode())
        assert decoded is not None
        fold.feed(decoded)
    return fold


def said_in(fold: ClaudeConversation) -> list[str]:
    """Who said what, in short."""
    signs = {"user": ">", "assistant": "<"}
    return [("=" if item.checkpoint else signs[item.role]) + item.text for item in fold.items()]


def talk_in(*records: dict[str, Any], is_subagent: bool = False) -> list[str]:
    """The conversation in records: prompts behind `>`, replies behind `<`, checkpoints behind `=`."""
    return said_in(conversation_of(*records, is_subagent=is_subagent))


def labels_of(*records: dict[str, Any]) -> ClaudeLabels:
    """The fold that has taken records."""
    fold = ClaudeLabels()
    for record in records:
        decoded = DECODER.decode(json.dumps(record).encode())
        assert decoded is not None
        fold.feed(decoded)
    return fold


def row_of(*records: dict[str, Any], key: str = "projects/p/s.jsonl", is_subagent: bool = False) -> SessionHeader:
    """The row of a log with these records, from it alone."""
    stem = key.rpartition("/")[2].removesuffix(".jsonl")
    return labels_of(*records).header(Log(key, stem, is_subagent), f"claude-code:{stem}", 7).row(None)
