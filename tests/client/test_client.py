"""The methods as calls: what is sent, what comes back, and how failures arrive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec
import pytest
from anyio.abc import ObjectStream

from sessionref.client import Client, UnexpectedResultError
from sessionref.protocol.envelope import encode_error, encode_result
from sessionref.protocol.errors import (
    CODE_NUMBERS,
    SERVER_CANCELLED,
    ErrorCode,
    ErrorData,
    ProtocolCode,
    ProtocolError,
    ReadFailedReason,
    RpcError,
    SessionReferenceError,
    WireError,
)
from sessionref.protocol.jsontext import JsonError, decode_json, encode_json
from sessionref.protocol.methods import Candidate, InitializeResult, Route, ServerInformation

Ends = tuple[ObjectStream[bytes], ObjectStream[bytes]]
Call = Callable[[Client], Awaitable[Any]]

CANDIDATE = Candidate(
    session_id="a", label="b", display_title="c", same_workspace=True, created_at=1, origin="dsh", mention="@[c](d)"
)
CONTEXT: dict[str, Any] = {
    "id": "m",
    "role": "user",
    "content": [{"type": "text", "text": "lone \ud83d half"}],
    "source": {"kind": "session-reference", "form": "recall", "version": 1, "references": []},
}


async def exchange(ends: Ends, call: Call, answer: Callable[[int], bytes]) -> tuple[Any, Any]:
    """Make one call against one scripted answer; returns what the server saw and what the call returned."""
    seen: list[Any] = []
    results: list[Any] = []

    async def serve() -> None:
        seen.append(decode_json(await ends[1].receive()))
        await ends[1].send(answer(seen[0]["id"]))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks, Client(ends[0]) as client:
            tasks.start_soon(serve)
            results.append(await call(client))
    return seen[0], results[0]


async def failure(ends: Ends, error: Any) -> RpcError:
    """The exception that a call raises for the `error` member of a response."""

    async def call(client: Client) -> RpcError:
        with pytest.raises(RpcError) as caught:
            await client.candidates("agent")
        return caught.value

    _, raised = await exchange(ends, call, lambda identity: encode_json({"id": identity, "error": error}))
    assert isinstance(raised, RpcError)
    return raised


async def test_candidates_are_asked_for_by_name_and_absent_arguments_are_not_sent(ends: Ends) -> None:
    request, found = await exchange(
        ends, lambda client: client.candidates("agent", limit=2), lambda identity: encode_result(identity, [CANDIDATE])
    )
    assert request == {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "sessionReferenceResolver/candidates",
        "params": {"agentId": "agent", "query": "", "limit": 2},
    }
    assert found == [CANDIDATE]


async def test_members_that_only_a_newer_server_knows_are_ignored(ends: Ends) -> None:
    row = msgspec.to_builtins(CANDIDATE) | {"colour": "red"}
    _, found = await exchange(
        ends, lambda client: client.candidates("agent"), lambda identity: encode_result(identity, [row])
    )
    assert found == [CANDIDATE]


async def test_prepare_takes_candidates_as_references_and_returns_the_context(ends: Ends) -> None:
    request, prepared = await exchange(
        ends,
        lambda client: client.prepare("agent", "hi", references=[CANDIDATE], route=Route(model="x"), preview=True),
        lambda identity: encode_result(identity, {"content": "hi", "additionalContext": CONTEXT}),
    )
    assert request["params"]["references"] == [msgspec.to_builtins(CANDIDATE)]
    assert request["params"]["route"]["model"] == "x"
    assert request["params"]["preview"] is True
    assert prepared.content == "hi"
    assert msgspec.to_builtins(prepared.additional_context) == CONTEXT
    assert prepared.diagnostics is msgspec.UNSET


async def test_lone_surrogates_survive_in_both_directions(ends: Ends) -> None:
    request, prepared = await exchange(
        ends,
        lambda client: client.prepare("\ud800", [{"type": "text", "text": "\udc00"}]),
        lambda identity: encode_result(identity, {"content": "\ud83d"}),
    )
    assert request["params"]["agentId"] == "\ud800"
    assert request["params"]["content"][0]["text"] == "\udc00"
    assert prepared.content == "\ud83d"


async def test_prepare_messages_sends_and_returns_messages(ends: Ends) -> None:
    request, prepared = await exchange(
        ends,
        lambda client: client.prepare_messages("agent", [{"id": "1"}], cwd="/w"),
        lambda identity: encode_result(identity, {"messages": [{"id": "1"}, CONTEXT]}),
    )
    assert request["method"] == "sessionReferenceResolver/prepareMessages"
    assert request["params"] == {"agentId": "agent", "messages": [{"id": "1"}], "cwd": "/w"}
    assert prepared.messages == [{"id": "1"}, CONTEXT]


async def test_assembled_is_a_notification_that_is_written_before_the_client_is_left(ends: Ends) -> None:
    seen: list[Any] = []

    async def serve() -> None:
        seen.append(decode_json(await ends[1].receive()))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks, Client(ends[0]) as client:
            await client.assembled("agent", provider="p", context_window=10)
            tasks.start_soon(serve)
    params = {"agentId": "agent", "provider": "p", "contextWindow": 10}
    assert seen == [{"jsonrpc": "2.0", "method": "sessionReferenceResolver/assembled", "params": params}]


async def test_discover_returns_the_document_and_request_calls_any_method(ends: Ends) -> None:
    async def call(client: Client) -> tuple[Any, Any]:
        return await client.discover(), await client.request("other", [1])

    async def serve() -> None:
        for result in ({"openrpc": "1.3.2"}, None):
            await ends[1].send(encode_result(decode_json(await ends[1].receive())["id"], result))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks, Client(ends[0]) as client:
            tasks.start_soon(serve)
            assert await call(client) == ({"openrpc": "1.3.2"}, None)


async def test_a_message_longer_than_the_server_takes_is_refused_before_it_is_sent(ends: Ends) -> None:
    result = InitializeResult(
        protocol_version="1",
        server_info=ServerInformation("s", "1"),
        capabilities={},
        limits={"maxMessageBytes": 200},
        error_codes={},
    )

    async def call(client: Client) -> ProtocolError:
        assert await client.initialize() == result
        with pytest.raises(ProtocolError) as caught:
            await client.prepare("agent", "x" * 200)
        return caught.value

    _, raised = await exchange(ends, call, lambda identity: encode_result(identity, result))
    assert raised.code is ProtocolCode.INVALID_REQUEST
    assert raised.facts.limit == 200


async def test_a_message_nested_deeper_than_the_server_reads_is_refused_before_it_is_sent(ends: Ends) -> None:
    nested: list[Any] = []
    for _ in range(600):
        nested = [nested]
    async with Client(ends[0]) as client:
        with pytest.raises(ProtocolError) as caught:
            await client.prepare("agent", nested)
    assert caught.value.code is ProtocolCode.INVALID_REQUEST


async def test_arguments_that_json_cannot_hold_are_refused(ends: Ends) -> None:
    async with Client(ends[0]) as client:
        with pytest.raises(JsonError):
            await client.prepare("agent", [object()])


async def test_a_result_of_another_shape_fails_its_call_and_no_other(ends: Ends) -> None:
    async def call(client: Client) -> Any:
        with pytest.raises(UnexpectedResultError, match="sessionReferenceResolver/candidates"):
            await client.candidates("agent")
        return None

    await exchange(ends, call, lambda identity: encode_result(identity, "nothing"))


@pytest.mark.parametrize("code", ErrorCode)
async def test_every_domain_failure_arrives_with_its_code_and_facts(ends: Ends, code: ErrorCode) -> None:
    reason = ReadFailedReason.CORRUPT if code is ErrorCode.READ_FAILED else None
    sent = SessionReferenceError(
        code, "why", ErrorData(reason=reason, session_id="s", input_index=1, limit=2, actual=3)
    )
    raised = await failure(ends, sent.to_wire())
    assert isinstance(raised, SessionReferenceError)
    assert (raised.code, raised.number, raised.message) == (code, CODE_NUMBERS[code], "why")
    assert raised.facts == sent.facts
    assert raised.data == sent.data


@pytest.mark.parametrize("code", ProtocolCode)
async def test_every_protocol_failure_arrives_with_its_code(ends: Ends, code: ProtocolCode) -> None:
    raised = await failure(ends, ProtocolError(code, "why", ErrorData(incident="i")).to_wire())
    assert isinstance(raised, ProtocolError)
    assert (raised.code, raised.facts) == (code, ErrorData(incident="i"))


async def test_a_cancel_by_the_server_keeps_its_own_number(ends: Ends) -> None:
    raised = await failure(ends, WireError(SERVER_CANCELLED, "stop"))
    assert isinstance(raised, SessionReferenceError)
    assert (raised.code, raised.number) == (ErrorCode.CANCELLED, SERVER_CANCELLED)


async def test_an_unknown_integer_is_a_plain_error(ends: Ends) -> None:
    raised = await failure(ends, WireError(-31999, "new", {"code": "SESSION_REFERENCE_NEW"}))
    assert type(raised) is RpcError
    assert (raised.number, raised.facts) == (-31999, ErrorData())


async def test_facts_that_only_a_newer_server_knows_are_left_out(ends: Ends) -> None:
    data = {"code": "SESSION_REFERENCE_READ_FAILED", "reason": "eaten", "limit": "many", "actual": 3, "taste": 1}
    raised = await failure(ends, WireError(-32015, "new", data))
    assert isinstance(raised, SessionReferenceError)
    assert raised.reason is None
    assert raised.facts == ErrorData(code=ErrorCode.READ_FAILED, actual=3)


@pytest.mark.parametrize("data", [None, 1, "text", [], {}])
async def test_an_error_without_usable_data_is_known_by_its_integer(ends: Ends, data: object) -> None:
    raised = await failure(ends, {"code": -32013, "message": "why", "data": data})
    assert isinstance(raised, SessionReferenceError)
    assert raised.code is ErrorCode.SELF_REFERENCE


async def test_a_message_of_many_lines_becomes_one_short_line(ends: Ends) -> None:
    raised = await failure(ends, WireError(-31999, "two\n lines " + "x" * 5000))
    assert str(raised).startswith("two lines x")
    assert len(str(raised)) == 200


async def test_an_error_answer_as_the_protocol_encodes_it_is_understood(ends: Ends) -> None:
    async def call(client: Client) -> Any:
        with pytest.raises(ProtocolError) as caught:
            await client.discover()
        return caught.value.code

    error = ProtocolError(ProtocolCode.METHOD_NOT_FOUND, "no such method")
    _, code = await exchange(ends, call, lambda identity: encode_error(identity, error))
    assert code is ProtocolCode.METHOD_NOT_FOUND
