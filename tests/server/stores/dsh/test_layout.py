"""Home, folder names and log names."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores.dsh import home_folder, project_key, session_segment
from sessionref.server.stores.dsh.layout import choose_log
from sessionref.server.stores.problems import Unreadable


@pytest.mark.parametrize(
    ("cwd", "key"),
    [
        (None, "_no-cwd"),
        ("/", "--root--"),
        ("----", "--root--"),
        ("/home/user/my proj", "--home-user-my~0020proj--"),
        ("/a//b", "--a-b--"),
        ("C:\\Users\\x", "--C-Users-x--"),
        ("/tmp/é", "--tmp-~00E9--"),
        ("/tmp/~x", "--tmp-~007Ex--"),
        ("/tmp/日本", "--tmp-~65E5~672C--"),
        ("/-a", "--a--"),
        (".", "--.--"),
        ("..", "--..--"),
        ("/😀", "--~D83D~DE00--"),
        ("/" + "x" * 300, "--" + "x" * 251 + "--"),
    ],
)
def test_a_project_folder_is_named_after_the_working_directory(cwd: str | None, key: str) -> None:
    assert project_key(cwd) == key


@pytest.mark.parametrize(
    ("session_id", "segment"),
    [
        ("session-1_a.B", "session-1_a.B"),
        (".", "~002E"),
        ("..", "~002E~002E"),
        ("...", "..."),
        ("../a", "..~002Fa"),
        ("😀", "~D83D~DE00"),
        ("\ud83d\ude00", "~D83D~DE00"),
        ("\ud800", "~D800"),
        ("a\0~", "a~0000~007E"),
    ],
)
def test_a_session_folder_is_named_after_the_id(session_id: str, segment: str) -> None:
    assert session_segment(session_id) == segment


def test_an_empty_id_or_working_directory_has_no_folder() -> None:
    with pytest.raises(ValueError, match="never empty"):
        session_segment("")
    with pytest.raises(ValueError, match="never empty"):
        project_key("")


def _decoded(segment: str) -> str:
    first, *escaped = segment.split("~")
    units = first.encode("utf-16-be")
    for part in escaped:
        units += bytes.fromhex(part[:4]) + part[4:].encode("utf-16-be")
    return units.decode("utf-16-be", "surrogatepass")


@given(st.text(st.characters(), min_size=1))
def test_every_id_can_be_read_back_from_its_folder_and_is_never_a_path(session_id: str) -> None:
    segment = session_segment(session_id)
    assert _decoded(segment) == session_id
    assert segment.isascii()
    assert not set(segment) & set("/\\:\0")
    assert segment not in (".", "..")


@given(st.text(st.characters(), min_size=1))
def test_every_working_directory_has_a_folder_name_that_fits(cwd: str) -> None:
    key = project_key(cwd)
    assert key.isascii()
    assert 5 <= len(key) <= 255
    assert not set(key) & set("/\\:\0")


@pytest.mark.parametrize(
    ("value", "home"),
    [
        ("", "/home/person/.dsh"),
        (" \t", "/home/person/.dsh"),
        ("~", "/home/person"),
        ("~/x/../dsh", "/home/person/dsh"),
        ("~\\dsh", "/home/person/dsh"),
        ("/srv//dsh/", "/srv/dsh"),
    ],
)
def test_the_home_comes_from_the_environment_unless_blank(
    monkeypatch: pytest.MonkeyPatch, value: str, home: str
) -> None:
    monkeypatch.setenv("HOME", "/home/person")
    assert home_folder({"DSH_HOME": value}) == Path(home)


def test_a_relative_home_is_made_absolute_and_another_persons_tilde_is_literal() -> None:
    assert home_folder({"DSH_HOME": "dsh"}) == Path.cwd() / "dsh"
    assert home_folder({"DSH_HOME": "~other/dsh"}) == Path.cwd() / "~other" / "dsh"


def test_the_log_that_counts_is_of_the_highest_generation_by_number() -> None:
    chosen = choose_log(["session.jsonl", "session.v2.jsonl.zstd", "session.v1.jsonl", "session.lock"])
    assert chosen is not None
    assert (chosen.version, chosen.compressed, chosen.name) == (2, True, "session.v2.jsonl.zstd")


@pytest.mark.parametrize(
    "name",
    [
        "session.v0.jsonl",
        "session.v01.jsonl",
        "Session.jsonl",
        "session.jsonl.tmp",
        "session.jsonl\n",
        "session.v1.jsonl.0123456789ab.tmp",
        "xsession.jsonl",
        "session.V1.jsonl",
    ],
)
def test_a_name_that_is_not_canonical_is_no_log(name: str) -> None:
    assert choose_log([name]) is None


def test_the_highest_generation_in_both_encodings_is_corrupt_and_a_lower_one_is_not() -> None:
    with pytest.raises(Unreadable) as caught:
        choose_log(["session.v1.jsonl", "session.v1.jsonl.zstd"])
    assert caught.value.reason is ReadFailedReason.CORRUPT
    chosen = choose_log(["session.jsonl", "session.jsonl.zstd", "session.v1.jsonl"])
    assert chosen is not None
    assert chosen.name == "session.v1.jsonl"


def test_a_newer_generation_is_never_passed_over_for_an_older_one() -> None:
    with pytest.raises(Unreadable) as caught:
        choose_log(["session.v4.jsonl", "session.v10.jsonl"])
    assert caught.value.reason is ReadFailedReason.NEWER_FORMAT
