"""What tests of OpenCode's sessions have in common: looks at the answers of a store."""

from __future__ import annotations

from pathlib import Path

from resolver_doubles import never_cancelled
from sessionref.server.store import Capture, SessionHeader
from sessionref.server.stores.opencode.store import OpencodeStore

__all__ = ("capture_of", "problems_of", "rows_of", "said_in", "store_of")


def store_of(home: Path) -> OpencodeStore:
    """The store of a data folder, whatever the environment says."""
    return OpencodeStore(home)


def capture_of(home: Path, native_id: str = "ses_1") -> Capture:
    """A session as it is captured."""
    return store_of(home).capture(f"opencode:{native_id}", never_cancelled)


def said_in(home: Path, native_id: str = "ses_1") -> list[tuple[str, str]]:
    """Who said what in a session; a summary is said by nobody."""
    return [("summary" if item.checkpoint else item.role, item.text) for item in capture_of(home, native_id).items]


def rows_of(home: Path) -> dict[str, SessionHeader]:
    """What is listed, by native ids."""
    listing = store_of(home).list_sessions(never_cancelled)
    return {row.session_id.removeprefix("opencode:"): row for row in listing.sessions}


def problems_of(home: Path) -> dict[str, str]:
    """What is not listed, and why."""
    listing = store_of(home).list_sessions(never_cancelled)
    return {problem.place: problem.reason for problem in listing.unlisted}
