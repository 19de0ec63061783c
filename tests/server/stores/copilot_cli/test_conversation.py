"""What of Copilot CLI's events is conversation."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sessionref.server.stores.copilot_cli.conversation import CopilotConversation
from sessionref.server.stores.copilot_cli.labels import CopilotLabels
from sessionref.server.stores.copilot_cli.records import CopilotEvent
from sessionref.server.stores.folds import Log, saved_fold
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.problems import Unreadable
from sessionref.server.stores.records import RecordDecoder, ScanCounts
from store_fixtures.copilot_cli import event, reply, start, typed

Said = tuple[str, str]

DECODER = RecordDecoder(CopilotEvent, ReadingLimits())


def fold_of(*events: dict[str, Any]) -> CopilotConversation:
    fold = CopilotConversation()
    for made in events:
        record = DECODER.decode(json.dumps(made).encode())
        assert record is not None
        fold.feed(record)
    return fold


def talk_in(*events: dict[str, Any]) -> list[Said]:
    return said_in(fold_of(*events))


def said_in(fold: CopilotConversation) -> list[Said]:
    return [("checkpoint" if item.checkpoint else item.role, item.text) for item in fold.items()]


def of_agent(made: dict[str, Any]) -> dict[str, Any]:
    return made | {"agentId": "toolu_1"}


def compacted(summary: Any, **more: Any) -> dict[str, Any]:
    return event(
        "session.compaction_complete", **({"success": True, "checkpointNumber": 1, "summaryContent": summary} | more)
    )


def test_what_was_typed_and_said_is_the_content_and_nothing_that_was_made_of_it() -> None:
    wrapped = "<current_datetime>today</current_datetime>\n\nfix it\n\n<system_reminder>tables</system_reminder>"

    prompt = event("user.message", content="fix it", transformedContent=wrapped)

    assert talk_in(start("s"), prompt, reply("fixed")) == [
        ("user", "fix it"),
        ("assistant", "fixed"),
    ]


def test_tools_prompts_of_the_system_hooks_and_notices_are_no_conversation() -> None:
    silent = [
        event("system.message", role="system", content="You are"),
        event("system.notification", content="shell done", kind={"type": "shell_completed"}),
        event("tool.execution_start", toolCallId="t", toolName="bash", arguments={"command": "ls"}),
        event("tool.execution_complete", toolCallId="t", success=True, result={"content": "file"}),
        event("assistant.reasoning", reasoningId="r", content="thinking"),
        event("assistant.turn_start", turnId="0"),
        event("hook.start", hookInvocationId="h", hookType="preToolUse", input={"content": "x"}),
        event("skill.invoked", name="pdf", content="how to read PDFs", path="SKILL.md"),
        event("session.info", infoType="folder_trust", message="trusted"),
        event("session.error", errorType="quota", message="no more"),
        event("session.truncation", messagesRemovedDuringTruncation=3),
        event("session.task_complete", summary="all done", success=True),
        event("abort", reason="user initiated"),
        event("session.shutdown", shutdownType="routine"),
    ]
    fold = fold_of(start("s"), typed("one"), *silent, reply("two"))

    assert said_in(fold) == [("user", "one"), ("assistant", "two")]
    assert fold.unknown_records == 0


def test_a_message_that_only_calls_tools_says_nothing() -> None:
    assert talk_in(start("s"), typed("go"), reply(""), reply(" \n"), reply("done")) == [
        ("user", "go"),
        ("assistant", "done"),
    ]


@pytest.mark.parametrize(
    "prompt",
    [
        typed("how to read PDFs", source="skill-pdf"),
        typed('<skill-context name="pdf">how to read PDFs</skill-context>'),
        typed("do this next", source="agent-toolu_1"),
        typed("a shell has ended", source="system"),
        typed("every morning", source="schedule-1"),
        typed("go on", source="autopilot"),
        typed("go on", isAutopilotContinuation=True),
        typed("hello", crossSession={"version": 1, "origin": "authenticated-cross-session", "integrity": "untrusted"}),
    ],
)
def test_what_nobody_typed_is_left_out_although_it_has_the_role_of_the_user(prompt: dict[str, Any]) -> None:
    fold = fold_of(start("s"), prompt, reply("well"))

    assert said_in(fold) == [("assistant", "well")]
    assert fold.unknown_records == 0


@pytest.mark.parametrize("source", [None, "", "user", "cli", "command-plan", "autopilot-objective"])
def test_what_a_person_sends_in_whichever_way_is_a_prompt(source: str | None) -> None:
    assert talk_in(start("s"), typed("/plan the work", source=source)) == [("user", "/plan the work")]


def test_an_ordinary_prompt_names_the_task_that_it_belongs_to_and_is_no_sub_agents() -> None:
    assert talk_in(start("s"), typed("one", parentAgentTaskId="f81fe352", delivery="idle")) == [("user", "one")]


def test_what_sub_agents_are_asked_and_say_is_not_the_sessions_conversation() -> None:
    fold = fold_of(
        start("s"),
        typed("ask around"),
        event("subagent.started", toolCallId="toolu_1", agentName="explore"),
        of_agent(typed("look for it", source="agent-toolu_1")),
        of_agent(reply("not here")),
        reply("nor here", parentToolCallId="toolu_1"),
        of_agent(event("assistant.message_delta", messageId="m", deltaContent="not")),
        of_agent(event("session.compaction_start")),
        of_agent(compacted("the sub-agent's summary")),
        event("subagent.completed", toolCallId="toolu_1", agentName="explore"),
        reply("nobody has it"),
    )

    assert said_in(fold) == [("user", "ask around"), ("assistant", "nobody has it")]
    assert fold.unknown_records == 0


def test_a_thinking_phase_is_no_reply() -> None:
    assert talk_in(start("s"), reply("hm", phase="thinking"), reply("yes", phase="response")) == [("assistant", "yes")]


def test_a_summary_stands_first_and_for_everything_before_its_compaction() -> None:
    assert talk_in(
        start("s"),
        typed("one"),
        reply("two"),
        event("session.compaction_start", conversationTokens=9),
        compacted("<overview>so far</overview>"),
        typed("three"),
    ) == [("checkpoint", "<overview>so far</overview>"), ("user", "three")]


def test_what_was_said_while_a_compaction_was_under_way_is_not_in_its_summary_and_stays() -> None:
    assert talk_in(
        start("s"),
        typed("one"),
        event("session.compaction_start"),
        reply("two"),
        typed("three"),
        compacted("so far"),
        reply("four"),
    ) == [("checkpoint", "so far"), ("assistant", "two"), ("user", "three"), ("assistant", "four")]


def test_a_compaction_without_its_start_covers_what_is_before_it_and_a_later_one_the_earlier() -> None:
    assert talk_in(
        start("s"),
        typed("one"),
        compacted("first"),
        typed("two"),
        event("session.compaction_start"),
        compacted("second"),
    ) == [("checkpoint", "second")]


@pytest.mark.parametrize("failed", [compacted(None), compacted("so far", success=False), compacted(""), compacted(7)])
def test_a_compaction_that_failed_or_has_no_summary_replaces_nothing(failed: dict[str, Any]) -> None:
    told = talk_in(start("s"), typed("one"), event("session.compaction_start"), failed, reply("two"))

    assert told == [("user", "one"), ("assistant", "two")]


def test_a_start_without_an_end_does_not_keep_what_a_later_compaction_covers() -> None:
    assert talk_in(
        start("s"),
        event("session.compaction_start"),
        compacted("", success=False),
        typed("one"),
        compacted("so far"),
        typed("two"),
    ) == [("checkpoint", "so far"), ("user", "two")]


def test_a_cleared_context_begins_with_what_it_was_given_if_anything() -> None:
    before = [start("s"), typed("one"), reply("two")]

    assert talk_in(*before, event("session.context_cleared", messagesCleared=2), typed("three")) == [("user", "three")]
    assert talk_in(*before, event("session.context_cleared", initialMessage="the plan"), reply("three")) == [
        ("checkpoint", "the plan"),
        ("assistant", "three"),
    ]


def test_a_resumed_session_goes_on_in_its_log() -> None:
    resumed = event("session.resume", resumeTime="2026-09-22T12:00:00Z", eventCount=3, context={"cwd": "/srv/later"})
    fold = fold_of(start("s"), typed("one"), event("session.shutdown"), resumed, typed("two"))

    assert said_in(fold) == [("user", "one"), ("user", "two")]
    assert fold.cwd == "/srv/here"


def test_the_directory_is_the_first_that_is_named() -> None:
    assert fold_of(start("s", None)).cwd is None
    assert fold_of(start("s", None), event("session.resume", context={"cwd": "/srv/resumed"})).cwd == "/srv/resumed"
    assert fold_of(start("s", None), event("session.context_changed", cwd="/srv/changed")).cwd == "/srv/changed"
    assert fold_of(start("s", None), event("session.info", message="Folder /srv has been added", cwd="/w")).cwd is None


def test_what_was_rewound_is_left_out_if_the_log_still_has_it() -> None:
    first, second = (made | {"id": made["data"]["content"]} for made in (typed("one"), typed("two")))

    assert talk_in(start("s"), first, reply("a"), second, reply("b"), rewound("two"), typed("three")) == [
        ("user", "one"),
        ("assistant", "a"),
        ("user", "three"),
    ]


def test_a_rewind_to_nothing_that_is_known_is_counted() -> None:
    fold = fold_of(start("s"), typed("one"), rewound("gone"))

    assert said_in(fold) == [("user", "one")]
    assert fold.unknown_records == 1


def rewound(event_id: str) -> dict[str, Any]:
    return event("session.snapshot_rewind", upToEventId=event_id, eventsRemoved=2)


def piece(message: str, text: str) -> dict[str, Any]:
    return event("assistant.message_delta", messageId=message, deltaContent=text)


def test_a_reply_in_pieces_is_put_together_unless_it_comes_as_a_whole() -> None:
    assert talk_in(start("s"), piece("m1", "he"), piece("m2", "other"), piece("m1", "llo")) == [
        ("assistant", "hello"),
        ("assistant", "other"),
    ]
    assert talk_in(
        start("s"), piece("m1", "hel"), piece("m1", "lo"), typed("wait"), reply("hello", messageId="m1")
    ) == [
        ("user", "wait"),
        ("assistant", "hello"),
    ]


def test_messages_that_cannot_be_read_and_events_of_unknown_kinds_are_counted() -> None:
    fold = fold_of(
        start("s"),
        event("user.message", content=[{"type": "text", "text": "in blocks"}]),
        event("assistant.message", messageId="m"),
        event("assistant.message_delta", messageId="m", delta="new name"),
        event("assistant.says", content="a new kind of reply"),
        event("user.dictated", content="a new kind of prompt"),
        event("dream.dreamt"),
        reply("known"),
    )

    assert said_in(fold) == [("assistant", "known")]
    assert fold.unknown_records == 6


@pytest.mark.parametrize("version", [2, 17, 2**70])
def test_a_version_newer_than_known_is_refused(version: int) -> None:
    with pytest.raises(Unreadable, match="newer-format"):
        fold_of(start("s", version=version))


@pytest.mark.parametrize("version", [1, None, True, 0])
def test_a_version_that_is_known_or_none_is_no_obstacle(version: Any) -> None:
    assert talk_in(start("s", version=version), typed("one")) == [("user", "one")]


def test_a_log_in_which_no_event_is_known_is_no_session() -> None:
    with pytest.raises(Unreadable, match="corrupt"):
        fold_of({"type": "dream.dreamt"}, {"type": "user/message"}).items()


def test_the_later_of_two_members_of_one_name_counts() -> None:
    line = b'{"type":"user.message","data":{"content":"first","con\\u0074ent":"second"}}'
    record = DECODER.decode(line)
    assert record is not None
    fold = CopilotConversation()
    fold.feed(record)

    assert said_in(fold) == [("user", "second")]


def test_the_bytes_of_what_is_held_follow_what_is_replaced() -> None:
    fold = fold_of(start("s"), typed("x" * 1000), reply("y" * 1000), piece("m", "é"))
    assert fold.text_bytes == 2002
    fold = fold_of(start("s"), typed("x" * 1000), compacted("short"), typed("z"))
    assert fold.text_bytes == 6


TEXTS = st.text(max_size=12) | st.sampled_from(["\ud83d", "a\udc00", ""])
IDS = st.sampled_from(["a", "b", None])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(
    [
        *("session.start", "session.resume", "session.context_changed", "session.context_cleared", "session.info"),
        *("session.compaction_start", "session.compaction_complete", "session.snapshot_rewind"),
        *("user.message", "assistant.message", "assistant.message_delta", "dream.dreamt"),
    ]
)
MEMBERS: dict[str, st.SearchStrategy[Any]] = {
    "content": TEXTS,
    "messageId": IDS,
    "deltaContent": TEXTS,
    "success": st.booleans(),
    "summaryContent": TEXTS,
    "initialMessage": TEXTS,
    "upToEventId": IDS,
    "source": st.sampled_from(["user", "skill-pdf"]),
    "context": st.fixed_dictionaries({"cwd": TEXTS}),
}
EVENTS = st.fixed_dictionaries(
    {"type": TYPES, "data": st.fixed_dictionaries({}, optional=MEMBERS)}, optional={"id": IDS, "agentId": IDS}
)


@given(st.lists(EVENTS, max_size=12), st.data())
def test_a_fold_that_was_kept_at_any_point_goes_on_as_if_it_had_not(events: list[dict[str, Any]], data: Any) -> None:
    cut = data.draw(st.integers(0, len(events)))
    whole, kept = fold_of(start("s"), *events), fold_of(start("s"), *events[:cut])
    saved = saved_fold(ScanCounts(), kept)
    assume(saved is not None)
    assert saved is not None
    kept = msgspec.msgpack.decode(saved.fold, type=CopilotConversation)
    for made in events[cut:]:
        record = DECODER.decode(json.dumps(made).encode())
        assert record is not None
        kept.feed(record)

    assert kept == whole
    assert kept.items() == whole.items()


@given(
    st.lists(st.dictionaries(st.sampled_from(["type", "id", "agentId", "timestamp"]), JSON), max_size=4), JSON, TYPES
)
def test_no_event_of_whatever_shape_does_more_than_make_the_log_unreadable(
    events: list[dict[str, Any]], value: Any, kind: str
) -> None:
    conversation, labels = CopilotConversation(), CopilotLabels()
    shaped = [{"type": kind, "data": value}, {"type": kind, "data": dict.fromkeys([*MEMBERS, "version"], value)}]
    for made in [*events, *shaped]:
        record = DECODER.decode(json.dumps(made).encode())
        if record is None:
            continue
        with suppress(Unreadable):
            conversation.feed(record)
            labels.feed(record)
    with suppress(Unreadable):
        conversation.items()
        labels.header(Log("session-state/s/events.jsonl", "s"), "copilot-cli:s", 1)
