"""The row of a pi session: its name, or its first prompt, and whose it is (agent-stores section 8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pi_records import PiLog, blocks, row_of
from resolver_doubles import never_cancelled
from sessionref.server.stores.pi.store import PiStore
from store_fixtures import CREATED_AT
from store_fixtures.logs import iso, lines_of


def titled(folder: Path, log: PiLog) -> str | None:
    return row_of(folder, log).title


def test_a_session_is_called_by_its_first_prompt(tmp_path: Path) -> None:
    log = PiLog()
    log.assistant("welcome")
    log.message("toolResult", blocks("not this"))
    log.message("user", [{"type": "image"}])
    log.user("\n  the question \nand more")
    log.user("another")

    assert titled(tmp_path, log) == "the question"


def test_a_prompt_of_an_abandoned_branch_is_the_first_all_the_same(tmp_path: Path) -> None:
    log = PiLog()
    log.user("first try")
    log.leaf = None
    log.user("second try")

    assert titled(tmp_path, log) == "first try"


def test_the_last_name_counts_whatever_branch_it_is_on(tmp_path: Path) -> None:
    log = PiLog()
    (first,) = log.talk("question")
    log.entry("session_info", name="First name")
    log.leaf = first
    log.entry("session_info", name="Second name")
    log.user("more")

    assert titled(tmp_path, log) == "Second name"


@pytest.mark.parametrize("name", ["", "  \t", None])
def test_an_empty_name_takes_the_name_away(tmp_path: Path, name: str | None) -> None:
    log = PiLog()
    log.user("question")
    log.entry("session_info", name="A name")
    log.entry("session_info", name=name)
    assert titled(tmp_path, log) == "question"

    log.entry("session_info", name="Another")
    assert titled(tmp_path, log) == "Another"


def test_without_a_name_and_a_prompt_there_is_no_title(tmp_path: Path) -> None:
    log = PiLog()
    log.assistant("nobody asked")

    assert titled(tmp_path, log) is None


def test_the_title_of_oh_my_pi_stands_before_the_header_or_in_it_and_a_name_goes_before_it(tmp_path: Path) -> None:
    log = PiLog()
    log.user("question")
    before = lines_of([{"type": "title", "title": "Before"}])
    within = PiLog(title="Within")
    within.user("question")

    assert row_of(tmp_path, before + log.content).title == "Before"
    assert titled(tmp_path, within) == "Within"
    assert row_of(tmp_path, before + within.content).title == "Within"
    within.entry("session_info", name="A name")
    assert titled(tmp_path, within) == "A name"


def test_a_title_of_oh_my_pi_that_is_none_leaves_the_prompt(tmp_path: Path) -> None:
    log = PiLog()
    log.user("question")
    for title in ("", None, 5):
        assert row_of(tmp_path, lines_of([{"type": "title", "title": title}]) + log.content).title == "question"


def test_a_row_has_the_directory_and_the_time_of_the_header(tmp_path: Path) -> None:
    log = PiLog(cwd="/srv/ünï", timestamp=iso(CREATED_AT + 123), parentSession="/somewhere/else.jsonl")
    row = row_of(tmp_path, log)

    assert (row.session_id, row.cwd, row.created_at, row.is_subagent) == ("pi:s", "/srv/ünï", CREATED_AT + 123, False)


@pytest.mark.parametrize("timestamp", [None, "", "yesterday", 5, CREATED_AT])
def test_a_header_without_a_time_was_made_when_its_file_changed_last(tmp_path: Path, timestamp: Any) -> None:
    row = row_of(tmp_path, PiLog(timestamp=timestamp))

    assert row.created_at == row.updated_at


def test_a_second_header_changes_nothing(tmp_path: Path) -> None:
    log = PiLog()
    log.user("question")
    again = PiLog(id="other", cwd="/elsewhere", version=9, title="Other")
    row = row_of(tmp_path, log.content + again.content)

    assert (row.session_id, row.cwd, row.title) == ("pi:s", "/w", "question")


@pytest.mark.parametrize(
    ("texts", "has_prompt"),
    [([], False), (["question"], True), (["", "answer"], False), (["", "answer", "later"], True)],
)
def test_a_session_has_a_prompt_once_a_user_has_said_something(
    tmp_path: Path, texts: list[str], has_prompt: bool
) -> None:
    log = PiLog()
    log.talk(*texts)
    row_of(tmp_path, log)
    store = PiStore(tmp_path)
    (key,) = store.keys("", never_cancelled)
    lesson = store.learn(key, None, never_cancelled, with_title=True)

    assert lesson is not None
    assert lesson.has_prompt is has_prompt
