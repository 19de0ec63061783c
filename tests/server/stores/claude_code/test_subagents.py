"""The sub-agents of Claude Code's sessions: where their logs lie, and what they are called."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from catalogue_doubles import bring_up_to_date, full_view, index_view, open_database
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.catalogue.index import SessionIndex
from store_contract import refusal_of, unlisted_of
from store_fixtures.claude_code import Fixture
from store_fixtures.claude_code.homes import ids_in, put_subagent, said_by, write


def test_a_sub_agent_is_known_by_its_stem_and_by_its_parents_id_and_its_stem(home: Fixture) -> None:
    path = write(home, 1)
    put_subagent(path.with_suffix("") / "subagents" / "agent-a1.jsonl", home.name(1), "nested")
    put_subagent(path.with_name("agent-b2.jsonl"), home.name(1), "flat")
    store = home.open()

    assert ids_in(store) == {home.name(1), "agent-a1", "agent-b2"}
    for native_id in ("agent-a1", f"{home.name(1)}/agent-a1"):
        assert said_by(store, native_id) == "nested"
    for native_id in ("agent-b2", f"{home.name(1)}/agent-b2"):
        assert said_by(store, native_id) == "flat"


def test_where_two_sub_agents_have_one_stem_their_parents_tell_them_apart(home: Fixture) -> None:
    for number in (1, 2):
        path = write(home, number, cwd=f"/srv/{number}")
        put_subagent(path.with_suffix("") / "subagents" / "agent-a1.jsonl", home.name(number), f"of {number}")
    store = home.open()

    assert ids_in(store) == {home.name(1), home.name(2)} | {f"{home.name(number)}/agent-a1" for number in (1, 2)}
    for number in (1, 2):
        assert said_by(store, f"{home.name(number)}/agent-a1") == f"of {number}"
    assert refusal_of(store, "claude-code:agent-a1") is ReadFailedReason.DUPLICATE_ID
    assert unlisted_of(store) == []


def test_a_flat_one_keeps_its_stem_beside_a_nested_one(home: Fixture) -> None:
    path = write(home, 1)
    put_subagent(path.with_suffix("") / "subagents" / "agent-a1.jsonl", home.name(1), "nested")
    put_subagent(path.with_name("agent-a1.jsonl"), home.name(2), "flat")
    store = home.open()

    assert ids_in(store) == {home.name(1), f"{home.name(1)}/agent-a1", "agent-a1"}
    assert said_by(store, "agent-a1") == said_by(store, f"{home.name(2)}/agent-a1") == "flat"
    assert said_by(store, f"{home.name(1)}/agent-a1") == "nested"


def test_of_flat_ones_with_one_stem_the_records_tell_the_parents(home: Fixture) -> None:
    for number in (1, 2):
        path = write(home, number, cwd=f"/srv/{number}")
        put_subagent(path.with_name("agent-a1.jsonl"), home.name(number), f"of {number}")
    store = home.open()

    assert ids_in(store) == {home.name(1), home.name(2)} | {f"{home.name(number)}/agent-a1" for number in (1, 2)}
    for number in (1, 2):
        assert said_by(store, f"{home.name(number)}/agent-a1") == f"of {number}"
    assert refusal_of(store, "claude-code:agent-a1") is ReadFailedReason.DUPLICATE_ID


@pytest.mark.parametrize("parent", ["../../../etc", "x" * 200, ""])
def test_a_parent_that_cannot_be_one_is_replaced_by_the_folder(home: Fixture, parent: str) -> None:
    for number in (1, 2):
        path = write(home, number, cwd=f"/srv/{number}")
        put_subagent(path.with_name("agent-a1.jsonl"), parent, f"of {number}")
    store = home.open()

    assert ids_in(store) >= {"-srv-1/agent-a1", "-srv-2/agent-a1"}
    assert said_by(store, "-srv-1/agent-a1") == "of 1"


def test_two_copies_of_one_sub_agent_are_both_refused(home: Fixture) -> None:
    for cwd in ("/srv/1", "/srv/2"):
        path = write(home, 1, cwd=cwd)
        put_subagent(path.with_suffix("") / "subagents" / "agent-a1.jsonl", home.name(1), "copied")
    store = home.open()

    assert ids_in(store) == set()
    assert unlisted_of(store) == [ReadFailedReason.DUPLICATE_ID] * 4
    assert refusal_of(store, f"claude-code:{home.name(1)}/agent-a1") is ReadFailedReason.DUPLICATE_ID


def test_ids_of_sub_agents_are_kept_in_step_when_others_come_and_go(home: Fixture, tmp_path: Path) -> None:
    nested = [write(home, number).with_suffix("") / "subagents" / "agent-a1.jsonl" for number in (1, 2)]
    put_subagent(nested[0], home.name(1), "of 1")
    store, database = home.open(), open_database(tmp_path)
    index = SessionIndex(store, database)
    bring_up_to_date(index)
    assert "claude-code:agent-a1" in {row.header.session_id for row in index.rows()}

    put_subagent(nested[1], home.name(2), "of 2")
    bring_up_to_date(index)
    assert index_view(index) == full_view(home.open())
    assert "claude-code:agent-a1" not in {row.header.session_id for row in index.rows()}

    again = SessionIndex(home.open(), database)
    bring_up_to_date(again)
    assert index_view(again) == index_view(index)

    shutil.rmtree(nested[1].parent)
    bring_up_to_date(index)
    bring_up_to_date(again)
    assert index_view(index) == index_view(again) == full_view(home.open())
    assert "claude-code:agent-a1" in {row.header.session_id for row in index.rows()}
    database.close()


@pytest.mark.parametrize("native_id", ["x/y", "agent-a1/", "/agent-a1", "x/agent-a1", "x/x/agent-a1", "agent-", "a\0"])
def test_other_ids_are_not_found(home: Fixture, native_id: str) -> None:
    path = write(home, 1)
    put_subagent(path.with_suffix("") / "subagents" / "agent-a1.jsonl", home.name(1), "nested")

    assert refusal_of(home.open(), f"claude-code:{native_id}") is ReadFailedReason.NOT_FOUND


def test_files_beside_sub_agents_are_none(home: Fixture) -> None:
    folder = write(home, 1).with_suffix("")
    put_subagent(folder / "subagents" / "agent-a1.jsonl", home.name(1), "nested")
    (folder / "subagents" / "agent-a1.meta.json").write_text("{}")
    put_subagent(folder / "subagents" / "journal.jsonl", home.name(1), "a journal")
    put_subagent(folder / "tool-results" / "agent-a2.jsonl", home.name(1), "a result")

    assert ids_in(home.open()) == {home.name(1), "agent-a1"}
