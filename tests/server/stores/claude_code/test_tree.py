"""Which branch of its records a session goes on with."""

from __future__ import annotations

from typing import Any

import pytest

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.problems import Unreadable
from store_fixtures.claude_code.records import (
    boundary,
    conversation_of,
    in_a_row,
    queued,
    result,
    spoken,
    summary,
    talk_in,
    typed,
)

TALK = in_a_row(typed("one"), spoken("two"), typed("three"), spoken("four"))
"""u1 to u4."""


def test_a_chain_is_the_conversation() -> None:
    assert talk_in(*TALK) == [">one", "<two", ">three", "<four"]


def test_a_rewind_leaves_what_was_rewound() -> None:
    again = in_a_row(typed("other"), spoken("answer"), parent="u2", first=5)

    assert talk_in(*TALK, *again) == [">one", "<two", ">other", "<answer"]


def test_a_rewind_to_the_first_prompt_leaves_everything_before() -> None:
    again = in_a_row(typed("other"), spoken("answer"), first=5)

    assert talk_in(*TALK, *again[:1]) == [">other"]
    assert talk_in(*TALK, *again) == [">other", "<answer"]


def test_one_can_come_back_to_a_branch_that_was_left() -> None:
    again = in_a_row(typed("other"), spoken("answer"), first=5)
    back = in_a_row(typed("five"), parent="u4", first=7)

    assert talk_in(*TALK, *again, *back) == [">one", "<two", ">three", "<four", ">five"]


def test_a_branch_of_nothing_but_notes_does_not_count() -> None:
    note = {"type": "system", "subtype": "informational", "uuid": "n", "parentUuid": "u2"}
    meta = typed("expansion", isMeta=True, uuid="m", parentUuid="n")

    assert talk_in(*TALK, note, meta) == [">one", "<two", ">three", "<four"]


def test_notes_at_the_end_of_a_branch_do_not_lead_back_to_an_older_one() -> None:
    again = in_a_row(typed("other"), spoken("answer"), typed("expansion", isMeta=True), parent="u2", first=5)

    assert talk_in(*TALK, *again) == [">one", "<two", ">other", "<answer"]


def test_records_of_all_types_may_be_links_of_the_chain() -> None:
    links: list[dict[str, Any]] = [
        {"type": "progress", "data": {"message": {"role": "user", "content": "inner"}}},
        {"type": "attachment"},
        {"type": "whatever"},
        result(),
        {"type": "system", "subtype": "turn_duration"},
    ]

    assert talk_in(*in_a_row(typed("one"), *links, spoken("two"))) == [">one", "<two"]


def test_a_compaction_puts_its_summary_first_and_shadows_what_was_before() -> None:
    after = in_a_row(
        boundary(logicalParentUuid="u4"), {"type": "attachment"}, summary("in short"), spoken("go on"), first=5
    )

    assert talk_in(*TALK, *after) == ["=in short", "<go on"]


def test_of_two_compactions_the_last_counts() -> None:
    first = in_a_row(boundary(), summary("short"), typed("five"), spoken("six"), first=5)
    second = in_a_row(boundary(logicalParentUuid="u8"), summary("shorter"), spoken("seven"), first=9)

    assert talk_in(*TALK, *first) == ["=short", ">five", "<six"]
    assert talk_in(*TALK, *first, *second) == ["=shorter", "<seven"]


def test_a_boundary_or_a_summary_in_the_chain_shadows_as_well() -> None:
    assert talk_in(*TALK, *in_a_row(boundary(), summary("short"), spoken("on"), parent="u4", first=5)) == [
        "=short",
        "<on",
    ]
    assert talk_in(*TALK, *in_a_row(summary("short"), spoken("on"), parent="u4", first=5)) == ["=short", "<on"]


def test_what_an_automatic_compaction_of_tool_results_marks_shadows_nothing() -> None:
    small = {"type": "system", "subtype": "microcompact_boundary"}

    assert talk_in(*TALK, *in_a_row(small, typed("five"), parent="u4", first=5))[-1] == ">five"
    assert len(talk_in(*TALK, *in_a_row(small, typed("five"), parent="u4", first=5))) == 5


def test_a_segment_that_was_kept_stands_behind_the_summary() -> None:
    kept = {"preservedSegment": {"headUuid": "u3", "anchorUuid": "u6", "tailUuid": "u4"}}
    after = in_a_row(boundary(compactMetadata=kept), summary("in short"), spoken("go on"), first=5)

    assert talk_in(*TALK, *after) == ["=in short", ">three", "<four", "<go on"]


def test_a_segment_that_was_kept_may_stand_before_the_summary() -> None:
    kept = {"preservedSegment": {"headUuid": "u1", "anchorUuid": "u5", "tailUuid": "u2"}}
    after = in_a_row(boundary(compactMetadata=kept), summary("in short"), spoken("go on"), first=5)

    assert talk_in(*TALK, *after) == [">one", "<two", "=in short", "<go on"]


