"""Whatever is known of a store from before, by the catalogue or a saved capture, comes to the same as a full read."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from catalogue_doubles import bring_up_to_date, full_view, index_view, open_database
from resolver_doubles import never_cancelled
from sessionref.server.catalogue.database import CatalogueDatabase
from sessionref.server.catalogue.index import SessionIndex
from sessionref.server.store import CataloguedStore, Lesson
from sessionref.server.stores.limits import ReadingLimits
from store_contract import LIMITS, TALK, every_kind, kinds_where, set_limits, talk_of, turns_of
from store_fixtures import CREATED_AT, StoreFixture, Turn, open_fixture, traits_of

MORE: list[Turn] = [("user", "one more\nquestion"), ("assistant", "one more answer")]
LONG: list[Turn] = [("user", "padding " * 1000), ("assistant", "more padding " * 1000)]
"""Longer than the bytes that are checked before a position."""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[CatalogueDatabase]:
    found = open_database(tmp_path)
    yield found
    found.close()


def only_key(store: CataloguedStore) -> str:
    """The key of the one session that there is."""
    keys = [key for group in store.groups() for key in store.keys(group, never_cancelled)]
    (key,) = [key for key in keys if store.learn(key, None, never_cancelled, with_title=True) is not None]
    return key


def learnt(store: CataloguedStore, known: Lesson | None = None) -> Lesson:
    lesson = store.learn(only_key(store), known, never_cancelled, with_title=True)
    assert lesson is not None
    return lesson


def stored(agent: StoreFixture) -> CataloguedStore:
    """A store of the home to which the shortest session is worth going on with."""
    return set_limits(agent.open())


@every_kind
def test_what_is_learnt_from_where_a_session_ended_is_what_a_full_read_teaches(agent: StoreFixture) -> None:
    agent.create()
    agent.write(agent.name(1), [*TALK, *LONG])
    known = learnt(stored(agent))
    for _ in range(3):
        agent.append(agent.name(1), [*MORE, *LONG])
        assert learnt(stored(agent), known).header == learnt(stored(agent)).header
        known = learnt(stored(agent), known)

    assert known.header.session_id == agent.session_id(agent.name(1))
    assert known.has_title


@every_kind
def test_a_prompt_that_comes_later_is_learnt(agent: StoreFixture, kind: str) -> None:
    agent.create()
    agent.write(agent.name(1), [("assistant", "nobody asked"), *LONG[1:]])
    known = learnt(stored(agent))
    agent.append(agent.name(1), MORE)
    known = learnt(stored(agent), known)

    assert known.has_prompt
    assert known.header.title == ("one more" if traits_of(kind).titles_by_prompt else None)


@every_kind
def test_a_change_is_seen_and_what_did_not_change_is_not(agent: StoreFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    agent.create()
    agent.write(agent.name(1), TALK)
    store = stored(agent)
    later_than_all_changes(monkeypatch)
    key, stamp = only_key(store), learnt(store).stamp

    assert list(store.changed({key: stamp}, never_cancelled)) == []
    agent.append(agent.name(1), MORE)
    assert list(store.changed({key: stamp}, never_cancelled)) == [key]
    assert list(store.changed({key: learnt(store).stamp}, never_cancelled)) == []
    assert list(store.changed({key: b"", f"{key}x": stamp}, never_cancelled)) == [key, f"{key}x"]
    shutil.rmtree(agent.home)
    assert list(store.changed({key: stamp}, never_cancelled)) == [key]


def later_than_all_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clocks be ahead, so that nothing looks as if it might be changing right now."""
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 3600 * 10**9)


@every_kind
def test_a_lesson_of_another_session_or_of_nothing_known_is_no_harm(agent: StoreFixture) -> None:
    agent.create()
    agent.write(agent.name(1), [*TALK, *LONG], title="One")
    agent.write(agent.name(2), [*TALK, *LONG], title="Two")
    store = stored(agent)
    found = {
        key: lesson
        for group in store.groups()
        for key in store.keys(group, never_cancelled)
        if (lesson := store.learn(key, None, never_cancelled, with_title=True)) is not None
    }
    (one, first), (two, second) = found.items()
    assert first.header != second.header
    for known in (first, Lesson(header=first.header, stamp=b"x", resume=b"\x00nonsense")):
        again = store.learn(two, known, never_cancelled, with_title=True)
        assert again is not None
        assert again.header == second.header
    assert one != two


@every_kind
@pytest.mark.parametrize("limits", LIMITS)
def test_a_capture_that_goes_on_equals_a_full_read(agent: StoreFixture, limits: ReadingLimits) -> None:
    agent.create()
    agent.write(agent.name(1), [*TALK, *LONG])
    session_id, states, said = agent.session_id(agent.name(1)), dict[str, bytes](), [*TALK, *LONG]
    for added in (MORE, [*MORE, *LONG], MORE, LONG):
        store = set_limits(agent.open(), limits)
        again = store.capture_again(session_id, states.get, never_cancelled)
        if again.state is not None:
            states[again.key] = again.state
        assert again.capture == store.capture(session_id, never_cancelled)
        assert turns_of(again.capture) == said
        said += added
        agent.append(agent.name(1), added)


