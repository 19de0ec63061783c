"""What the stores of all agents but DSH share: ids, titles from prompts, and lists made by learning."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue_doubles import LearningStore
from resolver_doubles import never_cancelled
from sessionref.protocol.errors import ReadFailedReason, read_failed
from sessionref.server.store import CheckCancelled
from sessionref.server.stores.agent import TITLE_CHARACTERS, AgentStore, first_line, list_by_learning, nothing_saved
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.problems import Unreadable
from store_contract import Cancelled, CheckCounter


class Agent(AgentStore):
    """An agent of which nothing is known but its name."""

    kind = "some-agent"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("one line", "one line"),
        ("first\nsecond", "first"),
        ("first\r\nsecond", "first"),
        ("\n\n  \t first  \n second", "first"),
        ("first\u2028second", "first"),
        ("first\x0bsecond", "first"),
        ("", None),
        (" \n\t\u3000 ", None),
        ("x" * 1000, "x" * TITLE_CHARACTERS),
        ("\n" * 1000 + "late", "late"),
        ("half \ud800\nsecond", "half \ud800"),
    ],
)
def test_the_title_of_a_prompt_is_its_first_line_that_holds_anything(text: str, title: str | None) -> None:
    assert first_line(text) == title


@given(st.text(st.characters(codec=None)))
def test_a_title_is_never_blank_nor_more_than_a_line(text: str) -> None:
    title = first_line(text)

    assert (title is None) == (not text.strip())
    if title is not None:
        assert title == title.strip()
        assert title in text
        assert len(title.splitlines()) == 1
        assert len(title) <= TITLE_CHARACTERS


def test_an_id_is_the_kind_and_the_agents_own(tmp_path: Path) -> None:
    store = Agent(tmp_path)

    assert store.session_id("abc") == "some-agent:abc"
    assert store.native_id("some-agent:abc") == "abc"
    assert store.native_id("some-agent:parent/child:x") == "parent/child:x"


@pytest.mark.parametrize(
    "session_id", ["", ":", "abc", "some-agent", "some-agent:", "some:abc", "SOME-AGENT:abc", ":abc"]
)
def test_an_id_of_another_kind_or_of_none_is_not_found(session_id: str, tmp_path: Path) -> None:
    with pytest.raises(Unreadable) as caught:
        Agent(tmp_path).native_id(session_id)
    assert caught.value.reason is ReadFailedReason.NOT_FOUND


@given(st.text(st.characters(codec=None), min_size=1))
def test_every_native_id_comes_back(native_id: str) -> None:
    store = Agent(Path("nowhere"))

    assert store.native_id(store.session_id(native_id)) == native_id


def test_a_store_is_its_home_links_resolved_and_there_if_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_bytes(b"")

    assert Agent(tmp_path / "link").location == Agent(tmp_path / "real").location == str((tmp_path / "real").resolve())
    assert Agent(tmp_path / "link").exists()
    assert not Agent(tmp_path / "file").exists()
    assert not Agent(tmp_path / "missing").exists()
    assert Agent(tmp_path / "missing").location == str(tmp_path.resolve() / "missing")


def test_agents_hide_their_sub_agents_and_have_the_usual_limits_unless_told_otherwise(tmp_path: Path) -> None:
    limits = ReadingLimits(line_bytes=5)

    assert not Agent(tmp_path).lists_subagents
    assert not Agent(tmp_path).groups_tell_all
    assert Agent(tmp_path).limits == ReadingLimits()
    assert Agent(tmp_path, limits=limits).limits == limits


def test_a_list_is_every_lesson_and_every_problem_with_where_it_is() -> None:
    store = LearningStore()
    store.put("a/one", "One")
    store.put("a/two", "Two")
    store.put("b/three", "Three")
    store.problems["a/two"] = ReadFailedReason.CORRUPT
    listing = list_by_learning(store, never_cancelled)

    assert sorted(header.session_id for header in listing.sessions) == ["one", "three"]
    assert [(row.place, row.reason) for row in listing.unlisted] == [("a/two", "corrupt")]
    assert store.learnt == [("a/one", True), ("a/two", True), ("b/three", True)]


def test_of_several_sessions_with_one_id_none_is_listed_even_if_one_cannot_be_read() -> None:
    store = LearningStore()
    for key in ("a/same", "b/same", "c/same", "c/other"):
        store.put(key)
    store.problems["b/same"] = ReadFailedReason.IO
    listing = list_by_learning(store, never_cancelled)

    assert [header.session_id for header in listing.sessions] == ["other"]
    assert sorted((row.place, row.reason) for row in listing.unlisted) == [
        ("a/same", "duplicate-id"),
        ("b/same", "duplicate-id"),
        ("c/same", "duplicate-id"),
    ]


def test_a_group_that_cannot_be_listed_costs_its_own_sessions() -> None:
    def fail(group: str) -> None:
        if group == "closed":
            raise read_failed(ReadFailedReason.PERMISSION)

    store = LearningStore(before_keys=fail)
    store.put("closed/one")
    store.put("open/two")
    listing = list_by_learning(store, never_cancelled)

    assert [header.session_id for header in listing.sessions] == ["two"]
    assert [(row.place, row.reason) for row in listing.unlisted] == [("closed", "permission")]


def test_where_a_problem_is_can_be_shown_whatever_its_name_is_made_of() -> None:
    store = LearningStore()
    store.put("a/\x1b[31m\udcff\n")
    store.problems["a/\x1b[31m\udcff\n"] = ReadFailedReason.CORRUPT

    assert [row.place for row in list_by_learning(store, never_cancelled).unlisted] == ["a/\\x1b[31m\\udcff\\n"]


def test_listing_looks_at_the_cancellation_before_every_session() -> None:
    learnt: list[str] = []

    def note(key: str, with_title: bool, check: CheckCancelled) -> None:
        learnt.append(key)

    store = LearningStore(before_learn=note)
    for number in range(5):
        store.put(f"a/{number}")
    with pytest.raises(Cancelled):
        list_by_learning(store, CheckCounter(3))

    assert learnt == ["a/0", "a/1"]


def test_of_what_nobody_saved_there_is_nothing() -> None:
    assert nothing_saved("key") is None  # type: ignore[func-returns-value]
