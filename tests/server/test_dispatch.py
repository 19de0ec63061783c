from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from engine_doubles import Call, MemoryStore, ScriptedResolver, make_dispatcher
from sessionref.protocol.envelope import Notification, Request, RequestId
from sessionref.protocol.errors import ProtocolCode, ProtocolError, RpcError, cancelled
from sessionref.protocol.methods import METHODS, PrepareParams
from sessionref.server.dispatch import CallOutcome, Deferred, Dispatcher, failure_of, unwrap
from sessionref.server.resolver import Prepared, Resolver
from sessionref.server.settings import Settings
from sessionref.server.sources import SessionSources
from sessionref.server.threads import WorkerThreads


class Control:
    """A connection that only remembers what it was told."""

    def __init__(self) -> None:
        self.cancelled: list[RequestId] = []
        self.exits = 0
        self.is_shutting_down = False
        self.can_exit = True

    def cancel(self, identity: RequestId) -> None:
        self.cancelled.append(identity)

    def shut_down(self) -> None:
        self.is_shutting_down = True

    def exit(self) -> None:
        self.exits += 1


def call(method: str, params: Any = None, *, control: Control | None = None, by: Dispatcher | None = None) -> Any:
    """Dispatch one request."""
    dispatcher = by or make_dispatcher(ScriptedResolver())
    return dispatcher.request(control or Control(), Request(1, method, params))


def refusal(method: str, params: Any = None) -> RpcError:
    """What a request is refused with."""
    with pytest.raises(RpcError) as refused:
        call(method, params)
    return refused.value


async def result_of(outcome: CallOutcome | Deferred) -> Any:
    """The result of a request."""
    return outcome.result if isinstance(outcome, CallOutcome) else await outcome.run()


async def test_every_method_of_the_table_is_known() -> None:
    numbers = {name: refusal(name, {"surprise": 1}).number for name in METHODS if name != "initialize"}
    assert set(numbers.values()) == {int(ProtocolCode.INVALID_PARAMS)}


@pytest.mark.parametrize("method", ["", "no/such/method", "__class__", "get", "Exit", "rpc.", "\ud800", "x" * 10_000])
async def test_an_unknown_method_is_refused_without_its_name(method: str) -> None:
    error = refusal(method, {"a": 1})
    assert error.number == -32601
    assert error.message == "no such method"
    assert error.data == {}


async def test_a_storage_call_is_deferred_and_its_params_are_bound() -> None:
    seen: list[PrepareParams] = []

    class Watching(ScriptedResolver):
        async def prepare(self, params: PrepareParams) -> Any:
            seen.append(params)
            return "prepared"

    dispatcher = make_dispatcher(Watching())
    outcome = call("sessionReferenceResolver/prepare", {"agentId": "a", "content": "text"}, by=dispatcher)
    assert isinstance(outcome, Deferred)
    assert seen == []
    assert await result_of(outcome) == "prepared"
    assert (seen[0].agent_id, seen[0].content, seen[0].preview) == ("a", "text", None)


async def test_params_may_be_given_by_position_in_the_order_of_the_contract() -> None:
    asked: list[Any] = []

    class Watching(ScriptedResolver):
        async def candidates(self, params: Any) -> Any:
            asked.append(params)

    dispatcher = make_dispatcher(Watching())
    await result_of(call("sessionReferenceResolver/candidates", ["a", "q", "/work", 7, True], by=dispatcher))
    named = {"agentId": "a", "query": "q", "cwd": "/work", "limit": 7, "includeSubagents": True}
    await result_of(call("sessionReferenceResolver/candidates", named, by=dispatcher))
    await result_of(call("sessionReferenceResolver/candidates", ["a", None, None], by=dispatcher))
    await result_of(call("sessionReferenceResolver/candidates", {"agentId": "a", "query": None}, by=dispatcher))
    assert asked[0] == asked[1]
    assert asked[2] == asked[3]


