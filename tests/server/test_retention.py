"""Retention, against a slow and literal implementation of the contract's words (section 4)."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from resolver_doubles import captured, checkpoint, never_cancelled, said
from sessionref.server.retention import Retained, RetentionError, retain, snapshot_object
from sessionref.server.store import Capture, ConversationItem

NOTICE = re.compile(r"\n\[… omitted ([0-9]+) UTF-8 bytes …\]\Z")


# The reference: every size is measured by writing, every common length is tried.


def written(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text).encode()


def written_text(text: str) -> int:
    return len(written(text)) - 2


def utf8(text: str) -> bytes:
    return re.sub("[\ud800-\udfff]", "\ufffd", text).encode()


def size_of(capture: Capture, label: str, texts: Sequence[tuple[str, str]]) -> int:
    return len(
        written(
            {
                "sessionId": capture.session_id,
                "label": label,
                "cwd": capture.cwd,
                "capturedThroughSeq": capture.captured_through_seq,
                "conversation": [{"role": role, "text": text} for role, text in texts],
            }
        )
    )


def whole_characters(raw: bytes) -> str:
    return raw.decode(errors="ignore")


def cuts(text: str) -> list[tuple[int, str, int]]:
    """Every way to shorten a text: its written size, the text, its omitted bytes; the way with least text first."""
    raw = utf8(text)
    ways: list[tuple[int, str, int]] = []
    for kept in range(len(raw)):
        head = whole_characters(raw[: (kept + 1) // 2])
        tail = whole_characters(raw[len(raw) - kept // 2 :])
        omitted = len(raw) - len(head.encode()) - len(tail.encode())
        shown = f"{head}{tail}\n[… omitted {omitted} UTF-8 bytes …]"
        ways.append((written_text(shown), shown, omitted))
    return ways


def shortened(text: str, ways: Sequence[tuple[int, str, int]], length: int) -> tuple[str, int]:
    if written_text(text) <= length:
        return text, 0
    for size, shown, omitted in reversed(ways):
        if size <= length:
            return shown, omitted
    return "", len(utf8(text))


@dataclass
class Expected:
    texts: Sequence[tuple[str, str]]
    omitted_messages: int
    omitted_bytes: int


def expected_of(capture: Capture, label: str, budget: int) -> Expected | int:
    """What is to be retained, or the size that does not fit."""
    left = list(capture.items)
    dropped: list[ConversationItem] = []
    while size_of(capture, label, [(item.role, item.text) for item in left]) > budget:
        at = next((at for at, item in enumerate(left[:-1]) if not item.checkpoint), None)
        if at is None:
            break
        dropped.append(left.pop(at))
    lost = sum(len(utf8(item.text)) for item in dropped)
    if size_of(capture, label, [(item.role, item.text) for item in left]) <= budget:
        return Expected([(item.role, item.text) for item in left], len(dropped), lost)
    all_ways = [cuts(item.text) for item in left]
    for length in range(max((written_text(item.text) for item in left), default=0), -1, -1):
        tried = [shortened(item.text, ways, length) for item, ways in zip(left, all_ways, strict=True)]
        texts = [(item.role, text) for item, (text, _) in zip(left, tried, strict=True)]
        if size_of(capture, label, texts) <= budget:
            return Expected(texts, len(dropped), lost + sum(omitted for _, omitted in tried))
    return size_of(capture, label, [(item.role, "") for item in left])


def fitted(capture: Capture, label: str, budget: int) -> Retained | RetentionError:
    try:
        return retain(capture, label, budget, never_cancelled)
    except RetentionError as error:
        return error


def retained_or_size(capture: Capture, label: str, budget: int) -> Expected | int:
    result = fitted(capture, label, budget)
    if isinstance(result, RetentionError):
        return result.size
    return Expected(shown_of(result), result.omitted_messages, result.omitted_bytes)


def shown_of(result: Retained) -> list[tuple[str, str]]:
    return [(item.role, item.text) for item in result.items]


def written_size(capture: Capture, label: str, result: Retained) -> int:
    return len(written(snapshot_object(capture, label, result.items)))


HALVES = ("\ud800", "\udbff", "\udc00", "\udfff")
ALPHABET = [
    "a",
    "b",
    " ",
    "<",
    '"',
    "\\",
    "\n",
    "\t",
    "\0",
    "\x1f",
    "\x7f",
    "é",
    "界",
    "\u2028",
    "\ufeff",
    "😀",
    "\u0301",
]


def halves_apart(text: str) -> str:
    """No two halves side by side: where they meet they would be one character."""
    return re.sub("([\ud800-\udfff])(?=[\ud800-\udfff])", r"\1-", text)


plain_texts = st.text(ALPHABET, min_size=1, max_size=110)
few_halves = st.tuples(plain_texts, st.sampled_from(HALVES), plain_texts).map("".join)
repeated = st.tuples(st.sampled_from(ALPHABET), st.integers(1, 150)).map(lambda drawn: drawn[0] * drawn[1])
texts = st.one_of(plain_texts, few_halves, repeated)
items = st.builds(ConversationItem, st.sampled_from(("user", "assistant")), texts, st.booleans())
ids = st.text(["s", "<", "é", '"', "\ud800"], max_size=5).map(halves_apart)


@st.composite
def captures(draw: st.DrawFn, conversation: st.SearchStrategy[ConversationItem] = items) -> tuple[Capture, str, int]:
    """A capture, a label, and a budget near the sizes where something happens."""
    capture = captured(
        draw(ids),
        *draw(st.lists(conversation, max_size=6)),
        cwd=draw(st.none() | st.sampled_from(("", "/srv/<x>", "/é"))),
        seq=draw(st.none() | st.integers(0, 10**6)),
    )
    label = draw(st.sampled_from(("label", "a<b", "界")))
    whole = size_of(capture, label, [(item.role, item.text) for item in capture.items])
    empty = size_of(capture, label, [(item.role, "") for item in capture.items])
    smallest = min(empty, size_of(capture, label, [("user", "")]))
    return capture, label, draw(st.integers(smallest - 2, whole + 1))


@settings(max_examples=400, deadline=None)
@given(captures())
def test_what_is_retained_is_what_the_contract_says(drawn: tuple[Capture, str, int]) -> None:
    capture, label, budget = drawn

    assert retained_or_size(capture, label, budget) == expected_of(capture, label, budget)


@settings(max_examples=150, deadline=None)
@given(captures(st.builds(ConversationItem, st.just("user"), texts, st.just(True))))
def test_checkpoints_that_do_not_fit_are_shortened_to_the_largest_common_length(
    drawn: tuple[Capture, str, int],
) -> None:
    capture, label, budget = drawn

    assert retained_or_size(capture, label, budget) == expected_of(capture, label, budget)


def test_text_full_of_lone_surrogates_is_shortened_to_the_largest_common_length_too() -> None:
    capture = captured("s", checkpoint("-".join(["\ud800"] * 100)), "x" * 2000)
    budget = size_of(capture, "s", [("user", ""), ("user", "")]) + 1000

    assert retained_or_size(capture, "s", budget) == expected_of(capture, "s", budget)


@settings(max_examples=100, deadline=None)
@given(
    captures(
        st.builds(
            ConversationItem,
            st.just("user"),
            st.text([*HALVES, "a"], min_size=1, max_size=120).map(halves_apart),
            st.just(True),
        )
    )
)
@example(
    (
        captured("s", checkpoint("-".join(["\ud800"] * 40)), "x" * 400),
        "s",
        size_of(captured("s"), "s", [("user", ""), ("user", "")]) + 430,
    )
)
def test_any_mixture_with_lone_surrogates_is_shortened_to_the_largest_common_length(
    drawn: tuple[Capture, str, int],
) -> None:
    capture, label, budget = drawn

    assert retained_or_size(capture, label, budget) == expected_of(capture, label, budget)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_budget_is_never_exceeded_and_the_counts_are_exact(data: st.DataObject) -> None:
    long_texts = st.tuples(texts, st.integers(1, 200)).map(lambda drawn: drawn[0] * drawn[1]).map(halves_apart)
    conversation = st.builds(ConversationItem, st.sampled_from(("user", "assistant")), long_texts, st.booleans())
    capture, label, budget = data.draw(captures(conversation))
    result = fitted(capture, label, budget)
    if isinstance(result, RetentionError):
        assert result.size > budget
        return

    assert written_size(capture, label, result) <= budget
    assert result.original_messages == len(capture.items)
    assert result.omitted_messages == len(capture.items) - len(result.items)
    assert result.truncated == (result.omitted_messages > 0 or result.omitted_bytes > 0)
    assert result.compacted == any(item.checkpoint for item in capture.items)
    shown = sum(len(utf8(NOTICE.sub("", item.text) if result.omitted_bytes else item.text)) for item in result.items)
    assert result.omitted_bytes == sum(len(utf8(item.text)) for item in capture.items) - shown


@settings(max_examples=100, deadline=None)
@given(captures())
def test_what_fits_is_the_very_conversation(drawn: tuple[Capture, str, int]) -> None:
    capture, label, _ = drawn
    whole = size_of(capture, label, [(item.role, item.text) for item in capture.items])
    result = retain(capture, label, whole, never_cancelled)

    assert result.items == capture.items
    assert (result.omitted_messages, result.omitted_bytes, result.truncated) == (0, 0, False)


@settings(max_examples=100, deadline=None)
@given(captures())
def test_one_byte_less_than_the_whole_omits_something(drawn: tuple[Capture, str, int]) -> None:
    capture, label, _ = drawn
    assume(capture.items)
    whole = size_of(capture, label, [(item.role, item.text) for item in capture.items])

    result = fitted(capture, label, whole - 1)
    assert result.size >= whole if isinstance(result, RetentionError) else result.truncated


LONG = {
    "letters": "abcdefghij" * 3000,
    "tags": "<" * 20_000,
    "quotes": '"\\' * 9000,
    "controls": "\0\x01\n" * 5000,
    "chinese": "界" * 9000,
    "emoji": "😀" * 7000,
    "mixed": "x<界😀\n" * 2500,
    "one half": "\ud800" + "é" * 9000,
    "odd": "a" + "😀" * 5000 + "bc",
}


@pytest.mark.parametrize("kept", [0, 34, 35, 40, 41, 500, 4095, 4096, 4097, 9001, 16_391])
@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_a_long_text_keeps_as_much_of_both_ends_as_fits(text: str, kept: int) -> None:
    capture = captured("s", text)
    fixed = size_of(capture, "s", [("user", "")])
    result = retain(capture, "s", fixed + kept, never_cancelled)

    shown = result.items[0].text
    if not shown:
        assert kept < written_text(f"\n[… omitted {len(utf8(text))} UTF-8 bytes …]")
        assert result.omitted_bytes == len(utf8(text))
        return
    notice = NOTICE.search(shown)
    assert notice is not None
    assert int(notice[1]) == result.omitted_bytes
    both = utf8(shown[: notice.start()])
    assert len(both) + result.omitted_bytes == len(utf8(text))
    assert any(
        utf8(text) == both[:cut] + utf8(text)[cut : cut + result.omitted_bytes] + both[cut:] for cut in half(both)
    )
    assert kept - 6 < written_text(shown) <= kept


def half(both: bytes) -> range:
    """Where the head may end: in the middle, at most the rest of a character away."""
    return range(max(0, len(both) // 2 - 4), min(len(both), len(both) // 2 + 4) + 1)


@pytest.mark.parametrize(
    ("text", "room", "shown"),
    [
        ("abcdefghijklmnopqrstuvwxyz" * 2, 41, "abcdxyz\n[… omitted 45 UTF-8 bytes …]"),
        ("abcdefghijklmnopqrstuvwxyz" * 2, 34, "\n[… omitted 52 UTF-8 bytes …]"),
        ("abcdefghijklmnopqrstuvwxyz" * 2, 33, ""),
        ("<" * 40, 46, "<<\n[… omitted 38 UTF-8 bytes …]"),
        ("<" * 40, 45, "<\n[… omitted 39 UTF-8 bytes …]"),
        ('"' * 50, 40, '"""\n[… omitted 47 UTF-8 bytes …]'),
        ("界" * 20, 42, "界界\n[… omitted 54 UTF-8 bytes …]"),
        ("😀" * 20, 42, "😀😀\n[… omitted 72 UTF-8 bytes …]"),
        ("😀" * 20, 38, "😀\n[… omitted 76 UTF-8 bytes …]"),
        ("\ufeff" + "k" * 60, 40, "\ufeffkkk\n[… omitted 57 UTF-8 bytes …]"),
        ("k" * 60 + "\ufeff", 40, "kkk\ufeff\n[… omitted 57 UTF-8 bytes …]"),
        ("\ud800" + "k" * 60 + "\udfff", 40, "\ufffd\ufffd\n[… omitted 60 UTF-8 bytes …]"),
    ],
)
def test_a_shortened_text_is_head_and_tail_and_a_line_that_counts(text: str, room: int, shown: str) -> None:
    capture = captured("s", text)
    result = retain(capture, "s", size_of(capture, "s", [("user", "")]) + room, never_cancelled)

    assert result.items[0].text == shown


