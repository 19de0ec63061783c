from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionref.protocol.framing import Broken, FrameEvent, Garbage, Message, TooLong
from sessionref.protocol.limits import Limits
from sessionref.server.transport import StreamTransport, TransportBroken

LIMITS = Limits(max_message_bytes=64)


class ByteDouble:
    """A byte stream that delivers given pieces, then its end, or breaks."""

    def __init__(self, pieces: Sequence[bytes], *, breaks: bool = False) -> None:
        self.pieces = list(pieces)
        self.breaks = breaks
        self.reads_after_end = 0
        self.written: list[bytes] = []
        self.closed = 0

    async def receive_some(self) -> bytes:
        if self.pieces:
            return self.pieces.pop(0)
        if self.breaks:
            raise TransportBroken
        self.reads_after_end += 1
        return b""

    async def send_all(self, data: bytes) -> None:
        if self.breaks:
            raise TransportBroken
        self.written.append(data)

    def has_ended(self) -> bool:
        return False

    async def aclose(self) -> None:
        self.closed += 1


async def received(stream: ByteDouble, *, lenient: bool = False) -> list[FrameEvent]:
    """All events up to the end of input."""
    transport = StreamTransport(stream, LIMITS, lenient=lenient)
    events: list[FrameEvent] = []
    while (event := await transport.receive()) is not None:
        events.append(event)
    return events


async def test_the_messages_of_one_piece_come_one_by_one_in_order() -> None:
    assert await received(ByteDouble([b'{"a":1}\n\n[2]\r\n{"a":3}\n'])) == [
        Message(b'{"a":1}'),
        Message(b"[2]\r"),
        Message(b'{"a":3}'),
    ]


async def test_a_last_line_needs_no_newline() -> None:
    assert await received(ByteDouble([b"{}\n[", b"1]"])) == [Message(b"{}"), Message(b"[1]")]


@given(cuts=st.lists(st.integers(0, 200), max_size=12), is_line=st.booleans())
@settings(max_examples=100, deadline=None)
async def test_messages_are_the_same_however_their_bytes_arrive(cuts: list[int], is_line: bool) -> None:
    bodies = [b'{"id":1}', b"[]", b'{"text":"' + "é😀".encode() + b'"}']
    if is_line:
        data = b"".join(body + b"\n" for body in bodies)
    else:
        data = b"".join(b"Content-Length: %d\r\n\r\n%b" % (len(body), body) for body in bodies)
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    pieces = [data[start:end] for start, end in pairwise(edges)]
    assert await received(ByteDouble(pieces)) == [Message(body) for body in bodies]


async def test_the_end_of_input_stays_the_end() -> None:
    stream = ByteDouble([b"{}\n"])
    transport = StreamTransport(stream, LIMITS)
    assert await transport.receive() == Message(b"{}")
    assert await transport.receive() is None
    assert await transport.receive() is None
    assert stream.reads_after_end == 1


async def test_what_is_unfinished_at_the_end_of_input_is_dropped() -> None:
    assert await received(ByteDouble([b"Content-Length: 10\r\n\r\n{}"])) == []


async def test_a_message_that_is_too_long_is_an_event_and_the_next_is_read() -> None:
    assert await received(ByteDouble([b"[" + b" " * 100, b"]\n{}\n"])) == [TooLong(64, None), Message(b"{}")]
    head = b"Content-Length: 100\r\n\r\n" + b"[" * 100
    assert await received(ByteDouble([head, b"Content-Length: 2\r\n\r\n{}"])) == [TooLong(64, 100), Message(b"{}")]


async def test_garbage_is_an_event_on_a_lenient_stream_and_breaks_any_other() -> None:
    pieces = [b"hello\n", b"{}\n"]
    assert await received(ByteDouble(pieces), lenient=True) == [Garbage(), Message(b"{}")]
    assert [type(event) for event in await received(ByteDouble(pieces))] == [Broken]


async def test_a_stream_that_breaks_while_it_is_read_says_so_after_what_had_arrived() -> None:
    transport = StreamTransport(ByteDouble([b"{}\n"], breaks=True), LIMITS)
    assert await transport.receive() == Message(b"{}")
    with pytest.raises(TransportBroken):
        await transport.receive()


@pytest.mark.parametrize(
    ("spoken", "written"),
    [
        (b"", b"1\n22\n"),
        (b"{}\n", b"1\n22\n"),
        (b"nonsense\n", b"1\n22\n"),
        (b"Content-Length: 2\r\n\r\n{}", b"Content-Length: 1\r\n\r\n1Content-Length: 2\r\n\r\n22"),
        (b"content-type: a\ncontent-length: 2\n\n{}", b"Content-Length: 1\r\n\r\n1Content-Length: 2\r\n\r\n22"),
    ],
)
async def test_answers_are_written_in_one_piece_in_the_framing_of_the_peer(spoken: bytes, written: bytes) -> None:
    stream = ByteDouble([spoken] if spoken else [])
    transport = StreamTransport(stream, LIMITS, lenient=True)
    await transport.receive()
    await transport.send([b"1", b"22"])
    assert stream.written == [written]


async def test_a_stream_that_breaks_while_it_is_written_says_so() -> None:
    transport = StreamTransport(ByteDouble([], breaks=True), LIMITS)
    with pytest.raises(TransportBroken):
        await transport.send([b"1"])


async def test_closing_closes_the_stream() -> None:
    stream = ByteDouble([])
    await StreamTransport(stream, LIMITS).aclose()
    assert stream.closed == 1
