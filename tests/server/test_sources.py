"""Several stores as one (contract section 3)."""

from __future__ import annotations

import logging

import pytest

from resolver_doubles import MemoryStore, captured, failure_of, make_resolver, never_cancelled
from sessionref.protocol.errors import ErrorCode, ReadFailedReason, read_failed
from sessionref.protocol.methods import CandidatesParams
from sessionref.server.resolver import Resolver
from sessionref.server.sources import SessionSources
from sessionref.server.store import CheckCancelled, SessionHeader, Unlisted


def header(session_id: str, title: str | None = None) -> SessionHeader:
    return SessionHeader(session_id=session_id, created_at=1, title=title)


async def listed(resolver: Resolver) -> list[tuple[str, str, str]]:
    """Id, label and origin of each candidate."""
    rows = await resolver.candidates(CandidatesParams("agent"))
    return [(row.session_id, row.label, row.origin) for row in rows]


async def test_all_sessions_of_all_stores_are_listed_with_the_kind_and_way_of_their_store() -> None:
    one, two = (SessionHeader(session_id=name, created_at=1, is_subagent=True) for name in "bc")
    resolver = make_resolver(
        MemoryStore(headers=[header("a"), one], kind="shows"),
        MemoryStore(headers=[header("d"), two], kind="hides", lists_subagents=False),
    )

    assert await listed(resolver) == [("a", "a", "shows"), ("b", "b", "shows"), ("d", "d", "hides")]


async def test_of_an_id_in_two_stores_the_first_is_listed_and_the_other_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    resolver = make_resolver(
        MemoryStore(headers=[header("same", "first")], kind="one"),
        MemoryStore(headers=[header("same", "second"), header("own")], kind="two"),
    )

    for _ in range(3):
        assert await listed(resolver) == [("own", "own", "two"), ("same", "first", "one")]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "same of store two" in record.getMessage()


async def test_what_could_not_be_listed_is_logged_once_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    resolver = make_resolver(MemoryStore(headers=[header("good")], unlisted=[Unlisted("project/bad", "corrupt")]))

    for _ in range(3):
        assert await listed(resolver) == [("good", "good", "memory")]
    (record,) = caplog.records
    assert "project/bad" in record.getMessage()
    assert "corrupt" in record.getMessage()
    assert "memory" in record.getMessage()


async def test_another_place_another_reason_and_another_store_are_each_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = MemoryStore(unlisted=[Unlisted("x", "corrupt"), Unlisted("y", "corrupt")], kind="one")
    resolver = make_resolver(one, MemoryStore(unlisted=[Unlisted("x", "corrupt")], kind="two"))
    await listed(resolver)
    one.unlisted = [Unlisted("x", "permission")]
    await listed(resolver)

    assert len(caplog.records) == 4


async def test_a_logged_id_cannot_add_a_line_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    await listed(make_resolver(*(MemoryStore(headers=[header("a\nb\x1b[31m\ud800")]) for _ in range(2))))

    message = caplog.records[0].getMessage()
    assert "\n" not in message
    assert "\x1b" not in message
    message.encode()


def test_a_session_is_read_from_the_first_store_that_has_it() -> None:
    without, first, second = (
        MemoryStore([captured("other")]),
        MemoryStore([captured("s", "first")]),
        MemoryStore([captured("s", "second")]),
    )
    capture = SessionSources([without, first, second]).capture("s", never_cancelled)

    assert capture.items[0].text == "first"
    assert (without.captured, first.captured, second.captured) == (["s"], ["s"], [])


@pytest.mark.parametrize("reason", [reason for reason in ReadFailedReason if reason is not ReadFailedReason.NOT_FOUND])
def test_any_other_failure_than_not_found_is_the_answer_and_no_other_store_is_asked(reason: ReadFailedReason) -> None:
    def fail(session_id: str, check: CheckCancelled) -> None:
        raise read_failed(reason, session_id)

    broken, good = MemoryStore(before_capture=fail), MemoryStore([captured("s", "text")])
    failure = failure_of(lambda: SessionSources([broken, good]).capture("s", never_cancelled))

    assert (failure.code, failure.reason) == (ErrorCode.READ_FAILED, reason)
    assert good.captured == []


@pytest.mark.parametrize("stores", [0, 1, 3])
def test_a_session_that_no_store_has_is_not_found(stores: int) -> None:
    failure = failure_of(lambda: SessionSources([MemoryStore() for _ in range(stores)]).capture("s", never_cancelled))

    assert failure.number == -32015
    assert failure.data == {"code": "SESSION_REFERENCE_READ_FAILED", "reason": "not-found", "sessionId": "s"}


def test_the_check_of_a_request_reaches_the_store() -> None:
    checks: list[CheckCancelled] = []

    def keep(session_id: str, check: CheckCancelled) -> None:
        checks.append(check)

    SessionSources([MemoryStore([captured("s")], before_capture=keep)]).capture("s", never_cancelled)

    assert checks == [never_cancelled]
