"""Header and event lines: what is accepted, and that both ways of decoding agree."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from dsh_fixtures import (
    Event,
    assistant,
    checkpoint,
    descriptor,
    event,
    header_line,
    packed_texts,
    plugin_message,
    title,
    tool_call,
    tool_result,
    turn_start,
    user,
)
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.dsh import ReadingLimits
from sessionref.server.stores.dsh.events import LOG_ONLY_TYPES, LogOnlyEvent, UnknownEvent, UserMessage
from sessionref.server.stores.dsh.header import LogHeader, parse_header, safe_integer
from sessionref.server.stores.dsh.records import EventDecoder
from sessionref.server.stores.problems import Unreadable

LIMITS = ReadingLimits()


def header(version: int = 0, /, **more: Any) -> LogHeader:
    return parse_header(header_line("s", version, more=more), LIMITS)


@pytest.mark.parametrize("version", range(5))
def test_a_header_names_the_session(version: int) -> None:
    made = header(version, cwd="/w", parentSession="p", agentPreset="x", origin="subagent", delegationDepth=2)
    assert made == LogHeader(version=version, session_id="s", created_at=1000, cwd="/w", is_subagent=True)
    assert not header(version).is_subagent


def test_a_number_that_javascript_takes_for_an_integer_is_one() -> None:
    line = b'{"type":"session","version":1.0,"id":"s","createdAt":1e3,"delegationDepth":0}\n'
    assert parse_header(line, LIMITS).created_at == 1000
    assert [safe_integer(value) for value in (2.0, 2.5, True, -0.0, 2**53, 1e300, "1", None)] == [2, *[None] * 7]


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"[]\n",
        b"nonsense\n",
        b'\xef\xbb\xbf{"type":"session","version":0,"id":"s","createdAt":1}\n',
        b'{"type":"session","version":0,"id":"s","createdAt":-0}\n',
        b'{"type":"session","version":0,"id":"s","createdAt":-0.0}\n',
        b'{"type":"session","version":0,"id":"s","createdAt":NaN}\n',
        b'{"type":"session","version":0,"id":"s","createdAt":1e999}\n',
        b'{"type":"session","version":0,"id":"s","createdAt":' + b"1" * 5000 + b"}\n",
    ],
)
def test_a_header_that_is_no_object_or_has_an_impossible_number_is_corrupt(line: bytes) -> None:
    with pytest.raises(Unreadable) as caught:
        parse_header(line, LIMITS)
    assert caught.value.reason is ReadFailedReason.CORRUPT


@pytest.mark.parametrize(
    ("version", "more"),
    [
        (0, {"type": "Session"}),
        (0, {"type": None}),
        (0, {"version": None}),
        (0, {"version": True}),
        (0, {"id": None}),
        (0, {"id": 7}),
        (0, {"id": ""}),
        (0, {"createdAt": None}),
        (0, {"createdAt": -1}),
        (0, {"createdAt": 1.5}),
        (0, {"createdAt": 2**53}),
        (0, {"createdAt": True}),
        (0, {"createdAt": "1"}),
        (0, {"cwd": ""}),
        (0, {"cwd": 1}),
        (0, {"parentSession": 1}),
        (0, {"agentPreset": []}),
        (0, {"origin": "user"}),
        (0, {"delegationDepth": -1}),
        (0, {"seedLength": "1"}),
        (0, {"sandboxMode": "x"}),
        (0, {"approvalPolicy": "x"}),
        (1, {"delegationDepth": None}),
        (1, {"other": 1}),
        (1, {"isSeeded": False}),
        (2, {"isSeeded": None}),
        (2, {"isSeeded": 0}),
        (2, {"seedLength": 0}),
        (4, {"other": 1}),
    ],
)
def test_a_header_that_breaks_a_rule_of_its_format_is_corrupt(version: int, more: dict[str, Any]) -> None:
    with pytest.raises(Unreadable) as caught:
        header(version, **more)
    assert caught.value.reason is ReadFailedReason.CORRUPT


def test_the_first_format_may_have_unknown_members_and_lack_the_depth() -> None:
    assert header(0, other=1, delegationDepth=None, seedLength=3).version == 0
    with pytest.raises(Unreadable):
        parse_header(b'{"type":"session","version":0,"id":"s","createdAt":1,"cwd":null}', LIMITS)


def test_halves_of_a_character_in_an_id_are_joined() -> None:
    line = b'{"type":"session","version":0,"id":"\\ud83d\\ude00\\ud800","createdAt":1}'
    assert parse_header(line, LIMITS).session_id == "😀\ud800"


def test_a_header_nested_too_deep_is_too_large() -> None:
    line = b'{"type":"session","version":0,"id":"s","createdAt":1,"x":' + b"[" * 600 + b"]" * 600 + b"}"
    with pytest.raises(Unreadable) as caught:
        parse_header(line, LIMITS)
    assert (caught.value.reason, caught.value.limit) == (ReadFailedReason.TOO_LARGE, 512)


EVENTS = [
    user("a", "b"),
    user("hidden", kind="goal", extra={"deep": [1]}),
    checkpoint("k", version=0).replacing(0, 3, [0, [1, 3]]),
    plugin_message("p", 0),
    assistant("text", tool_call(), {"type": "reasoning", "text": "r"}, {"type": "odd", "text": 7, "id": {}}),
    tool_result(),
    turn_start(),
    title("T"),
    descriptor(),
    event("goal/change", {"x": 1}),
    event("new/thing", {"x": 1}, ignorable=True),
    packed_texts("x", "y"),
]


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("entry", EVENTS, ids=lambda entry: str(entry.type))
def test_a_line_with_a_lone_surrogate_decodes_to_the_same_event(entry: Event, version: int) -> None:
    decoder = EventDecoder(version, LIMITS)
    line = entry.line(5, version)[:-1]
    slow = decoder.decode(line.replace(b'"seq":5', b'"seq":5.0').replace(b'"seq0":5', b'"seq0":5.0'))
    fast = decoder.decode(line)
    assert type(fast) is type(slow)
    assert _comparable(fast) == _comparable(slow)


def _comparable(record: Any) -> Any:
    """The members that are looked at, and the citations by value."""
    if record is None or isinstance(record, LogOnlyEvent | UnknownEvent):
        return record and record.seq
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    cited = fields.pop("source_event_seqs", None)
    fields = {name: value for name, value in fields.items() if not isinstance(value, Raw)}
    return fields, json.loads(bytes(cited)) if isinstance(cited, Raw) else None


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("kind", LOG_ONLY_TYPES)
def test_a_known_type_is_never_reported_as_unknown(kind: str, version: int) -> None:
    for data in ({"x": "\ud800"}, {"x": "y"}):
        assert isinstance(EventDecoder(version, LIMITS).decode(event(kind, data).line(0, version)[:-1]), LogOnlyEvent)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"7",
        b"[]",
        b"{}",
        b'{"type":7,"seq":0,"time":0,"data":{}}',
        b'{"type":"turn/start","time":0,"data":{}}',
        b'{"type":"turn/start","seq":true,"time":0,"data":{}}',
        b'{"type":"turn/start","seq":0.5,"time":0,"data":{}}',
        b'{"type":"turn/start","seq":"0","time":0,"data":{}}',
        b'{"type":"turn/start","seq":NaN,"time":0,"data":{}}',
        b'\xef\xbb\xbf{"type":"turn/start","seq":0,"time":0,"data":{}}',
        b'{"type":"turn/start","seq":0,"time":0,"data":{}} {}',
        b'{"type":"user/message","seq":0,"time":0,"data":7,"surfaceOp":"append"}',
    ],
)
@pytest.mark.parametrize("version", [0, 4])
@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_a_line_that_is_no_event_is_told_apart(line: bytes, ending: bytes, version: int) -> None:
    assert EventDecoder(version, LIMITS).decode(line + ending) is None


@pytest.mark.parametrize(
    "members", [{"other": 1}, {"time": "x"}, {"time": 2**53}, {"time": 0.5}, {"sourceEventSeq": []}]
)
@pytest.mark.parametrize("kind", ["turn/start", "new/thing", "goal/change"])
def test_an_envelope_is_strict_from_the_third_format_on(members: dict[str, Any], kind: str) -> None:
    line = event(kind, **members).line(0, 2)[:-1]
    assert EventDecoder(1, LIMITS).decode(line) is not None
    assert EventDecoder(2, LIMITS).decode(line) is None


@pytest.mark.parametrize(
    "data",
    [
        {"turn": 1, "step": 1, "index": 0, "dt": [], "texts": ["x"], "more": 1},
        {"turn": 1, "step": 1, "index": 0, "texts": ["x"]},
        {"turn": 1, "step": 1, "dt": [], "texts": ["x"]},
    ],
)
def test_a_malformed_packed_row_is_no_event(data: dict[str, Any]) -> None:
    row = Event("text-chunks", {"dt": []}).line(0, 1).replace(b'{"dt":[]}', json.dumps(data).encode())
    assert EventDecoder(1, LIMITS).decode(row[:-1]) is None


def test_packed_rows_end_with_the_second_format() -> None:
    row = packed_texts("x", "y").line(0, 1)[:-1]
    assert EventDecoder(1, LIMITS).decode(row) is not None
    assert EventDecoder(2, LIMITS).decode(row) is None


def test_the_type_of_a_packed_row_is_an_unknown_one_from_the_third_format_on() -> None:
    line = b'{"type":"text-chunks","seq":0,"time":0,"data":{"dt":[]}}'
    assert EventDecoder(1, LIMITS).decode(line) is None
    assert isinstance(EventDecoder(2, LIMITS).decode(line), UnknownEvent)


@pytest.mark.parametrize("text", [b"", b"x" * 1_000_000, b"[" * 1000, b"{x" * 100_000], ids=len)
@pytest.mark.parametrize(("depth", "fits"), [(509, True), (513, False), (100_000, False)])
def test_a_line_nested_deeper_than_the_limit_is_too_large(depth: int, fits: bool, text: bytes) -> None:
    nested = b'["%s",' % text + b"[" * (depth - 1) + b"]" * depth
    for kind, value in (("tool/call", nested), ("new/thing", nested), ("subagent/descriptor", nested)):
        line = b'{"type":"%s","seq":0,"time":0,"data":{"x":%s}}' % (kind.encode(), value)
        if fits:
            assert EventDecoder(4, LIMITS).decode(line) is not None
        else:
            with pytest.raises(Unreadable) as caught:
                EventDecoder(4, LIMITS).decode(line)
            assert caught.value.reason is ReadFailedReason.TOO_LARGE


@pytest.mark.parametrize("ending", [b"", b"\n"])
@pytest.mark.parametrize("length", [100, 5000])
def test_a_line_longer_than_the_limit_is_too_large(length: int, ending: bytes) -> None:
    line = user("x" * length).line(0, 0)[:-1]
    assert EventDecoder(0, ReadingLimits(line_bytes=len(line))).decode(line + ending) is not None
    with pytest.raises(Unreadable) as caught:
        EventDecoder(0, ReadingLimits(line_bytes=len(line) - 1)).decode(line + ending)
    assert caught.value.reason is ReadFailedReason.TOO_LARGE


@given(st.binary())
def test_bytes_that_are_no_text_are_replaced_as_the_writer_does(raw: bytes) -> None:
    safe = raw.replace(b'"', b"").replace(b"\\", b"")
    safe = bytes(byte for byte in safe if byte >= 0x20)
    line = user("MARK").line(0, 0)[:-1].replace(b"MARK", safe)
    record = EventDecoder(0, LIMITS).decode(line)
    assert isinstance(record, UserMessage)
    assert record.data.content is not None
    assert record.data.content[0].text == safe.decode("utf-8", "replace")
