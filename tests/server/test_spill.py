"""The local spill store: private, exclusive, following no link, and leaving nothing of a request that failed."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sessionref.server.spill import LocalSpillStore, SpillTransaction, remove_spills

DAY = 86_400
NOW = 1_700_000_000.0


def save(
    store: LocalSpillStore, content: Iterator[bytes] | None = None, owner: str = "target", number: int = 1
) -> Path:
    pieces = iter([b"first ", b"second"]) if content is None else content
    return Path(store.save(owner, number, pieces, SpillTransaction()).locator)


def files_below(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if not path.is_dir())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "spills"


def test_a_snapshot_is_saved_whole_below_a_folder_of_its_owner(root: Path) -> None:
    transaction = SpillTransaction()
    saved = LocalSpillStore(root).save("target", 2, iter(["ä".encode(), b"b"]), transaction)

    path = Path(saved.locator)
    assert path.read_bytes() == "äb".encode()
    assert saved.bytes == 3
    assert path.is_absolute()
    assert path.parent.parent == root
    assert path.parent.name == "session-" + hashlib.sha256(b"target").hexdigest()[:12]
    assert re.fullmatch(r"[0-9a-f]{12}-session-reference-2\.txt", path.name)
    assert files_below(root) == [path]


def test_the_hint_tells_how_to_read_in_one_line(root: Path) -> None:
    hint = LocalSpillStore(root).save("t", 1, iter([b""]), SpillTransaction()).retrieval_hint

    assert "offset" in hint
    assert "\n" not in hint
    assert "<" not in hint


def test_folders_are_for_their_user_only_and_so_are_files(root: Path) -> None:
    before = os.umask(0)
    try:
        path = save(LocalSpillStore(root))
    finally:
        os.umask(before)

    assert (mode_of(root), mode_of(path.parent), mode_of(path)) == (0o700, 0o700, 0o600)
    assert mode_of(root.parent) == 0o700


@pytest.mark.parametrize("looser", [0o755, 0o777, 0o750, 0o1777])
def test_an_existing_folder_that_others_can_look_into_is_tightened(root: Path, looser: int) -> None:
    folder = save(LocalSpillStore(root)).parent
    for path in (root, folder):
        path.chmod(looser)
    save(LocalSpillStore(root))

    assert (mode_of(root), mode_of(folder)) == (0o700, 0o700)


def test_a_folder_above_the_root_that_exists_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o755)
    save(LocalSpillStore(tmp_path / "shared" / "spills"))

    assert mode_of(tmp_path / "shared") == 0o755


def test_a_relative_root_means_the_directory_at_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = LocalSpillStore(Path("spills"))
    monkeypatch.chdir(tmp_path / "elsewhere")

    assert save(store).parent.parent == tmp_path / "spills"


@pytest.mark.parametrize("owner", ["", "../../etc", "a/b", "~", "\0", "x" * 5000, "日本", "\ud800"])
def test_an_owner_never_becomes_a_path(root: Path, owner: str) -> None:
    path = save(LocalSpillStore(root), owner=owner)

    digest = hashlib.sha256(owner.replace("\ud800", "\ufffd").encode()).hexdigest()[:12]
    assert path.parent == root / f"session-{digest}"


def test_every_owner_has_a_folder_and_every_save_a_name_of_its_own(root: Path) -> None:
    store = LocalSpillStore(root)
    paths = [save(store, owner=owner) for owner in ("a", "a", "b")]

    assert len(set(paths)) == 3
    assert paths[0].parent == paths[1].parent != paths[2].parent


def same_name(monkeypatch: pytest.MonkeyPatch) -> str:
    """Let the store draw the same random name every time."""

    def drawn(number: int | None = None) -> str:
        return "0" * 12

    monkeypatch.setattr(secrets, "token_hex", drawn)
    return "0" * 12 + "-session-reference-1.txt"


def test_a_name_that_is_taken_fails_the_save_and_leaves_the_other_file(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same_name(monkeypatch)
    store = LocalSpillStore(root)
    path = save(store)

    with pytest.raises(FileExistsError):
        save(store, iter([b"other"]))
    assert path.read_bytes() == b"first second"


def test_taking_back_a_save_that_found_its_name_taken_leaves_the_other_file(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = same_name(monkeypatch)
    store = LocalSpillStore(root)
    transaction = SpillTransaction()
    path = save(store)
    with pytest.raises(FileExistsError):
        store.save("target", 1, iter([b"other"]), transaction)
    (path.parent / name).write_bytes(b"still here")
    transaction.discard()

    assert path.read_bytes() == b"still here"


def test_a_link_with_the_name_of_a_snapshot_is_not_followed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = same_name(monkeypatch)
    store = LocalSpillStore(root)
    folder = save(store).parent
    (folder / name).unlink()
    (folder / name).symlink_to(tmp_path / "outside")

    with pytest.raises(FileExistsError):
        save(store)
    assert not (tmp_path / "outside").exists()


def as_file(path: Path, aside: Path) -> None:
    path.write_bytes(b"in the way")


def as_link(path: Path, aside: Path) -> None:
    path.symlink_to(aside, target_is_directory=True)


def as_broken_link(path: Path, aside: Path) -> None:
    path.symlink_to(aside / "nowhere")


def as_fifo(path: Path, aside: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("put", [as_file, as_link, as_broken_link, as_fifo])
@pytest.mark.parametrize("place", ["root", "owner"])
def test_what_is_no_folder_in_the_place_of_a_folder_fails_the_save_and_is_not_followed(
    tmp_path: Path, place: str, put: Callable[[Path, Path], None]
) -> None:
    root, aside = tmp_path / "spills", tmp_path / "aside"
    aside.mkdir(mode=0o755)
    aside.chmod(0o755)
    path = root
    if place == "owner":
        path = save(LocalSpillStore(root)).parent
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    put(path, aside)

    with pytest.raises(OSError, match=r".+"):
        save(LocalSpillStore(root))
    assert list(aside.iterdir()) == []
    assert mode_of(aside) == 0o755


def test_a_root_above_which_a_file_stands_fails_the_save(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(NotADirectoryError):
        save(LocalSpillStore(tmp_path / "file" / "spills"))


def test_a_folder_of_another_user_is_not_written_into(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(LocalSpillStore(root))
    root.chmod(0o755)
    before = files_below(root)
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)

    with pytest.raises(PermissionError):
        save(LocalSpillStore(root))
    assert files_below(root) == before
    assert mode_of(root) == 0o755


class Broken(Exception):
    """What a content raises here."""


def broken_content(error: BaseException) -> Iterator[bytes]:
    yield b"x" * 100_000
    raise error


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), Broken(), KeyboardInterrupt()])
def test_a_save_that_fails_leaves_nothing(root: Path, error: BaseException) -> None:
    with pytest.raises(type(error)):
        save(LocalSpillStore(root), broken_content(error))

    assert files_below(root) == []


def test_a_request_that_is_over_saves_nothing(root: Path) -> None:
    transaction = SpillTransaction()
    transaction.discard()

    with pytest.raises(OSError, match=r".*"):
        LocalSpillStore(root).save("target", 1, iter([b"late"]), transaction)
    assert files_below(root) == []


def test_a_request_that_ends_while_its_snapshot_is_written_leaves_nothing(root: Path) -> None:
    transaction = SpillTransaction()

    def content() -> Iterator[bytes]:
        yield b"before"
        remove_spills(transaction.end())
        yield b"after"

    with pytest.raises(OSError, match=r".*"):
        LocalSpillStore(root).save("target", 1, content(), transaction)
    assert files_below(root) == []


def test_a_request_that_ends_before_the_first_piece_leaves_nothing(root: Path) -> None:
    transaction = SpillTransaction()

    def content() -> Iterator[bytes]:
        transaction.discard()
        yield b"only"

    with pytest.raises(OSError, match=r".*"):
        LocalSpillStore(root).save("target", 1, content(), transaction)
    assert files_below(root) == []


def test_a_request_that_ends_while_a_slow_save_hangs_leaves_nothing(root: Path) -> None:
    transaction = SpillTransaction()
    written, go_on = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def content() -> Iterator[bytes]:
        yield b"x" * 100_000
        written.set()
        go_on.wait(5)
        yield b"late"

    def work() -> None:
        try:
            LocalSpillStore(root).save("target", 1, content(), transaction)
        except OSError as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert written.wait(5)
        transaction.discard()
        assert files_below(root) == []
    finally:
        go_on.set()
        thread.join(5)
    assert len(raised) == 1
    assert files_below(root) == []


def test_a_request_that_ends_after_its_saves_takes_all_of_them_back_and_no_other(root: Path) -> None:
    store, transaction = LocalSpillStore(root), SpillTransaction()
    other = save(store)
    for number in (1, 2, 3):
        store.save("target", number, iter([b"mine"]), transaction)
    assert len(files_below(root)) == 4
    transaction.discard()

    assert files_below(root) == [other]


def test_ending_a_request_again_and_removing_what_is_gone_do_no_harm(root: Path) -> None:
    store, transaction = LocalSpillStore(root), SpillTransaction()
    Path(store.save("target", 1, iter([b"mine"]), transaction).locator).unlink()
    transaction.discard()
    transaction.discard()

    assert transaction.end() == []
    assert files_below(root) == []


def test_the_end_of_a_request_hands_over_what_is_to_be_removed_once(root: Path) -> None:
    store, transaction = LocalSpillStore(root), SpillTransaction()
    path = Path(store.save("target", 1, iter([b"mine"]), transaction).locator)

    assert transaction.end() == [path]
    assert transaction.end() == []
    assert path.exists()


def aged(path: Path, days: float) -> Path:
    os.utime(path, (NOW - days * DAY, NOW - days * DAY), follow_symlinks=False)
    return path


def spill_of_age(root: Path, days: float) -> Path:
    return aged(save(LocalSpillStore(root)), days)


def test_the_sweep_deletes_what_is_older_and_nothing_else(root: Path) -> None:
    old, older = spill_of_age(root, 30.1), spill_of_age(root, 400)
    young, exact, future = spill_of_age(root, 29.9), spill_of_age(root, 30), spill_of_age(root, -5)

    assert LocalSpillStore(root).sweep(30, NOW) == 2
    assert not old.exists()
    assert not older.exists()
    assert files_below(root) == sorted([young, exact, future])


def test_the_sweep_goes_by_the_clock_when_it_is_told_no_time(root: Path) -> None:
    spill_of_age(root, 0)
    fresh = save(LocalSpillStore(root))

    assert LocalSpillStore(root).sweep(1) == 1
    assert files_below(root) == [fresh]


def test_no_days_means_never(root: Path) -> None:
    ancient = spill_of_age(root, 10_000)

    assert LocalSpillStore(root).sweep(0, NOW) == 0
    assert ancient.exists()


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "0123456789ab-session-reference-0.txt",
        "0123456789ab-session-reference-01.txt",
        "0123456789ab-session-reference-1.txt.bak",
        "0123456789ab-session-reference-1.txt\n",
        "0123456789AB-session-reference-1.txt",
        "0123456789a-session-reference-1.txt",
        "0123456789ab-session-reference-.txt",
        "x0123456789ab-session-reference-1.txt",
        "0123456789ab-tool-output-1.txt",
    ],
)
def test_the_sweep_leaves_files_of_other_names(root: Path, name: str) -> None:
    path = save(LocalSpillStore(root)).parent / name
    path.write_bytes(b"")
    aged(path, 400)
    LocalSpillStore(root).sweep(1, NOW)

    assert path.exists()


@pytest.mark.parametrize(
    "folder", ["session-0123456789a", "session-0123456789abc", "session-0123456789AB", "other", "."]
)
def test_the_sweep_leaves_folders_of_other_names(root: Path, folder: str) -> None:
    save(LocalSpillStore(root))
    path = root / folder / "0123456789ab-session-reference-1.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    aged(path, 400)

    assert LocalSpillStore(root).sweep(1, NOW) == 0
    assert path.exists()


def test_the_sweep_leaves_what_is_another_users(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = spill_of_age(root, 400)
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)

    assert LocalSpillStore(root).sweep(1, NOW) == 0
    assert path.exists()


def test_the_sweep_follows_no_link(root: Path, tmp_path: Path) -> None:
    folder = save(LocalSpillStore(root)).parent
    outside = tmp_path / "session-0123456789ab"
    outside.mkdir()
    victim = outside / "0123456789ab-session-reference-1.txt"
    victim.write_bytes(b"")
    aged(victim, 400)
    (root / "session-0123456789ab").symlink_to(outside, target_is_directory=True)
    link = folder / "0123456789ab-session-reference-1.txt"
    link.symlink_to(victim)
    aged(link, 400)

    assert LocalSpillStore(root).sweep(1, NOW) == 0
    assert victim.exists()
    assert link.is_symlink()


def test_the_sweep_does_not_look_below_a_root_that_is_a_link(root: Path, tmp_path: Path) -> None:
    path = spill_of_age(root, 400)
    (tmp_path / "link").symlink_to(root, target_is_directory=True)

    assert LocalSpillStore(tmp_path / "link").sweep(1, NOW) == 0
    assert path.exists()


def test_the_sweep_leaves_a_folder_and_a_fifo_with_the_name_of_a_snapshot(root: Path) -> None:
    folder = save(LocalSpillStore(root)).parent
    inner, fifo = folder / "0123456789ab-session-reference-1.txt", folder / "0123456789ab-session-reference-2.txt"
    inner.mkdir()
    os.mkfifo(fifo)
    for path in (inner, fifo):
        aged(path, 400)

    assert LocalSpillStore(root).sweep(1, NOW) == 0
    assert inner.is_dir()
    assert fifo.exists()


def test_one_file_in_the_place_of_a_folder_does_not_stop_the_sweep(root: Path) -> None:
    path = spill_of_age(root, 400)
    (root / "session-000000000000").write_bytes(b"")
    (root / "session-ffffffffffff").write_bytes(b"")

    assert LocalSpillStore(root).sweep(1, NOW) == 1
    assert not path.exists()


def test_a_sweep_without_a_spill_directory_does_nothing_and_makes_none(root: Path) -> None:
    assert LocalSpillStore(root).sweep(30, NOW) == 0
    assert not root.exists()
