"""What of Qwen Code's records is conversation."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sessionref.server.stores.folds import Log, saved_fold
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.problems import Unreadable
from sessionref.server.stores.qwen_code.conversation import QwenConversation
from sessionref.server.stores.qwen_code.labels import QwenLabels
from sessionref.server.stores.qwen_code.records import QwenRecord
from sessionref.server.stores.records import RecordDecoder, ScanCounts
from store_fixtures.qwen_code import Fixture

Made = dict[str, Any]

DECODER = RecordDecoder(QwenRecord, ReadingLimits())
ACKNOWLEDGED = {"role": "model", "parts": [{"text": "Got it. Thanks for the additional context!"}]}


class Session:
    """Records of one session, each hanging on the one before."""

    def __init__(self) -> None:
        self.made: list[Made] = []
        self._fixture = Fixture(Path("nowhere"))

    def add(self, kind: str, *parts: Made | str, **more: Any) -> Session:
        if parts:
            role = "model" if kind == "assistant" else "user"
            more["message"] = {"role": role, "parts": [{"text": p} if isinstance(p, str) else p for p in parts]}
        self.made.append(self._fixture.record("s", kind, **more))
        return self

    def user(self, *parts: Made | str, **more: Any) -> Session:
        return self.add("user", *parts, **({"provenance": "real_user"} | more))

    def model(self, *parts: Made | str, **more: Any) -> Session:
        return self.add("assistant", *parts, **({"provenance": "assistant_output"} | more))

    def system(self, subtype: str, **payload: Any) -> Session:
        return self.add("system", subtype=subtype, provenance="system", systemPayload=payload)

    def back_to(self, place: int) -> Session:
        """Rewind behind a record; -1 is the very beginning."""
        self.system("rewind", truncatedCount=2)
        self.made[-1]["parentUuid"] = None if place < 0 else self.made[place]["uuid"]
        return self


def fold_of(*made: Made, is_subagent: bool = False) -> QwenConversation:
    fold = QwenConversation(is_subagent=is_subagent)
    for record in made:
        decoded = DECODER.decode(json.dumps(record).encode())
        assert decoded is not None
        fold.feed(decoded)
    return fold


def said_in(fold: QwenConversation) -> list[tuple[str, str]]:
    return [("checkpoint" if item.checkpoint else item.role, item.text) for item in fold.items()]


def talk_in(session: Session) -> list[tuple[str, str]]:
    return said_in(fold_of(*session.made))


def content(role: str, *texts: str) -> Made:
    return {"role": role, "parts": [{"text": text} for text in texts]}


def test_texts_count_and_thoughts_calls_results_and_notes_do_not() -> None:
    call = {"functionCall": {"id": "c", "name": "read_file", "args": {"text": "no"}}}
    result = {"functionResponse": {"id": "c", "name": "read_file", "response": {"output": "no"}}}
    session = Session().user("one", "more").system("ui_telemetry", uiEvent={}).system("file_history_snapshot")
    session.model({"text": "thinking", "thought": True}, call).add("tool_result", result, provenance="tool_result")
    session.model({"text": "thinking", "thought": True}, "two", call, "three").model("")

    assert talk_in(session) == [("user", "one\nmore"), ("assistant", "two\nthree")]


@pytest.mark.parametrize("subtype", ["notification", "cron", "goal_runtime", "agent_message"])
def test_what_has_the_role_of_the_user_and_is_nobodys_is_left_out(subtype: str) -> None:
    fold = fold_of(*Session().user("one").user("no", subtype=subtype, provenance="system").model("two").made)

    assert said_in(fold) == [("user", "one"), ("assistant", "two")]
    assert fold.unknown_records == 0


def test_a_person_is_told_by_the_provenance_and_older_builds_write_none() -> None:
    session = Session().user("one", provenance=None).user("no", provenance="goal_control").user("two")

    assert talk_in(session) == [("user", "one"), ("user", "two")]


@pytest.mark.parametrize("subtype", ["mid_turn_user_message", "realtime_message"])
def test_what_is_typed_while_the_agent_is_busy_or_said_aloud_is_a_prompt(subtype: str) -> None:
    assert talk_in(Session().user("one").user("wait", subtype=subtype)) == [("user", "one"), ("user", "wait")]


def test_a_prompt_is_what_was_shown_to_its_author_and_not_what_hooks_added() -> None:
    session = Session().user("one", "<hook>more</hook>", systemPayload={"displayText": "one", "hookContext": "more"})

    assert talk_in(session) == [("user", "one")]


def test_a_command_that_goes_to_the_model_is_the_prompt_and_its_expansion_is_not() -> None:
    session = Session().system("slash_command", phase="invocation", rawCommand="/fix the bug", sentToModel=True)
    session.user("You are a careful engineer. Fix: the bug").model("fixed")

    assert talk_in(session) == [("user", "/fix the bug"), ("assistant", "fixed")]


def test_a_command_that_is_sent_without_an_expansion_of_its_own_is_a_prompt_all_the_same() -> None:
    command = {"phase": "invocation", "rawCommand": "/fix", "sentToModel": True}

    assert talk_in(Session().system("slash_command", **command).model("fixed")) == [
        ("user", "/fix"),
        ("assistant", "fixed"),
    ]
    assert talk_in(Session().user("one").system("slash_command", **command)) == [("user", "one"), ("user", "/fix")]


def test_a_command_that_the_agent_answers_itself_is_no_conversation() -> None:
    shown = {"phase": "result", "rawCommand": "/about", "outputHistoryItems": [{"type": "assistant", "text": "v0.21"}]}
    typed = Session().system("slash_command", phase="invocation", rawCommand="/about").system("slash_command", **shown)
    recorded = Session().user("one").model("two").user("/about").system("slash_command", **shown)
    unseen = Session().user("/about").system("slash_command", **(shown | {"outputHistoryItems": []}))

    assert talk_in(typed.user("one")) == [("user", "one")]
    assert talk_in(recorded.user("three")) == [("user", "one"), ("assistant", "two"), ("user", "three")]
    assert talk_in(unseen) == [("user", "/about")]


def test_a_prompt_with_files_is_what_was_typed_and_not_what_is_in_them() -> None:
    session = Session().system("at_command", filesRead=["a.py"], status="success", userText="look at @a.py")
    session.user("look at @a.py", "--- Content from referenced files ---", "secret").user("and now?")

    assert talk_in(session) == [("user", "look at @a.py"), ("user", "and now?")]


def test_sidechains_are_left_out_of_a_session_and_are_all_that_a_sub_agents_is() -> None:
    session = Session().user("one").user("look around", isSidechain=True).model("nothing", isSidechain=True)
    session.model("two")
    # The session's own records do not hang on those of a sub-agent.
    session.made[3]["parentUuid"] = session.made[0]["uuid"]

    assert talk_in(session) == [("user", "one"), ("assistant", "two")]
    assert said_in(fold_of(*session.made[1:3], is_subagent=True)) == [("user", "look around"), ("assistant", "nothing")]


def test_a_sub_agent_is_asked_by_its_parent_and_not_by_notifications() -> None:
    session = Session().user("go", isSidechain=True, provenance=None)
    session.user("and there", isSidechain=True, externalInputKind="message")
    session.user("task done", isSidechain=True, externalInputKind="notification")

    assert said_in(fold_of(*session.made, is_subagent=True)) == [("user", "go"), ("user", "and there")]


def test_what_was_rewound_is_left_out() -> None:
    session = Session().user("one").model("two").user("three").model("four").back_to(1).user("five")
    assert talk_in(session) == [("user", "one"), ("assistant", "two"), ("user", "five")]

    session = Session().user("one").model("two").back_to(-1).user("anew")
    assert talk_in(session) == [("user", "anew")]


def test_a_record_that_was_lost_costs_itself_alone() -> None:
    session = Session().user("one").model("two").user("three").model("four")
    del session.made[1]

    assert talk_in(session) == [("user", "one"), ("user", "three"), ("assistant", "four")]


def test_a_rewind_to_a_record_that_was_lost_brings_nothing_back() -> None:
    session = Session().user("one").user("two").user("taken back").back_to(0).user("three")
    del session.made[0]

    assert talk_in(session) == [("user", "three")]


def test_records_of_one_id_are_one_message_in_their_order() -> None:
    session = Session().user("one").model("two").model("three").user("four")
    session.made[2] |= {"uuid": session.made[1]["uuid"], "parentUuid": session.made[1]["parentUuid"]}
    session.made[3]["parentUuid"] = session.made[1]["uuid"]

    assert [text for _, text in talk_in(session)] == ["one", "two", "three", "four"]


def test_a_cycle_of_parents_ends() -> None:
    session = Session().user("one").model("two")
    session.made[0]["parentUuid"] = session.made[1]["uuid"]

    assert talk_in(session) == [("user", "one"), ("assistant", "two")]


def compressed(session: Session, *history: Made) -> Session:
    return session.system("chat_compression", info={"compressionStatus": 1}, compressedHistory=list(history))


def test_a_summary_stands_first_and_then_what_its_compression_kept() -> None:
    session = Session().user("one").model("two").user("three").model("four")
    compressed(
        session,
        content("user", "started in /srv/here"),
        content("user", "<state_snapshot>so far</state_snapshot>", "<system-reminder>plan mode</system-reminder>"),
        ACKNOWLEDGED,
        content("user", "three"),
        {"role": "user", "parts": [{"functionResponse": {"id": "c"}}]},
        content("model", "four"),
    )

    assert talk_in(session.user("five")) == [
        ("checkpoint", "<state_snapshot>so far</state_snapshot>"),
        ("user", "three"),
        ("assistant", "four"),
        ("user", "five"),
    ]


def test_what_was_kept_is_known_by_the_text_that_was_sent_and_quoted_as_it_was_typed() -> None:
    session = Session().user("one").user("two", "from a hook", systemPayload={"displayText": "two"})
    compressed(session, content("user", "so far"), ACKNOWLEDGED, content("user", "two", "from a hook"))

    assert talk_in(session) == [("checkpoint", "so far"), ("user", "two")]


def test_a_later_compression_replaces_the_earlier_and_all_before_it() -> None:
    session = compressed(Session().user("one"), content("user", "first"), ACKNOWLEDGED).user("two")
    compressed(session, content("user", "second"), ACKNOWLEDGED)

    assert talk_in(session) == [("checkpoint", "second")]


@pytest.mark.parametrize("history", [[], [content("user", "one"), content("model", "two")], [ACKNOWLEDGED]])
def test_a_compression_that_summarised_nothing_replaces_nothing(history: list[Made]) -> None:
    session = compressed(Session().user("one").model("two"), *history).user("three")

    assert [text for _, text in talk_in(session)] == ["one", "two", "three"]


def test_a_compression_that_was_rewound_counts_no_more() -> None:
    session = compressed(Session().user("one"), content("user", "so far"), ACKNOWLEDGED).user("two").back_to(0)

    assert talk_in(session.user("three")) == [("user", "one"), ("user", "three")]


def test_what_is_of_unknown_kinds_or_has_no_place_is_counted() -> None:
    session = Session().user("one").user("two", subtype="dreamt").add("dream", "three").model("four")
    session.made[3]["uuid"] = None
    fold = fold_of(*session.made)

    assert said_in(fold) == [("user", "one")]
    assert fold.unknown_records == 3


@pytest.mark.parametrize("part", ["header", "event", "commit"])
def test_a_log_of_the_managed_engine_is_a_newer_format(part: str) -> None:
    with pytest.raises(Unreadable, match="newer-format"):
        fold_of(*Session().user("one").system(f"managed_session_{part}_v1").made)


def test_a_log_without_a_known_record_is_no_session() -> None:
    with pytest.raises(Unreadable, match="corrupt"):
        fold_of({"type": "session", "uuid": "a"}).items()


TEXTS = st.text(max_size=8) | st.sampled_from(["\ud83d", "/a"])
IDS = st.sampled_from(["a", "b", "c", None])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
CONTENTS = st.builds(content, st.sampled_from(["user", "model"]), TEXTS) | st.just(ACKNOWLEDGED)
PAYLOADS: dict[str, st.SearchStrategy[Any]] = {
    "rawCommand": TEXTS,
    "phase": st.sampled_from(["invocation", "result"]),
    "sentToModel": st.booleans(),
    "userText": TEXTS,
    "displayText": TEXTS,
    "outputHistoryItems": st.just([{"type": "assistant"}]),
    "compressedHistory": st.lists(CONTENTS, max_size=4),
}
MEMBERS: dict[str, st.SearchStrategy[Any]] = {
    "uuid": IDS,
    "parentUuid": IDS,
    "subtype": st.sampled_from(["rewind", "slash_command", "at_command", "chat_compression", "cron", None]),
    "message": CONTENTS,
    "systemPayload": st.fixed_dictionaries({}, optional=PAYLOADS),
    "isSidechain": st.booleans(),
}
TYPES = st.sampled_from(["user", "assistant", "system", "tool_result", "dream"])
RECORDS = st.fixed_dictionaries({"type": TYPES}, optional=MEMBERS)
BEGUN: Made = {"type": "user", "uuid": "a", "message": content("user", "begun")}


@given(st.lists(RECORDS, max_size=10), st.data())
def test_a_fold_that_was_kept_at_any_point_goes_on_as_if_it_had_not(made: list[Made], data: Any) -> None:
    cut = data.draw(st.integers(0, len(made)))
    saved = saved_fold(ScanCounts(), fold_of(BEGUN, *made[:cut]))
    assume(saved is not None)
    assert saved is not None
    kept, whole = msgspec.msgpack.decode(saved.fold, type=QwenConversation), fold_of(BEGUN, *made)
    for record in made[cut:]:
        decoded = DECODER.decode(json.dumps(record).encode())
        assert decoded is not None
        kept.feed(decoded)

    assert kept == whole
    assert kept.items() == whole.items()


@given(JSON, TYPES, st.lists(st.dictionaries(st.sampled_from(["type", *MEMBERS]), JSON), max_size=3))
def test_no_record_of_whatever_shape_does_more_than_make_the_log_unreadable(
    value: Any, kind: str, others: list[Made]
) -> None:
    conversation, labels = QwenConversation(), QwenLabels()
    shaped = [dict.fromkeys([*MEMBERS, "timestamp", "cwd"], value), {"systemPayload": dict.fromkeys(PAYLOADS, value)}]
    for made in [*others, *(record | {"type": kind, "uuid": "a"} for record in shaped)]:
        record = DECODER.decode(json.dumps(made).encode())
        if record is not None:
            with suppress(Unreadable):
                conversation.feed(record)
                labels.feed(record)
    with suppress(Unreadable):
        conversation.items()
        labels.header(Log("projects/p/chats/s.jsonl", "s"), "qwen-code:s", 1)
