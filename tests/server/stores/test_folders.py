"""Opening what is below a root: no link is followed, nothing blocks, and nothing stays open."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.stores import folders as folders_module
from sessionref.server.stores.folders import Folder, folders_below
from sessionref.server.stores.problems import Unreadable, from_os_error
from store_contract import in_time, left_open


@pytest.fixture(params=[True, False], ids=["by descriptors", "by paths"], autouse=True)
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is done here, and as it is done where folders cannot be opened."""
    if not request.param:
        monkeypatch.setattr(folders_module, "_RELATIVE", False)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A root with a file, folders, links of all sorts, and something outside of it."""
    (tmp_path / "outside" / "inner").mkdir(parents=True)
    (tmp_path / "outside" / "secret").write_bytes(b"secret")
    root = tmp_path / "root"
    (root / "b" / "deep" / "deeper").mkdir(parents=True)
    (root / "a" / "one").mkdir(parents=True)
    (root / "a" / "two").mkdir()
    (root / "file").write_bytes(b"content")
    (root / "to-folder").symlink_to(tmp_path / "outside")
    (root / "to-own").symlink_to(root / "a")
    (root / "to-file").symlink_to(tmp_path / "outside" / "secret")
    (root / "to-nothing").symlink_to(root / "missing")
    (root / "to-itself").symlink_to(root / "to-itself")
    return root


@pytest.fixture
def root(place: Path) -> Iterator[Folder]:
    with left_open() as opened, Folder.root(place) as found:
        yield found
    assert opened == []


def problem_of(action: Callable[[], object]) -> ReadFailedReason:
    """Why something cannot be opened."""
    with pytest.raises((OSError, Unreadable)) as caught:
        action()
    error = caught.value
    return from_os_error(error).reason if isinstance(error, OSError) else ReadFailedReason(str(error))


def test_names_are_in_the_order_of_their_characters(root: Folder, place: Path) -> None:
    assert root.names() == sorted(os.listdir(place))
    with root.folder("a") as inner:
        assert inner.names() == ["one", "two"]


def test_folders_and_links_are_told_from_files(root: Folder, place: Path) -> None:
    os.mkfifo(place / "fifo")

    assert root.folders_and_links() == ["a", "b", "to-file", "to-folder", "to-itself", "to-nothing", "to-own"]


def test_facts_are_those_of_a_link_itself(root: Folder, place: Path) -> None:
    assert stat.S_ISLNK(root.facts("to-folder").st_mode)
    assert root.facts("file").st_size == len(b"content")
    assert root.own_facts().st_ino == place.stat().st_ino


def test_a_plain_file_can_be_read(root: Folder) -> None:
    with root.file("file") as file:
        assert os.read(file.descriptor, 100) == b"content"
        assert file.facts.st_size == len(b"content")


@pytest.mark.parametrize("name", ["to-file", "to-nothing", "to-itself", "to-folder", "a"])
def test_what_is_no_file_is_not_opened_as_one(root: Folder, name: str) -> None:
    assert problem_of(lambda: root.file(name)) is ReadFailedReason.OUTSIDE_ROOT


@pytest.mark.parametrize("name", ["to-folder", "to-own", "to-file", "to-nothing", "to-itself", "file"])
def test_what_is_no_folder_is_not_opened_as_one(root: Folder, name: str) -> None:
    assert problem_of(lambda: root.folder(name)) is ReadFailedReason.OUTSIDE_ROOT


def test_what_is_missing_is_not_found(root: Folder) -> None:
    assert problem_of(lambda: root.file("missing")) is ReadFailedReason.NOT_FOUND
    assert problem_of(lambda: root.folder("missing")) is ReadFailedReason.NOT_FOUND
    assert problem_of(lambda: root.facts("missing")) is ReadFailedReason.NOT_FOUND


def test_a_fifo_is_refused_and_does_not_block(root: Folder, place: Path) -> None:
    os.mkfifo(place / "fifo")

    assert in_time(lambda: problem_of(lambda: root.file("fifo"))) is ReadFailedReason.OUTSIDE_ROOT


def test_a_link_to_a_folder_is_followed_where_that_is_asked_for(root: Folder) -> None:
    with root.folder("to-folder", follow_link=True) as outside:
        assert outside.names() == ["inner", "secret"]
        with outside.file("secret") as file:
            assert os.read(file.descriptor, 100) == b"secret"
    with root.folder("a", follow_link=True) as own:
        assert own.names() == ["one", "two"]


@pytest.mark.skipif(not folders_module._RELATIVE, reason="a path says so when it is used")  # pyright: ignore[reportPrivateUsage]
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("to-file", ReadFailedReason.OUTSIDE_ROOT),
        ("to-itself", ReadFailedReason.OUTSIDE_ROOT),
        ("to-nothing", ReadFailedReason.NOT_FOUND),
        ("file", ReadFailedReason.OUTSIDE_ROOT),
    ],
)
def test_a_link_that_leads_to_no_folder_is_a_problem_when_its_names_are_asked_for(
    root: Folder, name: str, reason: ReadFailedReason
) -> None:
    def look() -> None:
        with root.folder(name, follow_link=True) as folder:
            folder.names()

    assert problem_of(look) is reason


def test_a_root_may_be_reached_through_a_link_and_must_be_a_folder(place: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(place)
    with Folder.root(tmp_path / "link") as found:
        assert "file" in found.names()
    assert problem_of(lambda: Folder.root(tmp_path / "missing")) is ReadFailedReason.NOT_FOUND


def test_folders_are_found_so_many_levels_below_and_links_are_passed_by(root: Folder) -> None:
    assert list(folders_below(root, "b", 1)) == ["b/deep"]
    assert list(folders_below(root, "b", 2)) == ["b/deep/deeper"]
    assert list(folders_below(root, "b", 3)) == []
    assert list(folders_below(root, "a", 1)) == ["a/one", "a/two"]
    assert list(folders_below(root, "to-folder", 1)) == []


def test_a_link_on_the_last_level_is_told_of_and_one_above_it_is_not_entered(root: Folder, place: Path) -> None:
    (place / "a" / "three").symlink_to(place / "b")

    assert list(folders_below(root, "a", 1)) == ["a/one", "a/three", "a/two"]
    assert list(folders_below(root, "a", 2)) == []


@pytest.mark.parametrize("path", ["missing", "file", "to-nothing", "to-itself"])
def test_below_what_cannot_be_looked_into_there_is_nothing(root: Folder, path: str) -> None:
    assert list(folders_below(root, path, 1)) == list(folders_below(root, path, 2)) == []


@pytest.mark.parametrize("levels", [1, 2])
def test_a_folder_that_is_closed_to_us_is_named_in_place_of_those_in_it(
    root: Folder, monkeypatch: pytest.MonkeyPatch, levels: int
) -> None:
    def refuse(folder: Folder) -> list[str]:
        raise PermissionError

    monkeypatch.setattr(Folder, "folders_and_links", refuse)

    assert list(folders_below(root, "a", levels)) == ["a"]


def test_folders_below_are_not_looked_for_behind_a_link_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "outside" / "run" / "secret").mkdir(parents=True)
    (tmp_path / "home" / "own" / "run" / "first").mkdir(parents=True)
    (tmp_path / "home" / "linked").mkdir()
    (tmp_path / "home" / "linked" / "run").symlink_to(tmp_path / "outside" / "run")
    with Folder.root(tmp_path / "home") as home:
        assert list(folders_below(home, "own", 2)) == ["own/run/first"]
        assert list(folders_below(home, "linked", 2)) == []
