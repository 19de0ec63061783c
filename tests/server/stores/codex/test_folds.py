"""What holds for the folds of Codex whatever a log says: they raise one thing, and go on where they were saved."""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import ConversationItem, SessionHeader
from sessionref.server.stores.codex.conversation import CodexConversation
from sessionref.server.stores.codex.labels import CodexLabels
from sessionref.server.stores.codex.records import CodexRecord
from sessionref.server.stores.folds import Log
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.problems import Unreadable
from sessionref.server.stores.records import RecordDecoder, RecordScan
from store_fixtures.codex.homes import ROLLOUT, THREAD, CodexHome
from store_fixtures.codex.rollouts import compacted, event, item, message, meta, record
from store_fixtures.logs import lines_of

LOG = Log("sessions/x.jsonl", THREAD)
DECODER = RecordDecoder(CodexRecord, ReadingLimits())

WORDS = st.sampled_from(["go", "ok", "go on", "## My request for Codex: x", "<skill>", "", " ", "\ud800", "ü" * 3])
KINDS = st.none() | st.lists(st.sampled_from(["user.text", "unknown", "compaction.summary", "x"]), max_size=2)
Role = Literal["user", "assistant"]
ROLE_NAMES: list[Role] = ["user", "assistant"]
ROLES = st.sampled_from(ROLE_NAMES)
ITEMS: list[Literal["UserMessage", "AgentMessage"]] = ["UserMessage", "AgentMessage"]


def a_message(role: Role, text: str, kinds: list[str] | None) -> dict[str, Any]:
    return message(role, text, kinds=kinds)


def an_event(type: str, member: str, value: object) -> dict[str, Any]:
    return event(type, **{member: value})


MESSAGES = st.builds(a_message, ROLES, WORDS, KINDS)
RECORDS = st.one_of(
    MESSAGES,
    st.builds(an_event, st.sampled_from(["user_message", "agent_message"]), st.just("message"), WORDS),
    st.builds(item, st.sampled_from(ITEMS), WORDS),
    st.builds(event, st.sampled_from(["task_started", "task_complete", "turn_aborted", "token_count"])),
    st.builds(an_event, st.just("thread_rolled_back"), st.just("num_turns"), st.integers(-1, 5)),
    st.builds(compacted, WORDS, st.none() | st.lists(MESSAGES, max_size=4)),
    st.builds(an_event, st.just("thread_name_updated"), st.just("thread_name"), st.none() | WORDS),
    st.just(meta("another")),
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(meta("x")["payload"])), inner),
    max_leaves=8,
)
MEMBERS = st.sampled_from(
    [
        *("type", "id", "role", "content", "message", "kind", "item", "replacement_history", "num_turns", "thread_id"),
        *("thread_name", "timestamp", "cwd", "source", "history_mode", "history_base", "text", "payload", "ordinal"),
        *("internal_chat_message_metadata_passthrough", "content_item_kinds", "thread_source"),
    ]
)
TYPES = st.sampled_from(
    [
        *("session_meta", "response_item", "event_msg", "compacted", "message", "user_message", "agent_message"),
        *("item_completed", "UserMessage", "text", "thread_rolled_back", "task_started", "user", "paginated", "x"),
    ]
)
ODD_RECORDS = st.recursive(
    TYPES | ANYTHING,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS, inner | TYPES, max_size=6),
    max_leaves=12,
)


def conversation_of(lines: bytes, fold: CodexConversation | None = None) -> CodexConversation:
    fold = fold or CodexConversation()
    RecordScan(DECODER, fold.feed).feed(lines)
    return fold


def labels_of(lines: bytes, fold: CodexLabels | None = None) -> CodexLabels:
    fold = fold or CodexLabels()
    RecordScan(DECODER, fold.feed).feed(lines)
    return fold


def row_of(fold: CodexLabels) -> SessionHeader:
    return fold.header(LOG, "codex:x", 5)


