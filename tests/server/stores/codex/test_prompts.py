"""What of all that Codex gives its model as a user's words a person has typed."""

from __future__ import annotations

from typing import Any

import pytest

from store_fixtures.codex.homes import THREAD, CodexHome
from store_fixtures.codex.rollouts import event, item, message, meta

INJECTED = [
    "# AGENTS.md instructions for /srv/here\n\n<INSTRUCTIONS>\nBe kind.\n</INSTRUCTIONS>",
    "<environment_context>\n  <cwd>/srv/here</cwd>\n</environment_context>",
    "<environment_context><cwd>/srv/here</cwd></environment_context>",
    "<INSTRUCTIONS>\nBe kind.\n</INSTRUCTIONS>",
    "<user_instructions>\nBe kind.\n</user_instructions>",
    "<turn_aborted>\nThe user interrupted.\n</turn_aborted>",
    "<skill>\n<name>drawing</name>\n</skill>",
    '<subagent_notification>\n{"status": "completed"}\n</subagent_notification>',
    "<goal_context>win</goal_context>",
    '<codex_internal_context source="goal">win</codex_internal_context>',
    "<recommended_plugins>many</recommended_plugins>",
    "<local-command-stdout>ok</local-command-stdout>",
    "<user_shell_command>\n<command>ls</command>\n</user_shell_command>",
]


@pytest.mark.parametrize("kinds", [None, []])
def test_what_a_person_typed_is_a_prompt_with_and_without_kinds(home: CodexHome, kinds: list[str] | None) -> None:
    home.write(message("user", "fix  it\n\nplease ", kinds=kinds), message("assistant", "done"))

    assert home.talk() == ["> fix  it\n\nplease ", "< done"]


def test_with_kinds_they_alone_tell(home: CodexHome) -> None:
    home.write(
        message("user", "nobody typed this", kinds=["hooks.additional_context"]),
        message("user", "a summary", kinds=["compaction.summary"]),
        message("user", "<skill> tags are what?", kinds=["user.text"]),
        message("user", "rules", "# AGENTS.md needs work", kinds=["agents_md.instructions", "user.text"]),
    )

    assert home.talk() == ["> <skill> tags are what?", "> # AGENTS.md needs work"]


def test_kinds_that_are_too_few_or_unknown_are_as_none(home: CodexHome) -> None:
    home.write(
        message("user", "typed", kinds=["unknown"]),
        message("assistant", "answered"),
        message("user", INJECTED[0], "typed, too", kinds=["unknown"]),
    )

    assert home.talk() == ["> typed", "< answered", "> typed, too"]


def test_kinds_do_not_tell_what_the_assistant_said(home: CodexHome) -> None:
    home.write(
        message("user", "a"), message("assistant", "one", kinds=["unknown"]), message("assistant", "two", kinds=[])
    )

    assert home.talk() == ["> a", "< one", "< two"]


@pytest.mark.parametrize("text", INJECTED)
def test_without_kinds_what_was_injected_is_told_by_how_it_begins(home: CodexHome, text: str) -> None:
    home.write(
        message("user", text, kinds=[]),
        message("user", "\n  " + text, kinds=[]),
        message("assistant", "hello"),
        message("user", text, "typed beside it", kinds=[]),
    )

    assert home.talk() == ["< hello", "> typed beside it"]
    assert home.row().title == "typed beside it"


def test_developers_words_are_never_a_prompt(home: CodexHome) -> None:
    home.write(message("developer", "obey", kinds=["user.text"]), message("developer", "obey", kinds=[]))

    assert home.talk() == []
    assert not home.lesson(home.all_keys()[0]).has_prompt


@pytest.mark.parametrize(
    "text",
    [
        "# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\nfix it\nplease",
        "# Files mentioned by the user:\n\n## a.png: /x/a.png\n\n## My request for Codex: fix it\nplease",
    ],
)
@pytest.mark.parametrize("kinds", [None, []])
def test_what_an_editor_puts_before_a_request_is_left_out(home: CodexHome, text: str, kinds: list[str] | None) -> None:
    home.write(message("user", text, kinds=kinds), event("user_message", message=text), item("UserMessage", text))

    assert home.talk() == ["> fix it\nplease"]
    assert home.row().title == "fix it"


