"""Sessions in the tables of OpenCode 1.2 to 1.18."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from opencode_doubles import capture_of, problems_of, rows_of, said_in
from resolver_doubles import failure_of, never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.limits import ReadingLimits
from sessionref.server.stores.opencode.store import OpencodeStore
from store_fixtures import CREATED_AT
from store_fixtures.opencode.rows import V1, connected, put_message, put_part, put_session, text_of

TABLES_OF_OLD = """
CREATE TABLE session (id TEXT PRIMARY KEY, directory TEXT, title TEXT, time_created INTEGER, time_updated INTEGER);
CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, data TEXT);
CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, data TEXT);
"""


@pytest.fixture
def database(home: Path) -> Iterator[sqlite3.Connection]:
    """The database while its agent has it open; `said_in` sees what `commit` was called for."""
    with connected(home / "opencode.db", V1) as connection:
        yield connection


def commit(database: sqlite3.Connection) -> None:
    database.execute("COMMIT")
    database.execute("BEGIN")


def put_talk(database: sqlite3.Connection, *texts: str, native_id: str = "ses_1") -> None:
    """A session in which prompts and answers take turns, as messages `1`, `2` and so on."""
    put_session(database, native_id)
    for number, text in enumerate(texts, start=1):
        put_message(database, f"{number}", native_id, "user" if number % 2 else "assistant", text, finish="stop")


def test_text_parts_are_what_was_said_and_nothing_else_is(home: Path, database: sqlite3.Connection) -> None:
    put_talk(database, "the question")
    put_message(database, "2", "ses_1", "assistant")
    parts: list[dict[str, Any]] = [
        {"type": "step-start", "snapshot": "4b825dc"},
        {"type": "reasoning", "text": "thinking"},
        text_of("first"),
        {"type": "tool", "tool": "bash", "callID": "1", "state": {"status": "completed", "output": "ls", "text": "no"}},
        {"callID": "2", "type": "tool", "text": "no"},
        text_of("injected", synthetic=True),
        text_of("for the screen", ignored=True),
        text_of(""),
        {"type": "file", "mime": "text/plain", "url": "file:///x", "text": "no"},
        {"type": "agent", "name": "plan"},
        {"type": "subtask", "prompt": "no", "description": "no", "agent": "general"},
        {"type": "patch", "hash": "1", "files": []},
        {"type": "snapshot", "snapshot": "1"},
        {"type": "retry", "attempt": 1},
        text_of("second"),
        {"type": "step-finish", "reason": "stop"},
    ]
    for part in parts:
        put_part(database, "2", "ses_1", part)
    commit(database)

    assert said_in(home) == [("user", "the question"), ("assistant", "first\nsecond")]
    assert capture_of(home).diagnostics == []


def test_messages_are_in_the_order_of_their_times_and_parts_in_that_of_their_ids(
    home: Path, database: sqlite3.Connection
) -> None:
    put_session(database, "ses_1")
    put_message(database, "c", "ses_1", "assistant", at=30)
    put_message(database, "a", "ses_1", "user", "last", at=40)
    put_message(database, "b", "ses_1", "user", "first", at=10)
    put_message(database, "d", "ses_1", "user", "second", at=10)
    put_part(database, "c", "ses_1", text_of("there"), part_id="prt_2")
    put_part(database, "c", "ses_1", text_of("hello"), part_id="prt_1")
    commit(database)

    assert [text for _, text in said_in(home)] == ["first", "second", "hello\nthere", "last"]


def test_a_turn_without_text_leaves_no_message(home: Path, database: sqlite3.Connection) -> None:
    put_talk(database, "question", " \n ", "again")

    commit(database)
    assert said_in(home) == [("user", "question"), ("user", "again")]


def test_an_object_for_a_summary_is_none(home: Path, database: sqlite3.Connection) -> None:
    put_session(database, "ses_1")
    diffs = [{"file": "a.py", "patch": "+" * 1000}]
    put_message(database, "1", "ses_1", "user", "question", summary={"diffs": diffs}, finish="stop")
    put_message(database, "2", "ses_1", "assistant", "answer", summary={"title": None, "body": ""}, finish="stop")
    put_message(database, "3", "ses_1", "user", "again", summary=True, finish="stop")
    commit(database)

    assert [role for role, _ in said_in(home)] == ["user", "assistant", "user"]


class TestCompaction:
    """An answer with `summary: true` to a message with a compaction part (agent-stores section 6)."""

    def compact(self, database: sqlite3.Connection, *, kept: str | None = None, **members: Any) -> None:
        """The messages `marker` and `summary`."""
        put_message(database, "marker", "ses_1", "user")
        marker = {"type": "compaction", "auto": True} | ({"tail_start_id": kept} if kept else {})
        put_part(database, "marker", "ses_1", marker)
        given: dict[str, Any] = {"parentID": "marker", "summary": True, "finish": "stop", **members}
        put_message(database, "summary", "ses_1", "assistant", "what happened", **given)

    def test_it_stands_first_and_for_all_that_was_before_it(self, home: Path, database: sqlite3.Connection) -> None:
        put_talk(database, "1", "2", "3", "4")
        self.compact(database)
        put_message(database, "5", "ses_1", "user", "Continue if you have next steps", "more")
        put_part(database, "5", "ses_1", text_of("injected", synthetic=True))
        commit(database)

        assert said_in(home) == [("summary", "what happened"), ("user", "Continue if you have next steps\nmore")]

    def test_what_it_kept_stands_between_it_and_what_came_later(self, home: Path, database: sqlite3.Connection) -> None:
        put_talk(database, "1", "2", "3", "4")
        self.compact(database, kept="3")
        put_message(database, "5", "ses_1", "user", "5")
        commit(database)

        assert [text for _, text in said_in(home)] == ["what happened", "3", "4", "5"]

    @pytest.mark.parametrize("kept", ["marker", "summary", "gone"])
    def test_it_kept_nothing_where_what_it_names_is_not_before_it(
        self, home: Path, database: sqlite3.Connection, kept: str
    ) -> None:
        put_talk(database, "1", "2")
        self.compact(database, kept=kept)
        commit(database)

        assert said_in(home) == [("summary", "what happened")]

    @pytest.mark.parametrize("members", [{"finish": None}, {"error": {"name": "MessageAbortedError"}}])
    def test_one_that_is_not_finished_stands_for_nothing_and_is_no_answer(
        self, home: Path, database: sqlite3.Connection, members: dict[str, Any]
    ) -> None:
        put_talk(database, "1", "2")
        self.compact(database, **members)
        commit(database)

        assert said_in(home) == [("user", "1"), ("assistant", "2")]

    def test_the_last_one_counts_and_earlier_ones_are_gone(self, home: Path, database: sqlite3.Connection) -> None:
        put_talk(database, "1")
        put_message(database, "earlier", "ses_1", "assistant", "early summary", summary=True, finish="stop")
        put_message(database, "kept", "ses_1", "user", "2")
        put_message(database, "interim", "ses_1", "assistant", "interim summary", summary=True, finish="stop")
        put_message(database, "3", "ses_1", "user", "3")
        self.compact(database, kept="kept")
        commit(database)

        assert [text for _, text in said_in(home)] == ["what happened", "2", "3"]

    def test_one_without_a_marker_as_of_old_counts_too(self, home: Path, database: sqlite3.Connection) -> None:
        put_talk(database, "1", "2")
        done: dict[str, Any] = {"summary": True, "time": {"created": CREATED_AT, "completed": CREATED_AT + 1}}
        put_message(database, "summary", "ses_1", "assistant", "what happened", **done)
        put_message(database, "3", "ses_1", "user", "3")
        commit(database)

        assert said_in(home) == [("summary", "what happened"), ("user", "3")]

    def test_a_prompt_that_came_before_its_answer_is_not_lost(self, home: Path, database: sqlite3.Connection) -> None:
        put_talk(database, "1")
        put_message(database, "marker", "ses_1", "user")
        put_part(database, "marker", "ses_1", {"type": "compaction", "auto": False})
        put_message(database, "queued", "ses_1", "user", "queued")
        given: dict[str, Any] = {"parentID": "marker", "summary": True, "finish": "stop"}
        put_message(database, "summary", "ses_1", "assistant", "what happened", **given)
        commit(database)

        assert said_in(home) == [("summary", "what happened"), ("user", "queued")]

    def test_one_whose_text_is_lost_stands_for_nothing(self, home: Path, database: sqlite3.Connection) -> None:
        put_talk(database, "1", "2")
        self.compact(database)
        database.execute("UPDATE part SET data = '{' WHERE message_id = 'summary'")
        commit(database)

        assert said_in(home) == [("user", "1"), ("assistant", "2")]
        assert [diagnostic.kind for diagnostic in capture_of(home).diagnostics] == ["skipped-lines"]

    def test_one_that_was_taken_back_stands_for_nothing(self, home: Path, database: sqlite3.Connection) -> None:
        put_talk(database, "1", "2")
        self.compact(database)
        database.execute("""UPDATE session SET revert = '{"messageID": "marker"}'""")
        commit(database)

        assert said_in(home) == [("user", "1"), ("assistant", "2")]


@pytest.mark.parametrize(
    ("revert", "said"),
    [
        ('{"messageID": "3"}', ["1", "2"]),
        ('{"messageID": "1"}', []),
        ('{"messageID": "4", "partID": "prt_9"}', ["1", "2", "3", "4a"]),
        ('{"messageID": "4", "partID": "prt_0"}', ["1", "2", "3"]),
        ('{"messageID": "gone"}', ["1", "2", "3", "4a\n4b"]),
        ("null", ["1", "2", "3", "4a\n4b"]),
        ("{", ["1", "2", "3", "4a\n4b"]),
        ("7", ["1", "2", "3", "4a\n4b"]),
    ],
)
def test_what_was_taken_back_is_left_out(
    home: Path, database: sqlite3.Connection, revert: str, said: list[str]
) -> None:
    put_talk(database, "1", "2", "3")
    put_message(database, "4", "ses_1", "assistant")
    put_part(database, "4", "ses_1", text_of("4a"), part_id="prt_8")
    put_part(database, "4", "ses_1", text_of("4b"), part_id="prt_9")
    database.execute("UPDATE session SET revert = ?", (revert,))
    commit(database)

    assert [text for _, text in said_in(home)] == said
    assert capture_of(home).captured_through_seq == 3


def test_a_row_says_what_the_session_says(home: Path, database: sqlite3.Connection) -> None:
    put_session(database, "ses_1", title="Named", directory="/srv/ünï", time_created=7, time_updated=9, time_archived=8)
    put_session(database, "ses_2", parent_id="ses_gone", title="Child", directory="")
    commit(database)
    rows = rows_of(home)

    one = rows["ses_1"]
    assert (one.title, one.cwd, one.created_at, one.updated_at) == ("Named", "/srv/ünï", 7, 9)
    assert (one.is_subagent, rows["ses_2"].is_subagent) == (False, True)
    assert rows["ses_2"].cwd is None


@pytest.mark.parametrize(
    ("title", "listed"),
    [
        ("New session - 2026-11-30T00:43:15.463Z", "hello there"),
        ("Child session - 2026-11-30T00:43:15.463Z", "hello there"),
        ("", "hello there"),
        (" ", "hello there"),
        ("New session - tomorrow", "New session - tomorrow"),
        ("My New session - 2026-11-30T00:43:15.463Z", "My New session - 2026-11-30T00:43:15.463Z"),
        ("Cart (fork #1)", "Cart (fork #1)"),
    ],
)
def test_a_title_that_every_session_has_is_none(
    home: Path, database: sqlite3.Connection, title: str, listed: str
) -> None:
    put_session(database, "ses_1", title=title)
    put_message(database, "1", "ses_1", "assistant", "welcome")
    put_message(database, "2", "ses_1", "user", "\n")
    put_part(database, "2", "ses_1", text_of("injected", synthetic=True))
    put_message(database, "3", "ses_1", "user", "hello there\nand more")
    commit(database)

    assert rows_of(home)["ses_1"].title == listed


def test_a_prompt_that_was_taken_back_is_no_title(home: Path, database: sqlite3.Connection) -> None:
    put_talk(database, "never mind")
    database.execute("""UPDATE session SET title = '', revert = '{"messageID": "1"}'""")
    commit(database)

    assert rows_of(home)["ses_1"].title is None


def test_a_session_without_a_message_is_listed_and_empty(home: Path, database: sqlite3.Connection) -> None:
    put_session(database, "ses_1")
    commit(database)

    assert list(rows_of(home)) == ["ses_1"]
    assert (said_in(home), capture_of(home).captured_through_seq) == ([], None)


def test_damaged_rows_cost_themselves_and_are_counted(home: Path, database: sqlite3.Connection) -> None:
    put_talk(database, "1", "2", "3", "4")
    put_part(database, "4", "ses_1", "no JSON")
    put_part(database, "4", "ses_1", "[]")
    put_part(database, "4", "ses_1", text_of("and so on"))
    database.execute("UPDATE message SET data = '{\"role\": \"assis' WHERE id = '2'")
    commit(database)
    capture = capture_of(home)

    assert [item.text for item in capture.items] == ["1", "3", "4\nand so on"]
    assert [(d.kind, d.detail) for d in capture.diagnostics] == [("skipped-lines", "3 damaged lines left out.")]
    assert capture.captured_through_seq == 3


def test_a_session_of_damaged_rows_alone_is_corrupt_and_listed(home: Path, database: sqlite3.Connection) -> None:
    put_talk(database, "1", "2")
    database.execute("UPDATE message SET data = ''")
    commit(database)

    assert failure_of(lambda: capture_of(home)).reason is ReadFailedReason.CORRUPT
    assert list(rows_of(home)) == ["ses_1"]


def test_what_is_unknown_is_passed_over_and_counted(home: Path, database: sqlite3.Connection) -> None:
    put_talk(database, "1", "2")
    put_part(database, "2", "ses_1", {"type": "hologram", "text": "no"})
    put_part(database, "2", "ses_1", {"text": "of no type"})
    put_message(database, "3", "ses_1", "oracle", "no")
    commit(database)
    capture = capture_of(home)

    assert [item.text for item in capture.items] == ["1", "2"]
    (diagnostic,) = capture.diagnostics
    assert (diagnostic.kind, diagnostic.detail[:9]) == ("unknown-events", "3 records")


def test_parts_of_another_sessions_messages_are_not_taken(home: Path, database: sqlite3.Connection) -> None:
    put_talk(database, "1", "2")
    put_session(database, "ses_2")
    put_message(database, "x", "ses_2", "user", "other")
    commit(database)

    assert said_in(home, "ses_2") == [("user", "other")]
    assert [text for _, text in said_in(home)] == ["1", "2"]


def test_tables_with_few_columns_and_without_an_index_are_read(home: Path) -> None:
    home.mkdir()
    with closing(sqlite3.connect(home / "opencode.db")) as database, database:
        database.executescript(TABLES_OF_OLD)
        database.execute("INSERT INTO session VALUES ('ses_1', '/srv', 'Old', 1, 2)")
        database.execute("""INSERT INTO message VALUES ('1', 'ses_1', 1, '{"role":"user"}')""")
        database.execute("""INSERT INTO part VALUES ('1', '1', '{"type":"text","text":"hello"}')""")

    assert said_in(home) == [("user", "hello")]
    assert rows_of(home)["ses_1"].title == "Old"


@pytest.mark.parametrize("value", [None, 7, 1.5, b"\xff", "text", 2**62, -1])
def test_values_of_other_kinds_in_a_sessions_row_break_nothing(home: Path, value: Any) -> None:
    home.mkdir()
    with closing(sqlite3.connect(home / "opencode.db")) as database, database:
        database.executescript(TABLES_OF_OLD)
        database.execute("INSERT INTO session VALUES ('ses_1', ?, ?, ?, ?)", (value,) * 4)
        database.execute("INSERT INTO session VALUES (?, '/srv', 'Odd', 1, 2)", (value,))
        database.execute("INSERT INTO message VALUES ('1', 'ses_1', ?, ?)", (value, value))
        database.execute("INSERT INTO message VALUES ('2', 'ses_1', 2, '{\"role\":\"user\"}')")
        database.execute("INSERT INTO part VALUES ('1', '2', ?)", (value,))

    assert "ses_1" in rows_of(home)
    assert said_in(home) == []
    assert problems_of(home) == {}


def test_a_conversation_beyond_the_limit_is_too_large(home: Path, database: sqlite3.Connection) -> None:
    put_talk(database, "x" * 600, "y" * 600)
    commit(database)
    store = OpencodeStore(home, limits=ReadingLimits(conversation_bytes=1000))
    failure = failure_of(lambda: store.capture("opencode:ses_1", never_cancelled))

    assert (failure.reason, failure.data["limit"]) == (ReadFailedReason.TOO_LARGE, 1000)


def test_a_part_beyond_the_limit_is_too_large_but_what_a_tool_returned_is_not(
    home: Path, database: sqlite3.Connection
) -> None:
    put_talk(database, "1", "2")
    put_part(database, "2", "ses_1", '{"type":"tool","state":{"output":"' + "x" * 10_000 + '"}}')
    commit(database)
    store = OpencodeStore(home, limits=ReadingLimits(line_bytes=1000))
    assert len(store.capture("opencode:ses_1", never_cancelled).items) == 2

    put_part(database, "2", "ses_1", text_of("x" * 1000))
    commit(database)
    failure = failure_of(lambda: store.capture("opencode:ses_1", never_cancelled))
    assert (failure.reason, failure.data["limit"]) == (ReadFailedReason.TOO_LARGE, 1000)


def test_a_part_nested_too_deeply_is_too_large(home: Path, database: sqlite3.Connection) -> None:
    put_talk(database, "1", "2")
    put_part(database, "2", "ses_1", '{"type": "text", "metadata": ' + "[" * 2000 + "]" * 2000 + "}")
    commit(database)

    assert failure_of(lambda: capture_of(home)).reason is ReadFailedReason.TOO_LARGE


def test_a_session_that_was_taken_back_unreadably_costs_itself_alone(home: Path, database: sqlite3.Connection) -> None:
    put_session(database, "ses_1", revert="[" * 100_000)
    put_session(database, "ses_2")
    commit(database)

    assert set(rows_of(home)) == {"ses_2"}
    assert problems_of(home) == {"opencode.db/ses_1": "too-large"}
    assert failure_of(lambda: capture_of(home)).reason is ReadFailedReason.TOO_LARGE


def test_a_part_without_anything_in_it_is_counted(home: Path) -> None:
    with connected(home / "opencode.db", TABLES_OF_OLD) as database:
        database.execute("INSERT INTO session (id) VALUES ('ses_1')")
        database.execute("""INSERT INTO message VALUES ('m1', 'ses_1', 1, '{"role": "user"}')""")
        database.execute("INSERT INTO part VALUES ('p1', 'm1', NULL)")

    assert [diagnostic.kind for diagnostic in capture_of(home).diagnostics] == ["skipped-lines"]
