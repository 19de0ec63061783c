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

pytestmark = pytest.mark.usefixtures("node")


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


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_vscode_jsonrpc_finds_and_prepares_and_sees_errors_with_their_data(transport: str, tmp_path: Path) -> None:
    with reachable(transport, tmp_path) as server:
        calls = run_node(SCRIPT, {"task": "calls", **server})
    assert_conversation(calls)
    assert_each_request_was_answered_once(calls)
    assert calls["exitCode"] == (0 if transport == "stdio" else None)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_lone_surrogate_comes_back_to_vscode_jsonrpc_as_it_went(transport: str, tmp_path: Path) -> None:
    with reachable(transport, tmp_path) as server:
        surrogate = run_node(SCRIPT, {"task": "calls", **server})["surrogate"]
    assert surrogate["candidates"] == []
    assert surrogate["failure"]["code"] == -32013
    assert surrogate["failure"]["data"]["sessionId"] == "\ud800"


def test_what_vscode_jsonrpc_makes_of_positional_and_absent_params_is_understood() -> None:
    calls = run_node(SCRIPT, {"task": "calls", "command": command_of_server("--stdio")})
    assert len(calls["positional"]) == 5
    assert calls["noParams"] == {"code": -32602, "message": "missing param agentId"}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_tokens_of_vscode_jsonrpc_cancel_before_and_during_a_request(
    transport: str, tmp_path: Path, slow: SlowSessions
) -> None:
    with reachable(transport, tmp_path, slow.home) as server:
        calls = run_node(SCRIPT, slow.settings(**server))
    assert calls["already"] == {"error": CANCELLED}
    assert_cancelled_in_the_end(calls["during"])
    assert_each_request_was_answered_once(calls)
    # The first request of a connection has the id 0, and can be cancelled like any other.
    assert calls["wire"]["sent"][1] == {"method": "$/cancelRequest", "params": 0}


def test_a_cancel_of_vscode_jsonrpc_after_the_answer_changes_nothing(slow: SlowSessions) -> None:
    calls = run_node(SCRIPT, slow.settings(command=command_of_server("--stdio", home=slow.home)))
    assert [candidate["sessionId"] for candidate in calls["answered"]] == slow.ids
    assert calls["after"]["protocolVersion"] == "1"


@pytest.mark.xfail(reason="one null for a method without params is refused as one param too many", strict=True)
def test_the_null_that_vscode_jsonrpc_sends_for_undefined_params_is_no_param() -> None:
    calls = run_node(SCRIPT, {"task": "undefined-params", "command": command_of_server("--stdio")})
    assert calls["shutdown"] == {"result": True}
    assert calls["exitCode"] == 0


def test_the_end_of_input_of_vscode_jsonrpc_ends_the_server_with_0() -> None:
    calls = run_node(SCRIPT, {"task": "end-of-input", "command": command_of_server("--stdio")})
    assert calls["exitCode"] == 0
    assert_each_request_was_answered_once(calls)