def test_a_lone_surrogate_in_a_text_that_is_not_shortened_stays() -> None:
    capture = captured("s", checkpoint("half \ud83d"), "long " * 100)
    result = retain(capture, "s", size_of(capture, "s", [("user", "half \ud83d"), ("user", "")]) + 60, never_cancelled)

    assert result.items[0].text == "half \ud83d"
    assert result.items[1].text.startswith("long ")


@pytest.mark.parametrize("character", ["<", '"', "\n", "\x02"])
def test_text_that_is_written_longer_than_it_is_fills_its_budget(character: str) -> None:
    capture = captured("s", character * 10_000)
    result = retain(capture, "s", 5000, never_cancelled)

    assert written_size(capture, "s", result) > 5000 - 6
    assert character * 500 in result.items[0].text


def test_the_oldest_messages_are_dropped_first_and_no_more_than_needed() -> None:
    capture = captured("s", *(said(f"message {number}" * 5) for number in range(10)))
    last_three = size_of(capture, "s", [(item.role, item.text) for item in capture.items[7:]])
    result = retain(capture, "s", last_three, never_cancelled)

    assert result.items == capture.items[7:]
    assert result.omitted_messages == 7
    assert result.omitted_bytes == 7 * len("message 0" * 5)


def test_the_newest_message_is_kept_whoever_wrote_it() -> None:
    capture = captured("s", "older", said("newest", "assistant"))
    result = retain(capture, "s", size_of(capture, "s", [("assistant", "newest")]), never_cancelled)

    assert shown_of(result) == [("assistant", "newest")]


