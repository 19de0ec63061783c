"""The conversation of a Codex thread: what was said and not undone, behind its last compaction."""

from __future__ import annotations

import msgspec

from sessionref.protocol.jsontext import utf8_length
from sessionref.server.store import ConversationItem
from sessionref.server.stores.codex.records import (
    CodexRecord,
    HistoryItem,
    Payload,
    begins_turn,
    check_header,
    ends_turn,
    is_known,
    is_of_subagent,
)
from sessionref.server.stores.codex.said import RESPONSE, Said, is_summary, joined, said_in, said_of
from sessionref.server.stores.codex.turns import Entry, Turns, entry_of
from sessionref.server.stores.folds import ConversationFold
from sessionref.server.stores.problems import corrupt

__all__ = ("CodexConversation",)


class Compaction(msgspec.Struct, array_like=True):
    """A compaction behind the first `at` entries; `kept` is what it left, None if that is every prompt."""

    at: int
    turn: int
    kept: list[Entry] | None
    summary: Entry | None


class CodexConversation(ConversationFold[CodexRecord]):
    """Folds the records of a thread, those of other rollouts that come before its own included."""

    has_header: bool = False
    is_of_subagent: bool = False
    working_directory: str | None = None
    turns: Turns = msgspec.field(default_factory=Turns)
    compactions: list[Compaction] = msgspec.field(default_factory=list[Compaction])

    def feed(self, record: CodexRecord) -> None:
        """Take the next record. Raises Unreadable (corrupt, newer-format) if the first is no header."""
        if not self.has_header:
            # Later headers are copies of others' that came with what was said there.
            check_header(record)
            self.has_header = True
            self.is_of_subagent = is_of_subagent(record)
            self.working_directory = record.payload.cwd
        elif record.type == "compacted":
            self._compact(record.payload)
        elif begins_turn(record):
            self.turns.begin()
        elif ends_turn(record):
            self.turns.end()
        elif record.type == "event_msg" and record.payload.type == "thread_rolled_back":
            self._roll_back(record.payload.num_turns)
        elif (said := said_in(record, is_of_subagent=self.is_of_subagent)) is not None:
            self.text_bytes += self.turns.say(said)
        elif not is_known(record):
            self.unknown_records += 1

    @property
    def cwd(self) -> str | None:
        """The header's working directory."""
        return self.working_directory or None

    def items(self) -> list[ConversationItem]:
        """What the last compaction kept, its summary, and the rest. Raises Unreadable (corrupt) without a header."""
        if not self.has_header:
            raise corrupt()
        entries, history, start = self.turns.settled(), list[Entry](), 0
        if self.compactions:
            last = self.compactions[-1]
            # What the last one to say what it kept has replaced is of no account any more.
            whole = next((compaction for compaction in reversed(self.compactions) if compaction.kept is not None), None)
            if whole is not None:
                history, start = _with_summary(whole, whole.kept or []), whole.at
            if last is not whole:
                history = _with_summary(last, _prompts([*history, *entries[start : last.at]]))
            start = last.at
        return [
            ConversationItem(entry.role, entry.text, checkpoint=entry.is_checkpoint)
            for entry in [*history, *entries[start:]]
        ]

    def _compact(self, payload: Payload) -> None:
        # The summariser's answer is the last entry now, and is replaced with all others.
        self.turns.settle()
        message = payload.message or ""
        kept = None if payload.replacement_history is None else self._kept(payload.replacement_history, message)
        summary: Entry | None = None
        if kept is None or not any(entry.is_checkpoint for entry in kept):
            summary = self._checkpoint(message)
            # It may be encrypted, for the model alone.
            self.unknown_records += summary is None
        self.compactions.append(Compaction(len(self.turns.entries), self.turns.turn, kept, summary))
        added = [*(kept or ()), *(() if summary is None else (summary,))]
        self.text_bytes += sum(utf8_length(entry.text) for entry in added)

    def _kept(self, history: list[HistoryItem], message: str) -> list[Entry]:
        kept: list[Entry] = []
        for item in history:
            if item.type != "message":
                continue
            if is_summary(item, message):
                entry = self._checkpoint(joined(item.parts))
            else:
                said = said_of(item, is_of_subagent=self.is_of_subagent)
                entry = None if said is None else entry_of(said, self.turns.turn)
            if entry is not None:
                kept.append(entry)
        return kept

    def _checkpoint(self, text: str) -> Entry | None:
        if not text.strip():
            return None
        entry = entry_of(Said("user", text, RESPONSE), self.turns.turn)
        entry.is_checkpoint = True
        return entry

    def _roll_back(self, number: int | None) -> None:
        if number is None:
            self.unknown_records += 1
            return
        first = self.turns.drop(number)
        while self.compactions and self.compactions[-1].turn >= first:
            self.compactions.pop()


def _prompts(history: list[Entry]) -> list[Entry]:
    """What is left of a history by a compaction that does not say what it kept."""
    return [entry for entry in history if entry.role == "user" and not entry.is_checkpoint]


def _with_summary(compaction: Compaction, kept: list[Entry]) -> list[Entry]:
    return kept if compaction.summary is None else [*kept, compaction.summary]