@pytest.mark.parametrize("params", [None, [], {}])
async def test_params_null_are_none_at_all(params: Any) -> None:
    assert "openrpc" in call("rpc.discover", params).result
    assert call("shutdown", params).result is None


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"agentId": "a", "surprise": 1}, "surprise"),
        ({}, "agentId"),
        (None, "agentId"),
        ([], "agentId"),
        ({"agentId": None}, "agentId"),
        ({"agentId": 7}, "agentId"),
        ({"agentId": "a", "query": 7}, "query"),
        ({"agentId": "a", "includeSubagents": 1}, "includeSubagents"),
        (["a", 7], "query"),
        (["a", "", None, None, None, 1], "5"),
        ({"control": 1, "agentId": "a"}, "control"),
        ({"self": 1, "agentId": "a"}, "self"),
        ({"kind": 1, "agentId": "a"}, "kind"),
        ({"agent_id": "a"}, "agent_id"),
    ],
)
async def test_wrong_params_are_refused_with_the_name(params: Any, named: str) -> None:
    error = refusal("sessionReferenceResolver/candidates", params)
    assert error.number == -32602
    assert named in error.message


@pytest.mark.parametrize("name", ["a\nb", "/home/somebody", "\ud800", "x" * 1000, "<b>"])
async def test_the_name_of_an_unknown_param_is_not_repeated_when_it_is_not_printable(name: str) -> None:
    error = refusal("sessionReferenceResolver/candidates", {"agentId": "a", name: 1})
    assert error.number == -32602
    assert name not in error.message
    assert len(error.message) <= 200


async def test_methods_without_params_refuse_them() -> None:
    for method in ("rpc.discover", "shutdown"):
        assert refusal(method, {"surprise": 1}).number == -32602
        assert refusal(method, [1]).number == -32602


@pytest.mark.parametrize("params", [None, {}, {"clientInfo": {"name": "x"}, "processId": None}, []])
async def test_initialize_takes_anything_and_tells_what_holds(params: Any) -> None:
    result = msgspec.to_builtins(call("initialize", params).result)
    assert list(result) == ["protocolVersion", "serverInfo", "capabilities", "limits", "errorCodes"]
    assert result["serverInfo"] == {"name": "sessionref", "version": "1.2.3"}
    assert result["capabilities"]["methods"] == sorted(METHODS)
    assert result["capabilities"]["stores"] == ["memory"]
    assert result["limits"]["maxBatch"] == Settings().max_batch
    assert result["errorCodes"]["SESSION_REFERENCE_READ_FAILED"] == -32015


async def test_initialize_takes_positional_params_too() -> None:
    assert isinstance(call("initialize", [{"clientInfo": {}}, 2]), CallOutcome)


async def test_shutdown_is_told_to_the_connection_and_refuses_what_comes_after() -> None:
    control = Control()
    assert call("shutdown", control=control).result is None
    assert control.is_shutting_down
    for method in ("initialize", "shutdown", "no/such/method", "exit"):
        with pytest.raises(ProtocolError) as refused:
            call(method, control=control)
        assert refused.value.number == -32600
    assert control.exits == 0


@pytest.mark.parametrize("identity", [0, 1, "1", 1.5, 2**70, "", "\ud800"])
async def test_a_cancel_reaches_the_connection_with_the_id_as_it_came(identity: Any) -> None:
    control = Control()
    dispatcher = make_dispatcher(ScriptedResolver())
    dispatcher.notify(control, Notification("$/cancelRequest", {"id": identity}))
    dispatcher.notify(control, Notification("$/cancelRequest", [identity]))
    assert [(type(one), one) for one in control.cancelled] == [(type(identity), identity)] * 2


@pytest.mark.parametrize("params", [None, {}, {"id": None}, {"id": True}, {"id": [1]}, {"id": {}}, [], [1, 2]])
async def test_a_cancel_of_no_id_does_nothing(params: Any) -> None:
    control = Control()
    make_dispatcher(ScriptedResolver()).notify(control, Notification("$/cancelRequest", params))
    assert control.cancelled == []


