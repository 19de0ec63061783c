"""What holds of the folds whatever the records are: they go on from a saved state, and never fail otherwise."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sessionref.server.stores.claude_code.conversation import ClaudeConversation
from sessionref.server.stores.claude_code.labels import ClaudeLabels
from sessionref.server.stores.claude_code.records import ClaudeRecord, KeptSegment
from sessionref.server.stores.claude_code.tree import Entry, branch_of
from sessionref.server.stores.folds import ConversationFold, LabelFold, Log, saved_fold
from sessionref.server.stores.problems import Unreadable
from sessionref.server.stores.records import ScanCounts
from store_fixtures.claude_code.records import DECODER, boundary, queued, result, spoken, summary, typed

Made = dict[str, Any]


def merged(record: Made, marks: Made) -> Made:
    return record | marks


def of_type(kind: str, members: Made) -> Made:
    return members | {"type": kind}


def keeping(head: str | None, anchor: str | None, tail: str | None) -> Made:
    return boundary(compactMetadata={"preservedSegment": {"headUuid": head, "anchorUuid": anchor, "tailUuid": tail}})


UUIDS = st.one_of(st.none(), st.integers(0, 12).map(lambda number: f"u{number}"))
TEXTS = st.sampled_from(
    ["a", "b\nc", "", " ", "<system-reminder>x</system-reminder>y", "[Request interrupted by user]"]
)
SAID: st.SearchStrategy[Made] = st.one_of(
    TEXTS.map(typed),
    st.builds(spoken, TEXTS, reply=st.sampled_from(["m", "n"])),
    TEXTS.map(queued),
    TEXTS.map(summary),
    st.just(result()),
    st.just({"type": "system", "subtype": "turn_duration"}),
    st.just({"type": "ai-title", "aiTitle": "t"}),
    st.builds(keeping, UUIDS, UUIDS, UUIDS),
)
MARKS: st.SearchStrategy[Made] = st.fixed_dictionaries(
    {"uuid": UUIDS, "parentUuid": UUIDS},
    optional={"isSidechain": st.booleans(), "teamName": st.just("crew"), "isMeta": st.booleans(), "cwd": st.just("/w")},
)
LOGS = st.lists(st.builds(merged, SAID, MARKS), max_size=16)

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "x", "u1", "user", "text", "tool_result"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "content"]), inner),
    max_leaves=6,
)
MEMBERS = sorted(field.encode_name for field in msgspec.structs.fields(ClaudeRecord))
TYPES = ("user", "assistant", "system", "attachment", "summary", "custom-title", "last-prompt", "x")
ANYTHING = st.lists(
    st.builds(of_type, st.sampled_from(TYPES), st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=6)),
    max_size=8,
)


def feed(fold: ConversationFold[Any] | LabelFold[Any], records: list[dict[str, Any]]) -> None:
    for made in records:
        record = DECODER.decode(json.dumps(made).encode())
        assert record is not None
        fold.feed(record)


def outcome(fold: ClaudeConversation | ClaudeLabels) -> Any:
    if isinstance(fold, ClaudeLabels):
        return fold.header(Log("projects/p/s.jsonl", "s"), "claude-code:s", 7), fold.has_prompt
    try:
        return fold.items(), fold.cwd, fold.unknown_records, fold.text_bytes
    except Unreadable as problem:
        return problem.reason


@pytest.mark.parametrize("kind", [ClaudeConversation, ClaudeLabels])
@given(records=LOGS, cut=st.integers(0, 16))
def test_a_saved_fold_goes_on_as_if_nothing_had_been(
    kind: type[ClaudeConversation | ClaudeLabels], records: list[dict[str, Any]], cut: int
) -> None:
    whole, first = kind(), kind()
    feed(whole, records)
    feed(first, records[:cut])
    saved = saved_fold(ScanCounts(), first)
    assume(saved is not None)
    assert saved is not None
    again = msgspec.msgpack.decode(bytes(saved.fold), type=kind)
    feed(again, records[cut:])

    assert outcome(again) == outcome(whole)


@given(records=ANYTHING)
def test_no_record_of_any_shape_breaks_a_fold(records: list[dict[str, Any]]) -> None:
    for fold in (ClaudeConversation(), ClaudeConversation(is_subagent=True), ClaudeLabels()):
        feed(fold, records)
        with suppress(Unreadable):
            outcome(fold)


@given(records=LOGS)
def test_a_conversation_has_nothing_twice_and_nothing_that_nobody_said(records: list[dict[str, Any]]) -> None:
    fold = ClaudeConversation()
    feed(fold, records)
    branch = branch_of(fold.entries, fold.kept)

    assert len({id(entry) for entry in branch}) == len(branch)
    assert {id(entry) for entry in branch} <= {id(entry) for entry in fold.entries}
    uuids = [entry.uuid for entry in branch if entry.uuid is not None]
    assert len(set(uuids)) == len(uuids)


@given(st.lists(st.sampled_from(["user", "assistant"]), min_size=2, max_size=30), st.data())
def test_every_record_of_a_chain_is_on_its_branch_in_whatever_order_the_file_has_them(
    roles: list[str], data: st.DataObject
) -> None:
    entries = [
        Entry(f"u{at}", f"u{at - 1}" if at else None, "assistant" if role == "assistant" else "user", str(at))
        for at, role in enumerate(["user", *roles, "assistant"])
    ]
    shuffled = data.draw(st.permutations(entries))

    assert branch_of(shuffled, []) == entries


def test_a_long_log_of_rewinds_and_compactions_is_folded_in_little_time() -> None:
    many = 20_000
    entries = [Entry(f"u{at}", f"u{at // 2}", "assistant", "x", "m") for at in range(1, many)]
    kept = [KeptSegment(f"u{at + 1}", f"u{at}", f"u{many - 1}") for at in range(1, many)]

    assert 0 < len(branch_of(entries, kept)) <= many
