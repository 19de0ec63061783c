"""Sessions in the tables of OpenCode 2, beside those of 1.x that they were made of."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opencode_doubles import capture_of, problems_of, rows_of, said_in
from resolver_doubles import failure_of
from sessionref.protocol.errors import ReadFailedReason
from store_fixtures.opencode.rows import V1, V2, connected, put_message, put_row, put_session, text_of


@pytest.fixture
def database(home: Path) -> Iterator[sqlite3.Connection]:
    """The database while its agent has it open; `said_in` sees what `commit` was called for."""
    with connected(home / "opencode.db", V2) as connection:
        yield connection


def commit(database: sqlite3.Connection) -> None:
    database.execute("COMMIT")
    database.execute("BEGIN")


def put_talk(
    database: sqlite3.Connection, *texts: str, native_id: str = "ses_1", title: str | None = "A title"
) -> None:
    """A session in which prompts and answers take turns, as messages `1`, `2` and so on."""
    put_session(database, native_id, table="session_v2", title=title)
    for number, text in enumerate(texts, start=1):
        if number % 2:
            put_row(database, f"{number}", native_id, "user", text=text, files=[], agents=[])
        else:
            put_row(database, f"{number}", native_id, "assistant", content=[text_of(text)], finish="stop")


def test_prompts_and_answers_are_what_was_said_and_nothing_else_is(home: Path, database: sqlite3.Connection) -> None:
    put_session(database, "ses_1", table="session_v2")
    put_row(database, "1", "ses_1", "agent-switched", agent="build")
    put_row(database, "2", "ses_1", "model-switched", model={"id": "m", "providerID": "p"})
    put_row(database, "3", "ses_1", "system", text="no")
    put_row(database, "4", "ses_1", "user", text="the question", files=[{"text": "no"}], agents=[])
    put_row(database, "5", "ses_1", "synthetic", text="no", description="no")
    put_row(database, "6", "ses_1", "skill", name="no", text="no")
    put_row(database, "7", "ses_1", "shell", command="ls", status="exited", output={"output": "no"})
    tool = {"type": "tool", "id": "1", "name": "bash", "state": {"status": "completed", "content": [text_of("no")]}}
    content = [{"type": "reasoning", "text": "no"}, text_of("first"), tool, text_of(""), text_of("second")]
    put_row(database, "8", "ses_1", "assistant", content=content, agent="build")
    put_row(database, "9", "ses_1", "location-switched", location={"directory": "/no"})
    put_row(database, "10", "ses_1", "idle", outcome="succeeded")
    commit(database)

    assert said_in(home) == [("user", "the question"), ("assistant", "first\nsecond")]
    assert capture_of(home).captured_through_seq == 9
    assert capture_of(home).diagnostics == []


def test_messages_are_in_the_order_of_their_numbers(home: Path, database: sqlite3.Connection) -> None:
    put_session(database, "ses_1", table="session_v2")
    for message_id, seq in (("a", 30), ("b", 7), ("c", 100)):
        put_row(database, message_id, "ses_1", "user", seq=seq, text=message_id)
    commit(database)

    assert [text for _, text in said_in(home)] == ["b", "a", "c"]


def test_an_id_of_both_generations_is_the_one_that_goes_on(home: Path, database: sqlite3.Connection) -> None:
    put_session(database, "ses_1", title="Frozen at the upgrade")
    put_message(database, "old", "ses_1", "user", "from before")
    put_talk(database, "from before", "answered since", title="Going on")
    commit(database)

    assert said_in(home) == [("user", "from before"), ("assistant", "answered since")]
    assert [row.title for row in rows_of(home).values()] == ["Going on"]


def test_ids_of_the_old_tables_alone_stay_readable(home: Path, database: sqlite3.Connection) -> None:
    put_talk(database, "new", native_id="ses_2")
    put_session(database, "ses_1", title="Old")
    put_message(database, "old", "ses_1", "user", "from before")
    commit(database)

    assert said_in(home, "ses_1") == [("user", "from before")]
    assert {native_id: row.title for native_id, row in rows_of(home).items()} == {"ses_1": "Old", "ses_2": "A title"}


def test_a_session_whose_messages_were_not_taken_over_yet_has_its_old_ones(
    home: Path, database: sqlite3.Connection
) -> None:
    put_session(database, "ses_1")
    put_message(database, "old", "ses_1", "user", "from before")
    put_session(database, "ses_1", table="session_v2", title=None)
    put_row(database, "1", "ses_1", "model-switched", model={})
    commit(database)

    assert said_in(home) == [("user", "from before")]
    assert rows_of(home)["ses_1"].title == "from before"


def test_a_table_of_switches_alone_does_not_make_a_database_one_of_2(home: Path) -> None:
    with connected(home / "opencode.db", V1) as database:
        put_session(database, "ses_1")
        put_message(database, "old", "ses_1", "user", "hello")
        put_row(database, "1", "ses_1", "agent-switched", agent="plan")

    assert said_in(home) == [("user", "hello")]


def test_an_early_table_of_another_layout_does_no_harm_beside_the_old_tables(home: Path) -> None:
    with connected(home / "opencode.db", V1) as database:
        database.execute("DROP TABLE session_message")
        database.execute("CREATE TABLE session_message (id TEXT, session_id TEXT, type TEXT, data TEXT)")
        put_session(database, "ses_1")
        put_message(database, "old", "ses_1", "user", "hello")

    assert said_in(home) == [("user", "hello")]


def test_a_session_without_a_title_is_called_by_its_first_prompt(home: Path, database: sqlite3.Connection) -> None:
    put_talk(database, " \n", "what?", "\nfix the tests\nplease", title=None)
    commit(database)

    assert rows_of(home)["ses_1"].title == "fix the tests"


def test_a_fork_is_a_session_of_its_own_and_a_child_is_a_sub_agents(home: Path, database: sqlite3.Connection) -> None:
    put_talk(database, "origin")
    put_session(database, "ses_2", table="session_v2", fork_session_id="ses_1", fork_boundary="1")
    put_row(database, "fork", "ses_2", "user", text="origin")
    put_session(database, "ses_3", table="session_v2", parent_id="ses_1")
    commit(database)

    assert {native_id: row.is_subagent for native_id, row in rows_of(home).items()} == {
        "ses_1": False,
        "ses_2": False,
        "ses_3": True,
    }
    assert said_in(home, "ses_2") == [("user", "origin")]


def test_what_was_taken_back_is_left_out(home: Path, database: sqlite3.Connection) -> None:
    put_talk(database, "1", "2", "3", "4")
    revert = """{"messageID": "3", "snapshot": "1", "files": []}"""
    database.execute("UPDATE session_v2 SET revert = ?, title = NULL", (revert,))
    commit(database)

    assert [text for _, text in said_in(home)] == ["1", "2"]
    assert rows_of(home)["ses_1"].title == "1"


class TestCompaction:
    """A row with a summary, and what is kept as one text."""

    def compact(self, database: sqlite3.Connection, summary: str = "what happened", **data: Any) -> None:
        given: dict[str, Any] = {"status": "completed", "reason": "auto", "summary": summary, "recent": "", **data}
        put_row(database, f"compaction {summary}", "ses_1", "compaction", **given)

    def test_it_stands_first_and_for_all_that_was_before_it(self, home: Path, database: sqlite3.Connection) -> None:
        put_talk(database, "1", "2")
        self.compact(database, "first summary")
        put_row(database, "3", "ses_1", "user", text="3")
        self.compact(database)
        put_row(database, "4", "ses_1", "user", text="4")
        commit(database)

        assert said_in(home) == [("summary", "what happened"), ("user", "4")]

    def test_what_it_kept_stands_between_it_and_what_came_later(self, home: Path, database: sqlite3.Connection) -> None:
        put_talk(database, "1", "2", "3", "4", "5", "6")
        self.compact(database, recent="[User]: 3\n\n[Assistant]: 4\n[Assistant tool call]: x()\n\n[User]: 5\n\nand on")
        put_row(database, "7", "ses_1", "user", text="7")
        commit(database)

        assert [text for _, text in said_in(home)] == ["what happened", "3", "4", "5", "6", "7"]

    @pytest.mark.parametrize("recent", ["", "3", "[User]: 33", "[User]: 1\n\n[Assistant]: 2"])
    def test_a_text_without_the_last_prompts_keeps_none(
        self, home: Path, database: sqlite3.Connection, recent: str
    ) -> None:
        put_talk(database, "1", "2", "3", "4")
        self.compact(database, recent=recent)
        commit(database)

        assert said_in(home) == [("summary", "what happened")]

    @pytest.mark.parametrize(
        "data",
        [{"status": "running"}, {"status": "failed"}, {"summary": ""}, {"providerContext": {"provider": "x"}}],
        ids=str,
    )
    def test_one_that_is_not_there_to_be_read_stands_for_nothing(
        self, home: Path, database: sqlite3.Connection, data: dict[str, Any]
    ) -> None:
        put_talk(database, "1", "2")
        self.compact(database, **data)
        commit(database)

        assert said_in(home) == [("user", "1"), ("assistant", "2")]


def test_damaged_rows_cost_themselves_and_unknown_ones_are_counted(home: Path, database: sqlite3.Connection) -> None:
    put_talk(database, "1", "2", "3", "4")
    database.execute("UPDATE session_message SET data = 'no JSON' WHERE id = '2'")
    put_row(database, "5", "ses_1", "hologram", text="no")
    put_row(database, "6", "ses_1", "assistant", content=[{"type": "hologram"}, text_of("6"), 7])
    commit(database)
    capture = capture_of(home)

    assert [item.text for item in capture.items] == ["1", "3", "4", "6"]
    assert [(d.kind, d.detail[:9]) for d in capture.diagnostics] == [
        ("skipped-lines", "1 damaged"),
        ("unknown-events", "2 records"),
    ]


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE session_v3 (id TEXT PRIMARY KEY)",
        "DROP TABLE session_message",
        "ALTER TABLE session_message RENAME COLUMN seq TO number",
        "ALTER TABLE session_message RENAME COLUMN data TO body",
        "ALTER TABLE session_v2 RENAME COLUMN id TO key",
    ],
)
def test_tables_of_an_unknown_layout_are_refused_as_newer(
    home: Path, database: sqlite3.Connection, change: str
) -> None:
    put_talk(database, "1")
    put_session(database, "ses_old")
    put_message(database, "old", "ses_old", "user", "hello")
    database.execute(change)
    commit(database)

    assert problems_of(home) == {"opencode.db": "newer-format"}
    assert rows_of(home) == {}
    for native_id in ("ses_1", "ses_old", "ses_nobody"):
        assert failure_of(lambda native_id=native_id: capture_of(home, native_id)).reason is (  # type: ignore[misc]
            ReadFailedReason.NEWER_FORMAT
        )


@pytest.mark.parametrize("change", ["DROP TABLE part", "ALTER TABLE message RENAME COLUMN data TO body"])
def test_old_tables_of_an_unknown_layout_are_refused_as_newer(home: Path, change: str) -> None:
    with connected(home / "opencode.db", V1) as database:
        put_session(database, "ses_1")
        database.execute(change)

    assert problems_of(home) == {"opencode.db": "newer-format"}


@pytest.mark.parametrize("change", ["DROP TABLE part", "ALTER TABLE message RENAME COLUMN data TO body"])
def test_old_sessions_of_an_unknown_layout_are_said_beside_new_ones(
    home: Path, database: sqlite3.Connection, change: str
) -> None:
    put_talk(database, "1", "2")
    put_session(database, "ses_1")
    put_session(database, "ses_old")
    put_message(database, "old", "ses_old", "user", "hello")
    database.execute(change)
    commit(database)

    assert set(rows_of(home)) == {"ses_1"}
    assert problems_of(home) == {"opencode.db/ses_old": "newer-format"}
    assert said_in(home) == [("user", "1"), ("assistant", "2")]
    assert failure_of(lambda: capture_of(home, "ses_old")).reason is ReadFailedReason.NEWER_FORMAT


def test_old_sessions_without_ids_are_said_by_refusing_the_database(home: Path, database: sqlite3.Connection) -> None:
    put_talk(database, "1", "2")
    database.execute("ALTER TABLE session RENAME COLUMN id TO key")
    commit(database)
    assert set(rows_of(home)) == {"ses_1"}

    database.execute("ALTER TABLE session RENAME COLUMN key TO id")
    put_session(database, "ses_old")
    database.execute("ALTER TABLE session RENAME COLUMN id TO key")
    commit(database)
    assert (rows_of(home), problems_of(home)) == ({}, {"opencode.db": "newer-format"})


def test_new_tables_are_read_where_the_old_ones_are_gone(home: Path, database: sqlite3.Connection) -> None:
    put_talk(database, "1", "2")
    put_session(database, "ses_2", table="session_v2", title=None)
    database.execute("DROP TABLE part")
    database.execute("DROP TABLE message")
    commit(database)

    assert said_in(home) == [("user", "1"), ("assistant", "2")]
    assert rows_of(home)["ses_2"].title is None
    assert said_in(home, "ses_2") == []
