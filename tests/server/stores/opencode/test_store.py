"""Where sessions are found: the databases and files of a data folder, which goes before which, and what is said."""

from __future__ import annotations

import os
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from catalogue_doubles import bring_up_to_date, full_view, index_view, open_database
from opencode_doubles import capture_of, problems_of, rows_of, said_in, store_of
from resolver_doubles import failure_of, never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.catalogue.index import SessionIndex
from sessionref.server.store import CataloguedStore
from sessionref.server.stores.opencode import homes, open_store
from sessionref.server.stores.opencode.database import Database
from sessionref.server.stores.opencode.store import OpencodeStore
from sessionref.server.stores.registry import open_stores
from sessionref.server.stores.sqlite import DatabaseLimits
from sqlite_doubles import OLD_NS, Writer
from store_contract import files_below
from store_fixtures.opencode.rows import V1, connected, put_file, put_message, put_session


def put_talk(path: Path, text: str, *native_ids: str) -> None:
    """A database with sessions of one prompt."""
    with connected(path, V1) as database:
        for native_id in native_ids or ("ses_1",):
            put_session(database, native_id, title=f"Titled {text}")
            put_message(database, f"msg_{native_id}", native_id, "user", text)


def put_files(home: Path, text: str, *native_ids: str) -> None:
    """The same in files."""
    for native_id in native_ids or ("ses_1",):
        put_file(home, f"session/global/{native_id}", {"id": native_id, "title": f"Titled {text}"})
        put_file(home, f"message/{native_id}/msg_{native_id}", {"role": "user"})
        put_file(home, f"part/msg_{native_id}/prt_1", {"type": "text", "text": text})


def test_every_database_of_the_folder_counts(home: Path) -> None:
    put_talk(home / "opencode.db", "released", "ses_1")
    put_talk(home / "opencode-dev.db", "built here", "ses_2")
    put_talk(home / "opencode-next.db", "to come", "ses_3")
    put_talk(home / "other.db", "of something else", "ses_4")
    put_files(home, "from before", "ses_5")

    assert set(rows_of(home)) == {"ses_1", "ses_2", "ses_3", "ses_5"}
    assert said_in(home, "ses_2") == [("user", "built here")]
    assert said_in(home, "ses_5") == [("user", "from before")]
    assert failure_of(lambda: capture_of(home, "ses_4")).reason is ReadFailedReason.NOT_FOUND


def test_an_id_in_several_places_is_one_session_and_the_first_place_counts(home: Path) -> None:
    places = ["opencode.db", "opencode-a.db", "opencode-b.db"]
    for place in places:
        put_talk(home / place, place)
    put_files(home, "files")

    for place in [*places, "files"]:
        assert said_in(home) == [("user", place)]
        assert [row.title for row in rows_of(home).values()] == [f"Titled {place}"]
        assert problems_of(home) == {}
        (home / place).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"no database at all" * 100, "corrupt"), (b"", None)],
)
def test_a_database_that_is_none_is_said_and_hides_no_other(home: Path, content: bytes, reason: str | None) -> None:
    put_talk(home / "opencode-dev.db", "built here", "ses_1")
    put_files(home, "from before", "ses_2")
    (home / "opencode.db").write_bytes(content)

    assert set(rows_of(home)) == {"ses_1", "ses_2"}
    assert problems_of(home) == ({"opencode.db": reason} if reason else {})
    assert said_in(home, "ses_1") == [("user", "built here")]
    assert said_in(home, "ses_2") == [("user", "from before")]
    assert failure_of(lambda: capture_of(home, "ses_3")).reason == (reason or "not-found")


def test_a_database_without_a_table_of_sessions_is_said(home: Path) -> None:
    put_talk(home / "opencode.db", "released")
    with connected(home / "opencode-dev.db", V1) as database:
        database.execute("DROP TABLE session")

    assert list(rows_of(home)) == ["ses_1"]
    assert problems_of(home) == {"opencode-dev.db": "corrupt"}


def test_a_database_in_which_nothing_was_made_yet_is_no_problem(home: Path) -> None:
    with connected(home / "opencode.db") as database:
        database.execute("CREATE TABLE migration (id TEXT)")

    assert (rows_of(home), problems_of(home)) == ({}, {})


def test_behind_a_newer_database_no_older_files_are_shown_as_if_nothing_were(home: Path) -> None:
    put_files(home, "from before")
    with connected(home / "opencode.db") as database:
        database.execute("CREATE TABLE session_v3 (id TEXT)")

    assert (rows_of(home), problems_of(home)) == ({}, {"opencode.db": "newer-format"})
    assert failure_of(lambda: capture_of(home)).reason is ReadFailedReason.NEWER_FORMAT


