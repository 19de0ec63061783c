"""json-rpc-2.0 over a WebSocket: batches, and ids of several types."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop.peers import (
    NOT_FOUND,
    Calls,
    SlowSessions,
    assert_cancelled_in_the_end,
    assert_conversation,
    run_node,
    running_server,
)

SCRIPT = "json_rpc_2_0.mjs"


@pytest.fixture(scope="module")
def calls(node: Path) -> Calls:
    """What the client saw."""
    with running_server("--http", "127.0.0.1:0") as addresses:
        return run_node(SCRIPT, {"task": "calls", "url": addresses["http"]["url"]})


def test_json_rpc_2_0_finds_and_prepares_and_its_exit_closes_the_socket(calls: Calls) -> None:
    assert_conversation(calls)
    assert calls["shutdown"] is None
    assert calls["closeCode"] == 1000


def test_json_rpc_2_0_gets_one_answer_for_each_request_of_its_batch(calls: Calls) -> None:
    found, unknown, no_method = calls["batch"]
    assert found == {"jsonrpc": "2.0", "id": "first", "result": calls["candidates"]}
    assert unknown == {"jsonrpc": "2.0", "id": 1.5, "error": NOT_FOUND}
    assert (no_method["id"], no_method["error"]["code"]) == (-1, -32601)


@pytest.mark.usefixtures("node")
def test_a_cancel_notification_of_json_rpc_2_0_cancels(slow: SlowSessions) -> None:
    with running_server("--http", "127.0.0.1:0", home=slow.home) as addresses:
        calls = run_node(SCRIPT, slow.settings(url=addresses["http"]["url"]))
    assert_cancelled_in_the_end(calls["during"])
