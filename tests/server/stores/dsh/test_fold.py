"""The fold: surface, closers, and taking its state out anywhere."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_fixtures import (
    Event,
    assistant,
    checkpoint,
    descriptor,
    event,
    event_lines,
    packed_texts,
    step_end,
    step_start,
    text_blocks,
    title,
    tool_call,
    tool_result,
    turn_end,
    turn_start,
    user,
)
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.dsh import ReadingLimits
from sessionref.server.stores.dsh.fold import Fold
from sessionref.server.stores.dsh.records import EventDecoder
from sessionref.server.stores.problems import Unreadable


def feed(fold: Fold, lines: Sequence[bytes]) -> Fold:
    decoder = EventDecoder(fold.version, ReadingLimits())
    for line in lines:
        record = decoder.decode(line[:-1])
        assert record is not None, line
        assert fold.feed(record), line
    return fold


def folded(events: Sequence[Event], version: int = 4) -> Fold:
    return feed(Fold(version), event_lines(events, version))


def texts(fold: Fold) -> list[str]:
    return [item.text for item in fold.items()]


def refusal(events: Sequence[Event], version: int = 4) -> ReadFailedReason:
    with pytest.raises(Unreadable) as caught:
        folded(events, version)
    return caught.value.reason


def system(text: str = "prompt") -> Event:
    message = {"id": "s", "role": "system", "content": text_blocks(text), "source": {"kind": "system-prompt"}}
    return Event("system/message", {"turn": 1, "step": 1, "message": message}, surface=True)


TALK = [user("a"), assistant("b"), user("c")]


@pytest.mark.parametrize("version", range(5))
def test_a_replacement_stands_where_the_replaced_messages_stood(version: int) -> None:
    fold = folded([*TALK, checkpoint("k", version=version).replacing(0, 1)], version)
    assert [(item.text, item.checkpoint) for item in fold.items()] == [("k", True), ("c", False)]
    assert fold.captured_through_seq == 3


def test_a_range_is_found_by_position_and_may_start_at_the_higher_number() -> None:
    first = checkpoint("k", version=4).replacing(0, 1)
    second = checkpoint("l", version=4).replacing(3, 2, [2, 3])
    assert texts(folded([*TALK, first, second])) == ["l"]


@pytest.mark.parametrize(
    "event_",
    [
        checkpoint("k", version=4).replacing(2, 0, [[0, 2]]),
        checkpoint("k", version=4).replacing(0, 1, [0]),
        checkpoint("k", version=4).replacing(0, 2, [[0, 0], [2, 2]]),
        checkpoint("k", version=4).replacing(0, 9),
        checkpoint("k", version=4).replacing(3, 3),
        checkpoint("k", version=4).replacing(0, 1, [[1, 0]]),
        checkpoint("k", version=4).replacing(0, 1, [[0, 1, 2]]),
        Event("user/message", user("x").data),
        Event("user/message", user("x").data, members={"surfaceOp": "prepend"}),
        Event("user/message", user("x").data, members={"surfaceOp": None}),
        Event("user/message", user("x").data, members={"surfaceOp": {"op": "replace", "start": 0, "end": 0}}),
        Event("user/message", user("x").data, members={"surfaceOp": {"op": "replace", "startSeq": 0, "endSeq": 0}}),
        Event("user/message", user("x").data, members={"surfaceOp": {"op": "replace", "startSeq": 0, "endSeq": True}}),
        event("tool/call", surfaceOp="append"),
        event("turn/start", sourceEventSeqs=[0]),
        event("future/thing", surfaceOp="append"),
        event("future/thing", surfaceOp="append", ignorable=True),
        tool_result(version=4).replacing(0, 0),
    ],
)
def test_an_event_that_breaks_a_rule_of_the_surface_is_corrupt(event_: Event) -> None:
    assert refusal([*TALK, event_]) is ReadFailedReason.CORRUPT


def test_a_replaced_message_cannot_be_replaced_again() -> None:
    events = [*TALK, checkpoint("k", version=0).replacing(0, 1), checkpoint("l", version=0).replacing(1, 2)]
    assert refusal(events, 0) is ReadFailedReason.CORRUPT


def test_ranges_of_citations_may_overlap_and_are_never_expanded() -> None:
    cites: list[int | list[int]] = [[0, 2**53 - 1], [1, 1], 0]
    assert texts(folded([*TALK, checkpoint("k", version=4).replacing(0, 2, cites)])) == ["k"]


def test_a_tool_result_replaces_exactly_one_tool_result() -> None:
    events = [user("a"), tool_result(), tool_result("pruned").replacing(1, 1), tool_result()]
    assert len(folded(events, 3).surface()) == 3
    assert refusal([*events, tool_result().replacing(2, 3)], 3) is ReadFailedReason.CORRUPT


def test_the_system_prompt_at_the_head_gives_way_to_another_alone() -> None:
    events = [system(), user("a"), system("other").replacing(0, 0), system("second")]
    assert texts(folded([*events, checkpoint("k", version=4).replacing(1, 3)])) == ["k"]
    assert refusal([*events, checkpoint("k", version=4).replacing(2, 1, [1, 2])]) is ReadFailedReason.CORRUPT
    assert refusal([*events, system().replacing(2, 1, [1, 2])]) is ReadFailedReason.CORRUPT


@pytest.mark.parametrize(("kind", "known_from"), [("system/message", 3), ("developer/message", 4)])
def test_a_surface_type_is_unknown_before_its_format(kind: str, known_from: int) -> None:
    message = Event(kind, {"turn": 1, "step": 1, "message": user("x").data}, surface=True)
    assert texts(folded([user("a"), message], known_from)) == ["a"]
    assert refusal([user("a"), message], known_from - 1) is ReadFailedReason.CORRUPT


def test_unknown_types_without_a_surface_operation_are_passed_over_and_counted() -> None:
    fold = folded([user("a"), event("future/a"), event("future/b", ignorable=True), event("future/c"), user("b")])
    assert texts(fold) == ["a", "b"]
    assert fold.unknown_events == 2


@pytest.mark.parametrize(
    ("events", "position"),
    [
        ([], None),
        ([turn_start()], 1),
        ([turn_start(), step_start()], 3),
        ([turn_start(), step_start(), assistant("b", tool_call("x"), tool_call("y"))], 6),
        ([turn_start(), step_start(), assistant(tool_call("x"), tool_call("x"))], 5),
        ([turn_start(), step_start(), assistant(tool_call("x")), tool_result(call_id="x", version=4)], 5),
        ([turn_start(), step_start(), assistant(tool_call("x")), step_end()], 4),
        ([turn_start(), step_start(), assistant(tool_call("x")), turn_end()], 3),
        ([turn_start(), step_start(), assistant(tool_call("x")), turn_start()], 4),
        ([turn_start(), assistant(tool_call("x"))], 2),
        ([step_start(), assistant(tool_call("x"))], 1),
    ],
)
def test_the_position_includes_the_events_that_close_an_open_turn(events: list[Event], position: int | None) -> None:
    assert folded(events).captured_through_seq == position


def test_a_packed_row_takes_a_position_for_each_chunk() -> None:
    fold = folded([user("a"), packed_texts("x", "y", "z"), user("b")], 1)
    assert fold.captured_through_seq == 4
    assert texts(fold) == ["a", "b"]


def test_an_event_out_of_place_changes_nothing() -> None:
    fold = folded(TALK)
    before = fold.state()
    record = EventDecoder(4, ReadingLimits()).decode(user("x").line(9, 4)[:-1])
    assert record is not None
    assert not fold.feed(record)
    assert fold.state() == before


def test_the_last_title_and_the_last_descriptor_count() -> None:
    fold = folded([title("One"), descriptor("r"), title("Two"), title(""), title(None)])
    assert (fold.title, fold.agent_label) == ("Two", "r")
    assert folded([descriptor("r"), descriptor(version=9)]).agent_label is None


def test_a_conversation_over_its_limit_is_too_large_and_replaced_text_does_not_count() -> None:
    limits = ReadingLimits(conversation_bytes=10)
    events = [user("é" * 5), checkpoint("k", version=4).replacing(0, 0), user("x" * 9)]
    assert len(feed(Fold(4, limits), event_lines(events, 4)).items()) == 2
    with pytest.raises(Unreadable) as caught:
        feed(Fold(4, limits), event_lines([*events, user("y")], 4))
    assert (caught.value.reason, caught.value.limit) == (ReadFailedReason.TOO_LARGE, 10)


def test_twenty_thousand_replacements_take_linear_time() -> None:
    count = 20_000
    events = [user("x") for _ in range(count)]
    events += [user("y").replacing(seq, seq) for seq in range(count)]
    last = 2 * count - 1
    events.append(checkpoint("k", version=4).replacing(count, last, [[count, last]]))
    started = time.process_time()
    assert texts(folded(events)) == ["k"]
    assert time.process_time() - started < 10


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """Any mixture of messages, turns and valid replacements of the surface so far."""
    events: list[Event] = []
    surface: list[int] = []
    simple = [user("u"), user("", "é"), assistant("a", tool_call("x")), tool_result(call_id="x", version=4), title("t")]
    simple += [
        turn_start(),
        turn_end(),
        step_start(),
        step_end(),
        descriptor("d"),
        descriptor(version=7),
        event("new/x"),
    ]
    for _ in range(draw(st.integers(0, 25))):
        seq = len(events)
        replaces = draw(st.booleans())
        if surface and replaces:
            first = draw(st.integers(0, len(surface) - 1))
            last = draw(st.integers(first, len(surface) - 1))
            shadowed = surface[first : last + 1]
            events.append(checkpoint(f"k{seq}", version=4).replacing(shadowed[0], shadowed[-1], sorted(shadowed)))
            surface[first : last + 1] = [seq]
        else:
            events.append(draw(st.sampled_from(simple)))
            if events[-1].surface:
                surface.append(seq)
    return events


@given(logs())
def test_the_surface_equals_what_splicing_a_list_gives(events: list[Event]) -> None:
    surface: list[int] = []
    for seq, entry in enumerate(events):
        if entry.replaces:
            first, last = map(surface.index, entry.replaces)
            surface[first : last + 1] = [seq]
        elif entry.surface:
            surface.append(seq)
    assert [node.seq for node in folded(events).surface()] == surface


@given(logs())
def test_a_fold_resumed_at_any_event_ends_like_one_that_went_through(events: list[Event]) -> None:
    lines = event_lines(events, 4)
    whole = feed(Fold(4), lines)
    for at in range(len(lines) + 1):
        state = feed(Fold(4), lines[:at]).state()
        stored = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=type(state))
        resumed = feed(Fold.resume(stored), lines[at:])
        assert resumed.items() == whole.items()
        assert Fold.resume(resumed.state()).items() == whole.items()
        assert Fold.resume(resumed.state()).surface() == resumed.surface() == whole.surface()
        assert resumed.captured_through_seq == whole.captured_through_seq


def test_a_resumed_fold_knows_how_much_text_it_holds() -> None:
    limits = ReadingLimits(conversation_bytes=10)
    state = feed(Fold(4, limits), event_lines([user("x" * 8)], 4)).state()
    with pytest.raises(Unreadable):
        feed(Fold.resume(state, limits), [user("yyy").line(1, 4)])


def test_taking_the_state_does_not_stop_the_fold() -> None:
    fold = folded([user("a")])
    state = fold.state()
    feed(fold, [user("b").line(1, 4)])
    assert (texts(fold), texts(Fold.resume(state))) == (["a", "b"], ["a"])


def test_a_state_that_was_resumed_often_stays_whole() -> None:
    lines = event_lines([user(f"text {number}") for number in range(200)], 4)
    fold = Fold(4)
    for line in lines:
        fold = feed(Fold.resume(fold.state()), [line])
    assert fold.items() == feed(Fold(4), lines).items()
    assert len(fold.state().surface_parts) <= 65
    assert [node.seq for node in fold.surface()] == list(range(200))
