"""Where reading goes on: only in the very log that was read before (issue 4, position.py)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_fixtures import DshHome, event, header_line, user, zstd_frame
from resolver_doubles import never_cancelled
from sessionref.server.stores.dsh import ReadingLimits
from sessionref.server.stores.dsh.sessions import KnownLog, OpenLog, Place, open_log
from sessionref.server.stores.folders import Folder
from sessionref.server.stores.frames import CHECKED_BYTES
from sessionref.server.stores.position import (
    LogPosition,
    continues,
    decode_state,
    encode_state,
)

PADDED = [event("tool/call", {"output": str(number) * 900}) for number in range(20)]
PLACE = Place("_no-cwd", "s")


class Text(msgspec.Struct, array_like=True):
    """A state of one text."""

    text: str


@pytest.fixture
def home(tmp_path: Path) -> DshHome:
    return DshHome(tmp_path / "home")


@contextmanager
def opened(home: DshHome, known: KnownLog | None = None) -> Generator[OpenLog]:
    with Folder.root(home.sessions) as root, open_log(root, PLACE, ReadingLimits(), never_cancelled, known) as log:
        assert log is not None
        yield log


def position_of(home: DshHome) -> LogPosition:
    with opened(home) as log:
        for _ in log.blocks:
            pass
        found = log.position()
    assert found is not None
    return found


def is_continued(home: DshHome, position: LogPosition) -> bool:
    with opened(home) as log:
        return continues(position, log.name.name, log.file) is not None


@pytest.fixture(params=[False, True], ids=["plain", "zstd"])
def log(request: pytest.FixtureRequest, home: DshHome) -> Path:
    return home.write("s", PADDED, compressed=bool(request.param), lines_a_frame=1)


def written(log: Path, line: bytes) -> bytes:
    return zstd_frame(line) if log.suffix == ".zstd" else line


def appended(log: Path, content: bytes) -> None:
    with log.open("ab") as file:
        file.write(content)


def test_a_position_is_the_end_of_what_was_read(home: DshHome, log: Path) -> None:
    position = position_of(home)
    size = log.stat().st_size

    assert (position.name, position.inode) == (log.name, log.stat().st_ino)
    assert (position.offset, position.size) == (size, size)
    assert position.header_end == len(written(log, header_line("s")))


def test_the_same_log_and_a_grown_one_are_continued(home: DshHome, log: Path) -> None:
    position = position_of(home)
    assert is_continued(home, position)
    for number in range(3):
        appended(log, written(log, user("x" * 5000).line(20 + number, 0)))
        assert is_continued(home, position)


def test_an_unfinished_write_is_behind_the_position_whether_it_is_finished_or_not(home: DshHome, log: Path) -> None:
    content = written(log, user("x" * 5000).line(20, 0))
    before = log.stat().st_size
    appended(log, content[:-9])
    position = position_of(home)
    assert (position.offset, position.size) == (before, before + len(content) - 9)
    appended(log, content[-9:])

    assert is_continued(home, position)


@pytest.mark.parametrize("less", [1, 9, 5000])
def test_a_log_that_shrank_is_not_continued_even_if_only_what_was_torn_is_gone(
    home: DshHome, log: Path, less: int
) -> None:
    appended(log, written(log, user("x" * 9000).line(20, 0))[:-9])
    position = position_of(home)
    os.truncate(log, max(log.stat().st_size - less, len(written(log, header_line("s"))) + 1))

    assert not is_continued(home, position)


def test_a_copy_in_the_place_of_the_log_is_not_continued(home: DshHome, log: Path) -> None:
    position = position_of(home)
    copy = log.with_name("copy.tmp")
    shutil.copyfile(log, copy)
    os.replace(copy, log)

    assert not is_continued(home, position)


def test_another_header_is_not_continued(home: DshHome) -> None:
    log = home.write("s", PADDED, created_at=1000)
    position = position_of(home)
    content = log.read_bytes()
    with log.open("r+b") as file:
        file.write(content.replace(b":1000,", b":2000,", 1))

    assert not is_continued(home, position)


def test_another_byte_anywhere_in_the_checked_part_is_not_continued(home: DshHome) -> None:
    log = home.write("s", PADDED)
    position = position_of(home)
    for back in (1, 2, 1000, CHECKED_BYTES - 1, CHECKED_BYTES):
        at = position.offset - back
        with log.open("r+b") as file:
            file.seek(at)
            (byte,) = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ 1]))
            file.flush()
            os.utime(log, ns=(position.modified_ns, position.modified_ns))
            assert not is_continued(home, position)
            file.seek(at)
            file.write(bytes([byte]))
        os.utime(log, ns=(position.modified_ns, position.modified_ns))
        assert is_continued(home, position)


def test_a_position_does_not_hold_for_another_generation_or_encoding(home: DshHome, log: Path) -> None:
    position = position_of(home)
    with opened(home) as opened_log:
        for name in ("session.v1.jsonl", "session.jsonl.x"):
            assert not continues(position, name, opened_log.file)


def test_a_header_alone_can_be_continued(home: DshHome) -> None:
    log = home.write("s")
    position = position_of(home)
    assert position.offset == position.header_end == log.stat().st_size
    appended(log, user("x").line(0, 0))

    assert is_continued(home, position)


def test_the_offset_and_size_of_a_position_are_checked_against_each_other(home: DshHome, log: Path) -> None:
    position = position_of(home)

    assert not is_continued(home, msgspec.structs.replace(position, size=position.offset - 1))
    assert not is_continued(home, msgspec.structs.replace(position, size=position.size + 1))


def test_lines_of_a_frame_that_is_not_finished_have_no_position_behind_them(home: DshHome) -> None:
    # Enough that the frame has several blocks: only whole blocks can be decompressed of an unfinished one.
    lines = b"".join(user(os.urandom(30_000).hex()).line(number, 0) for number in range(10))
    log = home.write("s", compressed=True)
    appended(log, zstd_frame(lines)[:-9])
    with opened(home) as opened_log:
        assert sum(block.count(b"\n") for block in opened_log.blocks) > 0
        assert opened_log.reader.torn
        assert opened_log.position() is None


def test_a_log_that_was_cut_while_it_was_read_is_read_anew(home: DshHome) -> None:
    log = home.write("s", PADDED)
    with opened(home) as opened_log:
        for _ in opened_log.blocks:
            pass
        os.truncate(log, log.stat().st_size - 100)
        position = opened_log.position()
        assert position is not None
        known = KnownLog(position, opened_log.header)
    with opened(home, known) as again:
        assert not again.is_continued


@given(st.text(st.characters(codec=None)))
def test_a_state_comes_back_as_it_was_or_not_at_all(text: str) -> None:
    data = encode_state(Text(text))
    is_unicode = not any("\ud800" <= character <= "\udfff" for character in text)

    assert (data is not None) == is_unicode
    if data is not None:
        assert decode_state(data, Text) == Text(text)


@given(st.binary())
def test_no_bytes_at_all_fail_to_be_a_state(data: bytes) -> None:
    assert isinstance(decode_state(data, LogPosition), LogPosition | None)


@pytest.mark.parametrize("data", [None, b"", b"\xc1", b"\x91\xa1", b"\x91\xc4\x01\xff", b"\x91\xa1\xff", b"\x80"])
def test_what_is_no_state_is_none(data: bytes | None) -> None:
    assert decode_state(data, Text) is None


def test_a_log_that_was_overwritten_in_place_with_the_same_length_is_read_anew(home: DshHome) -> None:
    log = home.write("s", PADDED)
    with opened(home) as opened_log:
        for _ in opened_log.blocks:
            pass
        position = opened_log.position()
        assert position is not None
        known = KnownLog(position, opened_log.header)
    then = log.stat().st_mtime_ns
    log.write_bytes(log.read_bytes().replace(b"1" * 900, b"X" * 900))
    os.utime(log, ns=(then + 1, then + 1))
    with opened(home, known) as again:
        assert not again.is_continued
