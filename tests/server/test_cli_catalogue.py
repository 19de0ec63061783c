"""`sessionref index` and `sessionref doctor`: what they say, what they mend, and how they end (issue 4)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from catalogue_doubles import MAX_BYTES, full_view
from dsh_fixtures import DshHome, assistant, event, title, user
from resolver_doubles import MemoryStore, never_cancelled
from sessionref.server.catalogue.database import CatalogueDatabase
from sessionref.server.catalogue.index import store_name
from sessionref.server.cli import main
from sessionref.server.cli_catalogue import run_doctor, run_index
from sessionref.server.settings import Settings
from sessionref.server.sources import SessionSources
from sessionref.server.store import SessionHeader, Unlisted
from sessionref.server.stores.dsh import DshStore
from store_fixtures import open_fixture

LONG = [event("tool/call", {"output": f"{number} " * 1000}) for number in range(200)]
"""More than a log that is read as a whole each time, or whose state is not worth saving."""

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def home(tmp_path: Path) -> DshHome:
    return DshHome(tmp_path / "home")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "catalogue.sqlite3"


@pytest.fixture
def run(home: DshHome, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command over the home; its exit code and what it printed."""

    def command(*arguments: str, catalog: str = str(path), store: Path | None = None) -> tuple[int, str]:
        common = ["--store", f"dsh:{store or home.path}", "--catalog", catalog]
        code = main([*arguments, *common, "--spill-directory", str(tmp_path / "spills")])
        said = capsys.readouterr()
        assert said.err == ""
        return code, said.out

    return command


def known(home: DshHome, path: Path) -> list[str | None]:
    """The titles that the catalogue knows."""
    with closing(CatalogueDatabase(path, max_bytes=MAX_BYTES)) as database:
        lessons = database.lessons(store_name(DshStore(home.path)))
    return sorted((lesson.header.title for lesson in lessons.values()), key=str)


def capture(home: DshHome, path: Path, session_id: str) -> list[str]:
    """The conversation as a server with the catalogue reads it."""
    with closing(CatalogueDatabase(path, max_bytes=MAX_BYTES)) as database:
        captured = SessionSources([DshStore(home.path)], database).capture(session_id, never_cancelled)
    return [item.text for item in captured.items]


