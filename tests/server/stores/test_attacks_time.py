"""Hostile logs cost time in proportion to their length: none of these was done within minutes by pairs of records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from sessionref.server.store import ConversationItem
from sessionref.server.stores.codex.conversation import CodexConversation
from sessionref.server.stores.codex.records import CodexRecord
from sessionref.server.stores.copilot_cli.conversation import CopilotConversation
from sessionref.server.stores.copilot_cli.records import CopilotEvent
from sessionref.server.stores.pi.conversation import PiConversation
from sessionref.server.stores.pi.records import PiRecord
from store_contract import in_time
from store_fixtures.codex.homes import THREAD
from store_fixtures.codex.rollouts import compacted, event, message, meta
from store_fixtures.copilot_cli import event as copilot_event
from store_fixtures.copilot_cli import typed

MANY = 20_000


def codex(*records: dict[str, Any]) -> list[ConversationItem]:
    fold = CodexConversation()
    for record in msgspec.convert([meta(THREAD), *records], list[CodexRecord]):
        fold.feed(record)
    return fold.items()


def prompts(words: Iterable[str]) -> list[dict[str, Any]]:
    return [message("user", word, kinds=[]) for word in words]


def test_two_families_of_codex_that_tell_everything_one_after_the_other() -> None:
    words = [f"prompt {number}" for number in range(MANY)]
    records = [*prompts(words), *(event("user_message", message=word) for word in words)]

    assert [item.text for item in in_time(lambda: codex(*records))] == words


@pytest.mark.parametrize("number", [0, 1])
def test_many_turns_of_codex_that_are_undone_one_by_one(number: int) -> None:
    talk = [one for _ in range(MANY) for one in (message("user", "again"), message("assistant", "done"))]
    records = [*talk, *[event("thread_rolled_back", num_turns=number)] * MANY]

    assert len(in_time(lambda: codex(*records))) == (0 if number else 2 * MANY)


def test_a_compaction_of_codex_after_every_prompt() -> None:
    records = [one for _ in range(MANY) for one in (message("user", "again"), compacted("a summary"))]
    items = in_time(lambda: codex(*records))

    assert (len(items), sum(item.checkpoint for item in items)) == (MANY + 1, 1)


def test_an_answer_of_codex_full_of_tags_that_are_never_closed() -> None:
    text = "<proposed_plan>" * MANY * 5
    items = in_time(lambda: codex(message("assistant", text), event("agent_message", message="other")))

    assert [item.text for item in items] == [text, "other"]


def test_rewinds_of_copilot_to_events_that_are_not_there() -> None:
    events = [*(typed(f"prompt {number}") for number in range(MANY))]
    events += [copilot_event("session.snapshot_rewind", upToEventId="nowhere")] * MANY
    fold = CopilotConversation()
    records = msgspec.convert(events, list[CopilotEvent])

    def fed() -> CopilotConversation:
        for record in records:
            fold.feed(record)
        return fold

    assert (len(in_time(fed).items()), fold.unknown_records) == (MANY, MANY)


def test_parents_of_pi_that_lead_back_and_forth() -> None:
    fold = PiConversation()
    fold.feed(PiRecord("session", "s", version=3))
    # Low entries hang on high ones, and those on nothing that is there.
    for number in range(MANY):
        parent = "nowhere" if number > MANY // 3 else str(MANY - 2 - number)
        record = {"type": "message", "id": str(number), "parentId": parent, "message": {"role": "user", "content": "x"}}
        fold.feed(msgspec.convert(record, PiRecord))

    assert len(in_time(fold.items)) == MANY
