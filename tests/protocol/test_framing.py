"""Framing: the same events however the bytes arrive, limits to the byte, and openings that must not drive a server."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sessionref.protocol.framing import (
    Broken,
    FrameDecoder,
    FrameEvent,
    Framing,
    Garbage,
    Message,
    TooLong,
    encode_frame,
)
from sessionref.protocol.limits import Limits

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LIMIT = 32
SMALL = Limits(max_message_bytes=LIMIT, max_header_bytes=64)


def events_of(*chunks: bytes, limits: Limits = SMALL, lenient: bool = False) -> list[FrameEvent]:
    """The events of a whole stream; `Broken` without its wording, which is not promised."""
    decoder = FrameDecoder(limits, lenient=lenient)
    events = [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.finish()
    return [Broken("") if isinstance(event, Broken) else event for event in events]


def byte_by_byte(stream: bytes) -> list[bytes]:
    return [stream[at : at + 1] for at in range(len(stream))]


def split_at(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(stream) + 1) for cut in cuts}), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


def header(length: int | bytes, *further: bytes, end: bytes = b"\r\n") -> bytes:
    digits = b"%d" % length if isinstance(length, int) else length
    return end.join([b"Content-Length: " + digits, *further, b"", b""])


def line_of(length: int) -> bytes:
    return b"{" + b"x" * (length - 2) + b"}"


framings: list[Framing] = ["line", "header"]
every_framing = pytest.mark.parametrize("framing", framings)
bodies = st.binary(max_size=LIMIT - 1).map(lambda inner: b"{" + inner.replace(b"\n", b" "))
LENGTH_2 = b"Content-Length: 2"
pieces = st.sampled_from(
    [
        *(b"{}", b"[1]", b"\n", b"\r\n", b" ", BYTE_ORDER_MARK, b"\xef", b"\xbb\xbf", b"x", b"POST / HTTP/1.1\r\n"),
        *(header(2), header(0), header(LIMIT + 1), header(5 * LIMIT), header(b"-1"), header(2, end=b"\n")),
        *(LENGTH_2, b"content-type: a\r\n", b"\r\n\r\n", b"C", b"X: " + b"z" * 24 + b"\r\n"),
        *(b"{" + b"y" * LIMIT, b"y" * LIMIT),
    ]
)
streams = st.lists(pieces, max_size=10).map(b"".join)


# --- Messages


@every_framing
def test_messages_come_out_as_they_were_framed(framing: Framing) -> None:
    messages = [b'{"a":1}', b"[1,2]", '{"é":"🐝"}'.encode()]
    stream = b"".join(encode_frame(framing, message) for message in messages)
    assert events_of(stream) == [Message(message) for message in messages]


def test_a_frame_of_lines_is_the_message_and_a_newline() -> None:
    assert encode_frame("line", b"{}") == b"{}\n"


def test_a_frame_with_a_header_counts_bytes() -> None:
    assert encode_frame("header", '"é"'.encode()) == b'Content-Length: 4\r\n\r\n"\xc3\xa9"'


@given(st.lists(bodies, min_size=1, max_size=6), st.sampled_from(framings), st.lists(st.integers(0, 400), max_size=12))
def test_messages_survive_any_splitting(messages: list[bytes], framing: Framing, cuts: list[int]) -> None:
    stream = b"".join(encode_frame(framing, message) for message in messages)
    assert events_of(*split_at(stream, cuts)) == [Message(message) for message in messages]


@every_framing
def test_every_single_split_position_gives_the_same_messages(framing: Framing) -> None:
    messages = [b'{"a":"\xc3\xa9"}', b"[]", b'{"b":[1,2]}']
    stream = BYTE_ORDER_MARK + b" \r\n" + b"".join(encode_frame(framing, message) for message in messages)
    for cut in range(len(stream) + 1):
        assert events_of(stream[:cut], stream[cut:]) == [Message(message) for message in messages]


@settings(max_examples=500)
@given(streams, st.lists(st.integers(0, 400), max_size=12), st.booleans())
@example(BYTE_ORDER_MARK * 2 + b"{}\n", [3], True)
@example(b"{" + b"y" * 5 * LIMIT + b"\n{}\n", [100], False)
@example(header(2, b"X: " + b"z" * 42) + b"{}", [63], False)
def test_any_stream_gives_the_same_events_however_it_is_split(stream: bytes, cuts: list[int], lenient: bool) -> None:
    whole = events_of(stream, lenient=lenient)
    assert events_of(*split_at(stream, cuts), lenient=lenient) == whole
    assert events_of(*byte_by_byte(stream), lenient=lenient) == whole


@given(st.binary(max_size=80), st.booleans())
def test_no_bytes_raise_and_nothing_follows_broken(stream: bytes, lenient: bool) -> None:
    events = events_of(stream, stream, lenient=lenient)
    assert Broken("") not in events[:-1]


def test_blank_lines_are_no_messages() -> None:
    assert events_of(b"\n\r\n{}\n \t\n\r\n[]\n\n") == [Message(b"{}"), Message(b"[]")]


def test_a_line_that_is_no_json_is_still_a_message_once_lines_are_spoken() -> None:
    assert events_of(b"{}\nPOST / HTTP/1.1\n{}\n") == [Message(b"{}"), Message(b"POST / HTTP/1.1"), Message(b"{}")]


def test_a_newline_inside_a_body_with_a_header_is_part_of_it() -> None:
    assert events_of(header(5) + b"{\n\n }" + header(2) + b"{}") == [Message(b"{\n\n }"), Message(b"{}")]


def test_the_bytes_given_out_do_not_change_with_what_comes_later() -> None:
    decoder = FrameDecoder(SMALL)
    (first,) = decoder.feed(b"{1}\n{2")
    decoder.feed(b"}\n")
    assert first == Message(b"{1}")


# --- The end of input


def test_a_last_line_needs_no_newline() -> None:
    decoder = FrameDecoder(SMALL)
    assert decoder.feed(b'{}\n{"last":1}') == [Message(b"{}")]
    assert decoder.finish() == [Message(b'{"last":1}')]
    assert decoder.finish() == []


@pytest.mark.parametrize(
    "stream",
    [
        *(b"", b" \r\n", BYTE_ORDER_MARK, b"\xef\xbb", b"{}\n  ", b"{" + b"y" * LIMIT, header(2) + b"{", header(2)),
        *(b"Content-Length: 2\r\n", b"C", b"x"),
    ],
)
def test_the_end_of_input_adds_nothing_to_what_is_unfinished(stream: bytes) -> None:
    decoder = FrameDecoder(SMALL, lenient=True)
    decoder.feed(stream)
    assert decoder.finish() == []


# --- Limits


@every_framing
def test_a_message_of_exactly_the_limit_is_taken(framing: Framing) -> None:
    stream = encode_frame(framing, line_of(LIMIT))
    assert events_of(stream) == [Message(line_of(LIMIT))]
    assert events_of(*byte_by_byte(stream)) == [Message(line_of(LIMIT))]


@pytest.mark.parametrize("length", [LIMIT + 1, LIMIT + 2, 2 * LIMIT, 4 * LIMIT])
@every_framing
def test_a_longer_message_is_reported_once_and_skipped_up_to_four_times_the_limit(
    framing: Framing, length: int
) -> None:
    stream = encode_frame(framing, line_of(length)) + encode_frame(framing, b"{}")
    told = length if framing == "header" else None
    assert events_of(stream) == [TooLong(LIMIT, told), Message(b"{}")]
    assert events_of(*byte_by_byte(stream)) == [TooLong(LIMIT, told), Message(b"{}")]


@pytest.mark.parametrize("chunk", [1, 10, LIMIT, 3 * LIMIT, 4 * LIMIT, 10_000])
@pytest.mark.parametrize("length", [4 * LIMIT + 2, 5 * LIMIT, 20 * LIMIT])
@every_framing
def test_past_four_times_the_limit_the_stream_is_broken(framing: Framing, length: int, chunk: int) -> None:
    stream = encode_frame(framing, line_of(length)) + encode_frame(framing, b"{}")
    told = length if framing == "header" else None
    assert events_of(*split_at(stream, list(range(0, len(stream), chunk)))) == [TooLong(LIMIT, told), Broken("")]


@every_framing
def test_every_message_may_be_too_long_anew(framing: Framing) -> None:
    stream = (encode_frame(framing, line_of(4 * LIMIT)) + encode_frame(framing, b"{}")) * 3
    told = 4 * LIMIT if framing == "header" else None
    assert events_of(*byte_by_byte(stream)) == [TooLong(LIMIT, told), Message(b"{}")] * 3


def test_a_line_is_known_to_be_too_long_before_it_ends() -> None:
    decoder = FrameDecoder(SMALL)
    assert decoder.feed(b"{" + b"y" * (LIMIT - 1)) == []
    assert decoder.feed(b"y") == [TooLong(LIMIT, None)]
    assert decoder.feed(b"y") == []


@pytest.mark.parametrize("chunk", [1, 7, 100])
@pytest.mark.parametrize(
    "stream",
    [
        *(b"{" + b"y" * 4000, b"[\n" * 2000, header(LIMIT) + b"y" * 4000, header(4 * LIMIT) + b"y" * 4000),
        *(b"Content-Length: 1\r\nX: " + b"y" * 4000, b"C" * 4000, b"x" * 4000, b" \n" * 2000, b"\r\n" * 2000),
        *(
            header(1) + b"1" + b"\r\n" * 2000,
            BYTE_ORDER_MARK + b" " * 4000,
            header(2) + b"{}" + b"Content-Length" * 300,
        ),
        *(b"{}\n" + b" " * 4000, b"Content-Type: " + b"\r\nA: " * 1000),
    ],
)
@pytest.mark.parametrize("lenient", [False, True])
def test_a_buffer_never_holds_more_than_a_limit_and_a_chunk(stream: bytes, chunk: int, lenient: bool) -> None:
    decoder = FrameDecoder(SMALL, lenient=lenient)
    for start in range(0, len(stream), chunk):
        decoder.feed(stream[start : start + chunk])
        held = sum(len(value) for value in vars(decoder).values() if isinstance(value, bytes | bytearray))
        assert held <= max(SMALL.max_message_bytes, SMALL.max_header_bytes) + chunk


def test_a_message_far_beyond_any_limit_is_not_waited_for() -> None:
    assert events_of(header(10**14)) == [TooLong(LIMIT, 10**14), Broken("")]


@pytest.mark.usefixtures("fail_safe")
@pytest.mark.parametrize("unit", [b"{}\n", header(0), header(2) + b"{}\r\n"])
def test_many_small_messages_in_one_chunk_cost_linear_work(unit: bytes) -> None:
    assert len(FrameDecoder(Limits()).feed(unit * 400_000)) == 400_000


# --- Headers


@pytest.mark.parametrize(
    "block",
    [
        *(b"Content-Length: 2\r\n\r\n", b"content-length: 2\r\n\r\n", b"CONTENT-LENGTH:2\r\n\r\n"),
        *(b"cOnTeNt-LeNgTh:   2   \r\n\r\n", b"Content-Length: 002\r\n\r\n"),
        *(b"Content-Length: 2\n\n", b"Content-Length: 2\n\r\n", b"Content-Length: 2\r\n\n"),
        *(b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n", b"Content-Length: 2\r\nX-More: a:b\r\nY:\r\n\r\n"),
        b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: 2\r\n\r\n",
        b"content-type: x\ncontent-length: 2\nz: 1\n\n",
    ],
)
def test_a_header_block_is_read_whatever_its_case_line_ends_and_further_headers(block: bytes) -> None:
    roomy = Limits(max_message_bytes=LIMIT)
    assert events_of(block + b"{}" + block + b"[]", limits=roomy) == [Message(b"{}"), Message(b"[]")]
    assert events_of(*byte_by_byte(block + b"{}"), limits=roomy) == [Message(b"{}")]


@pytest.mark.parametrize("length", ["", "-2", "+2", "2.0", "0x2", "2 2", "2, 2", "two", "٢", "9" * 40])
@pytest.mark.parametrize("lenient", [False, True])
def test_a_length_that_is_no_plain_number_breaks_the_stream(length: str, lenient: bool) -> None:
    block = header(length.encode())
    assert events_of(block + b"{}\n{}\n", lenient=lenient) == [Broken("")]
    assert events_of(header(2) + b"{}" + block, lenient=lenient) == [Message(b"{}"), Broken("")]


@pytest.mark.parametrize(
    "block",
    [
        b"Content-Type: application/json\r\n\r\n",
        header(2, b"Content-Length: 3"),
        header(2, b"content-length: 3"),
        header(2, b"no colon"),
    ],
)
@pytest.mark.parametrize("lenient", [False, True])
def test_a_missing_or_contradictory_length_breaks_the_stream(block: bytes, lenient: bool) -> None:
    assert events_of(block + b"{}\n{}\n", lenient=lenient) == [Broken("")]
    assert events_of(header(2) + b"{}" + block, lenient=lenient) == [Message(b"{}"), Broken("")]


def test_a_header_block_of_exactly_its_limit_is_read_and_a_longer_one_breaks_the_stream() -> None:
    first = b"Content-Length: 2\r\nX: "
    fitting = first + b"z" * (SMALL.max_header_bytes - len(first) - len(b"\r\n\r\n")) + b"\r\n\r\n"
    assert len(fitting) == SMALL.max_header_bytes
    too_long = fitting.replace(b"X: ", b"X: zzzzz")
    for stream, expected in ((fitting + b"{}", [Message(b"{}")]), (too_long + b"{}", [Broken("")])):
        assert events_of(stream) == expected
        assert events_of(*byte_by_byte(stream)) == expected


def test_a_header_block_that_never_ends_breaks_the_stream_at_the_limit() -> None:
    decoder = FrameDecoder(Limits())
    assert decoder.feed(b"Content-Length: 2\r\nX: ") == []
    events = [event for _ in range(9000) for event in decoder.feed(b"z")]
    assert [type(event) for event in events] == [Broken]


def test_an_empty_body_is_a_message_of_no_bytes() -> None:
    assert events_of(header(0) + header(2) + b"{}") == [Message(b""), Message(b"{}")]


# --- Openings

POST = b'POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}\n{"a":1}\n'


@pytest.mark.parametrize("start", [b"", BYTE_ORDER_MARK, b" \r\n\t", b"\n" + BYTE_ORDER_MARK + b"\r\n "])
@every_framing
def test_blanks_and_a_byte_order_mark_may_come_first_however_they_are_split(framing: Framing, start: bytes) -> None:
    stream = start + encode_frame(framing, b"{}")
    assert events_of(stream) == [Message(b"{}")]
    assert events_of(*byte_by_byte(stream)) == [Message(b"{}")]


@pytest.mark.parametrize(
    "opening", [POST, b"GET / HTTP/1.1\r\n\r\n{}\n", b'"a"\n{}\n', b"1\n{}\n", b"\x00{}\n", b"\x16\x03\x01{}\n"]
)
def test_a_strict_stream_is_broken_by_another_opening_before_any_message(opening: bytes) -> None:
    assert events_of(opening) == [Broken("")]
    assert events_of(*byte_by_byte(opening)) == [Broken("")]


@pytest.mark.parametrize(
    "name", [b"Connection: close", b"Cookie: a=b", b"Content-Encoding: br", b"Content-Length : 2", b"C"]
)
def test_a_strict_stream_is_broken_by_a_first_header_of_another_name(name: bytes) -> None:
    stream = name + b"\r\n" + header(2) + b"{}"
    assert events_of(stream) == [Broken("")]
    assert events_of(*byte_by_byte(stream)) == [Broken("")]


def test_the_first_header_is_judged_as_soon_as_it_differs() -> None:
    decoder = FrameDecoder(SMALL)
    assert decoder.feed(b"Content-") == []
    assert [type(event) for event in decoder.feed(b"E")] == [Broken]


def test_every_header_block_must_begin_with_one_of_the_two_names() -> None:
    assert events_of(header(2) + b"{}Host: x\r\n" + header(2) + b"{}", lenient=True) == [Message(b"{}"), Broken("")]


@pytest.mark.parametrize("garbage", [b"hello", b"POST / HTTP/1.1\r", b"Cookie: a", b"1", b"\xef\xbb\xef", b"x" * 1000])
@every_framing
def test_a_lenient_stream_skips_garbage_line_by_line_until_a_framing_is_spoken(
    framing: Framing, garbage: bytes
) -> None:
    stream = (garbage + b"\n") * 2 + encode_frame(framing, b"{}")
    assert events_of(stream, lenient=True) == [Garbage(), Garbage(), Message(b"{}")]
    assert events_of(*byte_by_byte(stream), lenient=True) == [Garbage(), Garbage(), Message(b"{}")]


def test_garbage_is_reported_when_it_begins() -> None:
    decoder = FrameDecoder(SMALL, lenient=True)
    assert decoder.feed(b"x") == [Garbage()]
    assert decoder.feed(b"y {} \n") == []
    assert decoder.feed(b"{}\n") == [Message(b"{}")]


# --- What the peer speaks


def test_answers_are_lines_until_the_peer_has_spoken() -> None:
    decoder = FrameDecoder(SMALL, lenient=True)
    assert decoder.framing == "line"
    decoder.feed(b"hello\n")
    assert decoder.framing == "line"


@every_framing
def test_answers_are_framed_as_the_peer_frames(framing: Framing) -> None:
    decoder = FrameDecoder(SMALL)
    decoder.feed(encode_frame(framing, b"{}"))
    assert decoder.framing == framing


@pytest.mark.parametrize("breaking", [header(5 * LIMIT), header(2) + b"{}POST", header(2) + b"{}" + header(b"x")])
def test_the_framing_is_kept_when_the_stream_breaks(breaking: bytes) -> None:
    decoder = FrameDecoder(SMALL)
    assert isinstance(decoder.feed(breaking)[-1], Broken)
    assert decoder.framing == "header"
    assert decoder.feed(b"{}\n" + header(2) + b"{}") == []
    assert decoder.finish() == []
    assert decoder.framing == "header"


def test_a_broken_stream_of_lines_answers_in_lines() -> None:
    decoder = FrameDecoder(SMALL)
    events = [event for byte in byte_by_byte(b"{" + b"y" * 6 * LIMIT) for event in decoder.feed(byte)]
    assert [type(event) for event in events] == [TooLong, Broken]
    assert decoder.framing == "line"