def test_a_checkpoint_keeps_its_place_while_messages_around_it_are_dropped() -> None:
    capture = captured("s", "before " * 9, checkpoint("summary"), "after " * 9, "newest")
    result = retain(capture, "s", size_of(capture, "s", [("user", "summary"), ("user", "newest")]), never_cancelled)

    assert shown_of(result) == [("user", "summary"), ("user", "newest")]
    assert (result.compacted, result.omitted_messages, result.original_messages) == (True, 2, 4)


def test_a_conversation_counts_as_compacted_also_when_all_of_it_fits() -> None:
    assert retain(captured("s", checkpoint("c"), "m"), "s", 10_000, never_cancelled).compacted
    assert not retain(captured("s", "c", "m"), "s", 10_000, never_cancelled).compacted


def test_short_texts_stay_whole_when_long_ones_are_shortened() -> None:
    capture = captured("s", checkpoint("short"), checkpoint("L" * 500), "M" * 400)
    empty = size_of(capture, "s", [("user", "")] * 3)
    result = retain(capture, "s", empty + 5 + 200, never_cancelled)

    assert result.items[0].text == "short"
    assert written_text(result.items[1].text) == written_text(result.items[2].text) == 100


def test_an_empty_conversation_fits_exactly_or_not_at_all() -> None:
    capture = captured("empty", seq=None)
    size = size_of(capture, "empty", [])
    result = retain(capture, "empty", size, never_cancelled)

    assert (result.items, result.original_messages, result.truncated) == ([], 0, False)
    with pytest.raises(RetentionError) as caught:
        retain(capture, "empty", size - 1, never_cancelled)
    assert caught.value.size == size


