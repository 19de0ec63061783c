"""What tests of every kind of store have in common: which kinds a test is for, a talk, and looks at answers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import pytest

from resolver_doubles import failure_of, never_cancelled
from sessionref.protocol.errors import ReadFailedReason
from sessionref.protocol.methods import Candidate
from sessionref.server.candidates import list_session, row_order, select_candidates
from sessionref.server.store import Capture, CataloguedStore, SessionHeader
from sessionref.server.stores.limits import ReadingLimits
from store_fixtures import KINDS, Traits, Turn, traits_of

__all__ = (
    "EVERYTHING",
    "LIMITS",
    "TALK",
    "Cancelled",
    "CheckCounter",
    "candidates_of",
    "every_kind",
    "files_below",
    "in_time",
    "kinds_where",
    "left_open",
    "refusal_of",
    "rows_of",
    "set_limits",
    "talk_of",
    "turns_of",
    "unlisted_of",
)

Result = TypeVar("Result")

TALK: Final[list[Turn]] = [
    ("user", "first question\nwith a second line"),
    ("assistant", "first answer: <b>ünï</b> \U0001f600"),
    ("user", "second question\u2028in one\u0085go"),
    ("assistant", "second answer\n\n  with space around\t"),
]

EVERYTHING: Final = ReadingLimits(whole_bytes=0, saved_from_bytes=0)
"""Limits under which the shortest session is worth going on with."""

LIMITS: Final = (
    EVERYTHING,
    ReadingLimits(whole_bytes=0, saved_from_bytes=0, piece_bytes=700, compressed_bytes=300),
    ReadingLimits(whole_bytes=3000, saved_from_bytes=1500, piece_bytes=5000),
)
"""Limits under which sessions of tests are read in different steps."""

every_kind: Final = pytest.mark.parametrize("kind", KINDS)


def kinds_where(declares: Callable[[Traits], bool]) -> pytest.MarkDecorator:
    """The kinds that declare something; the test is for them alone."""
    return pytest.mark.parametrize("kind", [kind for kind in KINDS if declares(traits_of(kind))])


def set_limits(store: CataloguedStore, limits: ReadingLimits = EVERYTHING) -> CataloguedStore:
    """The store, with other limits than those it is opened with."""
    (name,) = (name for name in ("limits", "_limits") if hasattr(store, name))
    setattr(store, name, limits)
    return store


def rows_of(store: CataloguedStore) -> dict[str, SessionHeader]:
    """What the store lists, by id."""
    sessions = store.list_sessions(never_cancelled).sessions
    rows = {header.session_id: header for header in sessions}
    assert len(rows) == len(sessions), "an id is listed twice"
    return rows


def unlisted_of(store: CataloguedStore) -> list[str]:
    """The reasons for which the store does not list something."""
    return sorted(problem.reason for problem in store.list_sessions(never_cancelled).unlisted)


def candidates_of(
    store: CataloguedStore, *, include_subagents: bool | None = None, cwd: str | None = None
) -> list[Candidate]:
    """What a person is offered, in order."""
    rows = [
        list_session(header, origin=store.kind, lists_subagents=store.lists_subagents)
        for header in rows_of(store).values()
    ]
    chosen = select_candidates(
        sorted(rows, key=row_order),
        agent_id="nobody",
        cwd=cwd,
        query="",
        limit=10_000,
        include_subagents=include_subagents,
        check=never_cancelled,
    )
    return [candidate for _, candidate in chosen]


def talk_of(store: CataloguedStore, session_id: str) -> list[Turn]:
    """The conversation of a session."""
    return turns_of(store.capture(session_id, never_cancelled))


def turns_of(capture: Capture) -> list[Turn]:
    """Who said what; there may be no summaries."""
    assert not any(item.checkpoint for item in capture.items)
    return [(item.role, item.text) for item in capture.items]


def refusal_of(store: CataloguedStore, session_id: str) -> ReadFailedReason | None:
    """Why a session cannot be captured."""
    return failure_of(lambda: store.capture(session_id, never_cancelled)).reason


class Cancelled(Exception):
    """What the check of a cancelled request raises here."""


class CheckCounter:
    """A check that counts how often it is called, and raises at the call that it is told."""

    def __init__(self, cancelled_at: int | None = None) -> None:
        self.calls = 0
        self._cancelled_at = cancelled_at

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == self._cancelled_at:
            raise Cancelled


class FileFacts(NamedTuple):
    """What there is of a file or folder that a reader could change."""

    mode: int
    inode: int
    modified_ns: int
    content: bytes | str | None


def files_below(folder: Path) -> dict[str, FileFacts]:
    """Everything in a folder, and the folder itself."""
    return {str(path.relative_to(folder)): _facts(path) for path in [folder, *sorted(folder.rglob("*"))]}


def _facts(path: Path) -> FileFacts:
    facts = path.lstat()
    content: bytes | str | None = None
    if path.is_symlink():
        content = os.readlink(path)
    elif path.is_file():
        content = path.read_bytes()
    return FileFacts(facts.st_mode, facts.st_ino, facts.st_mtime_ns, content)


def in_time(function: Callable[[], Result], seconds: float = 20.0) -> Result:
    """The result of something that might block for ever."""
    results: list[Result] = []
    # A thread that nobody waits for, since one that hangs would keep the tests from ending.
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it blocks"
    assert results, "it raised"
    return results[0]


@contextmanager
def left_open() -> Generator[list[str]]:
    """What is open at the end and was not at the beginning; empty where the system does not tell."""
    opened: list[str] = []
    before = _descriptors()
    yield opened
    opened += sorted(_descriptors() - before)


def _descriptors() -> set[str]:
    place = Path("/proc/self/fd")
    found: set[str] = set()
    for link in place.iterdir() if place.is_dir() else ():
        try:
            found.add(f"{link.name} {os.readlink(link)}")
        except FileNotFoundError:
            continue
    return found
