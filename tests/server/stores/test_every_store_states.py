"""What is said of a store as a whole: that it is absent, empty, not understood, or found."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

import pytest

from catalogue_doubles import bring_up_to_date
from resolver_doubles import never_cancelled
from sessionref.protocol.methods import Candidate
from sessionref.server.candidates import ListedSession, select_candidates
from sessionref.server.catalogue.discovery import Discovery
from sessionref.server.catalogue.index import NOT_UNDERSTOOD, SessionIndex
from sessionref.server.cli_catalogue import run_doctor, run_index
from sessionref.server.settings import Settings
from sessionref.server.store import CataloguedStore, CheckCancelled
from sessionref.server.threads import WorkerThreads
from store_contract import TALK, every_kind, kinds_where, rows_of, unlisted_of
from store_fixtures import StoreFixture


def doctor_says(store: CataloguedStore, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """How the command ends, and what it says of a store."""
    code = run_doctor([store], Settings(), as_json=False)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.endswith(store.location))
    return code, line.removeprefix(store.kind).strip().partition("  ")[0]


async def logged_on(store: CataloguedStore, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What a server logs when it lists a store for the first time."""
    discovery = Discovery([store], None, threads=WorkerThreads(), wait_seconds=30)

    def select(rows: Sequence[ListedSession], check: CheckCancelled) -> list[tuple[ListedSession, Candidate]]:
        return select_candidates(
            rows, agent_id="agent", cwd=None, query="", limit=10, include_subagents=None, check=check
        )

    with caplog.at_level(logging.INFO, logger="sessionref"):
        await discovery.candidates(select)
    return [record.getMessage() for record in caplog.records]


def lessons_of(store: CataloguedStore) -> list[bool]:
    """Whether there is a prompt, for each session."""
    keys = [key for group in store.groups() for key in store.keys(group, never_cancelled)]
    lessons = [store.learn(key, None, never_cancelled, with_title=True) for key in keys]
    return [lesson.has_prompt for lesson in lessons if lesson is not None]


@every_kind
async def test_an_empty_home_is_said_to_have_no_sessions_yet(
    agent: StoreFixture, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    agent.create()
    store = agent.open()

    assert store.exists()
    assert (rows_of(store), unlisted_of(store)) == ({}, [])
    assert doctor_says(store, capsys) == (0, "empty")
    assert await logged_on(store, caplog) == [f"store {store.kind}: it has no sessions yet"]


@every_kind
async def test_a_home_that_is_not_there_is_no_failure_and_said_to_be_absent(
    agent: StoreFixture, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    store = agent.open()

    assert not store.exists()
    assert (rows_of(store), unlisted_of(store), store.watched_folders()) == ({}, [], [])
    assert doctor_says(store, capsys) == (0, "absent")
    assert await logged_on(store, caplog) == [f"store {store.kind}: there is none where it should be"]
    assert not agent.home.exists()


@every_kind
async def test_a_home_with_a_session_is_found_and_nothing_more_is_said(
    agent: StoreFixture, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    agent.create()
    agent.write(agent.name(1), TALK)
    store = agent.open()

    assert doctor_says(store, capsys) == (0, "found")
    assert await logged_on(store, caplog) == []


@kinds_where(lambda traits: traits.tells_prompts)
async def test_a_home_in_which_nobody_has_asked_anything_is_said_to_be_not_understood(
    agent: StoreFixture, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    agent.create()
    agent.write(agent.name(1), [("assistant", "nobody asked")])
    store = agent.open()
    (message,) = await logged_on(store, caplog)
    code = run_index([store], Settings(), verify=False, as_json=True)
    (report,) = json.loads(capsys.readouterr().out)["stores"]

    assert (code, report["failure"], report["sessions"]) == (1, NOT_UNDERSTOOD, 1)
    assert message.startswith(f"store {store.kind} is not readable: ")
    assert list(rows_of(store)) == [agent.session_id(agent.name(1))]


@kinds_where(lambda traits: traits.tells_prompts)
def test_a_store_in_which_no_session_has_a_prompt_is_not_understood(agent: StoreFixture) -> None:
    agent.create()
    agent.write(agent.name(1), [("assistant", "nobody asked")])
    store = agent.open()
    index = SessionIndex(store, None)
    bring_up_to_date(index)
    assert lessons_of(store) == [False]
    assert not index.is_understood

    agent.write(agent.name(2), TALK)
    bring_up_to_date(index)
    assert sorted(lessons_of(agent.open())) == [False, True]
    assert index.is_understood


@kinds_where(lambda traits: not traits.tells_prompts)
def test_a_kind_that_does_not_tell_prompts_never_says_that_there_is_none(agent: StoreFixture) -> None:
    agent.create()
    agent.write(agent.name(1), [("assistant", "nobody asked")])

    assert lessons_of(agent.open()) == [True]


@every_kind
def test_a_sub_agents_prompt_counts_as_one(agent: StoreFixture) -> None:
    agent.create()
    agent.write(agent.name(1), [("assistant", "nobody asked")])
    agent.write_subagent(agent.name(2), agent.name(1), [("user", "do it for me"), ("assistant", "done")])

    assert True in lessons_of(agent.open())
