"""What no store does, whatever lies in a home and is asked for: follow, block, leak, write, or leave open."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from catalogue_doubles import bring_up_to_date, full_view, index_view, open_database
from resolver_doubles import never_cancelled
from sessionref.protocol.errors import ReadFailedReason, SessionReferenceError
from sessionref.server.catalogue.index import SessionIndex
from sessionref.server.store import CataloguedStore
from store_contract import (
    TALK,
    Cancelled,
    CheckCounter,
    every_kind,
    files_below,
    in_time,
    kinds_where,
    left_open,
    refusal_of,
    rows_of,
    set_limits,
    talk_of,
    unlisted_of,
)
from store_fixtures import KINDS, StoreFixture, open_fixture

MANY_BYTES = 4 * 1024 * 1024
SECRET = "what stands outside of the home"

needs_links = pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links are another thing here")
needs_fifos = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are none here")


def everything_of(store: CataloguedStore, session_ids: list[str]) -> list[SessionReferenceError]:
    """Ask a store for all that there is; returns how it failed."""
    failures: list[SessionReferenceError] = []

    def attempt(action: Callable[[], object]) -> None:
        try:
            action()
        except SessionReferenceError as failure:
            failures.append(failure)

    attempt(lambda: store.list_sessions(never_cancelled))
    attempt(lambda: bring_up_to_date(SessionIndex(store, None)))
    for session_id in session_ids:
        attempt(lambda session_id=session_id: store.capture(session_id, never_cancelled))  # type: ignore[misc]
    store.watched_folders()
    return failures


def two_sessions(agent: StoreFixture) -> tuple[Path, str, str]:
    """A home with two sessions: the file of the first, and both ids."""
    agent.create()
    path = agent.write(agent.name(1), TALK, title=SECRET)
    agent.write(agent.name(2), TALK)
    return path, agent.session_id(agent.name(1)), agent.session_id(agent.name(2))


@pytest.mark.parametrize(
    "native_id",
    [
        "",
        ".",
        "..",
        "../outside",
        "../../outside",
        "../../../outside",
        "/etc/passwd",
        "C:\\Windows",
        "a/b",
        "a/../b",
        "a\0b",
        "a\nb",
        "%2e%2e%2foutside",
        "half \ud800",
        "*",
        "' OR 1=1 --",
        "x" * 10_000,
    ],
)
@every_kind
def test_an_id_that_looks_like_a_path_or_a_pattern_is_simply_not_found(agent: StoreFixture, native_id: str) -> None:
    path, one, _ = two_sessions(agent)
    shutil.copyfile(path, agent.home.parent / f"outside{path.suffix}")
    store = agent.open()

    for session_id in (agent.session_id(native_id), native_id, one + native_id if native_id else ""):
        assert refusal_of(store, session_id) is ReadFailedReason.NOT_FOUND


@every_kind
def test_the_id_of_another_kind_is_not_found(agent: StoreFixture, kind: str) -> None:
    _, _, two = two_sessions(agent)
    store = agent.open()
    native_id = two.removeprefix(f"{kind}:")
    others = [f"{other}:{native_id}" for other in (*KINDS, "x", "", kind.upper()) if other != kind]

    assert {refusal_of(store, other) for other in [*others, f"{kind}:{kind}:{native_id}"]} == {
        ReadFailedReason.NOT_FOUND
    }
    assert talk_of(store, two) == TALK


@kinds_where(lambda traits: traits.has_own_files)
@needs_links
def test_a_session_that_is_a_link_out_of_the_home_is_not_followed(agent: StoreFixture, tmp_path: Path) -> None:
    path, one, two = two_sessions(agent)
    os.rename(path, tmp_path / "outside")
    path.symlink_to(tmp_path / "outside")
    store = agent.open()

    assert list(rows_of(store)) == [two]
    assert unlisted_of(store) == [ReadFailedReason.OUTSIDE_ROOT]
    assert refusal_of(store, one) is ReadFailedReason.OUTSIDE_ROOT


@kinds_where(lambda traits: traits.has_own_files and not traits.follows_folder_links)
@needs_links
def test_a_folder_that_is_a_link_out_of_the_home_is_not_followed(agent: StoreFixture, tmp_path: Path) -> None:
    path, one, _ = two_sessions(agent)
    os.rename(path.parent, tmp_path / "outside")
    path.parent.symlink_to(tmp_path / "outside")
    store = agent.open()

    assert one not in rows_of(store)
    assert refusal_of(store, one) in (ReadFailedReason.OUTSIDE_ROOT, ReadFailedReason.NOT_FOUND)


@kinds_where(lambda traits: traits.has_own_files and traits.follows_folder_links)
@needs_links
def test_a_folder_that_may_be_a_link_is_followed_and_a_file_in_it_is_not(agent: StoreFixture, tmp_path: Path) -> None:
    path, one, two = two_sessions(agent)
    os.rename(path.parent, tmp_path / "outside")
    path.parent.symlink_to(tmp_path / "outside")
    store = agent.open()
    assert set(rows_of(store)) == {one, two}
    assert talk_of(store, one) == TALK

    os.rename(path, tmp_path / "further")
    path.symlink_to(tmp_path / "further")
    assert one not in rows_of(store)
    assert refusal_of(store, one) is ReadFailedReason.OUTSIDE_ROOT


@kinds_where(lambda traits: traits.has_own_files)
@needs_links
@pytest.mark.parametrize("target", ["itself", "nothing", "file"])
def test_links_that_lead_nowhere_cost_no_other_session(agent: StoreFixture, target: str) -> None:
    path, one, two = two_sessions(agent)
    store = agent.open()
    for folder in {path.parent, path.parent.parent, agent.home}:
        link = folder / f"link-{target}"
        link.symlink_to({"itself": link, "nothing": folder / "missing", "file": path}[target])

    assert set(rows_of(store)) == {one, two}
    assert talk_of(store, one) == TALK


@every_kind
@needs_fifos
def test_a_fifo_in_the_place_of_a_file_does_not_block(agent: StoreFixture) -> None:
    path, one, two = two_sessions(agent)
    path.unlink()
    os.mkfifo(path)

    failures = in_time(lambda: everything_of(agent.open(), [one, two]))

    assert ReadFailedReason.OUTSIDE_ROOT in {failure.reason for failure in failures}
    assert one not in in_time(lambda: everything_listed(agent.open()))


def everything_listed(store: CataloguedStore) -> list[str]:
    """The ids listed; none if the store cannot be read."""
    try:
        return list(rows_of(store))
    except SessionReferenceError:
        return []


@every_kind
def test_a_folder_in_the_place_of_a_file_is_a_failure_that_costs_no_more(agent: StoreFixture) -> None:
    path, one, _ = two_sessions(agent)
    path.unlink()
    path.mkdir()

    failures = everything_of(agent.open(), [one])

    assert failures
    assert one not in everything_listed(agent.open())


@kinds_where(lambda traits: traits.has_own_files)
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_costs_its_own_row_and_says_why(agent: StoreFixture) -> None:
    path, one, two = two_sessions(agent)
    path.chmod(0)
    store = agent.open()

    assert list(rows_of(store)) == [two]
    assert unlisted_of(store) == [ReadFailedReason.PERMISSION]
    assert refusal_of(store, one) is ReadFailedReason.PERMISSION


@kinds_where(lambda traits: traits.has_own_files)
@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EACCES, ReadFailedReason.PERMISSION),
        (errno.EPERM, ReadFailedReason.PERMISSION),
        (errno.EIO, ReadFailedReason.IO),
        (errno.EMFILE, ReadFailedReason.IO),
        (errno.ESTALE, ReadFailedReason.IO),
    ],
)
def test_a_file_that_cannot_be_opened_costs_its_own_row_and_says_why(
    agent: StoreFixture, number: int, reason: ReadFailedReason, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, one, two = two_sessions(agent)
    inode, really_open = path.stat().st_ino, os.open

    def fail_for_it(name: str, flags: int, *arguments: int, dir_fd: int | None = None) -> int:
        descriptor = really_open(name, flags, *arguments, dir_fd=dir_fd)
        if os.fstat(descriptor).st_ino == inode:
            os.close(descriptor)
            raise OSError(number, os.strerror(number), name)
        return descriptor

    monkeypatch.setattr(os, "open", fail_for_it)
    store = agent.open()

    assert list(rows_of(store)) == [two]
    assert unlisted_of(store) == [reason]
    assert refusal_of(store, one) is reason


@kinds_where(lambda traits: traits.has_own_files)
@pytest.mark.parametrize("name", [b"\xff%s", b"%s\n", b"\x1b[31m%s", b"%s~", b".%s.swp", b"%s.tmp", b"copy of %s"])
def test_files_with_odd_names_are_listed_or_not_but_break_nothing(
    agent: StoreFixture, name: bytes, tmp_path: Path
) -> None:
    path, _, two = two_sessions(agent)
    shutil.copyfile(path, os.path.join(os.fsencode(path.parent), name % os.fsencode(path.name)))
    store, database = agent.open(), open_database(tmp_path)
    set_limits(store)
    index = SessionIndex(store, database)
    bring_up_to_date(index)
    again = SessionIndex(store, database)
    bring_up_to_date(again)
    database.close()

    assert index_view(index) == index_view(again) == full_view(store)
    assert two in rows_of(store)
    assert all(problem.place.isprintable() for problem in store.list_sessions(never_cancelled).unlisted)
    assert talk_of(store, two) == TALK


@every_kind
@pytest.mark.parametrize(
    "name", ["a b", "100%", "what?x=1", "#1", "it's", "a:b;c", "-x", "ünï", "nul%00", os.fsdecode(b"\xff")]
)
def test_a_home_may_have_any_name(kind: str, name: str, tmp_path: Path) -> None:
    agent = open_fixture(kind, tmp_path / name / "home")
    _, one, two = two_sessions(agent)
    store, database = agent.open(), open_database(tmp_path)
    before = files_below(tmp_path / name)
    index = SessionIndex(store, database)
    bring_up_to_date(index)
    database.close()

    assert set(rows_of(store)) == {row.header.session_id for row in index.rows()} == {one, two}
    assert talk_of(store, one) == TALK
    assert files_below(tmp_path / name) == before


@kinds_where(lambda traits: traits.has_own_files)
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_a_record_nested_without_end_is_refused_and_costs_no_other_session(agent: StoreFixture, opening: bytes) -> None:
    path, one, two = two_sessions(agent)
    closing = b"]" if opening == b"[" else b"}"
    with path.open("ab") as file:
        file.write(b'{"type": "x", "deep": ' + opening * 100_000 + b"1" + closing * 100_000 + b"}\n")
    store = agent.open()

    assert in_time(lambda: refusal_of(store, one)) is ReadFailedReason.TOO_LARGE
    assert two in rows_of(store)
    assert talk_of(store, two) == TALK


@kinds_where(lambda traits: traits.has_own_files and traits.has_projects)
def test_two_sessions_of_one_id_are_both_refused_and_cost_no_other(agent: StoreFixture) -> None:
    path, one, two = two_sessions(agent)
    copy_aside(agent, path)
    store = agent.open()

    assert list(rows_of(store)) == [two]
    assert unlisted_of(store) == [ReadFailedReason.DUPLICATE_ID] * 2
    assert refusal_of(store, one) is ReadFailedReason.DUPLICATE_ID


def copy_aside(agent: StoreFixture, path: Path) -> None:
    """Copy a session to another project, which is the second part of a path in every home."""
    first, _, *rest = path.relative_to(agent.home).parts
    target = agent.home.joinpath(first, "--aside--", *rest)
    target.parent.mkdir(parents=True)
    shutil.copyfile(path, target)


@every_kind
def test_nothing_in_the_home_is_written_or_left_behind_and_nothing_stays_open(agent: StoreFixture) -> None:
    _, one, two = two_sessions(agent)
    child = agent.session_id(agent.write_subagent(agent.name(3), agent.name(1), TALK))
    before = files_below(agent.home)
    with left_open() as opened:
        failures = everything_of(agent.open(), [one, two, child])

    assert failures == []
    assert files_below(agent.home) == before
    assert opened == []


@every_kind
def test_what_fails_writes_nothing_either_and_leaves_nothing_open_and_names_no_path(agent: StoreFixture) -> None:
    path, one, _ = two_sessions(agent)
    content = path.read_bytes()
    for broken in (b"", b"{", b"\0" * 10_000, b"[]\n[]\n", content[:20], content.replace(b"{", b"[")):
        path.write_bytes(broken)
        before = files_below(agent.home)
        with left_open() as opened:
            failures = everything_of(agent.open(), [one, agent.session_id("../x"), "nobody's"])

        assert failures
        assert files_below(agent.home) == before
        assert opened == []
        for failure in failures:
            assert agent.home.name not in repr((failure.message, failure.data))
            assert failure.reason is not None


@every_kind
def test_a_cancelled_request_stops_reading_wherever_it_is(agent: StoreFixture) -> None:
    agent.create()
    agent.write(agent.name(1), [("user", "x" * 100_000) for _ in range(MANY_BYTES // 100_000)])
    session_id = agent.session_id(agent.name(1))
    store, counted = agent.open(), CheckCounter()
    store.capture(session_id, counted)
    assert counted.calls > MANY_BYTES // (1024 * 1024)
    listed = CheckCounter()
    store.list_sessions(listed)
    assert listed.calls

    with left_open() as opened:
        for at in (1, 2, counted.calls // 2, counted.calls):
            with pytest.raises(Cancelled):
                store.capture(session_id, CheckCounter(at))
        for at in (1, listed.calls):
            with pytest.raises(Cancelled):
                # A store that has listed before may have less to do.
                agent.open().list_sessions(CheckCounter(at))
    assert opened == []