def test_what_cannot_fit_tells_its_size_with_empty_texts() -> None:
    capture = captured("s", "dropped", checkpoint("one " * 20), "two " * 20)
    smallest = size_of(capture, "s", [("user", ""), ("user", "")])

    assert [item.text for item in retain(capture, "s", smallest, never_cancelled).items] == ["", ""]
    with pytest.raises(RetentionError) as caught:
        retain(capture, "s", smallest - 1, never_cancelled)
    assert caught.value.size == smallest


def test_a_capture_is_not_changed_by_being_fitted() -> None:
    capture = captured("s", checkpoint("a" * 300), "b" * 300)
    retain(capture, "s", 300, never_cancelled)

    assert [item.text for item in capture.items] == ["a" * 300, "b" * 300]


def test_a_snapshot_object_has_its_keys_in_the_order_that_is_measured() -> None:
    capture = captured("id", said("hi", "assistant"), cwd=None, seq=None)

    assert list(snapshot_object(capture, "label", capture.items)) == [
        "sessionId",
        "label",
        "cwd",
        "capturedThroughSeq",
        "conversation",
    ]
    assert snapshot_object(capture, "label", capture.items)["conversation"] == [{"role": "assistant", "text": "hi"}]
    assert snapshot_object(capture, "label", [])["cwd"] is None


