"""Several stores in one list: what is listed under an id is what is read under it."""

from __future__ import annotations

import pytest

from resolver_doubles import MemoryStore, captured, make_resolver, never_cancelled
from sessionref.protocol.methods import CandidatesParams
from sessionref.server.sources import SessionSources
from sessionref.server.store import SessionHeader

ID = "pi:1"


def store(kind: str, title: str) -> MemoryStore:
    """A store with one session of that title, in which just that was said."""
    header = SessionHeader(session_id=ID, created_at=1, title=title)
    return MemoryStore([captured(ID, title)], headers=[header], kind=kind)


@pytest.mark.parametrize("kinds", [("dsh", "pi"), ("pi", "dsh"), ("pi", "pi"), ("dsh", "dsh")])
async def test_an_id_that_names_its_agent_is_listed_as_it_is_read(kinds: tuple[str, str]) -> None:
    stores = [store(kind, f"{kind} {number}") for number, kind in enumerate(kinds)]

    (row,) = await make_resolver(*stores).candidates(CandidatesParams("agent"))
    capture = SessionSources(stores).capture(ID, never_cancelled)

    assert row.label == capture.items[0].text
    assert row.origin == row.label.split()[0]