def test_a_request_that_is_quoted_in_a_line_is_no_mark(home: CodexHome) -> None:
    home.write(message("user", "why does it say `## My request for Codex:` there?"))

    assert home.talk() == ["> why does it say `## My request for Codex:` there?"]


def test_pictures_leave_no_trace_in_a_prompt(home: CodexHome) -> None:
    text = "what is this?"
    home.write(
        message("user", '<image name=[Image #1] path="a.png">', "</image>", text, kinds=[]),
        event("user_message", message=text, local_images=["a.png"]),
        message("user", "<image>", "</image>", kinds=[]),
    )

    assert home.talk() == [f"> {text}"]


def test_a_prompt_without_a_text_is_none(home: CodexHome) -> None:
    home.write(message("user", " \n "), event("user_message", message=""), message("assistant", ""))

    assert home.talk() == []


def test_of_events_only_plain_ones_are_prompts(home: CodexHome) -> None:
    home.write(
        event("user_message", message="rules", kind="user_instructions"),
        event("user_message", message="place", kind="environment_context"),
        event("user_message", message="typed", kind="plain"),
        event("user_message", message="<skill> typed, too", kind=None),
    )

    assert home.talk() == ["> typed", "> <skill> typed, too"]


@pytest.mark.parametrize(
    "more",
    [
        {"source": {"subagent": {"thread_spawn": {"parent_thread_id": "x", "depth": 1}}}},
        {"source": {"subagent": "review"}},
        {"source": {"subagent": {"other": "guardian"}}},
        {"source": {"internal": "memory_consolidation"}},
        {"thread_source": "subagent"},
        {"thread_source": "guardian_review"},
    ],
)
def test_a_sub_agents_task_is_a_prompt_in_a_session_that_is_hidden(home: CodexHome, more: dict[str, Any]) -> None:
    home.write(message("user", "do it for me"), header=meta(THREAD, **more))

    assert home.talk() == ["> do it for me"]
    assert home.row().is_subagent


@pytest.mark.parametrize("source", ["cli", "vscode", "exec", "mcp", {"custom": "editor"}, None, 7])
def test_whatever_a_person_started_is_shown(home: CodexHome, source: object) -> None:
    home.write(message("user", "hello"), header=meta(THREAD, source=source, thread_source="user"))

    assert not home.row().is_subagent


def test_a_transcript_that_a_guardian_is_given_is_not_taken_apart(home: CodexHome) -> None:
    transcript = "Judge this:\n[1] user: x\n## My request for Codex:\nsteal the show\n[2] tool: ..."
    home.write(message("user", transcript), header=meta(THREAD, source={"subagent": {"other": "guardian"}}))

    assert home.talk() == [f"> {transcript}"]
    assert home.row().title == "Judge this:"


def test_tools_reasoning_and_whatever_else_there_is_are_no_conversation(home: CodexHome) -> None:
    home.write(
        event("task_started", turn_id="t"),
        message("user", "go"),
        event("agent_reasoning", text="thinking"),
        *(
            {"type": "response_item", "payload": payload}
            for payload in (
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "thinking"}], "content": None},
                {"type": "function_call", "name": "shell", "arguments": '{"cmd": "ls"}', "call_id": "c"},
                {"type": "function_call", "name": "shell", "arguments": {"cmd": "ls"}, "call_id": "c"},
                {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "a.py"}]},
                {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin Patch", "call_id": "d"},
                {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"]}},
                {"type": "web_search_call", "action": {"type": "search", "query": "codex"}},
            )
        ),
        event("item_completed", item={"type": "CommandExecution", "command": "ls", "content": ["no", "parts"]}),
        event("item_completed", item={"type": "HookPrompt", "content": [{"type": "text", "text": "hooked"}]}),
        event("task_complete", last_agent_message="nobody said that"),
    )

    assert home.talk() == ["> go"]
    assert home.said_of() == {}


def test_records_of_unknown_types_are_counted(home: CodexHome) -> None:
    home.write(message("user", "go"), {"type": "thought_transfer", "payload": {}}, {"type": "telepathy", "payload": 7})

    assert home.talk() == ["> go"]
    assert home.said_of() == {"unknown-events": "2 records of unknown types were passed over."}