def test_a_damaged_session_is_refused_and_no_older_copy_of_it_is_taken(home: Path) -> None:
    put_talk(home / "opencode.db", "released")
    put_files(home, "from before")
    with connected(home / "opencode.db") as database:
        database.execute("UPDATE message SET data = 'no JSON'")

    assert failure_of(lambda: capture_of(home)).reason is ReadFailedReason.CORRUPT


def test_a_store_without_one_prompt_is_not_understood(home: Path) -> None:
    with connected(home / "opencode.db", V1) as database:
        put_session(database, "ses_1", title="Titled")
        put_message(database, "1", "ses_1", "assistant", "nobody asked")
    index = SessionIndex(store_of(home), None)
    bring_up_to_date(index)
    assert not index.is_understood

    with connected(home / "opencode.db") as database:
        put_message(database, "2", "ses_1", "user", "now somebody does")
    bring_up_to_date(index)
    assert index.is_understood


class TestTheNamedDatabase:
    """`$OPENCODE_DB`, absolute or below the data folder."""

    @pytest.fixture(autouse=True)
    def _agents_own(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_DATA_HOME", str(home.parent))

    @pytest.mark.parametrize("variable", ["/elsewhere", "~nobody-of-that-name/data"])
    def test_it_has_no_part_in_another_folder_that_somebody_names(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
    ) -> None:
        put_talk(home / "opencode.db", "kept")
        put_talk(tmp_path / "live.db", "live", "ses_1", "ses_2")
        monkeypatch.setenv("OPENCODE_DB", str(tmp_path / "live.db"))
        monkeypatch.setenv("XDG_DATA_HOME", variable)
        (store,) = open_stores([f"opencode:{home}"], os.environ)

        assert [row.title for row in store.list_sessions(never_cancelled).sessions] == ["Titled kept"]

    @pytest.mark.parametrize("is_absolute", [True, False])
    def test_it_goes_before_the_others(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_absolute: bool
    ) -> None:
        put_talk(home / "opencode.db", "usual", "ses_1", "ses_2")
        place = tmp_path / "elsewhere" / "mine.db" if is_absolute else home / "below" / "mine.db"
        put_talk(place, "named", "ses_1", "ses_3")
        monkeypatch.setenv("OPENCODE_DB", str(place) if is_absolute else "below/mine.db")
        store = open_store(home)
        listed = store.list_sessions(never_cancelled)

        titles = {row.session_id: row.title for row in listed.sessions}
        assert titles == {
            "opencode:ses_1": "Titled named",
            "opencode:ses_2": "Titled usual",
            "opencode:ses_3": "Titled named",
        }
        assert store.capture("opencode:ses_1", never_cancelled).items[0].text == "named"

    def test_one_of_the_folders_own_is_only_put_first(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        put_talk(home / "opencode.db", "usual")
        put_talk(home / "opencode-dev.db", "named")
        monkeypatch.setenv("OPENCODE_DB", "opencode-dev.db")
        store = open_store(home)
        assert isinstance(store, CataloguedStore)

        assert store.keys("sessions", never_cancelled) == ["opencode-dev.db/ses_1"]

    def test_what_is_wrong_with_it_is_said_without_its_path(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put_talk(home / "opencode.db", "usual")
        (tmp_path / "mine.db").write_bytes(b"no database" * 100)
        monkeypatch.setenv("OPENCODE_DB", str(tmp_path / "mine.db"))
        listing = open_store(home).list_sessions(never_cancelled)

        assert [(problem.place, problem.reason) for problem in listing.unlisted] == [("$OPENCODE_DB", "corrupt")]
        assert len(listing.sessions) == 1

    @pytest.mark.parametrize("named", ["", ":memory:", "gone.db"])
    def test_one_that_is_nowhere_is_passed_by(self, home: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
        put_talk(home / "opencode.db", "usual")
        monkeypatch.setenv("OPENCODE_DB", named)

        assert len(open_store(home).list_sessions(never_cancelled).sessions) == 1

    def test_it_is_found_where_there_is_no_data_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        put_talk(tmp_path / "elsewhere" / "mine.db", "named")
        environment = {"XDG_DATA_HOME": str(tmp_path / "none"), "OPENCODE_DB": str(tmp_path / "elsewhere" / "mine.db")}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        (store,) = open_stores(["opencode"], environment)

        assert [row.title for row in store.list_sessions(never_cancelled).sessions] == ["Titled named"]

    def test_stores_with_and_without_it_are_told_apart(self, home: Path) -> None:
        locations = {OpencodeStore(home, named=named).location for named in (None, home / "a.db", home / "b.db")}

        assert len(locations) == 3


def test_the_home_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    usual = tmp_path / ".local" / "share" / "opencode"

    assert homes({}) == [usual]
    assert homes({"XDG_DATA_HOME": "/data"}) == [Path("/data/opencode").absolute()]
    assert homes({"XDG_DATA_HOME": "", "OPENCODE_DB": ""}) == [usual]
    assert homes({"LOCALAPPDATA": str(tmp_path / "AppData")}) == [usual, tmp_path / "AppData" / "opencode"]


class TestTheCatalogue:
    """What the catalogue needs to be served."""

    def test_it_sees_what_a_full_listing_sees_whatever_happens(self, home: Path, tmp_path: Path) -> None:
        put_talk(home / "opencode.db", "released", "ses_1", "ses_2")
        put_files(home, "from before", "ses_2", "ses_3")
        database = open_database(tmp_path)
        store = store_of(home)
        index = SessionIndex(store, database)

        def check() -> None:
            bring_up_to_date(index)
            again = SessionIndex(store_of(home), database)
            bring_up_to_date(again)
            assert index_view(index) == index_view(again) == full_view(store)

        check()
        with connected(home / "opencode.db") as agent:
            agent.execute("UPDATE session SET title = 'Renamed' WHERE id = 'ses_1'")
        check()
        with connected(home / "opencode.db") as agent:
            agent.execute("DELETE FROM session WHERE id = 'ses_2'")
        check()
        put_talk(home / "opencode-dev.db", "another", "ses_4")
        check()
        (home / "opencode.db").write_bytes(b"no database" * 100)
        check()
        (home / "opencode.db").unlink()
        check()
        database.close()

    def test_a_live_database_is_followed_and_not_touched(self, home: Path) -> None:
        put_talk(home / "opencode.db", "hello")
        agent = Writer(home / "opencode.db")
        index = SessionIndex(store_of(home), None)
        try:
            for title in ("One", "Two", "Three"):
                agent.do(f"UPDATE session SET title = '{title}'")
                before = files_below(home)
                bring_up_to_date(index)
                assert [row.header.title for row in index.rows()] == [title]
                assert files_below(home) == before
        finally:
            agent.kill()

    def test_sessions_of_a_database_that_cannot_be_read_any_more_have_changed(self, home: Path) -> None:
        put_talk(home / "opencode.db", "hello", "ses_1", "ses_2")
        store = store_of(home)
        keys = store.keys("sessions", never_cancelled)
        lessons = {key: store.learn(key, None, never_cancelled, with_title=True) for key in keys}
        stamps = {key: lesson.stamp for key, lesson in lessons.items() if lesson is not None}
        (home / "opencode.db").write_bytes(b"no database" * 100)

        assert list(store.changed(stamps, never_cancelled)) == keys
        (home / "opencode.db").unlink()
        (home / "opencode.db").mkdir()
        assert list(store.groups()) == ["sessions"]
        assert list(store.changed(stamps, never_cancelled)) == keys

    def test_a_keystroke_reads_nothing_while_nothing_has_changed(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put_talk(home / "opencode.db", "hello", "ses_1", "ses_2")
        for path in (home / "opencode.db", home):
            os.utime(path, ns=(1, 1))
        store = store_of(home)
        index = SessionIndex(store, None)
        bring_up_to_date(index)
        monkeypatch.setattr(sqlite3, "connect", None)

        index.refresh(never_cancelled)
        assert not index.look_again([row.key for row in index.rows()], never_cancelled)
        assert len(index.rows()) == 2

    def test_a_listing_reads_a_database_once_and_titles_one_by_one(self, home: Path) -> None:
        put_talk(home / "opencode.db", "hello", "ses_1", "ses_2")
        store = store_of(home)
        keys = store.keys("sessions", never_cancelled)
        quick = [store.learn(key, None, never_cancelled, with_title=False) for key in keys]
        whole = [store.learn(key, None, never_cancelled, with_title=True) for key in keys]

        assert [lesson.has_title for lesson in quick if lesson] == [False, False]
        assert [lesson.has_title for lesson in whole if lesson] == [True, True]
        assert [lesson.header for lesson in quick if lesson] == [lesson.header for lesson in whole if lesson]
        assert [lesson.stamp for lesson in quick if lesson] == [lesson.stamp for lesson in whole if lesson]

    def test_no_state_is_kept_of_a_capture(self, home: Path) -> None:
        put_talk(home / "opencode.db", "hello")
        saved = store_of(home).capture_again("opencode:ses_1", lambda key: b"anything", never_cancelled)

        assert (saved.key, saved.state) == ("opencode.db/ses_1", None)
        assert [item.text for item in saved.capture.items] == ["hello"]

    def test_a_key_of_what_is_gone_is_no_session(self, home: Path) -> None:
        put_talk(home / "opencode.db", "hello")
        store = store_of(home)

        for key in ("opencode.db/ses_2", "opencode-gone.db/ses_1", "opencode.db", "storage/session/global/ses_1.json"):
            assert store.learn(key, None, never_cancelled, with_title=True) is None
            assert list(store.changed({key: b""}, never_cancelled)) == [key]

    def test_a_database_that_could_not_be_listed_is_said_also_if_it_could_be_read_by_then(self, home: Path) -> None:
        put_talk(home / "opencode.db", "hello")
        journal = break_off_writing(home)
        store = store_of(home)
        assert store.keys("sessions", never_cancelled) == ["opencode.db"]
        journal.unlink()

        reason = failure_of(lambda: store.learn("opencode.db", None, never_cancelled, with_title=True)).reason
        assert reason is ReadFailedReason.IO

    def test_a_database_that_could_not_be_listed_is_tried_again_though_no_time_has_changed(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put_talk(home / "opencode.db", "hello")
        journal = break_off_writing(home)
        for path in (home / "opencode.db", home):
            os.utime(path, ns=(OLD_NS, OLD_NS))
        monkeypatch.setattr("sessionref.server.stores.opencode.store._AGAIN_NANOSECONDS", 1)
        index = SessionIndex(store_of(home), None)
        bring_up_to_date(index)
        assert index_view(index) == ([], [("opencode.db", "io")])

        journal.write_bytes(b"")
        bring_up_to_date(index)
        assert index_view(index) == full_view(store_of(home))
        assert len(index.rows()) == 1

    def test_titles_are_learnt_for_several_sessions_in_one_look(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        native_ids = [f"ses_{number}" for number in range(5)]
        put_talk(home / "opencode.db", "hello", *native_ids)
        store = store_of(home)
        keys = store.keys("sessions", never_cancelled)
        looks: list[None] = []
        read = Database.read

        def counted(database: Database, *arguments: Any) -> Any:
            looks.append(None)
            return read(database, *arguments)

        monkeypatch.setattr(Database, "read", counted)
        lessons = [store.learn(key, None, never_cancelled, with_title=True) for key in keys]

        assert [lesson.header.title for lesson in lessons if lesson is not None] == ["Titled hello"] * 5
        assert len(looks) == 1

    def test_what_is_wrong_with_a_session_that_is_learnt_ahead_is_said_of_that_one(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put_talk(home / "opencode.db", "hello", "ses_1", "ses_2", "ses_3")
        with connected(home / "opencode.db") as database:
            database.execute("UPDATE part SET data = zeroblob(100000) WHERE message_id = 'msg_ses_2'")
        monkeypatch.setattr(
            "sessionref.server.stores.sqlite.DatabaseLimits", partial(DatabaseLimits, value_bytes=50_000)
        )

        assert set(rows_of(home)) == {"ses_1", "ses_3"}
        assert problems_of(home) == {"opencode.db/ses_2": "too-large"}

    def test_what_was_learnt_ahead_is_not_believed_once_the_session_has_changed(self, home: Path) -> None:
        put_talk(home / "opencode.db", "hello", "ses_1", "ses_2")
        store = store_of(home)
        first, second = store.keys("sessions", never_cancelled)
        store.learn(first, None, never_cancelled, with_title=True)
        with connected(home / "opencode.db") as database:
            database.execute("UPDATE session SET title = 'Another'")
        store.keys("sessions", never_cancelled)

        lesson = store.learn(second, None, never_cancelled, with_title=True)
        assert lesson is not None
        assert lesson.header.title == "Another"


def break_off_writing(home: Path) -> Path:
    """The journal of somebody who crashed long ago while writing into the database in place."""
    journal = home / "opencode.db-journal"
    journal.write_bytes(bytes.fromhex("d9d505f920a163d7") + bytes(504))
    os.utime(journal, ns=(OLD_NS, OLD_NS))
    os.utime(home / "opencode.db", ns=(OLD_NS, OLD_NS))
    return journal
