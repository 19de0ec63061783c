"""One conversation out of three families of records, of which a file has any mixture."""

from __future__ import annotations

from typing import Any

import pytest

from store_fixtures.codex.homes import CodexHome
from store_fixtures.codex.rollouts import event, item, message


def typed(text: str) -> list[dict[str, Any]]:
    return [message("user", text, kinds=[]), event("user_message", message=text), item("UserMessage", text)]


def answered(text: str) -> list[dict[str, Any]]:
    return [item("AgentMessage", text), message("assistant", text), event("agent_message", message=text)]


@pytest.mark.parametrize("users", [[0], [1], [2], [0, 1], [1, 0], [2, 0], [0, 2], [0, 1, 2], [2, 1, 0]])
@pytest.mark.parametrize("assistants", [[0], [1], [2], [0, 1], [1, 2], [2, 1, 0]])
def test_every_mixture_of_families_tells_everything_once(
    home: CodexHome, users: list[int], assistants: list[int]
) -> None:
    records: list[dict[str, Any]] = []
    for question, answer in (("go on", "done"), ("go on", "done"), ("stop", "ok")):
        records += [typed(question)[at] for at in users] + [answered(answer)[at] for at in assistants]
    home.write(*records)

    assert home.talk() == ["> go on", "< done", "> go on", "< done", "> stop", "< ok"]


def test_a_family_that_starts_or_ends_in_the_middle_of_a_file_loses_nothing(home: CodexHome) -> None:
    home.write(
        event("user_message", message="one"),
        event("agent_message", message="first"),
        *typed("two"),
        *answered("second"),
        message("user", "three"),
        message("assistant", "third"),
        item("UserMessage", "four"),
        item("AgentMessage", "fourth"),
    )

    assert home.talk() == ["> one", "< first", "> two", "< second", "> three", "< third", "> four", "< fourth"]


def test_the_same_words_twice_in_a_row_stay_twice(home: CodexHome) -> None:
    home.write(message("user", "go"), *answered("ok"), *answered("ok"), *typed("yes"), *typed("yes"))

    assert home.talk() == ["> go", "< ok", "< ok", "> yes", "> yes"]


def test_families_that_come_one_after_the_other_are_matched_in_their_order(home: CodexHome) -> None:
    said = ["ok", "no", "ok"]
    home.write(
        message("user", "go"),
        *(event("agent_message", message=text) for text in said),
        *(message("assistant", text) for text in said),
    )

    assert home.talk() == ["> go", *(f"< {text}" for text in said)]


def test_an_answer_that_only_one_family_has_stands_where_it_was_given(home: CodexHome) -> None:
    home.write(
        *typed("go"),
        event("agent_message", message="looking"),
        message("assistant", "found"),
        event("agent_message", message="found"),
    )

    assert home.talk() == ["> go", "< looking", "< found"]


def test_doubles_may_differ_in_space_and_in_what_events_go_without(home: CodexHome) -> None:
    plan = "Here:\n<proposed_plan>\n1. act\n</proposed_plan>\n"
    home.write(
        message("user", "one", "two"),
        event("user_message", message="onetwo"),
        event("agent_message", message="Here:"),
        message("assistant", plan),
    )

    assert home.talk() == ["> one\ntwo", f"< {plan}"]


def test_items_of_one_id_are_one_whatever_they_say(home: CodexHome) -> None:
    home.write(message("user", "go"), item("AgentMessage", "short", id="m"), message("assistant", "in full", id="m"))

    assert home.talk() == ["> go", "< in full"]


def test_beside_words_that_are_certain_those_without_a_kind_were_injected(home: CodexHome) -> None:
    home.write(
        message("user", "given to the model alone", kinds=[]),
        event("user_message", message="typed"),
        message("user", "given after it", kinds=[]),
        message("assistant", "answered"),
    )

    assert home.talk() == ["> typed", "< answered"]
    assert home.row().title == "typed"


def test_an_interrupted_prompt_stays_beside_one_that_is_certain(home: CodexHome) -> None:
    home.write(
        message("user", "first", kinds=[]),
        event("turn_aborted", reason="interrupted"),
        message("user", "<turn_aborted>\nstopped\n</turn_aborted>", kinds=[]),
        event("task_started"),
        *typed("second"),
    )

    assert home.talk() == ["> first", "> second"]
    assert home.row().title == "first"
