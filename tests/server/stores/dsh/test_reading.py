"""Captures and labels behind what is known from before: the same as from the start, at the cost of what is new."""

from __future__ import annotations

import os
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalogue_doubles import open_database
from dsh_fixtures import (
    DshHome,
    Event,
    assistant,
    checkpoint,
    descriptor,
    event,
    header_line,
    step_start,
    title,
    tool_call,
    tool_result,
    turn_end,
    turn_start,
    user,
    zstd_frame,
)
from resolver_doubles import failure_of, never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.sources import SessionSources
from sessionref.server.store import CataloguedStore, Lesson, SavedCapture
from sessionref.server.stores.dsh import DshStore, ReadingLimits
from sessionref.server.stores.dsh.fold import Fold
from sessionref.server.stores.dsh.records import EventDecoder

EVERYTHING = ReadingLimits(whole_bytes=0, saved_from_bytes=0)
KEY = "_no-cwd/s"


@pytest.fixture
def home(tmp_path: Path) -> DshHome:
    return DshHome(tmp_path / "home")


@pytest.fixture(params=[False, True], ids=["plain", "zstd"])
def compressed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def store_of(home: DshHome, limits: ReadingLimits = EVERYTHING) -> DshStore:
    return DshStore(home.path, limits=limits)


def again(store: DshStore, state: bytes | None) -> SavedCapture:
    saved = store.capture_again("s", {KEY: state}.get, never_cancelled)
    assert saved.capture == store.capture("s", never_cancelled)
    assert saved.key == KEY
    return saved


def append(log: Path, *events: Event, seq: int) -> None:
    lines = b"".join(one.line(seq + at, 4 if "v4" in log.name else 0) for at, one in enumerate(events))
    with log.open("ab") as file:
        file.write(zstd_frame(lines) if log.suffix == ".zstd" else lines)


def learn(store: DshStore, known: Lesson | None = None, *, with_title: bool = True) -> Lesson:
    lesson = store.learn(KEY, known, never_cancelled, with_title=with_title)
    assert lesson is not None
    return lesson


def test_the_store_can_be_learnt_from(home: DshHome) -> None:
    store: CataloguedStore = store_of(home)
    assert isinstance(store, CataloguedStore)


def test_a_capture_goes_on_where_the_last_one_ended(home: DshHome, compressed: bool) -> None:
    log = home.write("s", [turn_start(), step_start(), user("a"), assistant("b", tool_call())], compressed=compressed)
    store = store_of(home)
    state = again(store, None).state
    additions = [
        [tool_result("hidden")],
        [assistant("c"), checkpoint("k", version=0).replacing(2, 3)],
        [turn_end(), title("T"), event("plugin/made-up")],
        [user("d"), checkpoint("kk", version=0).replacing(6, 10, [4, 5, 6, 10])],
    ]
    seq = 4
    for added in additions:
        append(log, *added, seq=seq)
        seq += len(added)
        saved = again(store, state)
        assert saved.state is not None
        state = saved.state
    assert again(store, state).state is None


def test_nothing_new_is_nothing_to_save(home: DshHome, compressed: bool) -> None:
    home.write("s", [user("a")], compressed=compressed)
    store = store_of(home)
    state = again(store, None).state

    assert state is not None
    assert again(store, state).state is None


@pytest.mark.parametrize("state", [b"", b"\xc1", b"\x93\x01\x02\x03", b"no state"])
def test_a_state_that_is_none_is_passed_over(home: DshHome, state: bytes) -> None:
    home.write("s", [user("a")])

    assert again(store_of(home), state).state is not None


def test_a_short_log_is_not_worth_saving(home: DshHome) -> None:
    log = home.write("s", [user("a")])
    size = log.stat().st_size

    assert again(store_of(home, ReadingLimits(saved_from_bytes=size + 1)), None).state is None
    assert again(store_of(home, ReadingLimits(saved_from_bytes=size)), None).state is not None


def test_a_damaged_log_is_read_as_a_whole_again(home: DshHome) -> None:
    log = home.write("s", [user("a")])
    store = store_of(home)
    state = again(store, None).state
    with log.open("ab") as file:
        file.write(b"damage\n")
    saved = again(store, state)
    assert saved.state is None
    assert [one.kind for one in saved.capture.diagnostics] == ["skipped-lines"]
    with log.open("ab") as file:
        file.write(turn_end().line(1, 0))

    for known in (None, state):
        failure = failure_of(partial(store.capture_again, "s", {KEY: known}.get, never_cancelled))
        assert failure.reason is ReadFailedReason.CORRUPT


def test_text_with_half_a_character_is_captured_and_not_saved(home: DshHome) -> None:
    home.write("s", [assistant("a"), user("half \ud800")])
    saved = again(store_of(home), None)

    assert saved.capture.items[1].text == "half \ud800"
    assert saved.state is None