def test_what_comes_after_a_compaction_may_hang_on_the_kept_segment_itself() -> None:
    kept = {"preservedSegment": {"headUuid": "u3", "anchorUuid": "u6", "tailUuid": "u4"}}
    after = in_a_row(boundary(compactMetadata=kept), summary("in short"), first=5)

    assert talk_in(*TALK, *after, *in_a_row(typed("five"), parent="u4", first=7)) == [
        *("=in short", ">three", "<four", ">five"),
    ]


@pytest.mark.parametrize(
    "ends",
    [
        {"headUuid": "u3", "anchorUuid": "u4", "tailUuid": "u4"},
        {"headUuid": "u4", "anchorUuid": "u6", "tailUuid": "u3"},
        {"headUuid": "nobody", "anchorUuid": "u6", "tailUuid": "u4"},
        {"headUuid": "u3"},
        {"headUuid": 3, "anchorUuid": None, "tailUuid": "u4"},
        "u3",
    ],
)
def test_a_kept_segment_that_makes_no_sense_is_passed_over(ends: object) -> None:
    after = in_a_row(
        boundary(compactMetadata={"preservedSegment": ends}), summary("in short"), spoken("go on"), first=5
    )

    assert talk_in(*TALK, *after) == ["=in short", "<go on"]


def test_without_uuids_the_order_of_the_file_counts() -> None:
    assert talk_in(typed("one"), typed("two"), spoken("three"), typed("four")) == [">one", ">two", "<three", ">four"]


def test_without_parents_the_order_of_the_file_counts() -> None:
    records = [typed("one"), spoken("two"), typed("three"), spoken("four"), typed("five")]

    for parents in ({"parentUuid": None}, {}):
        numbered = [record | {"uuid": f"u{number}"} | parents for number, record in enumerate(records)]
        assert talk_in(*numbered) == [">one", "<two", ">three", "<four", ">five"]


def test_one_reply_without_a_parent_hangs_on_what_is_before_it() -> None:
    assert talk_in(*TALK[:3], spoken("four", uuid="u4"), *in_a_row(typed("five"), parent="u4", first=5)) == [
        *(">one", "<two", ">three", "<four", ">five"),
    ]


def test_a_record_that_is_lost_costs_itself_alone() -> None:
    assert talk_in(*TALK[:1], *TALK[2:]) == [">one", ">three", "<four"]
    assert talk_in(*TALK[1:]) == ["<two", ">three", "<four"]


def test_a_parent_that_nobody_has_is_the_one_before() -> None:
    assert talk_in(*in_a_row(typed("one", parentUuid="root"), spoken("two"))) == [">one", "<two"]


def test_a_record_may_stand_before_its_parent() -> None:
    assert talk_in(TALK[0], TALK[2], TALK[1], TALK[3]) == [">one", "<two", ">three", "<four"]


@pytest.mark.parametrize("parent", ["u3", "u4"])
def test_a_cycle_loses_nothing_and_ends(parent: str) -> None:
    looped = [*TALK[:2], TALK[2] | {"parentUuid": parent}, TALK[3]]

    assert talk_in(*looped, *in_a_row(typed("five"), parent="u4", first=5)) == [
        *(">one", "<two", ">three", "<four", ">five"),
    ]


@pytest.mark.parametrize("parents", [("u4", "u3"), ("u2", "u4"), ("u4", "u4")])
def test_a_cycle_at_the_end_that_nothing_leads_to_loses_nothing_either(parents: tuple[str, str]) -> None:
    third, fourth = (record | {"parentUuid": parent} for record, parent in zip(TALK[2:], parents, strict=True))

    assert sorted(talk_in(*TALK[:2], third, fourth)) == ["<four", "<two", ">one", ">three"]


def test_what_was_before_a_cycle_is_found_wherever_the_cycle_is_entered() -> None:
    third, fourth = TALK[2] | {"parentUuid": "u4"}, TALK[3]

    said = talk_in(*TALK[:2], third, fourth, *in_a_row(typed("five"), parent="u3", first=5))
    assert (said[:2], said[-1], len(said)) == ([">one", "<two"], ">five", 5)


def test_a_tree_of_nothing_but_a_cycle_ends_too() -> None:
    assert talk_in(TALK[0] | {"parentUuid": "u2"}, TALK[1]) == [">one", "<two"]
    assert talk_in(typed("alone", uuid="u1", parentUuid="u1")) == [">alone"]


def test_a_record_that_is_repeated_counts_once_and_one_with_a_text_before_one_without() -> None:
    assert talk_in(*TALK, *TALK[:2]) == [">one", "<two", ">three", "<four"]
    assert talk_in(typed(None, uuid="u1"), *TALK) == [">one", "<two", ">three", "<four"]


