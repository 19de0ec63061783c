"""What a session is called, and what else its row says."""

from __future__ import annotations

from typing import Any

import pytest

from store_fixtures.claude_code.records import in_a_row, labels_of, queued, result, row_of, spoken, summary, typed

COMMAND = "<command-message>init is running…</command-message>\n<command-name>/init</command-name>"
LOCAL = "<command-name>/status</command-name>\n<command-message>status</command-message>\n<command-args></command-args>"
TALK = in_a_row(typed("first prompt\nand more"), spoken("answer"), typed("second prompt"))


def custom(title: Any) -> dict[str, Any]:
    return {"type": "custom-title", "customTitle": title}


def generated(title: Any) -> dict[str, Any]:
    return {"type": "ai-title", "aiTitle": title}


def last(prompt: Any) -> dict[str, Any]:
    return {"type": "last-prompt", "lastPrompt": prompt}


def renamed(title: str) -> dict[str, Any]:
    said = (
        f"<command-name>/rename</command-name>\n<command-message>rename</command-message>\n"
        f"<command-args>{title}</command-args>"
    )
    return {"type": "system", "subtype": "local_command", "content": said}


@pytest.mark.parametrize(
    ("records", "title"),
    [
        ([], "first prompt"),
        ([last("the last one")], "the last one"),
        ([generated("Generated"), last("the last one")], "Generated"),
        ([custom("Chosen"), generated("Generated"), last("the last one")], "Chosen"),
        ([custom("Chosen"), custom(" Chosen later ")], "Chosen later"),
        ([generated("Generated"), generated("Generated later")], "Generated later"),
        ([last("one"), last("two\nlines")], "two"),
        ([renamed("In the old way"), generated("Generated")], "In the old way"),
        ([renamed("In the old way"), custom("Chosen")], "Chosen"),
        ([custom("Chosen"), renamed("In the old way")], "In the old way"),
        ([custom("Chosen"), renamed("")], "Chosen"),
        ([custom("Chosen"), custom(""), generated("Generated")], "Generated"),
        ([custom("Chosen"), custom(None), custom(7)], "Chosen"),
        ([generated(" "), last("<task-notification>x</task-notification>")], "first prompt"),
        ([last("<ide_opened_file>a</ide_opened_file>\nreal")], "real"),
    ],
)
def test_the_title_is_the_latest_of_the_best_kind_wherever_it_stands(records: list[dict[str, Any]], title: str) -> None:
    assert row_of(*records, *TALK).title == title
    assert row_of(*TALK, *records).title == title


def test_without_a_title_the_first_prompt_that_somebody_typed_is_it() -> None:
    injected = [
        typed("<local-command-caveat>x</local-command-caveat>"),
        typed("expansion", isMeta=True),
        typed("inner", isSidechain=True),
        typed("team", teamName="crew"),
        typed("peer", origin={"kind": "peer"}),
        typed("system", promptSource="system"),
        summary("This session is being continued from a previous conversation"),
        typed("This session is being continued from a previous conversation"),
        result(),
        spoken("answer"),
    ]

    assert row_of(*injected, *TALK).title == "first prompt"
    assert row_of(*injected, queued("queued"), *TALK).title == "queued"
    assert row_of(*injected, typed("<ide_selection>a</ide_selection>\n\nreal\nprompt")).title == "real"


def test_a_slash_command_is_the_last_resort() -> None:
    assert row_of(typed(COMMAND), *TALK).title == "first prompt"
    assert row_of(typed(COMMAND), spoken("done")).title == "/init"
    assert row_of(typed(LOCAL), typed(COMMAND)).title == "/status"
    assert row_of(spoken("nobody asked")).title is None
    assert row_of(typed(COMMAND), generated("Generated")).title == "Generated"


def test_a_session_was_created_at_its_first_time_and_in_its_first_directory() -> None:
    row = row_of(
        custom("no time"),
        typed("inner", isSidechain=True, timestamp="2026-01-01T00:00:01Z", cwd="/inner"),
        typed("x", timestamp="2026-01-01T00:00:02Z", cwd=""),
        spoken("y", timestamp="2026-01-01T00:00:03Z", cwd="/srv/a"),
        typed("z", cwd="/srv/b"),
    )

    assert (row.created_at, row.cwd, row.updated_at) == (1_767_225_601_000, "/srv/a", 7)
    assert row_of(typed("x", timestamp="yesterday")).created_at == 7


def test_a_session_in_which_only_agents_speak_is_a_sub_agents() -> None:
    inner = [typed("do it", isSidechain=True, cwd="/inner"), spoken("did it", isSidechain=True)]
    team = [typed("do it", teamName="crew"), spoken("did it", teamName="crew")]

    for records in (inner, team):
        row = row_of(*records)
        assert (row.is_subagent, row.title) == (True, "do it")
        assert labels_of(*records).has_prompt
        assert not row_of(*records, *TALK).is_subagent
    assert row_of(*inner).cwd == "/inner"
    assert row_of(*inner, *TALK).cwd is None


@pytest.mark.parametrize("mark", [{"isSidechain": True}, {}])
def test_in_a_sub_agents_file_the_delegated_prompt_is_the_title(mark: dict[str, Any]) -> None:
    row = row_of(
        typed("do it", cwd="/w", **mark), spoken("ok", **mark), key="projects/p/agent-a.jsonl", is_subagent=True
    )

    assert (row.title, row.cwd, row.is_subagent) == ("do it", "/w", True)


def test_only_what_was_typed_counts_as_a_prompt() -> None:
    assert labels_of(*TALK).has_prompt
    assert labels_of(typed(COMMAND)).has_prompt
    assert labels_of(queued("x")).has_prompt
    assert not labels_of(spoken("nobody asked"), result(), typed("x", isMeta=True)).has_prompt
    assert not labels_of(typed("do it", isSidechain=True), spoken("nobody asked")).has_prompt


def test_a_copy_is_a_session_like_any_other() -> None:
    fork = [record | {"forkedFrom": {"sessionId": "other", "messageUuid": "u1"}} for record in TALK]

    assert row_of(*fork).title == "first prompt"
    assert not row_of(*fork).is_subagent
