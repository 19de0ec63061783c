"""The store of Qwen Code's sessions as a whole: which there are, and what their rows say."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from catalogue_doubles import bring_up_to_date
from resolver_doubles import never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.catalogue.index import SessionIndex
from sessionref.server.store import CataloguedStore, SessionHeader
from sessionref.server.stores.qwen_code import homes
from sessionref.server.stores.qwen_code.layout import log_at
from store_contract import TALK, refusal_of, rows_of, set_limits, talk_of, unlisted_of
from store_fixtures import CREATED_AT
from store_fixtures.logs import iso, lines_of
from store_fixtures.qwen_code import Fixture


@pytest.fixture
def agent(tmp_path: Path) -> Fixture:
    made = Fixture(tmp_path / "qwen")
    made.create()
    return made


def one(agent: Fixture) -> tuple[CataloguedStore, str, Path]:
    """A store with one session: its id and its file."""
    path = agent.write(agent.name(1), TALK)
    return set_limits(agent.open()), agent.session_id(agent.name(1)), path


def add(agent: Fixture, kind: str, **more: Any) -> None:
    with agent.logs[agent.name(1)].open("ab") as file:
        file.write(lines_of([agent.record(agent.name(1), kind, **more)]))


def only_row(agent: Fixture) -> SessionHeader:
    (row,) = rows_of(agent.open()).values()
    return row


@pytest.mark.parametrize(
    ("key", "native_id", "is_subagent"),
    [
        ("projects/-work/chats/27d495d1-de2d-449d-af11-d42d4d6ef80d.jsonl", "27d495d1-de2d-449d-af11-d42d4d6ef80d", 0),
        ("projects/-w/chats/archive/" + "a" * 32 + ".jsonl", "a" * 32, 0),
        ("tmp/" + "0" * 64 + "/chats/" + "B" * 36 + ".jsonl", "B" * 36, 0),
        ("projects/-work/subagents/parent/agent-explore-7f3c.jsonl", "parent/agent-explore-7f3c", 1),
    ],
)
def test_a_log_is_named_after_its_session(key: str, native_id: str, is_subagent: int) -> None:
    log = log_at(key)

    assert log is not None
    assert (log.native_id, log.is_subagent) == (native_id, bool(is_subagent))


@pytest.mark.parametrize(
    "name",
    [
        *("{id}.ledger.jsonl", "{id}.worktree.json", "{id}.pr.json", "{id}.jsonl.tmp", "other.jsonl", "a/{id}.jsonl"),
        *("../meta.json", "../usage_record.jsonl", "../subagents/{id}/agent-a.meta.json", "../{id}.jsonl"),
    ],
)
def test_what_else_is_noted_of_a_session_is_none(agent: Fixture, name: str) -> None:
    store, session_id, path = one(agent)
    other = path.parent / name.format(id=agent.name(1))
    other.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, other)

    assert list(rows_of(store)) == [session_id]
    assert unlisted_of(store) == []
    assert talk_of(store, session_id) == TALK


def test_archived_sessions_and_those_of_older_builds_are_listed(agent: Fixture) -> None:
    store, session_id, path = one(agent)
    for number, folder in ((2, path.parent / "archive"), (3, agent.home / "tmp" / "0a1b" / "chats")):
        folder.mkdir(parents=True)
        shutil.copyfile(path, folder / f"{agent.name(number)}.jsonl")
    others = [agent.session_id(agent.name(number)) for number in (2, 3)]

    assert sorted(rows_of(store)) == [session_id, *others]
    assert [talk_of(store, other) for other in others] == [TALK, TALK]


def test_a_session_that_is_archived_and_is_not_is_a_duplicate(agent: Fixture) -> None:
    store, session_id, path = one(agent)
    (path.parent / "archive").mkdir()
    shutil.copyfile(path, path.parent / "archive" / path.name)

    assert rows_of(store) == {}
    assert unlisted_of(store) == [ReadFailedReason.DUPLICATE_ID] * 2
    assert refusal_of(store, session_id) is ReadFailedReason.DUPLICATE_ID


def test_a_session_that_is_archived_while_it_is_listed_stays_listed(agent: Fixture) -> None:
    store, session_id, path = one(agent)
    index = SessionIndex(store, None)
    bring_up_to_date(index)
    (path.parent / "archive").mkdir()
    path.rename(path.parent / "archive" / path.name)
    bring_up_to_date(index)

    assert [row.header.session_id for row in index.rows()] == [session_id]
    assert index.unlisted() == []


def test_sub_agents_of_different_sessions_may_be_called_the_same(agent: Fixture) -> None:
    for number in (1, 2):
        agent.write(agent.name(number), TALK)
        agent.write_subagent("explore-1", agent.name(number), [("user", f"go {number}"), ("assistant", "gone")])
    store = agent.open()
    children = [agent.session_id(f"{agent.name(number)}/agent-explore-1") for number in (1, 2)]

    assert [row.session_id for row in rows_of(store).values() if row.is_subagent] == children
    assert talk_of(store, children[1]) == [("user", "go 2"), ("assistant", "gone")]


def test_a_session_that_another_has_made_is_hidden(agent: Fixture) -> None:
    one(agent)
    assert not only_row(agent).is_subagent
    add(agent, "system", subtype="parent_session", systemPayload={"parentSessionId": agent.name(2)})
    assert only_row(agent).is_subagent


def test_a_forked_session_is_one_of_its_own(agent: Fixture) -> None:
    store, session_id, path = one(agent)
    forked = agent.name(2)
    content = path.read_text(encoding="utf-8").replace(agent.name(1), forked)
    path.with_name(f"{forked}.jsonl").write_text(
        content.replace('"type"', '"forkedFrom": {}, "type"'), encoding="utf-8"
    )

    assert sorted(rows_of(store)) == [session_id, agent.session_id(forked)]
    assert talk_of(store, agent.session_id(forked)) == TALK


def test_the_last_title_counts_whoever_gave_it_and_an_empty_one_does_not(agent: Fixture) -> None:
    one(agent)
    for title, source in (("By hand", "manual"), ("By the model", "auto"), ("", "manual")):
        payload = {"customTitle": title, "titleSource": source}
        add(agent, "system", subtype="custom_title", systemPayload=payload)

    assert only_row(agent).title == "By the model"


def test_the_title_is_else_the_first_prompt_as_it_was_shown(agent: Fixture) -> None:
    message = {"role": "user", "parts": [{"text": "<hook>"}, {"text": "sent"}]}
    agent.write(agent.name(1), [])
    add(agent, "user", subtype="cron", provenance="system", message=message)
    add(agent, "user", provenance="real_user", message=message, systemPayload={"displayText": "shown\nand more"})
    add(agent, "user", provenance="real_user", message=message)

    assert only_row(agent).title == "shown"


def test_directory_and_time_are_the_first_that_are_told(agent: Fixture) -> None:
    records = [
        agent.record(agent.name(1), "system", subtype="session_model") | {"timestamp": "soon"},
        agent.record(agent.name(1), "user", cwd="/srv/first") | {"timestamp": iso(CREATED_AT + 5)},
        agent.record(agent.name(1), "user", cwd="/srv/second"),
    ]
    agent.put(agent.name(1), agent.home / "projects" / "-elsewhere" / "chats" / f"{agent.name(1)}.jsonl", records)
    row = only_row(agent)

    assert (row.cwd, row.created_at) == ("/srv/first", CREATED_AT + 5)
    assert agent.open().capture(row.session_id, never_cancelled).cwd == "/srv/first"


def test_a_log_of_something_else_is_corrupt(agent: Fixture) -> None:
    path = agent.home / "projects" / "-work" / "chats" / f"{agent.name(1)}.jsonl"
    agent.put(agent.name(1), path, [{"type": "session.start", "data": {}}])

    assert unlisted_of(agent.open()) == [ReadFailedReason.CORRUPT]
    assert refusal_of(agent.open(), agent.session_id(agent.name(1))) is ReadFailedReason.CORRUPT


def test_a_change_of_a_log_is_one_of_its_session(agent: Fixture) -> None:
    store, _, path = one(agent)

    assert store.key_of(path) == path.relative_to(agent.home).as_posix()
    assert store.key_of(path.with_suffix(".ledger.jsonl")) is None
    assert store.watched_folders() == [agent.home / "projects"]


def test_the_home_is_the_one_that_the_environment_names_else_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert homes({}) == homes({"QWEN_HOME": ""}) == [tmp_path / ".qwen"]
    assert homes({"QWEN_HOME": "~/home"}) == [tmp_path / "home"]
    assert homes({"QWEN_HOME": "/a", "QWEN_RUNTIME_DIR": "/b", "QWEN_DATA_DIR": "/c"}) == [Path("/b")]
