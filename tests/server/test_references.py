"""From content to distinct references (contract sections 1 and 4)."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest

from resolver_doubles import failure_of
from sessionref.protocol.errors import ErrorCode, SessionReferenceError
from sessionref.protocol.mention import (
    ParsedReference,
    encode_session_reference_uri,
    format_session_reference_mention,
)
from sessionref.server.references import check_references, distinct_references, parse_content


def mention(session_id: str, label: str | None = None) -> str:
    return format_session_reference_mention(session_id, label)


def text(written: Any, **members: Any) -> dict[str, Any]:
    return {"type": "text", "text": written, **members}


def found(*given: Any, agent_id: str = "agent", limit: int = 3) -> list[ParsedReference]:
    """The distinct references of the elements given."""
    return distinct_references(check_references(given), agent_id, limit)


def failed(*given: Any, agent_id: str = "agent", limit: int = 3) -> SessionReferenceError:
    return failure_of(lambda: found(*given, agent_id=agent_id, limit=limit))


def test_mentions_in_a_string_become_labels() -> None:
    content, references = parse_content(f"like {mention('a', 'First')} and {encode_session_reference_uri('b')}.")

    assert content == "like @First and @b."
    assert references == [ParsedReference("a", "First"), ParsedReference("b", "b")]


def test_a_string_without_a_mention_is_the_very_string() -> None:
    given = "nothing @[here](elsewhere:x) dsh-session: or there"
    content, references = parse_content(given)

    assert content is given
    assert references == []


def test_text_blocks_are_parsed_in_order_and_keep_their_other_members() -> None:
    content, references = parse_content(
        [
            text(f"see {mention('b')}", id=7, cache={"kind": "short"}),
            {"text": f"and {mention('a')}", "type": "text", "annotations": [mention("c")]},
        ]
    )

    assert content == [
        text("see @b", id=7, cache={"kind": "short"}),
        {"text": "and @a", "type": "text", "annotations": [mention("c")]},
    ]
    assert [list(block) for block in content] == [["type", "text", "id", "cache"], ["text", "type", "annotations"]]
    assert [reference.session_id for reference in references] == ["b", "a"]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "reasoning", "text": mention("a")},
        {"type": "image", "source": {"text": mention("a")}},
        {"text": mention("a")},
        {"type": "text"},
        {"type": "text", "text": None},
        {"type": "text", "text": 5},
        {"type": "text", "text": [mention("a")]},
        {"type": "Text", "text": mention("a")},
        {"type": ["text"], "text": mention("a")},
        mention("a"),
        None,
        5,
        [text(mention("a"))],
        {},
        text("nothing to see"),
    ],
)
def test_any_other_block_passes_through_as_the_same_object(block: Any) -> None:
    given = [block, text(mention("b"))]
    content, references = parse_content(given)

    assert content[0] is block
    assert [reference.session_id for reference in references] == ["b"]


def test_the_content_given_is_not_changed() -> None:
    given = [text(f"see {mention('a')}", more={"x": 1}), text("plain"), {"type": "image"}]
    before = copy.deepcopy(given)
    content, _ = parse_content(given)

    assert given == before
    assert content is not given


@pytest.mark.parametrize("given", [None, 5, {"type": "text", "text": mention("a")}, True])
def test_content_of_another_shape_passes_through(given: Any) -> None:
    content, references = parse_content(given)

    assert content is given
    assert references == []


def test_a_malformed_mention_fails_the_content() -> None:
    for given in ("@[x](dsh-session:!)", [text("fine"), text("dsh-session:AAAA")]):
        failure = failure_of(partial(parse_content, given))

        assert (failure.code, failure.number) == (ErrorCode.INVALID_REFERENCE, -32012)
        assert failure.data == {"code": "SESSION_REFERENCE_INVALID_REFERENCE"}


def test_a_reference_has_an_id_and_a_label_or_the_id_for_one() -> None:
    assert found({"sessionId": "a", "label": "Label"}, {"sessionId": "b"}) == [
        ParsedReference("a", "Label"),
        ParsedReference("b", "b"),
    ]


def test_a_candidate_can_be_given_as_it_is() -> None:
    candidate = {
        "sessionId": "a",
        "label": "Label",
        "displayTitle": "Title",
        "sameWorkspace": True,
        "createdAt": 5,
        "origin": "dsh",
        "mention": mention("other"),
        "unknown": None,
    }

    assert found(candidate) == [ParsedReference("a", "Label")]


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("  two\nlines\t", "two lines"),
        ("", "id"),
        ("\u200b\u202e", "id"),
        ("x" * 200, "x" * 80),
        ("see dsh-session:InMi", "see dsh-session InMi"),
        ("\ud800", "\ufffd"),
    ],
)
def test_a_label_given_is_cleaned(label: str, shown: str) -> None:
    assert found({"sessionId": "id", "label": label}) == [ParsedReference("id", shown)]


@pytest.mark.parametrize("element", [None, "a", 5, True, [], ["a"], 1.5])
def test_an_element_that_is_no_object_is_invalid_and_its_place_is_told(element: Any) -> None:
    failure = failed({"sessionId": "a"}, element)

    assert failure.code is ErrorCode.INVALID_REFERENCE
    assert failure.data == {"code": "SESSION_REFERENCE_INVALID_REFERENCE", "inputIndex": 1}


NO_IDS: list[Any] = [None, 5, True, [], {}]


@pytest.mark.parametrize("element", [{}, {"label": "x"}, *({"sessionId": value} for value in NO_IDS)])
def test_an_id_that_is_no_string_is_invalid(element: Any) -> None:
    failure = failed(element)

    assert failure.data == {"code": "SESSION_REFERENCE_INVALID_REFERENCE", "inputIndex": 0}
    assert "sessionId" in failure.message


@pytest.mark.parametrize("label", [None, 5, False, [], {}])
def test_a_label_that_is_no_string_is_invalid_null_included(label: Any) -> None:
    failure = failed({"sessionId": "a"}, {"sessionId": "b"}, {"sessionId": "c", "label": label})

    assert failure.data == {"code": "SESSION_REFERENCE_INVALID_REFERENCE", "inputIndex": 2}
    assert "label" in failure.message


def test_the_same_session_twice_is_one_reference_with_its_first_label_in_first_place() -> None:
    assert found(
        {"sessionId": "a", "label": "first"},
        {"sessionId": "b"},
        {"sessionId": "a", "label": "second"},
        {"sessionId": "b", "label": "late"},
    ) == [ParsedReference("a", "first"), ParsedReference("b", "b")]


def test_an_id_in_two_halves_is_the_id_that_they_make() -> None:
    assert found({"sessionId": "\ud83d\ude00", "label": "one"}, {"sessionId": "😀", "label": "two"}) == [
        ParsedReference("😀", "one")
    ]


def test_ids_are_told_apart_exactly() -> None:
    assert [
        reference.session_id for reference in found({"sessionId": "A"}, {"sessionId": "a"}, {"sessionId": "a "})
    ] == [
        "A",
        "a",
        "a ",
    ]


def test_a_reference_to_the_target_is_a_self_reference() -> None:
    failure = failed({"sessionId": "a"}, {"sessionId": "agent", "label": "me"})

    assert (failure.code, failure.number) == (ErrorCode.SELF_REFERENCE, -32013)
    assert failure.data == {"code": "SESSION_REFERENCE_SELF_REFERENCE", "sessionId": "agent", "inputIndex": 1}


def test_more_distinct_sessions_than_the_limit_are_too_many() -> None:
    failure = failed(*({"sessionId": name} for name in "abcda"))

    assert (failure.code, failure.number) == (ErrorCode.TOO_MANY, -32014)
    assert failure.data == {"code": "SESSION_REFERENCE_TOO_MANY", "limit": 3, "actual": 4}


def test_as_many_as_the_limit_may_be_named_any_number_of_times() -> None:
    assert len(found(*({"sessionId": name} for name in "abcabcabc"))) == 3
    assert failed({"sessionId": "a"}, {"sessionId": "b"}, limit=1).facts.limit == 1


def test_a_self_reference_comes_before_too_many() -> None:
    failure = failed(*({"sessionId": name} for name in "abcd"), {"sessionId": "agent"})

    assert failure.code is ErrorCode.SELF_REFERENCE


def test_a_malformed_element_comes_before_too_many() -> None:
    failure = failed(*({"sessionId": name} for name in "abcd"), {"sessionId": None})

    assert failure.code is ErrorCode.INVALID_REFERENCE


def test_of_a_self_reference_and_a_malformed_element_the_first_is_the_answer() -> None:
    me, malformed = {"sessionId": "agent"}, {"sessionId": "a", "label": None}

    assert failed(me, malformed).code is ErrorCode.SELF_REFERENCE
    assert failed(malformed, me).code is ErrorCode.INVALID_REFERENCE


def test_the_type_of_a_label_is_checked_before_the_self_reference_of_its_element() -> None:
    assert failed({"sessionId": "agent", "label": None}).code is ErrorCode.INVALID_REFERENCE


def test_no_reference_gives_none() -> None:
    assert found() == []


@pytest.mark.parametrize("element", ["secret text", {"sessionId": "a", "label": ["secret text"]}])
def test_a_failure_quotes_nothing_that_was_given(element: Any) -> None:
    failure = failed(element)

    assert "secret" not in failure.message
    assert "secret" not in str(failure.data)
