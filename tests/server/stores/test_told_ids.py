"""Logs that tell their session's id, and files of them that were copied or renamed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from resolver_doubles import failure_of, never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.server.store import CataloguedStore
from store_fixtures import StoreFixture, open_fixture


@pytest.fixture(params=["pi", "copilot-cli"])
def fixture(request: pytest.FixtureRequest, tmp_path: Path) -> StoreFixture:
    made = open_fixture(str(request.param), tmp_path / "home")
    made.create()
    return made


@pytest.fixture
def log(fixture: StoreFixture) -> Path:
    return fixture.write(fixture.name(1), [("user", "hello"), ("assistant", "well met")], title="Title")


def named_anew(fixture: StoreFixture, log: Path, number: int) -> Path:
    """The path of the log under another session's name, be that in its file's name or in its folder's."""
    old, new = fixture.name(1), fixture.name(number)
    path = fixture.home / str(log.relative_to(fixture.home)).replace(old, new)
    path.parent.mkdir(exist_ok=True)
    return path


def listed(store: CataloguedStore) -> tuple[list[str], list[str]]:
    """The ids that are listed, and why others are not."""
    listing = store.list_sessions(never_cancelled)
    return [header.session_id for header in listing.sessions], [problem.reason for problem in listing.unlisted]


def texts(store: CataloguedStore, session_id: str) -> list[str]:
    return [item.text for item in store.capture(session_id, never_cancelled).items]


def reason_of(fixture: StoreFixture, session_id: str) -> ReadFailedReason | None:
    return failure_of(lambda: texts(fixture.open(), session_id)).reason


def test_a_renamed_log_is_the_session_that_it_tells(fixture: StoreFixture, log: Path) -> None:
    log.rename(named_anew(fixture, log, 2))
    session_id = fixture.session_id(fixture.name(1))

    assert listed(fixture.open()) == ([session_id], [])
    assert texts(fixture.open(), session_id) == ["hello", "well met"]
    assert reason_of(fixture, fixture.session_id(fixture.name(2))) is ReadFailedReason.NOT_FOUND


def test_of_a_log_and_its_copy_the_one_that_is_named_after_its_id_is_the_session(
    fixture: StoreFixture, log: Path
) -> None:
    copy = named_anew(fixture, log, 2)
    shutil.copy(log, copy)
    copy.write_bytes(copy.read_bytes().replace(b"well met", b"ill met"))
    session_id = fixture.session_id(fixture.name(1))

    assert listed(fixture.open()) == ([session_id], ["duplicate-id"])
    assert texts(fixture.open(), session_id) == ["hello", "well met"]
    log.unlink()
    assert listed(fixture.open()) == ([session_id], [])
    assert texts(fixture.open(), session_id) == ["hello", "ill met"]


def test_two_copies_without_the_log_that_they_are_copies_of_are_refused(fixture: StoreFixture, log: Path) -> None:
    for number in (2, 3):
        shutil.copy(log, named_anew(fixture, log, number))
    log.unlink()
    session_id = fixture.session_id(fixture.name(1))

    assert listed(fixture.open()) == ([], ["duplicate-id", "duplicate-id"])
    assert reason_of(fixture, session_id) is ReadFailedReason.DUPLICATE_ID


def test_a_renamed_log_of_one_line_without_its_line_feed_is_found_by_what_it_tells(
    fixture: StoreFixture, log: Path
) -> None:
    first, *_ = log.read_bytes().split(b"\n")
    renamed = named_anew(fixture, log, 2)
    renamed.write_bytes(first)
    log.unlink()
    session_id = fixture.session_id(fixture.name(1))

    assert listed(fixture.open()) == ([session_id], [])
    assert texts(fixture.open(), session_id) == []
