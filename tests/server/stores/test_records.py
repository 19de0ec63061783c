"""Lines to records: what is taken for absent, what costs its own line, and what refuses the log."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.problems import Unreadable
from sessionref.server.stores.records import RecordDecoder, RecordScan, ScanCounts, forgiving

LIMITS = ReadingLimits(line_bytes=2000, depth=20)


class Block(msgspec.Struct, frozen=True):
    """A part of a record."""

    type: str = ""
    text: str = ""


class Line(msgspec.Struct, frozen=True, rename="camel"):
    """A record with members of every kind that stores declare."""

    type: str
    parent_id: str | None = None
    number: int | None = None
    share: float = 0.5
    is_meta: bool = False
    content: str | list[Block] = ""
    names: list[str] | None = None
    block: Block | None = None
    rest: msgspec.Raw | None = None
    anything: Any = None
    maybe: str | msgspec.UnsetType = msgspec.UNSET


decoder = RecordDecoder(Line, LIMITS)


def decoded(line: str | bytes) -> Line | None:
    return decoder.decode(line if isinstance(line, bytes) else line.encode())


def record(**members: Any) -> Line | None:
    return decoded(json.dumps({"type": "t", **members}))


def refusal(line: bytes, limits: ReadingLimits = LIMITS) -> tuple[ReadFailedReason, int | None]:
    with pytest.raises(Unreadable) as caught:
        RecordDecoder(Line, limits).decode(line)
    return caught.value.reason, caught.value.limit


def scanned(blocks: list[bytes], tail: bytes = b"") -> tuple[list[Line], ScanCounts, bool]:
    """The records of some blocks and of what follows them, the counts, and whether that is whole."""
    found: list[Line] = []
    scan = RecordScan(decoder, found.append)
    for block in blocks:
        scan.feed(block)
    is_whole = scan.feed_open(tail)
    return found, scan.counts, is_whole


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
members = st.dictionaries(
    st.sampled_from([field.encode_name for field in msgspec.structs.fields(Line)] + ["unknown", "text"]), json_values
)


def test_a_record_has_the_members_that_it_declares_and_passes_over_the_others() -> None:
    content = [{"type": "text", "text": "hello", "id": 5}]

    assert record(parentId="p", number=3, isMeta=True, content=content, names=["a"], unknown={"x": 1}) == Line(
        "t", "p", 3, is_meta=True, content=[Block("text", "hello")], names=["a"]
    )


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("parentId", 5),
        ("parentId", ["p"]),
        ("number", "3"),
        ("number", 1.5),
        ("number", True),
        ("number", "\ud800"),
        ("share", "much"),
        ("share", None),
        ("isMeta", 1),
        ("isMeta", "true"),
        ("isMeta", None),
        ("content", 5),
        ("content", None),
        ("content", {"type": "text"}),
        ("names", "a"),
        ("names", {"a": 1}),
        ("block", "text"),
        ("block", [1]),
        ("maybe", 5),
        ("maybe", None),
    ],
)
def test_a_member_of_another_type_is_taken_for_absent_and_costs_nothing_else(member: str, value: Any) -> None:
    found = record(**{"content": "kept", "parentId": "kept", member: value})

    expected = {"content": "kept", "parentId": "kept"}
    expected.pop(member, None)
    assert found == forgiving({"type": "t", **expected}, Line)
    assert found is not None


def test_in_a_list_of_parts_what_is_none_is_left_out_and_the_others_stay() -> None:
    found = record(content=[{"type": "text", "text": "one"}, 5, None, "two", [], {"text": "three"}, {"type": 5}])

    assert found == Line("t", content=[Block("text", "one"), Block(text="three"), Block()])
    assert record(names=["a", 5, None, "b"]) == Line("t", names=["a", "b"])


def test_a_part_keeps_what_is_right_about_it() -> None:
    assert record(block={"type": 5, "text": "kept"}) == Line("t", block=Block(text="kept"))


@pytest.mark.parametrize(
    "line",
    [
        "5",
        "null",
        '"text"',
        "[]",
        '[{"type": "t"}]',
        "{}",
        '{"type": 5}',
        '{"type": null}',
        '{"Type": "t"}',
        '{"parentId": "p"}',
        "{",
        '{"type": "t"',
        '{"type": "t"} {"type": "t"}',
        '{"type": "t",}',
        "{'type': 't'}",
        '{"type": "t", "number": NaN}',
        '{"type": "t", "share": 1e999}',
        '{"type": "a\tb"}',
        '{"type": "t", "unknown": \\ud800}',
        "type: t",
        "\0",
        "\0" * 100,
        "",
        "\ufeff",
    ],
)
def test_what_is_no_record_is_none(line: str) -> None:
    assert decoded(line) is None


def test_nuls_around_a_record_are_what_a_crash_has_left_there() -> None:
    line = b'{"type": "t", "number": 5}'

    assert decoded(b"\0" * 512 + line) == decoded(line + b"\0") == Line("t", number=5)
    assert decoded(b'{"type": "t",\0 "number": 5}') is None
    assert decoded(b'{"type": "t", "content": "a\0b"}') is None


def test_bytes_that_are_no_text_are_replaced_where_they_stand() -> None:
    assert decoded(b'{"type": "t", "content": "a\xffb\xe4"}') == Line("t", content="a\ufffdb\ufffd")
    assert decoded(b'{"type": "t", "content": [{"text": "a\xed\xa0\x80b"}]}') == Line(
        "t", content=[Block(text="a\ufffd\ufffd\ufffdb")]
    )
    assert decoded(b'{"type": "t", "unknown\xff": "\xff", "content": "kept"}') == Line("t", content="kept")


def test_halves_of_characters_stay_as_they_are_and_meet_if_they_belong_together() -> None:
    assert decoded(r'{"type": "t", "content": "half \ud83d"}') == Line("t", content="half \ud83d")
    assert decoded(r'{"type": "t", "content": "\ud83d\ude00", "parentId": "\ud800"}') == Line(
        "t", "\ud800", content="😀"
    )
    assert decoded(r'{"type": "t", "content": [{"text": "\udead"}], "names": ["\ud800", 5]}') == Line(
        "t", content=[Block(text="\udead")], names=["\ud800"]
    )
    assert decoded(r'{"type": "t", "\ud800": 5, "content": "kept"}') == Line("t", content="kept")


def test_of_two_members_of_one_name_the_last_counts() -> None:
    assert decoded('{"type": "a", "type": "b"}') == Line("b")
    assert decoded('{"type": 5, "number": "x", "type": "b"}') == Line("b")


def test_members_of_any_shape_are_kept_as_they_are_or_as_json() -> None:
    found = decoded(r'{"type": "t", "anything": {"a": [1, "\ud800"]}, "rest": {"b": "\ud800"}, "number": "x"}')

    assert found is not None
    assert found.anything == {"a": [1, "\ud800"]}
    assert found.rest is not None
    assert json.loads(bytes(found.rest)) == {"b": "\ud800"}


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_nesting_is_limited_wherever_it_is(opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    inner = "1"

    def nested(levels: int) -> bytes:
        deep = opening * (levels - 1) + inner + closing * (levels - 1)
        return f'{{"type": "t", "unknown": {deep}}}'.encode()

    assert decoder.decode(nested(LIMITS.depth)) == Line("t")
    assert refusal(nested(LIMITS.depth + 1)) == (ReadFailedReason.TOO_LARGE, LIMITS.depth)
    standard = ReadingLimits()
    assert RecordDecoder(Line, standard).decode(nested(standard.depth)) == Line("t")
    assert refusal(nested(100_000), standard) == (ReadFailedReason.TOO_LARGE, standard.depth)
    assert refusal(opening.encode() * 100_000, standard) == (ReadFailedReason.TOO_LARGE, standard.depth)


def test_brackets_in_texts_are_no_nesting() -> None:
    assert record(content="[{" * 500) == Line("t", content="[{" * 500)


def test_a_line_over_the_limit_refuses_the_log() -> None:
    line = b'{"type": "t"}'.ljust(LIMITS.line_bytes)

    assert decoder.decode(line) == Line("t")
    assert refusal(line + b" ") == (ReadFailedReason.TOO_LARGE, LIMITS.line_bytes)


@given(st.binary())
def test_no_line_raises_anything_but_unreadable(line: bytes) -> None:
    with suppress(Unreadable):
        assert isinstance(decoder.decode(line), Line | None)


@given(members)
def test_any_object_is_a_record_if_it_has_what_one_must_have(fields: dict[str, Any]) -> None:
    found = RecordDecoder(Line, ReadingLimits()).decode(json.dumps(fields).encode())

    assert (found is not None) == isinstance(fields.get("type"), str)
    if found is not None:
        number, content = fields.get("number"), fields.get("content")
        assert found.type == fields["type"]
        assert found.number == (number if isinstance(number, int) and not isinstance(number, bool) else None)
        assert not isinstance(content, str) or found.content == content


@given(members)
def test_the_forgiving_way_comes_to_the_same_where_nothing_is_to_be_forgiven(fields: dict[str, Any]) -> None:
    try:
        typed = msgspec.json.decode(json.dumps(fields).encode(), type=Line)
    except (msgspec.DecodeError, ValueError):
        return
    found = forgiving(fields, Line)
    assert found is not None
    # Raw members compare by identity.
    assert msgspec.structs.replace(found, rest=None) == msgspec.structs.replace(typed, rest=None)


def test_positions_are_those_of_the_lines_and_blank_ones_do_not_count() -> None:
    block = b'{"type": "a"}\n\n  \t\r\n{"type": "b"}\r\nbroken\n{"type": "c"}\nbroken\n'
    found, counts, is_whole = scanned([block])

    assert [line.type for line in found] == ["a", "b", "c"]
    assert counts == ScanCounts(lines=5, skipped=2, last_record=3)
    assert is_whole


def test_lines_end_at_line_feeds_alone() -> None:
    said = "one\u2028two\u2029three\u0085four\x7f"
    line = b'{"type": "t", "content": "' + said.encode() + b'"}\n'
    found, counts, _ = scanned([line * 2])

    assert [line.content for line in found] == [said, said]
    assert counts == ScanCounts(lines=2, last_record=1)
    # What JSON does not allow in a text costs the line it stands in, and parts no line either.
    for control in "\x0b\x0c\x1c\x1d\x1e\r":
        found, counts, _ = scanned([f'{{"type": "t", "content": "a{control}b"}}\n{{"type": "u"}}\n'.encode()])
        assert [line.type for line in found] == ["u"]
        assert counts == ScanCounts(lines=2, skipped=1, last_record=1)


def test_what_follows_the_last_line_feed_is_a_record_or_an_unfinished_write() -> None:
    first = b'{"type": "a"}\n'

    assert scanned([first], b'{"type": "b"}') == ([Line("a"), Line("b")], ScanCounts(2, 0, 1), True)
    assert scanned([first], b'{"type": "b') == ([Line("a")], ScanCounts(1, 0, 0), False)
    assert scanned([first], b"\0\0\0") == ([Line("a")], ScanCounts(1, 0, 0), False)
    assert scanned([first], b"") == scanned([first], b" \r") == ([Line("a")], ScanCounts(1, 0, 0), True)


def test_a_scan_goes_on_from_the_counts_it_is_given() -> None:
    found: list[Line] = []
    scan = RecordScan(decoder, found.append, ScanCounts(lines=7, skipped=2, last_record=6))
    scan.feed(b'broken\n{"type": "a"}\n')

    assert scan.counts == ScanCounts(lines=9, skipped=3, last_record=8)


def test_what_a_fold_refuses_refuses_the_log() -> None:
    def refuse(_: Line) -> None:
        raise Unreadable(ReadFailedReason.NEWER_FORMAT)

    with pytest.raises(Unreadable) as caught:
        RecordScan(decoder, refuse).feed(b'{"type": "a"}\n')
    assert caught.value.reason is ReadFailedReason.NEWER_FORMAT


lines = st.lists(
    st.sampled_from([b'{"type": "a"}', b'{"type": "b", "content": "\xe2\x80\xa8"}', b"", b" ", b"no", b"\0", b"[1]"])
)


@given(lines, st.lists(st.integers(0, 30)), st.sampled_from([b"", b'{"type": "z"}', b'{"type', b" "]))
def test_how_lines_come_in_blocks_makes_no_difference(rows: list[bytes], cuts: list[int], tail: bytes) -> None:
    blocks: list[bytes] = []
    start = 0
    for end in sorted({min(cut, len(rows)) for cut in cuts} | {len(rows)}):
        blocks.append(b"".join(row + b"\n" for row in rows[start:end]))
        start = end

    assert scanned(blocks, tail) == scanned([b"".join(row + b"\n" for row in rows)], tail)
    counted = [row for row in rows if row.strip()]
    records = [at for at, row in enumerate(counted) if row.startswith(b"{")]
    _, counts, _ = scanned(blocks)
    assert counts == ScanCounts(len(counted), len(counted) - len(records), records[-1] if records else None)


@pytest.mark.parametrize("value", [None, 5, "text", [], [{"type": "t"}]])
def test_nothing_but_an_object_can_be_forgiven(value: Any) -> None:
    assert forgiving(value, Line) is None
    assert forgiving({}, Line) is None
    assert forgiving({}, Block) == Block()