def test_an_unfinished_write_is_told_of_as_long_as_it_is_unfinished(home: DshHome, compressed: bool) -> None:
    log = home.write("s", [user("a")], compressed=compressed)
    store = store_of(home)
    state = again(store, None).state
    line = user("b" * 500).line(1, 0)
    content = zstd_frame(line) if compressed else line
    for part, torn in ((content[:9], True), (content[9:30], True), (content[30:], False)):
        with log.open("ab") as file:
            file.write(part)
        saved = again(store, state)
        assert [one.kind for one in saved.capture.diagnostics] == ["torn-tail"] * torn
        state = saved.state or state
    assert [item.text for item in again(store, state).capture.items] == ["a", "b" * 500]


def test_a_log_of_a_newer_generation_is_not_continued_with_the_state_of_the_older(home: DshHome) -> None:
    home.write("s", [user("old")], version=3)
    store = store_of(home)
    state = again(store, None).state
    log = home.write("s", [user("new")], version=4)
    append(log, assistant("newer"), seq=1)

    assert [item.text for item in again(store, state).capture.items] == ["new", "newer"]


def test_the_limit_of_a_conversation_holds_for_old_and_new_parts_together(home: DshHome) -> None:
    log = home.write("s", [user("x" * 60)])
    store = store_of(home, ReadingLimits(whole_bytes=0, saved_from_bytes=0, conversation_bytes=100))
    state = again(store, None).state
    append(log, user("y" * 60), seq=1)

    for known in (None, state):
        failure = failure_of(partial(store.capture_again, "s", {KEY: known}.get, never_cancelled))
        assert (failure.reason, failure.facts.limit) == (ReadFailedReason.TOO_LARGE, 100)


def test_labels_go_on_where_they_ended(home: DshHome, compressed: bool) -> None:
    log = home.write("s", [title("First"), descriptor("researcher")], compressed=compressed)
    store = store_of(home)
    lesson = learn(store)
    assert (lesson.header.title, lesson.header.agent_label) == ("First", "researcher")
    for at, (added, expected) in enumerate(
        [
            (user("nothing"), ("First", "researcher")),
            (title("Second"), ("Second", "researcher")),
            (title(""), ("Second", "researcher")),
            (descriptor("writer"), ("Second", "writer")),
            (descriptor(""), ("Second", None)),
        ]
    ):
        append(log, added, seq=2 + at)
        lesson = learn(store, lesson)
        assert lesson == learn(store)
        assert (lesson.header.title, lesson.header.agent_label) == expected


def test_a_header_alone_has_no_title_and_says_so(home: DshHome) -> None:
    home.write("s", [title("T")], cwd="/w")
    lesson = store_of(home).learn("--w--/s", None, never_cancelled, with_title=False)

    assert lesson is not None
    assert (lesson.header.title, lesson.has_title, lesson.header.cwd) == (None, False, "/w")


def test_a_short_log_is_read_as_a_whole_where_its_header_alone_was_asked_for(home: DshHome) -> None:
    log = home.write("s", [title("T")])
    lesson = learn(store_of(home, ReadingLimits(whole_bytes=log.stat().st_size)), with_title=False)

    assert (lesson.header.title, lesson.has_title, lesson.resume) == ("T", True, b"")


def test_there_is_nothing_to_learn_where_there_is_no_log(home: DshHome) -> None:
    (home.sessions / "_no-cwd" / "empty").mkdir(parents=True)
    store = store_of(home)

    for key in ("_no-cwd/empty", "_no-cwd/never", "never/never"):
        assert store.learn(key, None, never_cancelled, with_title=True) is None


def test_a_log_that_cannot_be_read_is_nothing_new_to_whoever_knows_it(home: DshHome) -> None:
    log = home.write("s", [title("T")])
    store = store_of(home)
    lesson = learn(store)
    log.write_bytes(b"{}\n")

    failure = failure_of(lambda: store.learn(KEY, lesson, never_cancelled, with_title=True))
    assert failure.reason is ReadFailedReason.CORRUPT


def test_a_stamp_tells_every_change_that_a_file_system_shows(home: DshHome) -> None:
    log = home.write("s", [title("T")])
    store = store_of(home)

    def has_changed() -> bool:
        return list(store.changed({KEY: stamp}, never_cancelled)) == [KEY]

    assert list(store.changed({KEY: learn(store).stamp}, never_cancelled)) == [KEY], "its times are too fresh to tell"
    os.utime(log, ns=(2, 2))
    os.utime(log.parent, ns=(2, 2))
    stamp = learn(store).stamp
    assert not has_changed()
    os.utime(log, ns=(1, 1))
    assert has_changed()
    stamp = learn(store).stamp
    append(log, title("U"), seq=1)
    os.utime(log, ns=(1, 1))
    assert has_changed()
    stamp = learn(store).stamp
    log.with_name("other").write_bytes(log.read_bytes())
    os.replace(log.with_name("other"), log)
    os.utime(log, ns=(1, 1))
    assert has_changed()
    stamp = learn(store).stamp
    home.write("s", version=1)
    assert has_changed()
    stamp = learn(store).stamp
    log.with_name("session.v1.jsonl").unlink()
    assert has_changed()


