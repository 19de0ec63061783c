"""Logs that grow or are written anew: what is known from before and the rest is as good as a full read."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolver_doubles import never_cancelled
from sessionref.server.stores.limits import ReadingLimits
from tiny_agent import FIRST, HEAD, PADDING, Tiny, diagnosed, line


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    """A tiny agent."""
    return Tiny(tmp_path)


def test_a_log_that_grew_is_read_from_where_it_ended(
    tiny: Tiny, bytes_read_by: Callable[[Callable[[], object]], int]
) -> None:
    tiny.write(*FIRST, *[line("user", PADDING)] * 40)
    tiny.again()
    known = tiny.learn()
    store = tiny.store()
    for number in range(3):
        tiny.append(line("user", f"more {number}"), line("name", f"Name {number}"))
        states = dict(tiny.states)
        captured = partial(store.capture_again, "tiny:s", states.get, never_cancelled)
        learnt = partial(store.learn, tiny.key, known, never_cancelled, with_title=True)
        assert 0 < bytes_read_by(captured) < 20_000
        assert 0 < bytes_read_by(learnt) < 20_000
        assert tiny.texts()[-1] == f"more {number}"
        known = tiny.learn(known)
        assert known.header.title == f"Name {number}"
    assert tiny.path.stat().st_size > 300_000


def test_an_unfinished_write_is_left_out_until_it_is_finished(tiny: Tiny) -> None:
    tiny.write(*FIRST)
    assert len(tiny.texts()) == 2
    written = line("user", "three") + line("assistant", "four")
    for at in (1, 10, len(line("user", "three")) - 1, len(line("user", "three")), len(written) - 1, len(written)):
        tiny.write(*FIRST, written[:at])
        tiny.again()
        tiny.learn(tiny.learn())
    assert tiny.texts()[2:] == ["three", "four"]


def test_an_unfinished_write_can_be_taken_back_and_something_else_be_written(tiny: Tiny) -> None:
    tiny.write(*FIRST, line("user", "never finished")[:-5])
    known = tiny.learn()
    assert len(tiny.texts()) == 2
    with tiny.path.open("r+b") as file:
        file.truncate(len(b"".join(FIRST)))
    tiny.append(line("user", "something else, and longer than that was"), line("name", "New"))

    assert tiny.texts()[2:] == ["something else, and longer than that was"]
    assert tiny.learn(known).header.title == "New"


def test_an_unfinished_write_that_the_next_one_goes_on_from_costs_both_and_is_counted(tiny: Tiny) -> None:
    tiny.write(*FIRST, line("user", "never finished")[:-5])
    tiny.again()
    tiny.append(line("user", "three"), line("user", "four"))
    capture = tiny.again().capture

    assert [item.text for item in capture.items][2:] == ["four"]
    assert diagnosed(capture) == ["skipped-lines"]


@pytest.mark.parametrize("is_in_place", [True, False])
@pytest.mark.parametrize("more", [b"", line("user", "more"), line("user", PADDING) * 3])
def test_a_log_that_was_written_anew_is_read_anew(tiny: Tiny, is_in_place: bool, more: bytes) -> None:
    tiny.write(*FIRST, line("name", "Old"))
    known = tiny.learn()
    tiny.again()
    content = HEAD + line("user", "ONE") + line("assistant", "TWO" + PADDING.upper()) + line("name", "New") + more
    if is_in_place:
        tiny.path.write_bytes(content)
    else:
        (tiny.project / "new.tmp").write_bytes(content)
        os.replace(tiny.project / "new.tmp", tiny.path)

    assert tiny.texts()[:2] == ["ONE", "TWO" + PADDING.upper()]
    assert tiny.learn(known).header.title == "New"


def test_a_log_that_was_cut_is_read_anew(tiny: Tiny) -> None:
    tiny.write(*FIRST, line("name", "Old"), line("user", "three"))
    known = tiny.learn()
    tiny.again()
    os.truncate(tiny.path, len(b"".join(FIRST)))

    assert len(tiny.texts()) == 2
    assert tiny.learn(known).header.title is None


def test_another_head_of_the_same_length_is_seen_though_nothing_else_changed_but_what_was_appended(tiny: Tiny) -> None:
    tiny.write(line("head", "/old"), *FIRST[1:])
    known = tiny.learn()
    assert tiny.again().capture.cwd == "/old"
    with tiny.path.open("r+b") as file:
        file.write(line("head", "/new"))
    tiny.append(line("user", "more"))

    assert tiny.again().capture.cwd == "/new"
    assert tiny.learn(known).header.cwd == "/new"


def test_a_short_log_keeps_no_state_and_a_long_one_does(tiny: Tiny) -> None:
    tiny.write(*FIRST)
    size = tiny.path.stat().st_size
    for from_bytes, is_saved in ((size + 1, False), (size, True)):
        store = tiny.store(ReadingLimits(saved_from_bytes=from_bytes))
        assert (store.capture_again("tiny:s", lambda key: None, never_cancelled).state is not None) is is_saved
    for whole_bytes, is_kept in ((size, False), (size - 1, True)):
        lesson = tiny.store(ReadingLimits(whole_bytes=whole_bytes)).learn(
            tiny.key, None, never_cancelled, with_title=True
        )
        assert lesson is not None
        assert (lesson.resume != b"") is is_kept


def test_what_has_not_changed_needs_no_new_state(tiny: Tiny) -> None:
    tiny.write(*FIRST)

    assert tiny.again().state is not None
    assert tiny.again().state is None
    tiny.append(line("user", "more"))
    assert tiny.again().state is not None


def test_a_whole_last_line_without_a_line_feed_is_not_read_twice(tiny: Tiny) -> None:
    tiny.write(*FIRST, line("user", "three").rstrip(b"\n"))
    known = tiny.learn()
    assert tiny.texts()[2:] == ["three"]
    tiny.append(b"\n", line("user", "four"))

    assert tiny.texts()[2:] == ["three", "four"]
    tiny.learn(known)


def test_a_state_with_half_a_character_is_not_kept_and_the_log_is_read_whole(tiny: Tiny) -> None:
    tiny.write(HEAD, b'{"type": "user", "text": "half \\ud800"}\n', b'{"type": "name", "text": "\\udead"}\n')
    known = tiny.learn()

    assert tiny.again().state is None
    assert known.resume == b""
    assert known.header.title == "\udead"
    assert tiny.texts() == ["half \ud800"]


blocks = st.lists(st.sampled_from([line("user", "a"), line("assistant", PADDING), line("name", "N"), b"no\n", b"\n"]))
ends = st.sampled_from([b"", line("user", "end")[:-1], line("user", "end")[:-9], b"\0", b" "])


@given(before=blocks, end=ends, after=blocks, is_head_alone=st.booleans())
def test_what_is_known_from_any_moment_and_the_rest_is_as_good_as_a_full_read(
    before: list[bytes], end: bytes, after: list[bytes], is_head_alone: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tiny = Tiny(tmp_path_factory.mktemp("tiny"))
    tiny.write(HEAD if is_head_alone else HEAD + b"".join(before), end)
    tiny.again()
    known = tiny.learn()
    tiny.append(b"".join(after))
    tiny.again()
    tiny.learn(known)
