"""Binding params: by name and by position, null and 2.0, and refusals that name the param and echo nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionref.protocol.errors import ErrorData, ProtocolCode, ProtocolError
from sessionref.protocol.jsontext import decode_json, encode_json
from sessionref.protocol.methods import (
    METHODS,
    AssembledParams,
    CancelParams,
    Candidate,
    CandidatesParams,
    NoParams,
    PrepareMessagesParams,
    PrepareParams,
    PrepareResult,
    Route,
    bind_params,
)

BY_NAME: list[tuple[type[msgspec.Struct], dict[str, Any]]] = [
    (
        CandidatesParams,
        {"agentId": "eve", "query": "garden", "cwd": "/work", "limit": 5, "includeSubagents": False},
    ),
    (
        PrepareParams,
        {
            "agentId": "eve",
            "content": [{"type": "text", "text": "hello"}],
            "references": [{"sessionId": "adam"}],
            "cwd": "/work",
            "route": {"provider": "p", "model": "m", "contextWindow": 8000},
            "preview": True,
        },
    ),
    (PrepareMessagesParams, {"agentId": "eve", "messages": [{}], "cwd": "", "route": {}}),
    (AssembledParams, {"agentId": "", "provider": "p", "model": "m", "contextWindow": 1}),
    (CancelParams, {"id": 1.5}),
    (NoParams, {}),
]
every_kind = pytest.mark.parametrize(("kind", "named"), BY_NAME)
REQUIRED: dict[type[msgspec.Struct], list[str]] = {
    CandidatesParams: ["agentId"],
    PrepareParams: ["agentId", "content"],
    PrepareMessagesParams: ["agentId", "messages"],
    AssembledParams: ["agentId"],
    CancelParams: ["id"],
    NoParams: [],
}
PREPARE = {"agentId": "eve", "content": ""}


def refusal(kind: type[msgspec.Struct], *positional: Any, **named: Any) -> str:
    """The message of the refusal, after checking that it is one that may be shown."""
    with pytest.raises(ProtocolError) as failure:
        bind_params(kind, positional, named)
    assert failure.value.code is ProtocolCode.INVALID_PARAMS
    assert failure.value.facts == ErrorData()
    assert len(failure.value.message) <= 200
    assert len(failure.value.message.splitlines()) == 1
    return failure.value.message


def test_the_methods_are_those_that_are_promised() -> None:
    resolver = "sessionReferenceResolver/"
    assert {name: (row.name, row.is_notification) for name, row in METHODS.items()} == {
        resolver + "candidates": (resolver + "candidates", False),
        resolver + "prepare": (resolver + "prepare", False),
        resolver + "prepareMessages": (resolver + "prepareMessages", False),
        resolver + "assembled": (resolver + "assembled", True),
        "initialize": ("initialize", False),
        "rpc.discover": ("rpc.discover", False),
        "shutdown": ("shutdown", False),
        "exit": ("exit", True),
        "$/cancelRequest": ("$/cancelRequest", True),
    }


# --- By name, by position


@every_kind
def test_params_mean_the_same_by_name_and_by_position(kind: type[msgspec.Struct], named: dict[str, Any]) -> None:
    assert list(named) == list(kind.__struct_encode_fields__)
    bound = bind_params(kind, (), named)
    assert bind_params(kind, tuple(named.values()), {}) == bound
    assert msgspec.to_builtins(bound) == named or named.get("route") == {}


@every_kind
def test_params_at_the_end_may_be_left_out_by_position(kind: type[msgspec.Struct], named: dict[str, Any]) -> None:
    for count in range(len(REQUIRED[kind]), len(named) + 1):
        first = dict(list(named.items())[:count])
        assert bind_params(kind, tuple(first.values()), {}) == bind_params(kind, (), first)


@every_kind
def test_a_param_too_many_is_refused(kind: type[msgspec.Struct], named: dict[str, Any]) -> None:
    assert str(len(named)) in refusal(kind, *named.values(), "one more")


@every_kind
def test_an_optional_param_of_null_is_the_same_as_an_absent_one(
    kind: type[msgspec.Struct], named: dict[str, Any]
) -> None:
    least = {name: named[name] for name in REQUIRED[kind]}
    nulls = dict.fromkeys(named) | least
    assert bind_params(kind, (), nulls) == bind_params(kind, (), least)
    assert bind_params(kind, tuple(nulls.values()), {}) == bind_params(kind, (), least)


@every_kind
def test_a_missing_required_param_is_named(kind: type[msgspec.Struct], named: dict[str, Any]) -> None:
    for missing in REQUIRED[kind]:
        rest = {name: value for name, value in named.items() if name != missing}
        assert missing in refusal(kind, **rest)
        assert missing in refusal(kind, **rest, **{missing: None})


@every_kind
def test_an_unknown_param_is_named(kind: type[msgspec.Struct], named: dict[str, Any]) -> None:
    assert "colour" in refusal(kind, **named, colour=1)
    assert "colour" in refusal(kind, **named, colour=None)


def test_params_are_named_as_on_the_wire_only() -> None:
    assert "agent_id" in refusal(CandidatesParams, agent_id="eve")
    assert "agentid" in refusal(CandidatesParams, agentid="eve", agentId="eve")


# --- Types


WRONG: list[tuple[type[msgspec.Struct], str, list[Any]]] = [
    (CandidatesParams, "agentId", [1, True, ["eve"], {}]),
    (CandidatesParams, "query", [1, False, []]),
    (CandidatesParams, "cwd", [0, {}]),
    (CandidatesParams, "includeSubagents", [0, 1, "true"]),
    (PrepareParams, "content", [1, {}, True]),
    (PrepareParams, "references", ["eve", {}, 1]),
    (PrepareParams, "route", ["p/m", [], 1]),
    (PrepareParams, "preview", [1, "yes"]),
    (PrepareMessagesParams, "messages", ["hello", {}, 1]),
    (AssembledParams, "provider", [1, []]),
    (AssembledParams, "contextWindow", ["1", True, 1.5, 0, -1, 100_000_001, 10**30, 1e300, []]),
    (CancelParams, "id", [True, [], {}]),
]


@pytest.mark.parametrize(
    ("kind", "name", "value"), [(kind, name, value) for kind, name, values in WRONG for value in values]
)
def test_a_param_of_the_wrong_type_is_named(kind: type[msgspec.Struct], name: str, value: Any) -> None:
    rest: dict[str, Any] = {required: [] if required == "messages" else "" for required in REQUIRED[kind]}
    assert name in refusal(kind, **(rest | {name: value}))


@pytest.mark.parametrize(
    ("member", "value"),
    [
        *(("provider", 1), ("model", []), ("contextWindow", 0), ("contextWindow", 1.5), ("contextWindow", "1")),
        *(("contextWindow", True), ("contextWindow", 100_000_001), ("contextWindow", 1e300), ("window", 1)),
        *(("context_window", 1), ("window", None)),
    ],
)
@pytest.mark.parametrize(
    ("kind", "least"), [(PrepareParams, PREPARE), (PrepareMessagesParams, {"agentId": "", "messages": []})]
)
def test_a_wrong_or_unknown_member_of_a_route_is_named(
    kind: type[msgspec.Struct], least: dict[str, Any], member: str, value: Any
) -> None:
    message = refusal(kind, **least, route={member: value})
    assert member in message
    assert "route" in message


@pytest.mark.parametrize("window", [1, 1.0, 2, 2.0, 8e3, 100_000_000, 1e8])
def test_a_whole_number_is_an_integer_however_it_is_written(window: float) -> None:
    assembled = bind_params(AssembledParams, (), {"agentId": "eve", "contextWindow": window})
    prepare = bind_params(PrepareParams, (), PREPARE | {"route": {"contextWindow": window}})
    assert prepare.route is not None
    for bound in (assembled.context_window, prepare.route.context_window):
        assert (bound, type(bound)) == (window, int)


def test_null_members_of_a_route_are_absent() -> None:
    nulls = {"provider": None, "model": None, "contextWindow": None}
    assert bind_params(PrepareParams, (), PREPARE | {"route": nulls}).route == Route()


def test_the_route_that_was_given_is_not_changed() -> None:
    route = {"contextWindow": 2.0}
    bind_params(PrepareParams, (), PREPARE | {"route": route})
    assert repr(route) == "{'contextWindow': 2.0}"


@pytest.mark.parametrize("limit", [0, -1, 2.0, 1.5, 10**30, "5", True, [], {}])
def test_the_value_of_a_limit_is_not_judged_here(limit: Any) -> None:
    bound = bind_params(CandidatesParams, (), {"agentId": "eve", "limit": limit})
    assert (bound.limit, type(bound.limit)) == (limit, type(limit))


def test_elements_of_references_are_not_judged_here() -> None:
    elements: list[Any] = [
        None,
        1,
        "eve",
        [],
        {},
        {"sessionId": 1},
        {"sessionId": "eve", "label": None, "mention": "x"},
    ]
    assert bind_params(PrepareParams, (), PREPARE | {"references": elements}).references == elements


def test_content_blocks_and_messages_are_passed_on_as_they_are() -> None:
    blocks: list[Any] = [{"type": "image", "data": [1, {"deep": None}]}, 7, None]
    assert bind_params(PrepareParams, (), {"agentId": "", "content": blocks}).content == blocks
    assert bind_params(PrepareMessagesParams, (), {"agentId": "", "messages": blocks}).messages == blocks


@pytest.mark.parametrize("text", ["", "\ud800", "🐝", "a\nb"])
def test_any_text_is_an_agent_id(text: str) -> None:
    assert bind_params(CandidatesParams, (), {"agentId": text}).agent_id == text


@pytest.mark.parametrize("params", [{}, {"processId": 1, "capabilities": {"a": []}}, [], [None], ["vscode", {}]])
def test_initialize_takes_anything(params: dict[str, Any] | list[Any]) -> None:
    kind = METHODS["initialize"].params
    assert isinstance(
        bind_params(kind, (), params) if isinstance(params, dict) else bind_params(kind, tuple(params), {}), kind
    )


# --- What is not echoed


@pytest.mark.parametrize(
    "name",
    [
        *(
            "/home/eve/secret",
            "secret\nline two",
            "secret " + "x" * 5000,
            "secret" * 10,
            "secret\u2028",
            "secret\ud800",
        ),
        *("<secret>", "secret é", "\u202esecret", "secret\x00"),
    ],
)
def test_a_name_that_is_not_plain_is_not_echoed(name: str) -> None:
    for message in (
        refusal(CandidatesParams, **{"agentId": "eve", name: 1}),
        refusal(PrepareParams, **PREPARE, route={name: 1}),
    ):
        assert "secret" not in message
        assert message.isascii()


def test_an_empty_name_is_refused_like_any_other() -> None:
    assert "param" in refusal(NoParams, **{"": 1})


def message_of(kind: type[msgspec.Struct], named: dict[str, Any]) -> str:
    """The message of a refusal, or nothing where the params were bound."""
    try:
        bind_params(kind, (), named)
    except ProtocolError as error:
        return error.message
    return ""


@given(st.dictionaries(st.text(max_size=6), st.text("SECRET", min_size=4, max_size=9), max_size=4))
def test_no_value_is_ever_echoed(named: dict[str, str]) -> None:
    hidden = [value for value in named.values() if value not in named]
    for kind, _ in BY_NAME:
        everywhere = dict.fromkeys(kind.__struct_encode_fields__, named)
        for message in (
            message_of(kind, dict(named)),
            message_of(kind, {"route": named}),
            message_of(kind, everywhere),
        ):
            assert not any(value in message for value in hidden)


# --- Results


def test_unknown_facts_of_a_candidate_are_absent_and_the_others_in_order() -> None:
    least = Candidate(
        session_id="eve",
        label="Garden",
        display_title="Garden",
        same_workspace=False,
        created_at=1,
        origin="dsh",
        mention="@[Garden](x)",
    )
    assert list(decode_json(encode_json(least))) == [
        *("sessionId", "label", "displayTitle", "sameWorkspace", "createdAt", "origin", "mention"),
    ]
    full = msgspec.structs.replace(least, cwd="/work", updated_at=2)
    assert list(decode_json(encode_json(full))) == [
        *("sessionId", "label", "displayTitle", "cwd", "sameWorkspace", "createdAt", "updatedAt", "origin", "mention"),
    ]


def test_a_result_without_a_reference_has_no_context_and_no_diagnostics() -> None:
    assert encode_json(PrepareResult(content="hello")) == b'{"content":"hello"}'


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (PrepareMessagesParams, {"agentId": "eve", "messages": "\ud800"}),
        (CandidatesParams, {"agentId": "eve", "includeSubagents": "\ud800"}),
        (AssembledParams, {"agentId": "eve", "contextWindow": "\ud800"}),
    ],
)
def test_a_lone_surrogate_of_the_wrong_type_is_an_invalid_param(
    kind: type[msgspec.Struct], given: dict[str, Any]
) -> None:
    assert refusal(kind, **given)
