"""Titles that Claude Code 1.x wrote into whatever log it was writing just then."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from catalogue_doubles import bring_up_to_date, full_view, index_view
from resolver_doubles import never_cancelled
from sessionref.server.catalogue.database import CatalogueDatabase
from sessionref.server.catalogue.index import SessionIndex
from sessionref.server.store import CataloguedStore
from sessionref.server.stores.claude_code.summaries import END_BYTES
from store_contract import Cancelled, CheckCounter, rows_of
from store_fixtures import Turn
from store_fixtures.claude_code import Fixture
from store_fixtures.claude_code.homes import TALK
from store_fixtures.logs import lines_of


def summary(text: Any, leaf: Any) -> dict[str, Any]:
    return {"type": "summary", "summary": text, "leafUuid": leaf}


def write(home: Fixture, number: int, *, cwd: str = "/srv/here", talk: list[Turn] | None = None) -> tuple[str, str]:
    """Write a session: its name, and the uuid of its last record."""
    name = home.name(number)
    home.write(name, TALK if talk is None else talk, cwd=cwd)
    return name, str(home.leaf(name))


def add(home: Fixture, name: str, *records: dict[str, Any], is_first: bool = False) -> None:
    path = home.logs[name]
    parts = (lines_of(records), path.read_bytes())
    path.write_bytes(b"".join(parts if is_first else parts[::-1]))


def titles(store: CataloguedStore) -> dict[str, str | None]:
    return {header.session_id.partition(":")[2]: header.title for header in rows_of(store).values()}


def test_a_summary_titles_the_session_that_it_ends_at_and_not_the_one_that_holds_it(home: Fixture) -> None:
    one, leaf = write(home, 1)
    two, _ = write(home, 2)
    add(home, two, summary("About one", leaf), is_first=True)

    assert titles(home.open()) == {one: "About one", two: "the prompt"}


def test_a_summary_of_the_session_itself_is_its_title(home: Fixture) -> None:
    one, leaf = write(home, 1)
    add(home, one, summary("About one\nand more", leaf))

    assert titles(home.open()) == {one: "About one"}


def test_a_summary_that_ends_at_nobodys_record_titles_its_own_session(home: Fixture) -> None:
    one, _ = write(home, 1)
    two, leaf = write(home, 2)
    add(home, one, summary("Of one", "gone"), summary("Of one, later", "gone as well"), summary("Of two", leaf))

    assert titles(home.open()) == {one: "Of one, later", two: "Of two"}


def test_of_several_the_one_that_ends_last_counts(home: Fixture) -> None:
    one, early = write(home, 1)
    home.append(one, TALK)
    late = str(home.leaf(one))
    two, _ = write(home, 2)
    add(home, two, summary("Later", late), summary("Earlier", early))

    assert titles(home.open())[one] == "Later"


def test_a_summary_goes_behind_every_other_title(home: Fixture) -> None:
    one, leaf = write(home, 1)
    add(home, one, {"type": "last-prompt", "lastPrompt": "Last"}, summary("About one", leaf))

    assert titles(home.open()) == {one: "Last"}


def test_a_summary_in_another_project_is_no_title(home: Fixture) -> None:
    one, leaf = write(home, 1)
    two, _ = write(home, 2, cwd="/srv/elsewhere")
    add(home, two, summary("About one", leaf))

    assert titles(home.open()) == {one: "the prompt", two: "About one"}


def test_a_sub_agents_log_has_no_part_in_it(home: Fixture) -> None:
    one, leaf = write(home, 1)
    child = home.write_subagent(home.name(3), one, TALK)
    add(home, child, summary("About one", leaf))
    flat = home.logs[one].with_name("agent-flat.jsonl")
    flat.write_bytes(home.logs[child].read_bytes())

    assert titles(home.open()) == dict.fromkeys((one, child, "agent-flat"), "the prompt")


@pytest.mark.parametrize("odd", [("", "x"), (None, "x"), ("Text", ""), ("Text", None), (7, 7), (" \n", "x")])
def test_summaries_without_a_text_or_an_end_are_none(home: Fixture, odd: tuple[Any, Any]) -> None:
    one, _ = write(home, 1)
    add(home, one, summary(*odd), {"type": "last-prompt", "leafUuid": "x"}, is_first=True)

    assert titles(home.open()) == {one: "the prompt"}


def test_both_ends_of_a_long_log_are_looked_at(home: Fixture) -> None:
    one, early = write(home, 1, talk=[("user", "the prompt"), ("assistant", "short")])
    home.append(one, [("user", "x" * (END_BYTES + 5)), ("assistant", "y" * (END_BYTES + 5)), ("user", "end")])
    late = str(home.leaf(one))
    for number, leaf in ((2, early), (3, late)):
        name, _ = write(home, number)
        add(home, name, summary(f"Up to {number}", leaf))
        assert titles(home.open())[one] == f"Up to {number}"


def test_damage_in_the_ends_of_a_log_costs_no_more_than_itself(home: Fixture) -> None:
    one, leaf = write(home, 1)
    two, _ = write(home, 2)
    path = home.logs[two]
    deep = b'{"leafUuid":' + b"[" * 100_000
    path.write_bytes(b'{"leafUuid": \xff\n' + deep + b"\n" + path.read_bytes() + lines_of([summary("About one", leaf)]))

    assert titles(home.open())[one] == "About one"


def test_what_is_no_log_and_an_empty_one_are_passed_by(home: Fixture) -> None:
    one, leaf = write(home, 1)
    add(home, one, summary("About one", leaf))
    folder = home.logs[one].parent
    (folder / "empty.jsonl").touch()
    (folder / "folder.jsonl").mkdir()
    (folder / "link.jsonl").symlink_to(home.logs[one])

    assert titles(home.open()) == {one: "About one"}


def test_a_summary_that_comes_later_is_noticed(home: Fixture) -> None:
    one, leaf = write(home, 1)
    two, _ = write(home, 2)
    store = home.open()
    index = SessionIndex(store, None)
    bring_up_to_date(index)
    assert titles(store) == {one: "the prompt", two: "the prompt"}

    add(home, two, summary("About one", leaf))
    bring_up_to_date(index)
    bring_up_to_date(index)

    assert index_view(index) == full_view(home.open())
    assert titles(store)[one] == "About one"


def test_a_summary_that_comes_with_a_new_session_after_a_restart_is_noticed(home: Fixture) -> None:
    one, leaf = write(home, 1)
    before = home.open()
    (key,) = (key for group in before.groups() for key in before.keys(group, never_cancelled))
    lesson = before.learn(key, None, never_cancelled, with_title=True)
    assert lesson is not None
    os.utime(home.logs[one], (0, 0))
    aged = before.learn(key, lesson, never_cancelled, with_title=True)
    assert aged is not None

    after = home.open()
    assert list(after.changed({key: aged.stamp}, never_cancelled)) == []
    two, _ = write(home, 2)
    add(home, two, summary("About one", leaf), {"type": "custom-title", "customTitle": "Two"})
    other = key.replace(one, two)
    learnt = after.learn(other, None, never_cancelled, with_title=True)

    assert learnt is not None
    assert learnt.header.title == "Two"
    assert list(after.changed({key: aged.stamp}, never_cancelled)) == [key]
    again = after.learn(key, aged, never_cancelled, with_title=True)
    assert again is not None
    assert again.header.title == "About one"
    assert list(after.changed({key: again.stamp}, never_cancelled)) == []


def test_a_summary_that_is_taken_back_is_a_title_no_more(home: Fixture) -> None:
    one, leaf = write(home, 1)
    two, _ = write(home, 2)
    whole = home.logs[two].read_bytes()
    add(home, two, summary("About one", leaf))
    store = home.open()
    index = SessionIndex(store, None)
    bring_up_to_date(index)
    assert titles(store)[one] == "About one"

    home.logs[two].write_bytes(whole)
    bring_up_to_date(index)
    bring_up_to_date(index)
    assert index_view(index) == full_view(home.open())


@pytest.mark.parametrize("is_session", [True, False])
def test_a_summary_that_comes_or_goes_while_nobody_is_there_is_noticed(
    home: Fixture, tmp_path: Path, is_session: bool
) -> None:
    one, leaf = write(home, 1)
    other = home.logs[one].with_name("other.jsonl")
    talk = home.logs[one].read_bytes().replace(leaf.encode(), b"another") if is_session else b""

    def titles_after_a_restart() -> dict[str, str | None]:
        database = CatalogueDatabase(tmp_path / "catalogue.db", max_bytes=0)
        index = SessionIndex(home.open(), database)
        bring_up_to_date(index)
        bring_up_to_date(index)
        database.close()
        assert index_view(index) == full_view(home.open())
        return {row.header.session_id.partition(":")[2]: row.header.title for row in index.rows()}

    assert titles_after_a_restart()[one] == "the prompt"
    for text in ("About one", "About one at last"):
        other.write_bytes(lines_of([summary(text, leaf)]) + talk)
        assert titles_after_a_restart()[one] == text
    other.unlink()
    assert titles_after_a_restart()[one] == "the prompt"


def test_the_summary_of_a_log_that_is_gone_is_forgotten(home: Fixture) -> None:
    one, leaf = write(home, 1)
    two, _ = write(home, 2)
    add(home, two, summary("About one", leaf))
    store = home.open()
    index = SessionIndex(store, None)
    bring_up_to_date(index)
    assert titles(store)[one] == "About one"

    home.logs[two].unlink()
    bring_up_to_date(index)
    bring_up_to_date(index)
    assert index_view(index) == full_view(home.open())
    assert titles(store) == {one: "the prompt"}


def test_making_the_index_can_be_cancelled(home: Fixture) -> None:
    for number in range(20):
        write(home, number)
    store = home.open()
    counted = CheckCounter()
    store.list_sessions(counted)

    for at in range(1, counted.calls, 3):
        with pytest.raises(Cancelled):
            home.open().list_sessions(CheckCounter(at))


def test_a_title_is_the_same_whether_a_log_was_read_at_once_or_in_parts(home: Fixture) -> None:
    one, leaf = write(home, 1, talk=[("user", "the prompt"), ("assistant", "x" * 200_000)])
    store = home.open()
    (key,) = (key for group in store.groups() for key in store.keys(group, never_cancelled))
    listed = store.learn(key, None, never_cancelled, with_title=False)
    assert listed is not None
    assert not listed.has_title
    add(home, one, summary("About one", leaf))
    whole = store.learn(key, listed, never_cancelled, with_title=True)

    assert whole is not None
    assert (whole.has_title, whole.header.title) == (True, "About one")