def without_surrogates(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records that can be saved: with lone surrogates in them a log is read as a whole each time."""
    return [one for one in records if "\\ud800" not in json.dumps(one)]


@given(records=st.lists(RECORDS, max_size=12), cut=st.integers(0, 12))
def test_a_fold_that_was_saved_anywhere_goes_on_as_if_it_had_not_been(records: list[dict[str, Any]], cut: int) -> None:
    kept = without_surrogates([meta(THREAD), *records])
    first, rest = lines_of(kept[: cut + 1]), lines_of(kept[cut + 1 :])

    saved = msgspec.msgpack.encode(before := conversation_of(first))
    before.items()
    assert msgspec.msgpack.encode(before) == saved
    again = conversation_of(rest, msgspec.msgpack.decode(saved, type=CodexConversation))
    whole = conversation_of(first + rest)
    assert msgspec.msgpack.encode(again) == msgspec.msgpack.encode(whole)
    assert again.items() == whole.items()

    labels = msgspec.msgpack.decode(msgspec.msgpack.encode(labels_of(first)), type=CodexLabels)
    assert row_of(labels_of(rest, labels)) == row_of(labels_of(first + rest))


@given(records=st.lists(RECORDS, max_size=12))
def test_whatever_is_said_no_item_is_blank_and_only_users_have_summaries(records: list[dict[str, Any]]) -> None:
    items = conversation_of(
        b"".join(json.dumps(one).encode() + b"\n" for one in [meta(THREAD), *records]),
    ).items()

    assert all(said.text.strip() for said in items)
    assert all(said.role == "user" for said in items if said.checkpoint)


@given(records=st.lists(ODD_RECORDS, max_size=6), is_headed=st.booleans())
def test_no_record_of_any_shape_raises_anything_but_unreadable(records: list[Any], is_headed: bool) -> None:
    headed = [meta(THREAD), *records] if is_headed else records
    lines = b"".join(json.dumps(one).encode() + b"\n" for one in headed)
    reasons: list[ReadFailedReason] = []
    for read in (lambda: conversation_of(lines).items(), lambda: row_of(labels_of(lines))):
        try:
            read()
        except Unreadable as problem:
            reasons.append(problem.reason)

    assert set(reasons) <= {ReadFailedReason.CORRUPT, ReadFailedReason.NEWER_FORMAT}
    assert not (is_headed and reasons)


@given(
    turns=st.lists(
        st.tuples(ROLES, st.sampled_from(["go", "ok", "go on"]), st.permutations([0, 1, 2]), st.integers(0, 2)),
        max_size=10,
    )
)
def test_what_the_model_was_given_is_the_conversation_whatever_else_tells_it(
    turns: list[tuple[Any, str, list[int], int]],
) -> None:
    records: list[dict[str, Any]] = []
    for role, text, order, others in turns:
        tellings = [
            message(role, text),
            event("user_message" if role == "user" else "agent_message", message=text),
            item("UserMessage" if role == "user" else "AgentMessage", text),
        ]
        records += [tellings[at] for at in order if at == 0 or at <= others]

    said = [(one.role, one.text) for one in conversation_of(lines_of([meta(THREAD), *records])).items()]

    assert said == [(role, text) for role, text, _, _ in turns]


@pytest.mark.parametrize("mode", [None, "legacy", "paginated"])
def test_ways_to_keep_a_history_that_are_known_or_not_said_are_read(mode: object) -> None:
    assert row_of(labels_of(lines_of([meta(THREAD, history_mode=mode), message("user", "hi")]))).title == "hi"


def test_a_way_to_keep_a_history_that_is_not_known_is_refused_as_newer() -> None:
    for read in (conversation_of, labels_of):
        with pytest.raises(Unreadable) as refusal:
            read(lines_of([meta(THREAD, history_mode="sharded")]))
        assert refusal.value.reason is ReadFailedReason.NEWER_FORMAT


@pytest.mark.parametrize(
    ("times", "created_at"),
    [
        (("2026-02-11T05:53:33.266Z", "2026-02-11T05:53:33.335Z"), 1_770_789_213_266),
        ((None, "2026-02-11T05:53:33.335Z"), 1_770_789_213_335),
        (("soon", 7), 5),
        (("1970-01-01T00:00:00Z", "2026-02-11T05:53:33.335Z"), 0),
    ],
)
def test_a_thread_was_made_when_its_header_says_or_when_that_was_written_or_its_file(
    times: tuple[object, object], created_at: int
) -> None:
    header = record("session_meta", {"id": THREAD, "timestamp": times[0]}) | {"timestamp": times[1]}

    assert row_of(labels_of(lines_of([header]))).created_at == created_at


def test_a_conversation_counts_its_text_once(home: CodexHome) -> None:
    home.write(message("user", "ü" * 10), event("user_message", message="ü" * 10), item("UserMessage", "ü" * 10))
    home.store.limits = ReadingLimits(conversation_bytes=20)
    assert home.talk() == ["> " + "ü" * 10]

    home.store.limits = ReadingLimits(conversation_bytes=19)
    assert home.refusal() is ReadFailedReason.TOO_LARGE


def test_a_row_grows_with_its_log(home: CodexHome) -> None:
    home.store.limits = ReadingLimits(whole_bytes=0)
    path = home.write(message("developer", "obey"), rollout=ROLLOUT)
    (key,) = home.all_keys()
    first = home.lesson(key)
    assert (first.header.title, first.has_prompt, first.has_title) == (None, False, True)
    assert not home.lesson(key, with_title=False).has_title

    home.append(path, [message("user", "hello"), event("thread_name_updated", thread_name="Said")])
    again = home.lesson(key, first)
    assert again.resume
    assert (again.header, again.has_prompt) == (home.lesson(key).header, True)
    assert again.header.title == "Said"


def test_items_are_those_of_the_seam() -> None:
    fold = conversation_of(lines_of([meta(THREAD), message("user", "one"), compacted("short")]))

    assert fold.items() == [ConversationItem("user", "one"), ConversationItem("user", "short", checkpoint=True)]