@every_kind
def test_a_state_that_is_damaged_or_of_another_session_is_a_full_read(agent: StoreFixture) -> None:
    agent.create()
    agent.write(agent.name(1), [*TALK, *LONG])
    agent.write(agent.name(2), [*LONG, *TALK])
    store = stored(agent)
    one, two = (agent.session_id(agent.name(number)) for number in (1, 2))
    state = store.capture_again(one, lambda key: None, never_cancelled).state or b""
    for given in (state, b"", b"\xc1", state[:-1], state[1:], state + b"\0", b"x" * 1000, state[: len(state) // 2]):
        found = store.capture_again(two, lambda key, given=given: given, never_cancelled)  # type: ignore[misc]
        assert turns_of(found.capture) == [*LONG, *TALK]


@every_kind
def test_a_catalogue_follows_every_change_and_a_restart_knows_it_all(
    agent: StoreFixture, database: CatalogueDatabase
) -> None:
    agent.create()
    store = stored(agent)
    index = SessionIndex(store, database)

    def is_followed() -> int:
        bring_up_to_date(index)
        assert index_view(index) == full_view(store)
        restarted = SessionIndex(store, database)
        bring_up_to_date(restarted)
        assert index_view(restarted) == full_view(store)
        return len(index.rows())

    assert is_followed() == 0
    path = agent.write(agent.name(1), [*TALK, *LONG])
    assert is_followed() == 1
    agent.write(agent.name(2), TALK, title="Two", created_at=CREATED_AT + 1000, cwd="/srv/there")
    assert is_followed() == 2
    agent.append(agent.name(1), MORE)
    assert is_followed() == 2
    agent.write_subagent(agent.name(3), agent.name(1), TALK)
    assert is_followed() == 3
    agent.damage(agent.name(2), "corrupt-record")
    is_followed()
    path.unlink()
    assert is_followed() < 3
    shutil.rmtree(agent.home)
    assert is_followed() == 0


@every_kind
def test_a_warm_catalogue_lists_without_reading_a_session(
    agent: StoreFixture, database: CatalogueDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.create()
    for number in range(3):
        agent.write(agent.name(number), TALK, title=f"Title {number}")
    later_than_all_changes(monkeypatch)
    bring_up_to_date(SessionIndex(stored(agent), database))
    store = stored(agent)
    asked: list[str] = []
    really_learn = store.learn

    def noted(key: str, *arguments: object, **named: object) -> Lesson | None:
        asked.append(key)
        return really_learn(key, *arguments, **named)  # type: ignore[arg-type]

    store.learn = noted  # type: ignore[method-assign]
    index = SessionIndex(store, database)
    index.refresh(never_cancelled)

    assert index.unread == 0
    assert sorted(row.label for row in index.rows()) == ["Title 0", "Title 1", "Title 2"]
    assert [key for key in asked if key in {row.key for row in index.rows()}] == []


@every_kind
def test_one_store_answers_several_threads_at_once(agent: StoreFixture) -> None:
    agent.create()
    names = [agent.name(number) for number in range(4)]
    for at, name in enumerate(names):
        agent.write(name, [*TALK, *LONG], title=f"Title {at}", created_at=CREATED_AT + at * 1000)
    store = stored(agent)
    expected = full_view(store)

    def ask(name: str) -> bool:
        return full_view(store) == expected and talk_of(store, agent.session_id(name)) == [*TALK, *LONG]

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, names * 3))


@kinds_where(lambda traits: traits.has_own_files)
def test_a_file_below_a_watched_folder_tells_which_session_changed(agent: StoreFixture) -> None:
    agent.create()
    path = agent.write(agent.name(1), TALK)
    store = stored(agent)

    assert any(path.is_relative_to(folder) for folder in store.watched_folders())
    assert store.key_of(path) == only_key(store)
    assert store.key_of(path.resolve()) == only_key(store)
    for other in (agent.home, agent.home.parent, path.parent.parent, Path("/")):
        assert store.key_of(other) != only_key(store)


@every_kind
def test_keys_are_unique_and_below_the_home_and_two_homes_are_two_places(agent: StoreFixture, kind: str) -> None:
    agent.create()
    for number in range(3):
        agent.write(agent.name(number), TALK, cwd=f"/srv/{number}")
    store = agent.open()
    keys = [key for group in store.groups() for key in store.keys(group, never_cancelled)]
    other = open_fixture(kind, agent.home.parent / "other")
    other.create()

    assert len(set(keys)) == len(keys) >= 3
    assert not any(str(agent.home) in key or Path(key).is_absolute() for key in keys)
    assert store.location == agent.open().location != other.open().location