async def test_exit_reaches_the_connection() -> None:
    control = Control()
    make_dispatcher(ScriptedResolver()).notify(control, Notification("exit", None))
    assert control.exits == 1


async def test_shutdown_and_exit_are_unknown_where_they_mean_nothing() -> None:
    control = Control()
    control.can_exit = False
    for method in ("shutdown", "exit"):
        with pytest.raises(ProtocolError) as refused:
            call(method, control=control)
        assert refused.value.number == -32601
        make_dispatcher(ScriptedResolver()).notify(control, Notification(method, None))
    assert (control.is_shutting_down, control.exits) == (False, 0)
    assert isinstance(call("initialize", control=control), CallOutcome)


async def test_a_storage_call_sent_as_a_notification_does_not_run() -> None:
    scripted = Call(released=True)
    dispatcher = make_dispatcher(ScriptedResolver(scripted=scripted))
    params = {"agentId": "a", "query": "scripted"}
    dispatcher.notify(Control(), Notification("sessionReferenceResolver/candidates", params))
    assert scripted.runs == 0


async def test_assembled_is_remembered_over_the_connections_of_one_dispatcher() -> None:
    store = MemoryStore({"long": ["x" * 300_000]})
    resolver = Resolver(SessionSources([store]), Settings(), threads=WorkerThreads(), spills=None)
    dispatcher = make_dispatcher(resolver)
    prepare = {"agentId": "a", "content": "", "references": [{"sessionId": "long"}], "preview": True}

    async def is_truncated() -> bool:
        prepared = await result_of(call("sessionReferenceResolver/prepare", prepare, by=dispatcher))
        truncated: bool = prepared.result.additional_context.source.references[0].truncated
        return truncated

    assert await is_truncated()
    route = {"agentId": "a", "contextWindow": 1_000_000}
    dispatcher.notify(Control(), Notification("sessionReferenceResolver/assembled", route))
    assert not await is_truncated()


async def test_an_unexpected_exception_while_dispatching_is_an_incident(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Control):
        def shut_down(self) -> None:
            raise ValueError("a secret")

    with pytest.raises(ProtocolError) as refused:
        call("shutdown", control=Failing())
    error = refused.value
    assert (error.number, list(error.data)) == (-32603, ["incident"])
    assert "secret" not in error.message
    assert error.data["incident"] in caplog.text
    assert "a secret" in caplog.text


async def test_an_unexpected_exception_in_a_notification_is_logged_and_goes_no_further(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(Control):
        def exit(self) -> None:
            raise ValueError("a secret")

    make_dispatcher(ScriptedResolver()).notify(Failing(), Notification("exit", None))
    assert "a secret" in caplog.text


async def test_what_is_wrong_with_a_notification_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        dispatcher = make_dispatcher(ScriptedResolver())
        dispatcher.notify(Control(), Notification("sessionReferenceResolver/assembled", {"agentId": 7}))
    assert caplog.records != []


def test_a_failure_of_the_protocol_or_the_domain_passes_as_it_is() -> None:
    failure = cancelled()
    assert failure_of(failure) is failure


def test_any_other_exception_becomes_an_incident_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    first, second = failure_of(ValueError("a secret")), failure_of(KeyError("another"))
    assert first.number == second.number == -32603
    assert first.data["incident"] != second.data["incident"]
    assert "secret" not in str(first.to_wire())
    assert all(failure.data["incident"] in caplog.text for failure in (first, second))
    assert "Traceback" in caplog.text or caplog.records[0].exc_info is not None


async def test_a_prepared_result_brings_what_takes_it_back() -> None:
    scripted = Call()
    result, discard = unwrap(Prepared("result", scripted.discard))
    assert result == "result"
    assert discard is not None
    await discard()
    assert scripted.discards == 1
    assert unwrap(["plain"]) == (["plain"], None)
