"""Reading a log in blocks of complete lines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_fixtures import zstd_frame
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.dsh import ReadingLimits
from sessionref.server.stores.frames import LogReader
from sessionref.server.stores.problems import Unreadable

SMALL = ReadingLimits(line_bytes=64, piece_bytes=16, compressed_bytes=8)
HEADER = b"header\n"


def no_check() -> None:
    pass


class Blocks:
    """What a reader gave for some bytes."""

    def __init__(
        self, content: bytes, *, compressed: bool = False, limits: ReadingLimits = SMALL, size: int | None = None
    ):
        descriptor = os.memfd_create("log") if hasattr(os, "memfd_create") else _temporary()
        try:
            os.write(descriptor, content)
            os.lseek(descriptor, 0, os.SEEK_SET)
            reader = LogReader(
                descriptor,
                len(content) if size is None else size,
                compressed=compressed,
                limits=limits,
                check=no_check,
            )
            self.blocks = list(reader.blocks())
            self.torn = reader.torn
        finally:
            os.close(descriptor)


def _temporary() -> int:
    import tempfile

    descriptor, name = tempfile.mkstemp()
    os.unlink(name)
    return descriptor


def refusal(content: bytes, *, compressed: bool = True, limits: ReadingLimits = SMALL) -> ReadFailedReason:
    with pytest.raises(Unreadable) as caught:
        Blocks(content, compressed=compressed, limits=limits)
    return caught.value.reason


lines = st.lists(st.binary(max_size=60).map(lambda line: line.replace(b"\n", b"") + b"\n"), max_size=12)


@given(lines, st.binary(max_size=40).map(lambda tail: tail.replace(b"\n", b"")))
def test_plain_blocks_hold_all_complete_lines_and_the_header_alone(rest: list[bytes], tail: bytes) -> None:
    given_ = Blocks(HEADER + b"".join(rest) + tail)
    assert given_.blocks[0] == HEADER
    assert b"".join(given_.blocks[1:]) == b"".join(rest)
    assert all(block.endswith(b"\n") for block in given_.blocks)
    assert given_.torn == bool(tail)


@given(st.lists(lines, max_size=5))
def test_compressed_frames_give_the_same_lines(frames: list[list[bytes]]) -> None:
    content = b"".join(map(zstd_frame, [HEADER, *map(b"".join, frames)]))
    given_ = Blocks(content, compressed=True)
    assert given_.blocks[0] == HEADER
    assert b"".join(given_.blocks[1:]) == b"".join(line for frame in frames for line in frame)
    assert not given_.torn


def test_a_compressed_log_cut_anywhere_gives_a_prefix_of_its_lines() -> None:
    last = b"".join(b"line %d %s\n" % (number, os.urandom(20).hex().encode()) for number in range(20))
    whole = [zstd_frame(HEADER), zstd_frame(b"second\n"), zstd_frame(last)]
    kept = len(whole[0]) + len(whole[1])
    for cut in range(kept + 1, kept + len(whole[2])):
        given_ = Blocks(b"".join(whole)[:cut], compressed=True)
        assert (HEADER + b"second\n" + last).startswith(b"".join(given_.blocks))
        assert b"".join(given_.blocks).endswith(b"\n")
        assert given_.torn
    assert not Blocks(b"".join(whole)[:kept], compressed=True).torn


@pytest.mark.parametrize(
    "content",
    [
        zstd_frame(HEADER + b"more\n"),
        zstd_frame(b"head") + zstd_frame(b"er\n"),
        zstd_frame(b"") + zstd_frame(HEADER),
        zstd_frame(HEADER) + zstd_frame(b"line\npart") + zstd_frame(b"of line\n"),
        zstd_frame(HEADER) + zstd_frame(b"line\npart"),
        zstd_frame(HEADER) + b"\x50\x2a\x4d\x18\x02\0\0\0ab",
        zstd_frame(HEADER) + b"not a frame",
        zstd_frame(HEADER) + b"\0",
        b"\x1f\x8b\x08\0" + b"\0" * 20,
        HEADER,
    ],
)
def test_anything_but_whole_lines_in_frames_behind_a_header_frame_is_corrupt(content: bytes) -> None:
    assert refusal(content) is ReadFailedReason.CORRUPT


def test_a_damaged_checksum_is_corrupt() -> None:
    frame = bytearray(zstd_frame(b"some line\n"))
    frame[-1] ^= 1
    assert refusal(zstd_frame(HEADER) + bytes(frame)) is ReadFailedReason.CORRUPT


def test_a_frame_that_asks_for_a_larger_window_is_too_large() -> None:
    # Magic, a descriptor without content size, and a window of 2 to the 28th.
    frame = b"\x28\xb5\x2f\xfd" + b"\x00" + bytes([(28 - 10) << 3]) + b"\x01\0\0"
    assert refusal(zstd_frame(HEADER) + frame) is ReadFailedReason.TOO_LARGE


@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_a_line_over_the_limit_is_too_large_even_if_it_never_ends(ending: bytes) -> None:
    long = b"x" * 65 + ending
    assert refusal(HEADER + long, compressed=False) is ReadFailedReason.TOO_LARGE
    assert refusal(zstd_frame(HEADER) + zstd_frame(long)) is ReadFailedReason.TOO_LARGE
    assert Blocks(HEADER + b"x" * 64 + ending).blocks[0] == HEADER


def test_a_small_frame_of_a_huge_line_is_refused_without_unpacking_it() -> None:
    bomb = zstd_frame(b"x" * 50_000_000)
    assert len(bomb) < 50_000
    assert refusal(zstd_frame(HEADER) + bomb, limits=ReadingLimits(line_bytes=1000)) is ReadFailedReason.TOO_LARGE


def test_what_is_appended_after_opening_is_not_read() -> None:
    given_ = Blocks(HEADER + b"one\ntwo\n", size=len(HEADER) + 4)
    assert given_.blocks == [HEADER, b"one\n"]
    assert not given_.torn


def test_a_log_that_shrinks_after_opening_ends_where_it_ends() -> None:
    given_ = Blocks(HEADER + b"one\n", size=1000)
    assert given_.blocks == [HEADER, b"one\n"]


def test_an_empty_log_has_no_blocks() -> None:
    assert Blocks(b"").blocks == []
    assert Blocks(b"", compressed=True).blocks == []


def test_the_cancellation_is_looked_at_in_every_step(tmp_path: Path) -> None:
    class Cancelled(Exception):
        pass

    left = 3

    def check() -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Cancelled

    path = tmp_path / "log"
    path.write_bytes(b"header\n" * 10_000)
    descriptor = os.open(path, os.O_RDONLY)
    reader = LogReader(descriptor, 70_000, compressed=False, limits=SMALL, check=check)
    with pytest.raises(Cancelled):
        list(reader.blocks())
    os.close(descriptor)
