"""Logs in zstd frames, which end wherever a writer ended them."""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from dsh_fixtures import zstd_frame
from resolver_doubles import failure_of, never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.limits import ReadingLimits
from tiny_agent import FIRST, HEAD, PADDING, Tiny, diagnosed, line

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    return Tiny(tmp_path, compressed=True)


def test_frames_may_end_anywhere(tiny: Tiny) -> None:
    content = b"".join([*FIRST, line("user", "three")])
    for borders in ([], [1], [len(HEAD)], [len(HEAD) - 1, len(HEAD) + 5], [len(content) - 1], range(1, 40)):
        cuts = [0, *borders, len(content)]
        tiny.write(*[zstd_frame(content[a:b]) for a, b in pairwise(cuts)])
        assert tiny.texts() == ["one", "two" + PADDING, "three"]
        assert diagnosed(tiny.full()) == []


def test_a_log_keeps_no_state_and_is_read_whole_each_time(tiny: Tiny) -> None:
    tiny.write(zstd_frame(b"".join(FIRST)))
    assert tiny.again().state is None
    assert tiny.learn().resume == b""
    tiny.append(zstd_frame(line("user", "three")))
    assert tiny.texts()[2:] == ["three"]


def test_a_frame_that_breaks_off_is_torn_wherever_it_does(tiny: Tiny) -> None:
    whole = zstd_frame(b"".join(FIRST))
    more = zstd_frame(line("user", "three") + line("assistant", os.urandom(200).hex()))
    for cut in range(1, len(more)):
        tiny.write(whole, more[:cut])
        assert diagnosed(tiny.full()) == ["torn-tail"]
        assert tiny.texts()[:2] == ["one", "two" + PADDING]
    tiny.write(whole, more)
    assert diagnosed(tiny.full()) == []


def test_a_frame_that_breaks_off_behind_a_whole_record_is_torn_all_the_same(tiny: Tiny) -> None:
    compressor = zstd.ZstdCompressor()
    first = compressor.compress(b"".join(FIRST)[:-1], zstd.ZstdCompressor.FLUSH_BLOCK)
    rest = compressor.compress(b"\n" + line("user", "three"), zstd.ZstdCompressor.FLUSH_FRAME)
    tiny.write(first)
    assert tiny.texts() == ["one", "two" + PADDING]
    assert diagnosed(tiny.full()) == ["torn-tail"]
    tiny.write(first, rest)
    assert tiny.texts() == ["one", "two" + PADDING, "three"]
    assert diagnosed(tiny.full()) == []


def test_what_is_no_frame_is_corrupt(tiny: Tiny) -> None:
    frame = bytearray(zstd_frame(b"".join(FIRST)))
    frame[-1] ^= 1
    for content in (b"".join(FIRST), bytes(frame), zstd_frame(HEAD) + b"more", b"\0" * 100):
        tiny.write(content)
        assert tiny.refusal() is ReadFailedReason.CORRUPT


def test_a_small_frame_of_a_huge_line_is_refused(tiny: Tiny) -> None:
    tiny.write(zstd_frame(HEAD), zstd_frame(line("user", "x" * 10_000_000)))
    limits = ReadingLimits(line_bytes=1000)
    failure = failure_of(lambda: tiny.store(limits).capture("tiny:s", never_cancelled))

    assert failure.reason is ReadFailedReason.TOO_LARGE
