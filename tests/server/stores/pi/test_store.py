"""Where pi's sessions lie, and which file is which session (agent-stores section 8)."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from pi_records import PiLog, said
from resolver_doubles import failure_of, never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import CataloguedStore
from sessionref.server.stores.pi import homes, open_store
from sessionref.server.stores.pi.layout import log_at
from sessionref.server.stores.pi.store import PiStore
from store_contract import in_time, rows_of, unlisted_of

NAME = "2026-09-21T14-13-20-000Z"


def log_of(session_id: str, text: str = "question") -> PiLog:
    log = PiLog(id=session_id)
    log.talk(text, "answer")
    return log


def put(folder: Path, name: str, session_id: str | None = None, text: str = "question") -> Path:
    """Write a session; it has the id that its file is named after, unless told."""
    path = folder / f"{NAME}_{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(log_of(session_id or name, text).content)
    return path


def opened(home: Path) -> CataloguedStore:
    store = open_store(home)
    assert isinstance(store, CataloguedStore)
    return store


def settings(home: Path, **members: object) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "settings.json").write_text(json.dumps(members), encoding="utf-8")


def test_sessions_lie_in_folders_of_working_directories(tmp_path: Path) -> None:
    put(tmp_path / "sessions" / "--w--", "one")
    put(tmp_path / "sessions" / "--x--", "two")

    assert set(rows_of(opened(tmp_path))) == {"pi:one", "pi:two"}


def test_sessions_may_lie_directly_in_their_folder_and_beside_folders(tmp_path: Path) -> None:
    put(tmp_path, "flat")
    put(tmp_path / "--w--", "below")

    assert set(rows_of(opened(tmp_path))) == {"pi:flat", "pi:below"}
    assert said(opened(tmp_path).capture("pi:flat", never_cancelled)) == ["u:question", "a:answer"]


def test_an_agent_folder_whose_sessions_come_later_is_followed(tmp_path: Path) -> None:
    settings(tmp_path, theme="dark")
    store = opened(tmp_path)
    assert (store.exists(), rows_of(store)) == (True, {})
    put(tmp_path / "sessions" / "--w--", "one")

    assert list(rows_of(store)) == ["pi:one"]
    assert store.watched_folders() == [tmp_path / "sessions"]


def test_a_flat_folder_that_comes_later_is_followed(tmp_path: Path) -> None:
    store = opened(tmp_path / "later")
    assert (store.exists(), rows_of(store)) == (False, {})
    put(tmp_path / "later", "one")

    assert list(rows_of(store)) == ["pi:one"]
    assert said(store.capture("pi:one", never_cancelled)) == ["u:question", "a:answer"]


class TestSettings:
    """`sessionDir` in the settings of an agent folder."""

    @pytest.mark.parametrize("form", ["absolute", "tilde", "relative"])
    def test_they_may_name_the_folder_of_sessions(
        self, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        home = tmp_path / "agent"
        settings(
            home, sessionDir={"absolute": str(tmp_path / "named"), "tilde": "~/named", "relative": "../named"}[form]
        )
        put(tmp_path / "named", "named")
        put(home / "sessions" / "--w--", "not this")

        assert list(rows_of(opened(home))) == ["pi:named"]

    @pytest.mark.parametrize(
        "content",
        [
            *(b"", b"{", b"[]", b"null", b"\xff", b'{"sessionDir": 5}', b'{"sessionDir": ""}', b'{"sessionDir": null}'),
            *(b'{"sessionDir": "a\\u0000b"}', b'{"sessionDir": "\\ud800"}', b'{"theme": "dark"}', b"[" * 100_000),
        ],
    )
    def test_settings_that_name_none_leave_the_usual_folder(self, tmp_path: Path, content: bytes) -> None:
        put(tmp_path / "sessions" / "--w--", "usual")
        (tmp_path / "settings.json").write_bytes(content)

        assert list(rows_of(opened(tmp_path))) == ["pi:usual"]

    @pytest.mark.parametrize("named", ["~nobody-at-all/x", "missing", "x" * 5000, "settings.json"])
    def test_settings_that_name_what_is_not_there_are_no_crash(self, tmp_path: Path, named: str) -> None:
        settings(tmp_path, sessionDir=named)
        put(tmp_path / "sessions" / "--w--", "not this")
        store = opened(tmp_path)

        assert not store.exists()
        assert failure_of(lambda: store.capture("pi:not this", never_cancelled)).reason is not None

    def test_settings_may_lie_behind_a_link_as_people_keep_theirs(self, tmp_path: Path) -> None:
        settings(tmp_path / "dotfiles", sessionDir=str(tmp_path / "named"))
        put(tmp_path / "named", "named")
        (tmp_path / "agent").mkdir()
        (tmp_path / "agent" / "settings.json").symlink_to(tmp_path / "dotfiles" / "settings.json")

        assert list(rows_of(opened(tmp_path / "agent"))) == ["pi:named"]

    def test_a_fifo_or_a_folder_in_their_place_does_not_block(self, tmp_path: Path) -> None:
        put(tmp_path / "sessions" / "--w--", "usual")
        os.mkfifo(tmp_path / "settings.json")
        assert in_time(lambda: list(rows_of(opened(tmp_path)))) == ["pi:usual"]
        (tmp_path / "settings.json").unlink()
        (tmp_path / "settings.json").mkdir()
        assert list(rows_of(opened(tmp_path))) == ["pi:usual"]


class TestHomes:
    """What the environment says."""

    def test_without_a_word_they_are_those_of_pi_and_of_oh_my_pi(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))

        assert homes({}) == [tmp_path / ".pi" / "agent", tmp_path / ".omp" / "agent"]
        assert homes({"PI_CODING_AGENT_DIR": "", "PI_CODING_AGENT_SESSION_DIR": ""}) == homes({})

    def test_a_folder_of_sessions_goes_before_an_agent_folder(self, tmp_path: Path) -> None:
        agent, sessions = str(tmp_path / "agent"), str(tmp_path / "flat")

        assert homes({"PI_CODING_AGENT_DIR": agent}) == [tmp_path / "agent"]
        both = {"PI_CODING_AGENT_DIR": agent, "PI_CODING_AGENT_SESSION_DIR": sessions}
        assert homes(both) == [tmp_path / "flat"]
        put(tmp_path / "flat", "flat")
        assert list(rows_of(opened(homes(both)[0]))) == ["pi:flat"]

    def test_a_tilde_and_a_relative_path_are_made_absolute(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.chdir(tmp_path)

        assert homes({"PI_CODING_AGENT_DIR": "~/x"}) == homes({"PI_CODING_AGENT_DIR": "x"}) == [tmp_path / "x"]


def test_a_renamed_file_is_the_session_that_its_header_names(tmp_path: Path) -> None:
    put(tmp_path / "--w--", "renamed", "real")
    store = opened(tmp_path)

    assert list(rows_of(store)) == ["pi:real"]
    assert said(store.capture("pi:real", never_cancelled)) == ["u:question", "a:answer"]
    assert failure_of(lambda: store.capture("pi:renamed", never_cancelled)).reason is ReadFailedReason.NOT_FOUND


def test_two_files_that_swapped_their_names_are_told_by_their_headers(tmp_path: Path) -> None:
    put(tmp_path, "one", "two", "of two")
    put(tmp_path, "two", "one", "of one")
    store = opened(tmp_path)

    assert set(rows_of(store)) == {"pi:one", "pi:two"}
    for name in ("one", "two"):
        assert said(store.capture(f"pi:{name}", never_cancelled))[0] == f"u:of {name}"


def test_of_two_files_with_one_id_in_their_headers_none_is_listed(tmp_path: Path) -> None:
    put(tmp_path, "one", "same")
    put(tmp_path, "two", "same")
    store = opened(tmp_path)

    assert (rows_of(store), unlisted_of(store)) == ({}, ["duplicate-id", "duplicate-id"])
    assert failure_of(lambda: store.capture("pi:same", never_cancelled)).reason is ReadFailedReason.DUPLICATE_ID


def test_a_file_that_cannot_be_understood_is_found_by_its_name_and_says_why(tmp_path: Path) -> None:
    put(tmp_path, "good")
    put(tmp_path, "broken").write_bytes(b"broken\n")
    store = opened(tmp_path)

    assert list(rows_of(store)) == ["pi:good"]
    assert failure_of(lambda: store.capture("pi:broken", never_cancelled)).reason is ReadFailedReason.CORRUPT


def test_a_sub_agents_run_lies_three_folders_below_and_is_named_by_them(tmp_path: Path) -> None:
    project = tmp_path / "sessions" / "--w--"
    put(project, "parent")
    for run, text in (("run-0", "first try"), ("run-1", "second try")):
        folder = project / f"{NAME}_parent" / "abc123" / run
        folder.mkdir(parents=True)
        (folder / "session.jsonl").write_bytes(log_of("child", text).content)
    store = opened(tmp_path)
    rows = rows_of(store)

    assert {name: row.is_subagent for name, row in rows.items()} == {
        "pi:parent": False,
        "pi:parent/abc123/run-0": True,
        "pi:parent/abc123/run-1": True,
    }
    assert rows["pi:parent/abc123/run-1"].title == "second try"
    assert said(store.capture("pi:parent/abc123/run-0", never_cancelled)) == ["u:first try", "a:answer"]
    assert failure_of(lambda: store.capture("pi:child", never_cancelled)).reason is ReadFailedReason.NOT_FOUND
    shutil.rmtree(project / f"{NAME}_parent" / "abc123")
    assert list(rows_of(store)) == ["pi:parent"]


@pytest.mark.parametrize(
    "key",
    [
        *("notes.jsonl", "x_y.json", "x_y.jsonl.bak", "_y.jsonl", "x_.jsonl", "a/b/x_y.jsonl", ".jsonl", "a/x_y.JSONL"),
        *("p/x_y/a/run-0/other.jsonl", "p/x_y/a/run-x/session.jsonl", "p/x_y/run-0/session.jsonl", "x_y.jsonl\n", ""),
    ],
)
def test_other_files_are_no_sessions(key: str) -> None:
    assert log_at(key) is None


@pytest.mark.parametrize(
    ("key", "native_id", "is_subagent"),
    [
        ("2026_id.jsonl", "id", False),
        ("--w--/2026_an_id_with_lines.jsonl", "an_id_with_lines", False),
        ("--w--/2026_p/a/run-12/session.jsonl", "p/a/run-12", True),
        ("2026_p/a/run-0/session.jsonl", "p/a/run-0", True),
    ],
)
def test_a_name_says_which_session_a_file_is(key: str, native_id: str, is_subagent: bool) -> None:
    log = log_at(key)

    assert log is not None
    assert (log.key, log.native_id, log.is_subagent) == (key, native_id, is_subagent)


def test_a_fork_is_a_session_of_its_own(tmp_path: Path) -> None:
    source = put(tmp_path / "--w--", "source")
    fork = PiLog(id="fork", cwd="/elsewhere", parentSession=str(source))
    fork.records += log_of("source").records[1:]
    fork.user("goes on")
    (tmp_path / "--elsewhere--").mkdir()
    (tmp_path / "--elsewhere--" / f"{NAME}_fork.jsonl").write_bytes(fork.content)
    store = PiStore(tmp_path)

    assert {row.session_id: row.cwd for row in rows_of(store).values()} == {"pi:source": "/w", "pi:fork": "/elsewhere"}
    assert said(store.capture("pi:source", never_cancelled)) == ["u:question", "a:answer"]