def test_what_is_gone_has_changed(home: DshHome, tmp_path: Path) -> None:
    stamp = b"\x96\x01\xa1a\x01\x01\x01\xc2"

    assert list(store_of(home).changed({"a/b": stamp, "c/d": stamp}, never_cancelled)) == ["a/b", "c/d"]
    assert list(DshStore(tmp_path / "never").changed({"a/b": stamp}, never_cancelled)) == ["a/b"]


def test_the_key_of_a_path_is_that_of_the_session_folder_it_is_in(home: DshHome, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(home.path)
    for store in (DshStore(home.path), DshStore(tmp_path / "link")):
        for root in {home.sessions, store.watched_folders()[0]}:
            assert store.key_of(root / "p" / "s" / "session.jsonl") == "p/s"
            assert store.key_of(root / "p" / "s") == "p/s"
            assert store.key_of(root / "p") is None
            assert store.key_of(root) is None
        assert store.key_of(tmp_path) is None
    assert DshStore(tmp_path / "never").watched_folders() == []


def test_a_project_folder_whose_name_is_no_unicode_is_refused_alike(home: DshHome, tmp_path: Path) -> None:
    project = os.fsencode(home.sessions) + b"/bad-\xff"
    try:
        os.makedirs(project + b"/s")
    except OSError:
        pytest.skip("the file system takes names in Unicode alone")
    with open(project + b"/s/session.jsonl", "wb") as file:
        file.write(header_line("s"))
    store = store_of(home)
    with closing(open_database(tmp_path)) as database:
        sources = SessionSources([store], database)
        for capture in (store.capture, sources.capture):
            failure = failure_of(partial(capture, "s", never_cancelled))
            assert failure.reason is ReadFailedReason.CORRUPT


events = st.one_of(
    st.builds(user, st.sampled_from(["", "a", "text " * 30])),
    st.builds(assistant, st.sampled_from(["b", "answer"])),
    st.just(assistant("calls", tool_call("one"), tool_call("two"))),
    st.just(tool_result("hidden", call_id="one", version=4)),
    st.builds(title, st.sampled_from(["A", "", 3])),
    st.sampled_from([turn_start(), turn_end(), step_start(), event("plugin/x"), descriptor()]),
)


@settings(deadline=None)
@given(st.lists(events, max_size=120), st.lists(st.integers(0, 120), max_size=100), st.data())
def test_a_fold_that_is_taken_up_at_any_events_ends_as_one_that_never_was_put_down(
    given_events: list[Event], cuts: list[int], data: st.DataObject
) -> None:
    decoder, whole, parts = EventDecoder(4, ReadingLimits()), Fold(4), Fold(4)
    for seq, one in enumerate(given_events):
        surface = [node.seq for node in whole.surface()]
        if surface and data.draw(st.integers(0, 9)) == 0:
            at = data.draw(st.integers(0, len(surface) - 1))
            nodes = surface[at : at + data.draw(st.integers(1, 4))]
            one = checkpoint("k", version=4).replacing(nodes[0], nodes[-1], sorted(nodes))
        if seq in cuts:
            parts = Fold.resume(parts.state())
        for fold in (whole, parts):
            record = decoder.decode(one.line(seq, 4)[:-1])
            assert record is not None
            assert fold.feed(record)
    assert parts.items() == whole.items()
    assert parts.captured_through_seq == whole.captured_through_seq
    assert parts.surface() == whole.surface()
    for name in ("title", "agent_label", "turn_open", "pending_calls", "unknown_events"):
        assert getattr(parts, name) == getattr(whole, name)


def test_a_fold_that_is_taken_up_very_often_keeps_its_surface(home: DshHome) -> None:
    decoder, fold = EventDecoder(4, ReadingLimits()), Fold(4)
    for seq in range(300):
        record = decoder.decode(user(str(seq)).line(seq, 4)[:-1])
        assert record is not None
        assert fold.feed(record)
        fold = Fold.resume(fold.state())
    assert len(fold.state().surface_parts) <= 64

    replacing = decoder.decode(checkpoint("k", version=4).replacing(1, 298).line(300, 4)[:-1])
    assert replacing is not None
    assert fold.feed(replacing)
    assert [item.text for item in fold.items()] == ["0", "k", "299"]