class Cancelled(BaseException):
    """What a check raises here."""


class CountedCheck:
    """A check that raises after so many calls."""

    def __init__(self, allowed: int | None = None) -> None:
        self.calls = 0
        self._allowed = allowed

    def __call__(self) -> None:
        if self.calls == self._allowed:
            raise Cancelled
        self.calls += 1


def many_checkpoints(number: int) -> Capture:
    return captured("s", *(checkpoint("text of a message " * 10) for _ in range(number)))


def test_a_cancel_interrupts_every_stage() -> None:
    capture = many_checkpoints(20)
    counted = CountedCheck()
    retain(capture, "s", 3000, counted)

    assert counted.calls > len(capture.items)
    for allowed in range(counted.calls):
        with pytest.raises(Cancelled):
            retain(capture, "s", 3000, CountedCheck(allowed))


def calls_of(function: Callable[[], object]) -> int:
    """How many functions are called, ours and the interpreter's: a measure of work that no clock disturbs."""
    number = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal number
        if event in ("call", "c_call"):
            number += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    return number


def work(capture: Capture, budget: int) -> int:
    return calls_of(lambda: retain(capture, "s", budget, never_cancelled))


def test_the_work_of_dropping_grows_with_the_messages_only() -> None:
    few, many = (captured("s", *(said(f"message {at}") for at in range(number))) for number in (250, 2000))

    assert work(many, 500) < 10 * work(few, 500)


def test_the_work_of_shortening_grows_with_the_messages_only() -> None:
    few, many = many_checkpoints(250), many_checkpoints(2000)

    assert work(many, 2000 * 60) < 10 * work(few, 250 * 60)


def test_the_work_of_shortening_one_text_hardly_grows_with_it() -> None:
    short, long = captured("s", "x" * 100_000), captured("s", "x" * 1_600_000)

    assert work(long, 65_536) < 2 * work(short, 65_536)


def test_the_checks_grow_with_the_messages_only() -> None:
    few, many = CountedCheck(), CountedCheck()
    retain(many_checkpoints(250), "s", 250 * 60, few)
    retain(many_checkpoints(2000), "s", 2000 * 60, many)

    assert many.calls < 10 * few.calls