def test_a_queued_prompt_without_a_uuid_belongs_to_what_is_before_it() -> None:
    in_first, in_second = queued("meanwhile"), queued("rewound")
    again = in_a_row(typed("other"), spoken("answer"), parent="u2", first=5)

    assert talk_in(*TALK[:2], in_first, *TALK[2:]) == [">one", "<two", ">meanwhile", ">three", "<four"]
    assert talk_in(*TALK[:2], in_first, *TALK[2:], in_second, *again) == [
        *(">one", "<two", ">meanwhile", ">other", "<answer"),
    ]
    assert talk_in(*TALK, in_first, queued("and")) == [">one", "<two", ">three", "<four", ">meanwhile", ">and"]


def test_what_is_before_the_first_uuid_counts() -> None:
    assert talk_in(queued("at once"), *TALK[:2]) == [">at once", ">one", "<two"]
    assert talk_in(typed("old"), spoken("reply"), *TALK[:2]) == [">old", "<reply", ">one", "<two"]


def test_a_reply_in_several_records_is_whole_also_where_the_chain_goes_past_a_part_of_it() -> None:
    first = in_a_row(typed("q"), spoken("look", reply="m"), spoken(reply="m"), spoken("and look", reply="m"))
    results = [result(uuid="r1", parentUuid="u3"), result(uuid="r2", parentUuid="u4")]
    end = spoken("done", uuid="e", parentUuid="r1")

    assert talk_in(*first, *reversed(results), end) == [">q", "<look", "<and look", "<done"]


def test_parts_of_a_reply_may_be_beside_each_other() -> None:
    first, *parts = (
        typed("q", uuid="q"),
        spoken("a", reply="m", uuid="a", parentUuid="q"),
        spoken("b", reply="m", uuid="b", parentUuid="q"),
        spoken("c", reply="m", uuid="c", parentUuid="q"),
    )

    assert talk_in(first, *parts, result(uuid="r", parentUuid="c"), spoken("d", uuid="d", parentUuid="r")) == [
        *(">q", "<a", "<b", "<c", "<d"),
    ]
    assert talk_in(first, *parts[:1], spoken("x", reply="n", uuid="n", parentUuid="q"), *parts[1:]) == [
        *(">q", "<a", "<b", "<c"),
    ]


def test_two_records_of_one_reply_stay_two_messages() -> None:
    assert talk_in(*in_a_row(typed("q"), spoken("a", reply="m"), spoken("b", reply="m"))) == [">q", "<a", "<b"]


def test_what_agents_say_to_each_other_is_left_out_of_a_session_with_a_person() -> None:
    inner = in_a_row(typed("do it", isSidechain=True), spoken("did it", isSidechain=True), first=10)

    assert talk_in(*inner, *TALK[:2], *inner, *TALK[2:], *inner) == [">one", "<two", ">three", "<four"]


def test_a_session_of_agents_alone_is_theirs() -> None:
    inner = in_a_row(typed("do it"), spoken("did it"))
    marked = [record | {"isSidechain": True} for record in inner]

    assert talk_in(*marked, is_subagent=True) == [">do it", "<did it"]
    assert talk_in(*inner, is_subagent=True) == [">do it", "<did it"]
    assert talk_in(*marked) == [">do it", "<did it"]
    assert talk_in(*(record | {"teamName": "crew"} for record in inner)) == [">do it", "<did it"]
    assert talk_in(*in_a_row(typed("do it", origin={"kind": "coordinator"}), spoken("ok")), is_subagent=True) == [
        *(">do it", "<ok"),
    ]


def test_notes_outside_of_the_sidechain_make_no_session_of_a_person() -> None:
    inner = in_a_row(typed("do it", isSidechain=True), spoken("did it", isSidechain=True))
    note = {"type": "system", "subtype": "informational", "uuid": "n", "parentUuid": None}

    assert talk_in(*inner, note) == [">do it", "<did it"]
    assert talk_in(note, *inner) == [">do it", "<did it"]


def test_the_working_directory_is_the_first_one_outside_of_sidechains() -> None:
    inner = typed("do it", isSidechain=True, cwd="/inner")

    assert conversation_of(inner).cwd == "/inner"
    assert conversation_of(inner, *TALK).cwd is None
    assert conversation_of(inner, *TALK, typed("x", cwd="/one"), typed("y", cwd="/two")).cwd == "/one"


def test_a_file_without_anything_said_is_no_session() -> None:
    fold = conversation_of({"type": "file-history-snapshot"}, {"type": "summary", "summary": "x", "leafUuid": "y"})

    with pytest.raises(Unreadable) as failure:
        fold.items()
    assert failure.value.reason is ReadFailedReason.NOT_FOUND


def test_a_session_with_another_kind_of_record_is_one_though_nothing_in_it_is_understood() -> None:
    assert conversation_of({"type": "whisper"}).items() == []
