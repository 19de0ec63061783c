"""The conversation of a Qwen Code session: the branch that ends in its last record, behind its last compression."""

from __future__ import annotations

from collections import defaultdict
from itertools import takewhile
from typing import Final, Literal, NamedTuple

import msgspec

from sessionref.protocol.jsontext import utf8_length
from sessionref.server.store import ConversationItem
from sessionref.server.stores.folds import ConversationFold
from sessionref.server.stores.problems import corrupt
from sessionref.server.stores.qwen_code.records import (
    QwenRecord,
    check_engine,
    content_text,
    is_answered_locally,
    is_known,
    is_prompt,
    prompt_text,
    summary_of,
)

__all__ = ("QwenConversation",)

_NOWHERE: Final = ""
"""The id of a parent that is not there."""

Kind = Literal["silent", "rewind", "prompt", "reply", "command", "answered", "compression"]


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry of the tree.

    `text` is what was typed or said, or a summary; of a command, what was typed and is sent in another form by the
    next prompt; of one that was answered without the model, what to take back. `sent` are the texts as the model got
    them: of a prompt, if that is not its text, and of a compression those that it kept.
    """

    id: str
    parent_id: str | None
    kind: Kind = "silent"
    text: str = ""
    sent: tuple[str, ...] = ()


class QwenConversation(ConversationFold[QwenRecord]):
    """Folds the tree of records; a rewind hangs on an earlier one, so that what it took back is off the branch."""

    is_subagent: bool = False
    has_known_records: bool = False
    working_directory: str | None = None
    entries: list[Entry] = msgspec.field(default_factory=list[Entry])

    def feed(self, record: QwenRecord) -> None:
        """Take the next record. Raises Unreadable (newer-format)."""
        check_engine(record)
        if is_known(record):
            self.has_known_records = True
        else:
            self.unknown_records += 1
        self.working_directory = self.working_directory or record.cwd
        if record.is_sidechain and not self.is_subagent:
            return
        if record.uuid is None:
            # It has no place in the tree; one of an unknown type is counted already.
            self.unknown_records += record.message is not None and is_known(record)
            return
        kind, text, sent = _told(record)
        if kind in ("prompt", "reply") and not text and (record.message is None or record.message.parts is None):
            self.unknown_records += 1
        parent_id = record.parent_uuid if isinstance(record.parent_uuid, str | None) else _NOWHERE
        self.entries.append(Entry(record.uuid, parent_id, kind, text, sent))
        self.text_bytes += utf8_length(text) + sum(map(utf8_length, sent))

    @property
    def cwd(self) -> str | None:
        """The first working directory."""
        return self.working_directory or None

    def items(self) -> list[ConversationItem]:
        """The last branch: the summary of its last compression first, then what that kept, then the rest.

        Raises Unreadable (corrupt) where no record is one of Qwen Code's.
        """
        if not self.has_known_records:
            raise corrupt()
        talk = _Talk()
        for entry in self._branch():
            talk.take(entry)
        talk.flush()
        return [said.item for said in talk.said]

    def _branch(self) -> list[Entry]:
        places: dict[str, list[int]] = defaultdict(list)
        for at, entry in enumerate(self.entries):
            places[entry.id].append(at)
        branch: list[Entry] = []
        passed: set[str] = set()
        lowest = at = len(self.entries) - 1
        while at >= 0:
            entry, lowest = self.entries[at], min(lowest, at)
            if entry.id in passed:
                at = lowest - 1
                continue
            # Records of one id are one message.
            branch += (self.entries[same] for same in reversed(places[entry.id]))
            passed.add(entry.id)
            if entry.parent_id in places and entry.parent_id not in passed:
                at = places[entry.parent_id][0]
            elif entry.parent_id is None or entry.kind == "rewind":
                break
            else:
                # One whose parent was lost, or hangs on it in turn, hangs on the record before it, so that a damaged
                # line costs itself alone.
                at = lowest - 1
        return branch[::-1]


def _told(record: QwenRecord) -> tuple[Kind, str, tuple[str, ...]]:
    """What a record tells: its kind, its text, and the texts as the model got them."""
    payload = record.system_payload
    if is_prompt(record):
        text, sent = prompt_text(record), content_text(record.message)
        return "prompt", text, () if text == sent else (sent,)
    if record.type == "assistant":
        return "reply", content_text(record.message), ()
    if record.type != "system":
        return "silent", "", ()
    if record.subtype == "rewind":
        return "rewind", "", ()
    if record.subtype == "at_command" and payload.user_text:
        return "command", payload.user_text, ()
    if record.subtype == "slash_command" and payload.raw_command:
        if payload.phase == "invocation" and payload.sent_to_model:
            return "command", payload.raw_command, ()
        if is_answered_locally(payload):
            return "answered", payload.raw_command, ()
    if record.subtype == "chat_compression" and (found := summary_of(payload.compressed_history)):
        return "compression", found[0], tuple(found[1])
    return "silent", "", ()


class _Said(NamedTuple):
    item: ConversationItem
    sent: str


class _Talk:
    """What comes of the entries of a branch: items, with their texts as the model got them."""

    def __init__(self) -> None:
        self.said: list[_Said] = []
        self._command: str | None = None

    def take(self, entry: Entry) -> None:
        """Take the next entry."""
        if entry.kind == "command":
            self._command = entry.text
        elif entry.kind == "prompt":
            # What a command expands to is not what was typed.
            typed, self._command = self._command or entry.text, None
            self._say("user", typed, entry.sent[0] if entry.sent else entry.text)
        elif entry.kind == "reply":
            self.flush()
            self._say("assistant", entry.text, entry.text)
        elif entry.kind == "answered":
            if self.said and self.said[-1].item == ConversationItem("user", entry.text):
                self.said.pop()
        elif entry.kind == "compression":
            kept = list(takewhile(lambda said: said.sent in entry.sent, reversed(self.said)))
            self.said = [_Said(ConversationItem("user", entry.text, checkpoint=True), ""), *reversed(kept)]

    def flush(self) -> None:
        """Say a command that no prompt has followed."""
        if self._command is not None:
            self._say("user", self._command, self._command)
            self._command = None

    def _say(self, role: Literal["user", "assistant"], text: str, sent: str) -> None:
        if text.strip():
            self.said.append(_Said(ConversationItem(role, text), sent))
