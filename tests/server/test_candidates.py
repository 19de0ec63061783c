"""Candidates: limits, filter, rank and rows (contract section 3)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolver_doubles import failure_of, never_cancelled
from sessionref.protocol.errors import ErrorCode
from sessionref.protocol.jsontext import encode_json
from sessionref.protocol.mention import format_session_reference_mention, parse_session_reference_text
from sessionref.protocol.methods import Candidate
from sessionref.server.candidates import ListedSession, check_limit, list_session, row_order, select_candidates
from sessionref.server.store import CheckCancelled, SessionHeader


def header(session_id: str, **facts: Any) -> SessionHeader:
    given_facts: dict[str, Any] = {"created_at": 1000} | facts
    return SessionHeader(session_id=session_id, **given_facts)


def listed(*headers: SessionHeader, origin: str = "dsh", lists_subagents: bool = True) -> list[ListedSession]:
    return [list_session(one, origin=origin, lists_subagents=lists_subagents) for one in headers]


def select(
    sessions: list[ListedSession],
    *,
    agent_id: str = "agent",
    cwd: str | None = None,
    query: str = "",
    limit: int = 50,
    include_subagents: bool | None = None,
    check: CheckCancelled = never_cancelled,
) -> list[Candidate]:
    chosen = select_candidates(
        sorted(sessions, key=row_order),
        agent_id=agent_id,
        cwd=cwd,
        query=query,
        limit=limit,
        include_subagents=include_subagents,
        check=check,
    )
    assert all(row.header.session_id == candidate.session_id for row, candidate in chosen)
    return [candidate for _, candidate in chosen]


def ids(candidates: list[Candidate]) -> list[str]:
    return [candidate.session_id for candidate in candidates]


@pytest.mark.parametrize(("given_limit", "limit"), [(None, 50), (1, 1), (10_000, 10_000), (2.0, 2), (10_000.0, 10_000)])
def test_a_limit_is_an_integer_however_it_is_written(given_limit: Any, limit: int) -> None:
    found = check_limit(given_limit, 50)

    assert found == limit
    assert type(found) is int


@pytest.mark.parametrize(
    "given_limit",
    [0, -1, 10_001, 2**80, 0.0, 2.5, 10_001.0, 1e300, float("inf"), float("nan"), True, False, "3", "", [], [3], {}],
)
def test_any_other_limit_is_an_invalid_reference(given_limit: Any) -> None:
    failure = failure_of(lambda: check_limit(given_limit, 50))

    assert (failure.code, failure.number) == (ErrorCode.INVALID_REFERENCE, -32012)
    assert failure.data == {"code": "SESSION_REFERENCE_INVALID_REFERENCE", "limit": 10_000}


def test_the_target_itself_is_not_listed() -> None:
    assert ids(select(listed(header("agent"), header("other")))) == ["other"]


def test_a_row_has_its_keys_in_order() -> None:
    (row,) = select(
        listed(header("s", created_at=5, updated_at=9, cwd="/w", title="Title", agent_label="Helper")), cwd="/w"
    )

    assert encode_json(row) == (
        b'{"sessionId":"s","label":"Title","displayTitle":"Helper","cwd":"/w","sameWorkspace":true,"createdAt":5,'
        b'"updatedAt":9,"origin":"dsh","mention":"' + format_session_reference_mention("s", "Helper").encode() + b'"}'
    )


def test_what_is_not_known_is_absent_and_never_null() -> None:
    (row,) = select(listed(header("s")))

    assert list(msgspec.to_builtins(row)) == [
        "sessionId",
        "label",
        "displayTitle",
        "sameWorkspace",
        "createdAt",
        "origin",
        "mention",
    ]
    assert msgspec.to_builtins(row)["label"] == "s"


@pytest.mark.parametrize(
    ("title", "agent_label", "label", "display_title"),
    [
        (None, None, "session", "session"),
        ("Title", None, "Title", "Title"),
        (None, "Helper", "session", "Helper"),
        ("Title", "Helper", "Title", "Helper"),
        ("", "", "session", "session"),
        ("\u200b \n", None, "session", "session"),
        ("  two\nlines ", "a\tb", "two lines", "a b"),
        ("x" * 100, None, "x" * 80, "x" * 80),
        ("dsh-session:InMi", None, "dsh-session InMi", "dsh-session InMi"),
        ("half \ud800", None, "half \ufffd", "half \ufffd"),
    ],
)
def test_titles_are_cleaned_and_an_id_stands_in_for_a_blank_one(
    title: str | None, agent_label: str | None, label: str, display_title: str
) -> None:
    (row,) = select(listed(header("session", title=title, agent_label=agent_label)))

    assert (row.label, row.display_title) == (label, display_title)
    assert row.mention == format_session_reference_mention("session", display_title)


@given(st.text(st.characters(codec=None)), st.none() | st.text(), st.none() | st.text())
def test_no_label_and_no_mention_is_ever_blank_and_the_mention_leads_back(
    session_id: str, title: str | None, agent_label: str | None
) -> None:
    (row,) = select(listed(header(session_id, title=title, agent_label=agent_label)), agent_id=session_id + "x")

    assert row.label.strip()
    assert row.display_title.strip()
    (reference,) = parse_session_reference_text(row.mention).references
    assert reference.label == row.display_title
    assert encode_json(reference.session_id) == encode_json(session_id)


def test_the_same_directory_comes_first_then_none_then_others() -> None:
    sessions = listed(
        header("other-new", cwd="/other", created_at=9),
        header("none-old", created_at=1),
        header("same-old", cwd="/w", created_at=1),
        header("none-new", created_at=8),
        header("same-new", cwd="/w", created_at=2),
        header("other-old", cwd="/w/below", created_at=3),
    )

    assert ids(select(sessions, cwd="/w")) == [
        "same-new",
        "same-old",
        "none-new",
        "none-old",
        "other-new",
        "other-old",
    ]


def test_the_same_moment_is_ordered_by_id_in_ascending_code_points() -> None:
    sessions = listed(*(header(name) for name in ("b", "a", "Z", "é", "😀", "\ufffd", "aa", "")))

    assert ids(select(sessions)) == ["", "Z", "a", "aa", "b", "é", "\ufffd", "😀"]


@given(st.permutations(["a", "b", "c", "d"]))
def test_the_order_of_the_stores_makes_no_difference(order: list[str]) -> None:
    facts: dict[str, dict[str, Any]] = {
        "a": {"cwd": "/w", "created_at": 1},
        "b": {"cwd": "/w", "created_at": 2},
        "c": {"created_at": 3},
        "d": {"cwd": "/x", "created_at": 4},
    }

    assert ids(select(listed(*(header(name, **facts[name]) for name in order)), cwd="/w")) == ["b", "a", "c", "d"]


def test_a_negative_moment_is_older_than_any_other() -> None:
    assert ids(select(listed(header("before", created_at=-5), header("after", created_at=0)))) == ["after", "before"]


@pytest.mark.parametrize(
    ("candidate_cwd", "cwd", "same"),
    [
        ("/w", "/w", True),
        ("/w", "/W", False),
        ("/w", "/w/", False),
        ("/w", None, False),
        (None, "/w", False),
        (None, None, False),
        ("C:\\w", "C:\\w", True),
        ("c:\\w", "C:\\w", True),
        ("C:/w/v", "c:\\w\\v\\", True),
        ("C:\\", "c:/", True),
        ("\\\\host\\share\\", "\\\\host\\share", True),
        ("C:\\w", "C:\\W", False),
        ("C:\\w", "D:\\w", False),
        ("C:w", "c:w", False),
        ("/w\\v", "/w/v", False),
        ("/Notes", "/notes", False),
    ],
)
def test_a_workspace_is_the_same_only_if_both_are_known_and_equal(
    candidate_cwd: str | None, cwd: str | None, same: bool
) -> None:
    (row,) = select(listed(header("s", cwd=candidate_cwd)), cwd=cwd)

    assert row.same_workspace is same


def test_without_a_directory_the_header_of_the_target_tells_it() -> None:
    sessions = listed(header("agent", cwd="/w", is_subagent=True), header("x", cwd="/x"), header("w", cwd="/w"))

    rows = select(sessions, include_subagents=False)
    assert [(row.session_id, row.same_workspace) for row in rows] == [("w", True), ("x", False)]


def test_a_directory_given_wins_over_the_header_of_the_target() -> None:
    rows = select(listed(header("agent", cwd="/w"), header("x", cwd="/x"), header("w", cwd="/w")), cwd="/x")

    assert [(row.session_id, row.same_workspace) for row in rows] == [("x", True), ("w", False)]


def test_without_any_directory_sessions_that_have_none_come_first() -> None:
    assert ids(select(listed(header("has", cwd="/x", created_at=9), header("none")))) == ["none", "has"]


@pytest.mark.parametrize(
    "query", ["SESSION-1", "ession", "/srv/proj", "PROJ", "the title", "TITLE", "helper", "Ä", "ä", ""]
)
def test_a_query_is_found_anywhere_in_id_directory_label_and_display_title(query: str) -> None:
    sessions = listed(
        header("Session-1", cwd="/Srv/Proj", title="The Title", agent_label="Helper Ä"), header("zz", title="zz")
    )

    assert "Session-1" in ids(select(sessions, query=query))
    assert ("zz" in ids(select(sessions, query=query))) == (query == "")


@pytest.mark.parametrize("query", ["strasse", "ﬁ", "nothing", "The  Title", "title session", "dsh-session:"])
def test_a_query_is_lower_cased_and_not_folded(query: str) -> None:
    assert select(listed(header("s", title="The Title", agent_label="Straße fi")), query=query) == []


@pytest.mark.parametrize("label", [None, "\u0391\u03a3", "x"])
def test_a_sigma_at_the_end_of_a_title_is_lower_cased_as_one_whatever_is_searched_behind_it(label: str | None) -> None:
    sessions = listed(header("s", title="\u039f\u0394\u039f\u03a3", agent_label=label))

    assert ids(select(sessions, query="\u03bf\u03b4\u03bf\u03c2")) == ["s"]
    assert ids(select(sessions, query="\u039f\u0394\u039f\u03a3")) == ["s"]


def test_a_query_with_a_sharp_s_finds_only_what_has_one() -> None:
    sessions = listed(header("sharp", title="STRAẞE"), header("double", title="STRASSE"))

    assert ids(select(sessions, query="straße")) == ["sharp"]


@pytest.mark.parametrize(
    ("title", "query", "is_found"),
    [
        ("two\nlines", "two lines", True),
        ("two\nlines", "two\nlines", False),
        ("x" * 80 + "hidden", "hidden", False),
        ("in\u200bvisible", "invisible", True),
    ],
)
def test_titles_are_searched_as_they_are_cleaned(title: str, query: str, is_found: bool) -> None:
    assert bool(select(listed(header("s", title=title)), query=query)) is is_found


@pytest.mark.parametrize(
    ("include", "lists", "expected"),
    [
        (None, True, ["main", "sub"]),
        (None, False, ["main"]),
        (True, False, ["main", "sub"]),
        (False, True, ["main"]),
    ],
)
def test_sub_agents_are_listed_as_asked_and_else_as_their_store_does(
    include: bool | None, lists: bool, expected: list[str]
) -> None:
    sessions = listed(header("main"), header("sub", is_subagent=True), lists_subagents=lists)

    assert ids(select(sessions, include_subagents=include)) == expected


def test_each_store_has_its_own_way_with_sub_agents() -> None:
    sessions = [
        *listed(header("hidden", is_subagent=True), origin="hides", lists_subagents=False),
        *listed(header("shown", is_subagent=True), origin="shows"),
    ]

    assert [(row.session_id, row.origin) for row in select(sessions)] == [("shown", "shows")]


def test_the_limit_cuts_after_filter_and_rank() -> None:
    sessions = listed(
        *(header(f"s{number}", created_at=number, title="even odd"[number % 2 * 5 :]) for number in range(9))
    )

    assert ids(select(sessions, query="even", limit=2)) == ["s8", "s6"]
    assert len(select(sessions, limit=9)) == len(select(sessions, limit=100)) == 9


class Cancelled(BaseException):
    """What a check raises here."""


@pytest.mark.parametrize("allowed", [0, 1])
def test_a_cancel_interrupts_a_long_list(allowed: int) -> None:
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls > allowed:
            raise Cancelled

    with pytest.raises(Cancelled):
        select(listed(*(header(f"s{number}") for number in range(5000))), query="s", check=check)
    assert calls == allowed + 1


@pytest.mark.parametrize(
    ("query", "expected"), [("a\0", []), ("\0/w", []), ("\0", ["n\0l"]), ("n\0L", ["n\0l"]), ("l\0/w", [])]
)
def test_a_query_does_not_run_from_one_text_into_the_next(query: str, expected: list[str]) -> None:
    assert ids(select(listed(header("a", cwd="/w"), header("n\0l", cwd="/w")), query=query)) == expected


def test_a_row_whose_title_is_not_read_yet_says_so() -> None:
    pending = list_session(header("s"), origin="dsh", lists_subagents=True, title_pending=True)
    (row,) = select([pending])

    assert list(msgspec.to_builtins(row))[-1] == "titlePending"
    assert msgspec.to_builtins(row)["titlePending"] is True
