"""Messages and forms: constructing without facts raises, reading never does, and the source record has no other key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionref.protocol.jsontext import decode_json, encode_json
from sessionref.protocol.messages import (
    Catalog,
    ContextForm,
    ContextMessage,
    Instructions,
    Notice,
    Opaque,
    Recall,
    ReferenceRecord,
    Relay,
    Section,
    SessionReferenceSource,
    Snapshot,
    TextBlock,
    decode_form,
)

RECORD = ReferenceRecord(
    session_id="eve",
    label="Garden plan",
    captured_through_seq=14,
    compacted=True,
    original_messages=5,
    retained_messages=3,
    omitted_messages=2,
    omitted_bytes=700,
    truncated=True,
    input_index=0,
)
RECORD_KEYS = [
    *("sessionId", "label", "capturedThroughSeq", "compacted", "originalMessages", "retainedMessages"),
    *("omittedMessages", "omittedBytes", "truncated", "inputIndex"),
]
RECORD_JSON: dict[str, Any] = decode_json(encode_json(RECORD))

FORMS: list[tuple[str, ContextForm, dict[str, Any]]] = [
    ("instructions", Instructions(), {}),
    ("catalog", Catalog(), {}),
    (
        "snapshot",
        Snapshot([Section("git", "clean"), Section("", "")]),
        {"sections": [{"name": "git", "text": "clean"}, {"name": "", "text": ""}]},
    ),
    ("notice", Notice("The index was rebuilt"), {"summary": "The index was rebuilt"}),
    ("relay", Relay("adam"), {"senderSessionId": "adam"}),
    ("relay", Relay(), {"senderSessionId": None}),
    ("recall", Recall([RECORD]), {"references": [RECORD_JSON]}),
]

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=4)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)


# --- The source record


def test_a_reference_record_has_exactly_the_keys_that_logs_accept() -> None:
    assert list(RECORD_JSON) == RECORD_KEYS


def test_the_format_version_stands_in_the_record_only_if_it_is_given() -> None:
    later = decode_json(encode_json(msgspec.structs.replace(RECORD, captured_format_version=3)))
    assert later == RECORD_JSON | {"capturedFormatVersion": 3}
    assert set(later) == {*RECORD_KEYS, "capturedFormatVersion"}


def test_an_empty_log_was_captured_through_null() -> None:
    empty = decode_json(encode_json(msgspec.structs.replace(RECORD, captured_through_seq=None)))
    assert empty["capturedThroughSeq"] is None


def test_a_source_has_its_constants_and_its_records_and_nothing_else() -> None:
    source = decode_json(encode_json(SessionReferenceSource(references=[RECORD])))
    assert source == {"kind": "session-reference", "form": "recall", "version": 1, "references": [RECORD_JSON]}


def test_a_context_is_a_message_of_the_user_with_one_text() -> None:
    source = SessionReferenceSource(references=[RECORD])
    context = ContextMessage(id="m1", content=[TextBlock("## Referenced sessions")], source=source)
    written = decode_json(encode_json(context))
    assert written == {
        "id": "m1",
        "role": "user",
        "content": [{"type": "text", "text": "## Referenced sessions"}],
        "source": decode_json(encode_json(source)),
    }
    assert msgspec.convert(written, ContextMessage) == context


def test_our_own_source_reads_back_as_a_recall() -> None:
    source = decode_json(encode_json(SessionReferenceSource(references=[RECORD])))
    assert decode_form(source) == Recall([RECORD])


# --- Constructing


@pytest.mark.parametrize(
    "construct",
    [
        lambda: Snapshot([]),
        lambda: Notice(""),
        lambda: Notice(" \t"),
        lambda: Notice("x" * 121),
        lambda: Notice("one\ntwo"),
        lambda: Notice("one\rtwo"),
        lambda: Notice("one\u2028two"),
        lambda: Recall([]),
    ],
)
def test_a_form_without_its_facts_cannot_be_constructed(construct: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="needs"):
        construct()


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\u2028", "\x0b"])
def test_a_summary_that_ends_its_line_is_more_than_a_line(end: str) -> None:
    with pytest.raises(ValueError, match="needs"):
        Notice("done" + end)
    assert decode_form({"form": "notice", "summary": "done" + end}) == Opaque()


@pytest.mark.parametrize("kind", [Snapshot, Notice, Recall])
def test_a_form_whose_facts_are_left_out_cannot_be_constructed(kind: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        kind()


def test_a_summary_may_have_exactly_a_hundred_and_twenty_characters() -> None:
    assert Notice("🐝" * 120).summary == "🐝" * 120


# --- Reading


@pytest.mark.parametrize(("name", "form", "facts"), FORMS)
def test_a_form_is_read_from_its_name_and_facts(name: str, form: ContextForm, facts: dict[str, Any]) -> None:
    assert decode_form({"form": name} | facts) == form
    assert decode_form({"kind": "plugin", "form": name, "more": [1]} | facts) == form


@pytest.mark.parametrize(("name", "form", "facts"), FORMS)
def test_a_form_survives_being_written_and_read(name: str, form: ContextForm, facts: dict[str, Any]) -> None:
    written = decode_json(encode_json(form))
    assert written == facts
    assert decode_form({"form": name} | written) == form


FACTLESS: list[Any] = [
    *(None, 1, "notice", ["notice"], {}, {"form": None}, {"form": 1}, {"form": ["notice"]}, {"form": {}}),
    *({"form": "poem"}, {"form": "Notice", "summary": "a"}, {"form": "opaque"}, {"summary": "a"}),
    *({"form": "notice"}, {"form": "notice", "summary": None}, {"form": "notice", "summary": 1}),
    *({"form": "notice", "summary": ""}, {"form": "notice", "summary": "a\nb"}),
    {"form": "notice", "summary": "x" * 121},
    *({"form": "snapshot"}, {"form": "snapshot", "sections": []}, {"form": "snapshot", "sections": {}}),
    *({"form": "snapshot", "sections": [{"name": "git"}]}, {"form": "snapshot", "sections": [None]}),
    {"form": "snapshot", "sections": [{"name": 1, "text": "a"}]},
    *({"form": "relay", "senderSessionId": 1}, {"form": "relay", "senderSessionId": []}),
    *({"form": "recall"}, {"form": "recall", "references": []}, {"form": "recall", "references": [{}]}),
    {"form": "recall", "references": [RECORD_JSON | {"omittedBytes": "700"}]},
    {"form": "recall", "references": [RECORD_JSON, None]},
]


@pytest.mark.parametrize("source", FACTLESS)
def test_a_source_that_does_not_hold_the_facts_of_its_form_is_opaque(source: Any) -> None:
    assert decode_form(source) == Opaque()


@given(
    values
    | st.fixed_dictionaries(
        {"form": st.sampled_from([name for name, _, _ in FORMS]) | values},
        optional={"summary": values, "sections": values, "references": values, "senderSessionId": values},
    )
)
def test_no_source_makes_reading_raise(source: Any) -> None:
    assert isinstance(decode_form(source), Instructions | Catalog | Snapshot | Notice | Relay | Recall | Opaque)


def test_a_form_with_lone_surrogates_in_the_place_of_its_facts_is_opaque() -> None:
    assert decode_form({"form": "recall", "references": "\ud800"}) == Opaque()
