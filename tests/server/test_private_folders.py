"""Private folders do not outlive their process, and what a killed one has left goes with the next."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sessionref.server import private_folders
from sessionref.server.private_folders import PrivateFolder, remove_private_folders

PROGRAM = """
import os, signal, sys
from sessionref.server.private_folders import PrivateFolder, remove_private_folders
folder = PrivateFolder()
(folder.path / "copy").write_text("what was said")
if sys.argv[1] == "hard":
    remove_private_folders()
    os._exit(0)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] == "waits":
    print("ready", flush=True)
    sys.stdin.read()
"""

locked = pytest.mark.skipif(os.name != "posix", reason="nothing tells there whether a process is still at work")


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "private"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    private_folders._swept.clear()  # pyright: ignore[reportPrivateUsage]
    return folder


def another(private: Path, end: str) -> subprocess.Popen[str]:
    """Another process that makes a folder and ends in some way."""
    environment = {**os.environ, "TMPDIR": str(private)}
    command = [sys.executable, "-c", PROGRAM, end]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("end", ["ordinary", "hard"])
def test_a_folder_is_gone_when_its_process_has_ended(private: Path, end: str) -> None:
    with another(private, end) as process:
        process.communicate(timeout=60)

    assert process.returncode == 0
    assert list(private.iterdir()) == []


@locked
def test_what_a_killed_process_has_left_is_removed_by_the_next(private: Path) -> None:
    with another(private, "killed") as process:
        process.communicate(timeout=60)
    (left,) = private.iterdir()
    assert (left / "copy").read_text() == "what was said"
    folder = PrivateFolder()

    assert list(private.iterdir()) == [folder.path]
    folder.remove()


@locked
def test_the_folder_of_a_process_that_is_at_work_is_left_alone(private: Path) -> None:
    with another(private, "waits") as process:
        assert process.stdout is not None
        process.stdout.readline()
        PrivateFolder().remove()
        (other,) = private.iterdir()
        assert (other / "copy").exists()
        process.communicate("", timeout=60)

    assert list(private.iterdir()) == []


@locked
def test_what_only_looks_like_a_folder_of_ours_is_left_alone(private: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    (private / "sessionref-abcdefgh").symlink_to(elsewhere)
    (private / "sessionref-nolock00").mkdir()
    (private / "sessionref-linked00").mkdir()
    (private / "sessionref-linked00" / "lock").symlink_to(elsewhere / "lock")
    (private / "another-abcdefgh").mkdir()
    (private / "another-abcdefgh" / "lock").touch()
    PrivateFolder().remove()

    assert len(list(private.iterdir())) == 4
    assert (elsewhere / "lock").exists()


def test_all_are_removed_before_an_end_that_is_not_ordinary(private: Path) -> None:
    folders = [PrivateFolder() for _ in range(3)]
    assert len(list(private.iterdir())) == 3
    remove_private_folders()

    assert list(private.iterdir()) == []
    folders[0].remove()
