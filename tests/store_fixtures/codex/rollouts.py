"""The records of Codex rollouts, as section 5 of the facts and its corrections tell their shapes."""

from __future__ import annotations

from typing import Any, Literal

from store_fixtures import CREATED_AT
from store_fixtures.logs import iso

__all__ = ("compacted", "event", "item", "message", "meta", "name_line", "record", "rollout_path")


def record(type: str, payload: dict[str, Any], **members: Any) -> dict[str, Any]:
    """A line."""
    return {"timestamp": iso(CREATED_AT), "type": type, "payload": payload, **members}


def meta(thread_id: str, *, cwd: str | None = "/srv/here", created_at: int = CREATED_AT, **more: Any) -> dict[str, Any]:
    """The header of a rollout; with its instructions it is longer than a first read."""
    payload: dict[str, Any] = {
        "session_id": thread_id,
        "id": thread_id,
        "timestamp": iso(created_at),
        "originator": "codex_cli_rs",
        "cli_version": "0.171.0",
        "source": "cli",
        "base_instructions": {"text": "You are a coding agent. " * 400},
        "history_mode": "paginated",
    }
    return record("session_meta", payload | ({"cwd": cwd} if cwd is not None else {}) | more)


def message(
    role: Literal["user", "assistant", "developer"], *texts: str, kinds: list[str] | None = None, **more: Any
) -> dict[str, Any]:
    """What the model is given, with the kinds of its parts; `kinds=[]` for a build that does not note them."""
    noted = (["user.text"] if role == "user" else ["unknown"]) * len(texts) if kinds is None else kinds
    payload: dict[str, Any] = {
        "type": "message",
        "role": role,
        "content": [{"type": "output_text" if role == "assistant" else "input_text", "text": text} for text in texts],
    }
    if noted:
        payload["internal_chat_message_metadata_passthrough"] = {"turn_id": "turn", "content_item_kinds": noted}
    return record("response_item", payload | more)


def event(type: str, **members: Any) -> dict[str, Any]:
    """What happened."""
    return record("event_msg", {"type": type, **members})


def item(type: Literal["UserMessage", "AgentMessage"], text: str, *, id: str = "item") -> dict[str, Any]:
    """What the interface shows; the case of its parts' types is not always the same."""
    part = {"type": "Text" if type == "AgentMessage" else "text", "text": text}
    return event("item_completed", thread_id="thread", turn_id="turn", item={"type": type, "id": id, "content": [part]})


def compacted(message: str, history: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """A compaction; the history is of messages, as records."""
    payload: dict[str, Any] = {"message": message}
    if history is not None:
        payload["replacement_history"] = [one["payload"] for one in history]
    return record("compacted", payload)


def name_line(thread_id: str, name: str) -> dict[str, Any]:
    """A line of the index of names."""
    return {"id": thread_id, "thread_name": name, "updated_at": iso(CREATED_AT)}


def rollout_path(
    thread_id: str,
    rollout_id: str | None = None,
    *,
    created_at: int = CREATED_AT,
    folder: str = "sessions",
    ending: str = "jsonl",
) -> str:
    """Where Codex keeps a rollout below its home; archives that are flat are another `folder`."""
    day, _, time = iso(created_at).partition("T")
    place = f"{folder}/{day.replace('-', '/')}" if folder == "sessions" else folder
    suffix = "" if rollout_id is None else f"_{rollout_id}"
    return f"{place}/rollout-{day}T{time[:8].replace(':', '-')}-{thread_id}{suffix}.{ending}"
