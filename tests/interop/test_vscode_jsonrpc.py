"""vscode-jsonrpc, which VS Code's extensions speak: `Content-Length` headers over pipes and a Unix socket."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from interop.peers import (
    CANCELLED,
    Calls,
    SlowSessions,
    assert_cancelled_in_the_end,
    assert_conversation,
    command_of_server,
    run_node,
    running_server,
)

SCRIPT = "vscode_jsonrpc.mjs"
TRANSPORTS = ("stdio", "unix")


@contextmanager
def reachable(transport: str, folder: Path, home: Path | None = None) -> Generator[dict[str, Any]]:
    """How the script reaches a server: it starts one itself, or connects to ours."""
    if transport == "stdio":
        yield {"command": command_of_server("--stdio", home=home)}
        return
    with running_server("--unix", str(folder / "socket"), home=home) as addresses:
        yield {"unix": addresses["unix"]["path"]}


def assert_each_request_was_answered_once(calls: Calls) -> None:
    sent = [message["id"] for message in calls["wire"]["sent"] if "id" in message]
    assert sorted(calls["wire"]["received"]) == sent == list(range(len(sent)))
    assert calls["faults"] == []


@pytest.fixture(scope="module", params=TRANSPORTS)
def calls(request: pytest.FixtureRequest, node: Path, tmp_path_factory: pytest.TempPathFactory) -> Calls:
    """What the client saw over one transport."""
    with reachable(request.param, tmp_path_factory.mktemp("server")) as server:
        return run_node(SCRIPT, {"task": "calls", **server}) | {"transport": request.param}


@pytest.fixture(scope="module", params=TRANSPORTS)
def cancels(
    request: pytest.FixtureRequest, node: Path, tmp_path_factory: pytest.TempPathFactory, slow: SlowSessions
) -> Calls:
    """What the client saw when it cancelled, over one transport."""
    with reachable(request.param, tmp_path_factory.mktemp("server"), slow.home) as server:
        return run_node(SCRIPT, slow.settings(**server))


def test_vscode_jsonrpc_finds_and_prepares_and_sees_errors_with_their_data(calls: Calls) -> None:
    assert_conversation(calls)
    assert_each_request_was_answered_once(calls)
    assert calls["exitCode"] == (0 if calls["transport"] == "stdio" else None)


def test_a_lone_surrogate_comes_back_to_vscode_jsonrpc_as_it_went(calls: Calls) -> None:
    surrogate = calls["surrogate"]
    assert surrogate["candidates"] == []
    assert surrogate["failure"]["code"] == -32013
    assert surrogate["failure"]["data"]["sessionId"] == "\ud800"


def test_what_vscode_jsonrpc_makes_of_positional_and_absent_params_is_understood(calls: Calls) -> None:
    assert len(calls["positional"]) == 5
    assert calls["noParams"] == {"code": -32602, "message": "missing param agentId"}


def test_the_tokens_of_vscode_jsonrpc_cancel_before_and_during_a_request(cancels: Calls) -> None:
    assert cancels["already"] == {"error": CANCELLED}
    assert_cancelled_in_the_end(cancels["during"])
    assert_each_request_was_answered_once(cancels)
    # The first request of a connection has the id 0, and can be cancelled like any other.
    assert cancels["wire"]["sent"][1] == {"method": "$/cancelRequest", "params": 0}


def test_a_cancel_of_vscode_jsonrpc_after_the_answer_changes_nothing(cancels: Calls, slow: SlowSessions) -> None:
    assert [candidate["sessionId"] for candidate in cancels["answered"]] == slow.ids
    assert cancels["after"]["protocolVersion"] == "1"


@pytest.mark.usefixtures("node")
def test_the_null_that_vscode_jsonrpc_sends_for_undefined_params_is_no_param() -> None:
    calls = run_node(SCRIPT, {"task": "undefined-params", "command": command_of_server("--stdio")})
    assert calls["shutdown"] == {"result": True}
    assert calls["exitCode"] == 0


@pytest.mark.usefixtures("node")
def test_the_end_of_input_of_vscode_jsonrpc_ends_the_server_with_0() -> None:
    calls = run_node(SCRIPT, {"task": "end-of-input", "command": command_of_server("--stdio")})
    assert calls["exitCode"] == 0
    assert_each_request_was_answered_once(calls)
