"""What a compaction leaves, where it puts its summary, and what a rewind takes away again."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from store_fixtures import Turn
from store_fixtures.codex.homes import CodexHome
from store_fixtures.codex.rollouts import compacted, event, item, message, record

PREFIX = "Another language model started to solve this problem and produced a summary of its thinking process."


def turn(question: str, answer: str, *, is_marked: bool = True) -> list[dict[str, Any]]:
    said: list[Turn] = [("user", question), ("assistant", answer)]
    records = [message(role, text) for role, text in said]
    return [event("task_started"), *records, event("task_complete")] if is_marked else records


def test_kept_prompts_come_first_and_then_the_summary(home: CodexHome) -> None:
    summary = f"{PREFIX}\nIt went well."
    home.write(
        *turn("one", "first"),
        event("task_started"),
        message("assistant", "It went well."),
        compacted(
            summary,
            [
                message("developer", "obey"),
                message("user", "<environment_context/>", kinds=["environments.environment_context"]),
                message("user", "one"),
                message("user", summary, kinds=["compaction.summary"]),
            ],
        ),
        event("item_completed", item={"type": "ContextCompaction", "id": "c"}),
        message("user", "two"),
        item("UserMessage", "two"),
        message("assistant", "second"),
    )

    assert home.talk() == ["> one", f"= {summary}", "> two", "< second"]
    assert home.said_of() == {}
    assert home.row().title == "one"


@pytest.mark.parametrize("text", [f"{PREFIX}\nshort", "the whole message"])
def test_a_summary_without_a_kind_is_known_by_its_words(home: CodexHome, text: str) -> None:
    home.write(
        *turn("one", "first"),
        compacted("the whole message", [message("user", "one", kinds=[]), message("user", text, kinds=[])]),
    )

    assert home.talk() == ["> one", f"= {text}"]


def test_a_summary_that_the_history_does_not_hold_stands_behind_it(home: CodexHome) -> None:
    home.write(*turn("one", "first"), compacted("short", [message("user", "one"), message("assistant", "kept")]))

    assert home.talk() == ["> one", "< kept", "= short"]


def test_without_a_history_every_prompt_is_kept_and_no_answer(home: CodexHome) -> None:
    home.write(*turn("one", "first"), *turn("two", "second"), compacted("short"), *turn("three", "third"))

    assert home.talk() == ["> one", "> two", "= short", "> three", "< third"]


def test_only_the_last_summary_stays(home: CodexHome) -> None:
    home.write(
        *turn("one", "first"),
        compacted("short"),
        *turn("two", "second"),
        compacted("shorter"),
        *turn("three", "third"),
    )

    assert home.talk() == ["> one", "> two", "= shorter", "> three", "< third"]


def test_a_history_replaces_what_an_earlier_compaction_left(home: CodexHome) -> None:
    home.write(
        *turn("one", "first"),
        compacted("short"),
        *turn("two", "second"),
        compacted("shorter", [message("user", "two")]),
    )

    assert home.talk() == ["> two", "= shorter"]


@pytest.mark.parametrize(
    "payload",
    [
        {"message": "", "replacement_history": [{"type": "compaction", "encrypted_content": "AAAA"}]},
        {"replacement_history": [7, "x", None]},
        {"message": ""},
        {},
    ],
)
def test_a_summary_that_cannot_be_read_is_said_to_be_missing(home: CodexHome, payload: dict[str, Any]) -> None:
    home.write(*turn("one", "first"), record("compacted", payload), *turn("two", "second"))

    assert home.talk()[-2:] == ["> two", "< second"]
    assert "< first" not in home.talk()
    assert home.said_of() == {"unknown-events": "1 record of unknown types were passed over."}


@pytest.mark.parametrize("is_marked", [True, False])
@pytest.mark.parametrize(("number", "left"), [(0, 3), (1, 2), (2, 1), (3, 0), (99, 0), (-1, 3)])
def test_a_rewind_drops_that_many_turns(home: CodexHome, number: int, left: int, is_marked: bool) -> None:
    turns = (turn(f"q{at}", f"a{at}", is_marked=is_marked) for at in range(3))
    home.write(*chain.from_iterable(turns), event("thread_rolled_back", num_turns=number), *turn("on", "and on"))

    assert home.talk() == [said for at in range(left) for said in (f"> q{at}", f"< a{at}")] + ["> on", "< and on"]


def test_what_was_typed_into_a_turn_belongs_to_it(home: CodexHome) -> None:
    home.write(
        *turn("one", "first"),
        event("task_started"),
        message("user", "two"),
        message("assistant", "working"),
        message("user", "faster"),
        message("assistant", "second"),
        event("turn_aborted"),
        event("thread_rolled_back", num_turns=1),
    )

    assert home.talk() == ["> one", "< first"]


def test_rewinds_add_up(home: CodexHome) -> None:
    rewind = event("thread_rolled_back", num_turns=1)
    home.write(*turn("one", "1"), *turn("two", "2"), *turn("three", "3"), rewind, rewind, *turn("four", "4"), rewind)

    assert home.talk() == ["> one", "< 1"]


def test_a_rewind_to_before_a_compaction_brings_back_what_that_replaced(home: CodexHome) -> None:
    home.write(
        *turn("one", "first"),
        event("task_started"),
        compacted("short", [message("user", "one")]),
        message("user", "two"),
        message("assistant", "second"),
        event("task_complete"),
        event("thread_rolled_back", num_turns=1),
    )

    assert home.talk() == ["> one", "< first"]


def test_a_rewind_behind_a_compaction_leaves_that(home: CodexHome) -> None:
    home.write(
        *turn("one", "first"), compacted("short"), *turn("two", "second"), event("thread_rolled_back", num_turns=1)
    )

    assert home.talk() == ["> one", "= short"]


def test_a_rewind_that_does_not_say_how_far_is_counted(home: CodexHome) -> None:
    home.write(*turn("one", "first"), event("thread_rolled_back", num_turns="some"))

    assert home.talk() == ["> one", "< first"]
    assert "unknown-events" in home.said_of()
