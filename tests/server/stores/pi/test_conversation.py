"""The conversation of a pi session: its last branch, as pi would go on with it (agent-stores section 8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pi_records import PiLog, blocks, capture_of, diagnosed, said


def spoken(folder: Path, log: PiLog) -> list[str]:
    return said(capture_of(folder, log))


def test_prompts_and_answers_are_the_text_blocks_of_their_messages(tmp_path: Path) -> None:
    log = PiLog()
    log.message(
        "user", [*blocks("look at"), {"type": "image", "data": "AA==", "mimeType": "image/png"}, *blocks("this")]
    )
    log.message(
        "assistant",
        [{"type": "thinking", "thinking": "hm"}, *blocks("I see"), {"type": "toolCall", "id": "c", "name": "read"}],
        stopReason="toolUse",
    )
    log.message("toolResult", blocks("file content"), toolCallId="c")
    log.message("assistant", blocks("done"), stopReason="stop")

    assert spoken(tmp_path, log) == ["u:look at\nthis", "a:I see", "a:done"]


def test_content_may_be_a_plain_text(tmp_path: Path) -> None:
    log = PiLog()
    log.message("user", "plain question")
    log.message("assistant", "plain answer")

    assert spoken(tmp_path, log) == ["u:plain question", "a:plain answer"]


@pytest.mark.parametrize("content", ["", "  \n", [], blocks("", " "), None, 5, {"type": "text", "text": "x"}, [5, "x"]])
def test_a_message_without_text_is_none(tmp_path: Path, content: Any) -> None:
    log = PiLog()
    log.user("question")
    log.message("assistant", content, stopReason="aborted")
    log.assistant("answer")

    assert spoken(tmp_path, log) == ["u:question", "a:answer"]


@pytest.mark.parametrize(
    "role", ["toolResult", "bashExecution", "custom", "branchSummary", "compactionSummary", "system"]
)
def test_messages_of_other_roles_are_nobodys_words(tmp_path: Path, role: str) -> None:
    log = PiLog()
    log.user("question")
    log.message(role, blocks("not said"), command="ls", output="not said", summary="not said")
    log.assistant("answer")

    assert spoken(tmp_path, log) == ["u:question", "a:answer"]


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        ("custom_message", {"customType": "x", "content": "injected", "display": True}),
        ("custom", {"customType": "x", "data": {"content": "hidden"}}),
        ("model_change", {"provider": "p", "modelId": "m"}),
        ("thinking_level_change", {"thinkingLevel": "high"}),
        ("label", {"targetId": "00000001", "label": "here"}),
        ("session_info", {"name": "A name"}),
        ("branch_summary", {"summary": "what was tried", "fromId": "00000001"}),
        ("context_edit", {"targetId": "00000001", "content": blocks("edited")}),
        ("usage", {"usage": {"input": 5}}),
    ],
)
def test_entries_of_other_types_are_part_of_the_branch_and_say_nothing(
    tmp_path: Path, kind: str, members: dict[str, Any]
) -> None:
    log = PiLog()
    log.user("question")
    log.entry(kind, **members)
    log.assistant("answer")
    log.entry(kind, **members)
    capture = capture_of(tmp_path, log)

    assert said(capture) == ["u:question", "a:answer"]
    assert (capture.captured_through_seq, diagnosed(capture)) == (4, [])


@pytest.mark.parametrize(
    "members",
    [
        {"type": "of_tomorrow", "message": {"role": "user", "content": "said in another way"}},
        {"type": "message", "message": {"role": "assistant", "parts": blocks("said in another way")}},
        {"type": "message", "id": None, "message": {"role": "user", "content": "without a place"}},
    ],
)
def test_what_somebody_says_in_a_way_that_is_not_known_is_counted(tmp_path: Path, members: dict[str, Any]) -> None:
    log = PiLog()
    question = log.user("question")
    log.entry("of_tomorrow")
    log.records[-1] |= members
    log.leaf = question
    log.assistant("answer")
    capture = capture_of(tmp_path, log)

    assert said(capture) == ["u:question", "a:answer"]
    assert diagnosed(capture) == ["unknown-events"]


def test_only_the_branch_of_the_last_entry_counts(tmp_path: Path) -> None:
    log = PiLog()
    _, answer, _, _ = log.talk("one", "two", "tried", "in vain")
    log.leaf = answer
    log.entry("branch_summary", summary="tried in vain", fromId="00000004")
    log.talk("three", "four")

    assert spoken(tmp_path, log) == ["u:one", "a:two", "u:three", "a:four"]


def test_going_back_without_a_word_more_counts_once_something_is_written_there(tmp_path: Path) -> None:
    log = PiLog()
    first, _, _ = log.talk("one", "two", "three")
    log.leaf = first
    assert spoken(tmp_path, log) == ["u:one", "a:two", "u:three"]
    log.entry("label", targetId=first, label="back here")

    assert spoken(tmp_path, log) == ["u:one"]


def test_of_several_roots_that_of_the_last_entry_counts(tmp_path: Path) -> None:
    log = PiLog()
    log.talk("old", "older")
    log.leaf = None
    log.talk("new", "newer")

    assert spoken(tmp_path, log) == ["u:new", "a:newer"]


@pytest.mark.parametrize("parents", [["00000003"], ["00000002"], ["00000001"], ["00000003", "00000002"]])
def test_a_cycle_of_parents_ends_where_it_closes(tmp_path: Path, parents: list[str]) -> None:
    log = PiLog()
    log.talk("one", "two", "three")
    for record, parent in zip(log.records[1:], parents, strict=False):
        record["parentId"] = parent
    texts = spoken(tmp_path, log)

    assert texts[-1] == "u:three"
    assert len(set(texts)) == len(texts)


def test_an_entry_whose_parent_was_lost_hangs_on_the_one_before_it(tmp_path: Path) -> None:
    log = PiLog()
    log.talk("one", "two", "three", "four")
    lines = log.content.split(b"\n")
    lines[2] = lines[2][:-10]
    capture = capture_of(tmp_path, b"\n".join(lines))

    assert said(capture) == ["u:one", "u:three", "a:four"]
    assert diagnosed(capture) == ["skipped-lines"]
    lines[1] = b""
    assert said(capture_of(tmp_path, b"\n".join(lines))) == ["u:three", "a:four"]


def test_an_entry_without_an_id_is_passed_over(tmp_path: Path) -> None:
    log = PiLog()
    log.user("one")
    answer = log.leaf
    log.entry("message", id=None, message={"role": "user", "content": "nowhere"})
    log.leaf = answer
    log.assistant("two")

    assert spoken(tmp_path, log) == ["u:one", "a:two"]


def test_a_compaction_comes_first_then_what_it_kept_then_the_rest(tmp_path: Path) -> None:
    log = PiLog()
    ids = log.talk("one", "two", "three", "four")
    log.compaction("what was said", ids[2])
    log.talk("five", "six")

    assert spoken(tmp_path, log) == ["c:what was said", "u:three", "a:four", "u:five", "a:six"]


@pytest.mark.parametrize(("kept", "texts"), [(0, ["u:one", "a:two", "u:three"]), (2, ["u:three"])])
def test_a_compaction_may_keep_all_or_only_the_last(tmp_path: Path, kept: int, texts: list[str]) -> None:
    log = PiLog()
    ids = log.talk("one", "two", "three")
    log.compaction("short", ids[kept])

    assert spoken(tmp_path, log) == ["c:short", *texts]


@pytest.mark.parametrize("first_kept", ["own", None, "deadbeef", "", 5])
def test_a_compaction_that_names_itself_or_nothing_that_is_there_keeps_nothing(tmp_path: Path, first_kept: Any) -> None:
    log = PiLog()
    log.talk("one", "two")
    identity = log.compaction("short", first_kept)
    if first_kept == "own":
        log.records[-1]["firstKeptEntryId"] = identity
    log.user("three")

    assert spoken(tmp_path, log) == ["c:short", "u:three"]


def test_of_several_compactions_the_last_counts_and_earlier_ones_are_not_kept(tmp_path: Path) -> None:
    log = PiLog()
    ids = log.talk("one", "two")
    log.compaction("first summary", ids[1])
    more = log.talk("three", "four")
    log.compaction("second summary", ids[1])
    log.user("five")
    assert spoken(tmp_path, log) == ["c:second summary", "a:two", "u:three", "a:four", "u:five"]

    log.compaction("third summary", more[1])
    assert spoken(tmp_path, log) == ["c:third summary", "a:four", "u:five"]


def test_a_compaction_of_an_abandoned_branch_does_not_count(tmp_path: Path) -> None:
    log = PiLog()
    ids = log.talk("one", "two", "three")
    log.compaction("of the other branch", ids[2])
    log.leaf = ids[1]
    log.user("instead")

    assert spoken(tmp_path, log) == ["u:one", "a:two", "u:instead"]


def test_a_compaction_keeps_nothing_of_an_abandoned_branch(tmp_path: Path) -> None:
    log = PiLog()
    ids = log.talk("one", "two", "abandoned")
    log.leaf = ids[1]
    log.user("three")
    log.compaction("short", ids[2])

    assert spoken(tmp_path, log) == ["c:short"]


@pytest.mark.parametrize("summary", ["", " ", None, 5])
def test_a_compaction_without_a_summary_still_hides_what_it_replaced(tmp_path: Path, summary: Any) -> None:
    log = PiLog()
    ids = log.talk("one", "two")
    log.compaction(summary, ids[1])

    assert spoken(tmp_path, log) == ["a:two"]
