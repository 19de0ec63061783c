"""What every store lists: the rows, their titles, their order, and whose sessions they are."""

from __future__ import annotations

import os
from pathlib import Path

from resolver_doubles import failure_of, never_cancelled
from sessionref.protocol.errors import ErrorCode
from store_contract import TALK, candidates_of, every_kind, kinds_where, rows_of, talk_of, unlisted_of
from store_fixtures import CREATED_AT, KINDS, StoreFixture, traits_of

DAY = 86_400_000


def test_there_are_kinds_to_test() -> None:
    assert {"dsh", "pi"} <= set(KINDS)


@every_kind
def test_a_row_has_the_id_title_directory_and_times_of_its_session(agent: StoreFixture) -> None:
    agent.create()
    agent.write(agent.name(1), TALK, title="A title", cwd="/srv/elsewhere", created_at=CREATED_AT + DAY)
    agent.write(agent.name(2), TALK, title="Another", cwd="/srv/ünï code")

    rows = rows_of(agent.open())

    one, two = (rows[agent.session_id(agent.name(number))] for number in (1, 2))
    assert (one.title, one.cwd, one.created_at) == ("A title", "/srv/elsewhere", CREATED_AT + DAY)
    assert (two.title, two.cwd, two.created_at) == ("Another", "/srv/ünï code", CREATED_AT)
    assert not one.is_subagent
    assert len(rows) == 2
    assert unlisted_of(agent.open()) == []


@every_kind
def test_an_id_is_the_native_one_behind_the_kind_but_for_dsh(agent: StoreFixture, kind: str) -> None:
    name = agent.name(1)

    assert agent.session_id(name) == (name if kind == "dsh" else f"{kind}:{name}")
    assert agent.open().kind == kind


@kinds_where(lambda traits: traits.has_own_files)
def test_a_session_was_updated_when_its_file_was(agent: StoreFixture) -> None:
    agent.create()
    path = agent.write(agent.name(1), TALK)
    os.utime(path, ns=(0, (CREATED_AT + 5000) * 1_000_000))
    (row,) = rows_of(agent.open()).values()

    assert row.updated_at == CREATED_AT + 5000


@every_kind
def test_a_session_that_goes_on_was_not_updated_earlier(agent: StoreFixture) -> None:
    agent.create()
    agent.write(agent.name(1), TALK)
    (before,) = rows_of(agent.open()).values()
    agent.append(agent.name(1), TALK)
    (after,) = rows_of(agent.open()).values()

    assert before.updated_at is not None
    assert after.updated_at is not None
    assert before.updated_at <= after.updated_at
    assert after.created_at == before.created_at == CREATED_AT


@every_kind
def test_the_newest_session_comes_first_whatever_changed_last(agent: StoreFixture) -> None:
    agent.create()
    for number, created_at in ((1, CREATED_AT), (2, CREATED_AT + 2 * DAY), (3, CREATED_AT + DAY)):
        agent.write(agent.name(number), TALK, created_at=created_at)
    agent.append(agent.name(1), TALK)

    ids = [candidate.session_id for candidate in candidates_of(agent.open())]

    assert ids == [agent.session_id(agent.name(number)) for number in (2, 3, 1)]


@kinds_where(lambda traits: traits.titles_by_prompt)
def test_without_a_title_a_session_is_called_by_the_first_line_of_its_first_prompt(agent: StoreFixture) -> None:
    agent.create()
    agent.write(agent.name(1), [("assistant", "welcome"), *TALK, ("user", "later")])
    (candidate,) = candidates_of(agent.open())

    assert candidate.label == "first question"


@kinds_where(lambda traits: not traits.titles_by_prompt)
def test_a_kind_that_never_titles_by_prompts_calls_a_session_by_its_id(agent: StoreFixture) -> None:
    agent.create()
    agent.write(agent.name(1), TALK)
    (candidate,) = candidates_of(agent.open())

    assert candidate.label == agent.session_id(agent.name(1))


@every_kind
def test_blank_lines_before_a_prompt_are_no_title(agent: StoreFixture, kind: str) -> None:
    agent.create()
    agent.write(agent.name(1), [("user", "\n \n\t the question\nand more"), ("assistant", "answer")])
    (candidate,) = candidates_of(agent.open())

    assert candidate.label == ("the question" if traits_of(kind).titles_by_prompt else agent.session_id(agent.name(1)))


@every_kind
def test_a_session_without_a_working_directory_has_none(agent: StoreFixture) -> None:
    agent.create()
    agent.write(agent.name(1), TALK, cwd=None)
    store = agent.open()
    (row,) = rows_of(store).values()

    assert row.cwd is None
    assert store.capture(row.session_id, never_cancelled).cwd is None
    assert talk_of(store, row.session_id) == TALK


@every_kind
def test_a_session_with_an_answer_and_no_prompt_is_listed_and_can_be_read(agent: StoreFixture) -> None:
    agent.create()
    agent.write(agent.name(1), [("assistant", "nobody asked")])
    store = agent.open()

    assert list(rows_of(store)) == [agent.session_id(agent.name(1))]
    assert talk_of(store, agent.session_id(agent.name(1))) == [("assistant", "nobody asked")]


@every_kind
def test_a_sub_agents_session_is_listed_as_one_and_can_always_be_read(agent: StoreFixture, kind: str) -> None:
    agent.create()
    agent.write(agent.name(1), TALK, title="Parent")
    native_id = agent.write_subagent(agent.name(2), agent.name(1), [("user", "do it for me"), ("assistant", "done")])
    store = agent.open()
    parent, child = agent.session_id(agent.name(1)), agent.session_id(native_id)

    shown = [candidate.session_id for candidate in candidates_of(store)]
    everything = [candidate.session_id for candidate in candidates_of(store, include_subagents=True)]

    assert {header.session_id: header.is_subagent for header in rows_of(store).values()} == {parent: False, child: True}
    assert set(shown) == ({parent} if traits_of(kind).hides_subagents else {parent, child})
    assert set(everything) == {parent, child}
    assert talk_of(store, child) == [("user", "do it for me"), ("assistant", "done")]
    assert talk_of(store, parent) == TALK


@every_kind
def test_a_store_that_was_opened_before_there_was_anything_finds_what_comes(agent: StoreFixture) -> None:
    store = agent.open()
    assert rows_of(store) == {}
    agent.create()
    assert rows_of(store) == {}
    agent.write(agent.name(1), TALK)

    assert list(rows_of(store)) == [agent.session_id(agent.name(1))]
    assert talk_of(store, agent.session_id(agent.name(1))) == TALK


@every_kind
def test_a_file_in_the_place_of_the_home_is_a_failure_of_the_store(agent: StoreFixture) -> None:
    agent.home.write_text("no folder")
    failure = failure_of(lambda: agent.open().list_sessions(never_cancelled))

    assert failure.code is ErrorCode.READ_FAILED
    assert str(agent.home.parent) not in failure.message


@every_kind
def test_a_home_can_be_reached_through_a_link(agent: StoreFixture, tmp_path: Path) -> None:
    agent.create()
    agent.write(agent.name(1), TALK)
    os.rename(agent.home, tmp_path / "elsewhere")
    agent.home.symlink_to(tmp_path / "elsewhere")
    store = agent.open()

    assert list(rows_of(store)) == [agent.session_id(agent.name(1))]
    assert talk_of(store, agent.session_id(agent.name(1))) == TALK
