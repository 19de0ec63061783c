"""`sessionref candidates` and `sessionref prepare`: a server is spawned, called, and its answer shown to a person."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessionref.server.cli import main
from store_fixtures import StoreFixture, open_fixture

Run = Callable[..., tuple[int, str]]
FAMILY = "\U0001f468\u200d\U0001f469"


@pytest.fixture
def fixture(tmp_path: Path) -> StoreFixture:
    made = open_fixture("pi", tmp_path / "pi")
    made.create()
    return made


@pytest.fixture
def run(fixture: StoreFixture, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command over a home of pi; its exit code and what it printed."""

    def command(*arguments: str) -> tuple[int, str]:
        common = ["--store", f"pi:{fixture.home}", "--catalog", "off", "--spill-directory", "off"]
        code = main([*arguments, *common])
        return code, capfd.readouterr().out

    return command


def write(fixture: StoreFixture, number: int, title: str = "Title") -> str:
    name = fixture.name(number)
    fixture.write(name, [("user", "hello"), ("assistant", "well met")], title=title, cwd=f"/srv/{number}")
    return name


def test_candidates_are_a_table_that_says_which_agent_had_each_session(fixture: StoreFixture, run: Run) -> None:
    write(fixture, 1, "Tide tables")
    code, said = run("candidates")

    assert code == 0
    heading, row = said.splitlines()
    assert heading.split() == ["TITLE", "DIRECTORY", "CREATED", "ORIGIN", "MENTION"]
    assert row.startswith("Tide tables  /srv/1")
    assert "  pi  " in row
    assert "  @[Tide tables](dsh-session:" in row


def test_sessions_of_sub_agents_are_shown_when_they_are_asked_for(fixture: StoreFixture, run: Run) -> None:
    fixture.write_subagent("child", write(fixture, 1), [("user", "find the tide"), ("assistant", "found")])

    assert len(run("candidates")[1].splitlines()) == 2
    assert len(run("candidates", "--subagents")[1].splitlines()) == 3


@pytest.mark.parametrize(("sessions", "is_said"), [(50, False), (51, True)])
def test_of_more_sessions_than_are_shown_by_default_it_is_said_that_there_are_more(
    fixture: StoreFixture, run: Run, sessions: int, is_said: bool
) -> None:
    for number in range(sessions):
        write(fixture, number)
    said = run("candidates")[1]

    assert said.count("\n") == 51 + is_said
    assert ("50 sessions are shown; --limit shows more." in said) is is_said
    assert "are shown" not in run("candidates", "--limit", "50")[1]


def test_a_mention_can_be_copied_from_the_table_whatever_is_in_its_label(fixture: StoreFixture, run: Run) -> None:
    write(fixture, 1, f"{FAMILY} and a ] in it")
    row = run("candidates")[1].splitlines()[1]
    code, said = run("prepare", f"as in {row[row.index('@[') :]}")

    assert code == 0
    assert said.startswith(f"as in @{FAMILY} and a ] in it\n--- context for the model")
    assert "well met" in said


def test_in_json_the_rows_are_those_of_the_wire(fixture: StoreFixture, run: Run) -> None:
    name = write(fixture, 1, "Tide tables")
    rows: list[dict[str, Any]] = json.loads(run("candidates", "--json")[1])

    assert [(row["sessionId"], row["label"], row["origin"]) for row in rows] == [(f"pi:{name}", "Tide tables", "pi")]


def test_where_nothing_matches_the_way_to_find_out_why_is_named(run: Run) -> None:
    assert run("candidates", "nothing like it") == (
        0,
        "No session matches; `sessionref doctor` shows which stores there are.\n",
    )


def test_an_answer_that_cannot_be_written_is_one_line_and_a_failure(
    run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sys.stdout, "write", refuse)

    assert main(["config"]) == 1
    assert capfd.readouterr().err == f"sessionref: the output cannot be written: {os.strerror(errno.ENOSPC)}\n"


def test_doctor_looks_for_every_store_unless_some_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "environ", {"HOME": str(tmp_path), "PATH": os.environ["PATH"]})
    for kind, home in (("claude-code", ".claude"), ("pi", ".pi/agent")):
        made = open_fixture(kind, tmp_path / home)
        made.create()
        made.write(made.name(1), [("user", "hello"), ("assistant", "well met")])
    arguments = ["doctor", "--catalog", "off", "--spill-directory", "off"]
    assert main(arguments) == 0
    found = capfd.readouterr().out
    assert main([*arguments, "--store", "dsh"]) == 0
    named = capfd.readouterr().out

    assert [line.split()[:3] for line in found.splitlines()[1:3]] == [
        ["claude-code", "found", "1"],
        ["pi", "found", "1"],
    ]
    assert "Commands use dsh alone" in found
    assert [line.split()[:3] for line in named.splitlines()[1:2]] == [["dsh", "absent", "0"]]
    assert "Commands use dsh alone" not in named