def edit_in_place(log: Path, old: bytes, new: bytes) -> None:
    """What no agent does: other bytes far back in a log, and nothing in its size and time that shows it."""
    facts = log.stat()
    content = log.read_bytes()
    assert len(old) == len(new)
    assert old in content
    with log.open("r+b") as file:
        file.write(content.replace(old, new))
    os.utime(log, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def test_index_reads_every_title_into_the_catalogue(home: DshHome, path: Path, run: Run) -> None:
    home.write("a", [title("A"), *LONG], cwd="/w")
    home.write("b", [user("nothing")], compressed=True)
    code, said = run("index")

    assert code == 0
    assert said.startswith("2 sessions in ")
    assert known(home, path) == ["A", None]
    assert run("index")[0] == 0


def test_index_says_what_it_could_not_read_and_why(home: DshHome, run: Run) -> None:
    home.write("good", [title("T")])
    home.write("broken", header=b"{}\n")
    home.write("newer", file_name="session.v9.jsonl")
    (home.sessions / "_no-cwd" / "link").symlink_to(home.path)
    code, said = run("index")

    assert code == 0
    assert said.startswith("1 session in ")
    rows = sorted(tuple(line.split()) for line in said.splitlines() if line.startswith("dsh"))
    assert rows == [
        ("dsh", "corrupt", "_no-cwd/broken"),
        ("dsh", "newer-format", "_no-cwd/newer"),
        ("dsh", "outside-root", "_no-cwd/link"),
    ]


def test_one_session_is_said_as_one(home: DshHome, run: Run) -> None:
    home.write("a", [title("A")])

    assert run("index")[1].startswith("1 session in ")


def test_index_in_json_says_the_same(home: DshHome, run: Run) -> None:
    home.write("good", [title("T")])
    home.write("broken", header=b"{}\n")
    code, said = run("index", "--json")
    document = json.loads(said)

    assert code == 0
    assert list(document) == ["stores", "mended", "seconds"]
    assert document["mended"] == []
    assert document["stores"] == [
        {
            "kind": "dsh",
            "location": os.path.realpath(home.sessions),
            "exists": True,
            "sessions": 1,
            "unreadable": [{"place": "_no-cwd/broken", "reason": "corrupt"}],
            "failure": None,
        }
    ]


def test_verify_finds_nothing_where_nothing_was_edited(home: DshHome, path: Path, run: Run) -> None:
    log = home.write("a", [title("A"), user("question"), *LONG])
    run("index")
    capture(home, path, "a")
    with log.open("ab") as file:
        file.write(assistant("answer").line(202, 0))

    assert run("index", "--verify")[0] == 0
    assert json.loads(run("index", "--verify", "--json")[1])["mended"] == []


@pytest.mark.parametrize("as_json", [False, True])
def test_verify_finds_a_title_that_was_edited_in_place_and_mends_it(
    home: DshHome, path: Path, run: Run, as_json: bool
) -> None:
    log = home.write("a", [title("Before"), *LONG])
    home.write("b", [title("B"), *LONG])
    run("index")
    edit_in_place(log, b"Before", b"Beyond")
    assert known(home, path) == ["B", "Before"]
    assert run("index")[0] == 0
    assert known(home, path) == ["B", "Before"]

    code, said = run("index", "--verify", *(["--json"] if as_json else []))
    assert code == 1
    if as_json:
        assert json.loads(said)["mended"] == ["_no-cwd/a"]
    else:
        assert said.splitlines()[-1] == "_no-cwd/a was changed in place; the catalogue is mended."
    assert known(home, path) == ["B", "Beyond"]
    assert run("index", "--verify")[0] == 0


def test_verify_finds_a_conversation_that_was_edited_in_place_and_mends_it(home: DshHome, path: Path, run: Run) -> None:
    log = home.write("a", [title("A"), user("before"), *LONG])
    run("index")
    assert capture(home, path, "a") == ["before"]
    edit_in_place(log, b"before", b"beyond")
    assert capture(home, path, "a") == ["before"]

    assert run("index", "--verify")[0] == 1
    assert capture(home, path, "a") == ["beyond"]
    assert run("index", "--verify")[0] == 0


def test_verify_sees_an_edit_in_a_log_that_has_grown_since(home: DshHome, path: Path, run: Run) -> None:
    log = home.write("a", [title("Before"), *LONG])
    run("index")
    edit_in_place(log, b"Before", b"Beyond")
    with log.open("ab") as file:
        file.write(user("more").line(201, 0))

    assert run("index", "--verify")[0] == 1
    assert known(home, path) == ["Beyond"]


def test_verify_finds_a_log_that_was_made_unreadable_in_place(home: DshHome, path: Path, run: Run) -> None:
    log = home.write("a", [title("A"), user("before"), *LONG, event("turn/end", {"turn": 1})])
    run("index")
    capture(home, path, "a")
    edit_in_place(log, b'"user/message"', b'"user!message"')

    assert run("index", "--verify")[0] == 1


def test_without_a_catalogue_index_reads_all_the_same_and_keeps_nothing(home: DshHome, path: Path, run: Run) -> None:
    home.write("a", [title("A")])
    code, said = run("index", "--verify", catalog="off")

    assert code == 0
    assert said.startswith("1 session")
    assert not path.exists()


def test_doctor_shows_stores_sessions_and_the_catalogue(home: DshHome, path: Path, run: Run) -> None:
    home.write("a", [title("A"), *LONG], cwd="/w")
    home.write("broken", header=b"{}\n")
    run("index")
    capture(home, path, "a")
    code, said = run("doctor")
    lines = [line.split() for line in said.splitlines()]

    assert code == 0
    assert lines[0] == ["STORE", "STATE", "SESSIONS", "UNREADABLE", "PLACE"]
    assert lines[1] == ["dsh", "found", "1", "1", os.path.realpath(home.sessions)]
    assert ["dsh", "corrupt", "_no-cwd/broken"] in lines
    assert said.splitlines()[-1].startswith("The catalogue is ok: 1 sessions, 1 captures of ")
    assert said.splitlines()[-1].endswith(f"on disk at {path}.")


def test_doctor_in_json_says_the_same(home: DshHome, path: Path, tmp_path: Path, run: Run) -> None:
    home.write("a", [title("A"), *LONG])
    home.write("broken", header=b"{}\n")
    run("index")
    capture(home, path, "a")
    code, said = run("doctor", "--json")
    document: dict[str, Any] = json.loads(said)

    assert code == 0
    (store,) = document["stores"]
    assert (store["kind"], store["exists"], store["sessions"]) == ("dsh", True, 1)
    assert store["unreadable"] == [{"place": "_no-cwd/broken", "reason": "corrupt"}]
    catalogue = document["catalogue"]
    assert (catalogue["path"], catalogue["state"]) == (str(path), "ok")
    assert (catalogue["lessons"], catalogue["captures"]) == (1, 1)
    assert 0 < catalogue["capture_bytes"] < catalogue["file_bytes"] <= catalogue["max_bytes"]
    assert document["spillDirectory"] == str(tmp_path / "spills")


def test_doctor_does_not_write_into_the_catalogue(home: DshHome, path: Path, run: Run) -> None:
    home.write("a", [title("A")])
    run("doctor")

    assert known(home, path) == []


def test_doctor_shows_a_store_that_is_absent_and_a_catalogue_that_is_off(run: Run, tmp_path: Path) -> None:
    code, said = run("doctor", catalog="off", store=tmp_path / "never")
    assert code == 0
    assert said.splitlines()[1].split()[:4] == ["dsh", "absent", "0", "0"]
    assert said.splitlines()[-1] == "The catalogue is off."

    assert json.loads(run("doctor", "--json", catalog="off")[1])["catalogue"] is None


def test_doctor_tells_a_store_without_sessions_from_one_that_is_not_there(run: Run, home: DshHome) -> None:
    assert home.sessions.is_dir()
    assert run("doctor", catalog="off")[1].splitlines()[1].split()[:4] == ["dsh", "empty", "0", "0"]


@pytest.mark.parametrize("command", ["doctor", "index"])
def test_a_store_in_which_no_session_has_a_prompt_fails_the_command(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fixture = open_fixture("pi", tmp_path / "home")
    fixture.write(fixture.name(1), [("assistant", "Nobody asked. " * 10_000)])
    given = [command, "--store", f"pi:{tmp_path / 'home'}", "--catalog", "off", "--spill-directory", "off"]
    code = main([*given, "--json"])
    (store,) = json.loads(capsys.readouterr().out)["stores"]

    assert code == 1
    assert store["sessions"] == 1
    assert "no prompt that this service can find" in store["failure"]
    assert main(given) == 1
    assert "no prompt that this service can find" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["index", "doctor"])
def test_a_store_that_cannot_be_read_as_a_whole_is_said_and_ends_with_1(home: DshHome, run: Run, command: str) -> None:
    home.sessions.rmdir()
    home.sessions.write_bytes(b"")
    code, said = run(command)

    assert code == 1
    assert ["dsh", "io"] in [line.split()[:2] for line in said.splitlines()]
    (store,) = json.loads(run(command, "--json")[1])["stores"]
    assert store["failure"] == "io"


def test_doctor_says_that_a_catalogue_cannot_be_used(home: DshHome, path: Path, run: Run) -> None:
    path.mkdir(parents=True)
    code, said = run("doctor")

    assert code == 0
    assert "The catalogue is unusable: " in said


def test_a_store_that_cannot_be_learnt_from_is_counted_by_doctor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = MemoryStore(headers=[SessionHeader(session_id="a", created_at=1)], unlisted=[Unlisted("x", "corrupt")])
    settings = Settings(catalog=tmp_path / "cache" / "c.sqlite3")

    assert run_doctor([store], settings, as_json=True) == 0
    (row,) = json.loads(capsys.readouterr().out)["stores"]
    assert (row["kind"], row["sessions"], row["unreadable"]) == ("memory", 1, [{"place": "x", "reason": "corrupt"}])
    assert run_index([store], settings, verify=True, as_json=False) == 0


def test_a_terminal_sees_how_far_index_has_come(
    home: DshHome, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        home.write(f"s{number}", [title("T"), *LONG])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run_index([DshStore(home.path)], Settings(catalog=path), verify=False, as_json=False) == 0
    said = capsys.readouterr().err

    assert said.startswith("\r[" + " " * 30 + "] 0/3")
    assert said.endswith("\r[" + "#" * 30 + "] 3/3\n")


def test_a_terminal_sees_the_end_of_verify(
    home: DshHome, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        home.write(f"s{number}", [title("T"), *LONG])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert run_index([DshStore(home.path)], Settings(catalog=path), verify=True, as_json=False) == 0

    assert capsys.readouterr().err.endswith("] 3/3\n")


def test_index_leaves_a_catalogue_that_a_server_starts_with(home: DshHome, path: Path, run: Run) -> None:
    home.write("a", [title("A"), *LONG])
    run("index")
    with closing(CatalogueDatabase(path, max_bytes=MAX_BYTES)) as database:
        (lesson,) = database.lessons(store_name(DshStore(home.path))).values()

    assert [lesson.header] == full_view(DshStore(home.path))[0]
