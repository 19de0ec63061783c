"""vscode-ws-jsonrpc, which editors in web pages speak: a WebSocket whose subprotocol carries the token."""

from __future__ import annotations

import pytest

from interop.peers import (
    CANCELLED,
    SlowSessions,
    assert_cancelled_in_the_end,
    assert_conversation,
    run_node,
    running_server,
)

SCRIPT = "vscode_ws_jsonrpc.mjs"

pytestmark = pytest.mark.usefixtures("node")


def test_vscode_ws_jsonrpc_finds_and_prepares_and_its_exit_closes_the_socket() -> None:
    with running_server("--http", "127.0.0.1:0") as addresses:
        calls = run_node(SCRIPT, {"task": "calls", "url": addresses["http"]["url"]})
    assert_conversation(calls)
    assert calls["subprotocol"] == "sessionref"
    assert calls["closeCode"] == 1000


def test_the_tokens_of_vscode_ws_jsonrpc_cancel_before_and_during_a_request(slow: SlowSessions) -> None:
    with running_server("--http", "127.0.0.1:0", home=slow.home) as addresses:
        calls = run_node(SCRIPT, slow.settings(url=addresses["http"]["url"]))
    assert calls["already"] == {"error": CANCELLED}
    assert_cancelled_in_the_end(calls["during"])
