"""jayson: TCP with a connection for each request, and HTTP with a bearer token; batches over both."""

from __future__ import annotations

from typing import Any

import pytest

from interop.peers import NOT_FOUND, Calls, SlowSessions, assert_conversation, run_node, running_server

SCRIPT = "jayson.mjs"
REQUESTS = 7
"""Four of the conversation, a batch, a notification, and one for a method that does not exist."""

pytestmark = pytest.mark.usefixtures("node")


def over(transport: str) -> Calls:
    with running_server(f"--{transport}", "127.0.0.1:0") as addresses:
        address = addresses[transport]
        reached: dict[str, Any] = {"url": address["url"]} if transport == "http" else {}
        if transport == "tcp":
            reached = {"tcp": {"host": address["host"], "port": address["port"]}}
        return run_node(SCRIPT, {"task": "calls", **reached})


@pytest.mark.parametrize("transport", ["tcp", "http"])
def test_jayson_finds_and_prepares_and_sees_errors_with_their_data(transport: str) -> None:
    calls = over(transport)
    assert_conversation(calls)
    assert calls["noSuchMethod"] == {"code": -32601, "message": "no such method"}
    # Over TCP each request has a connection of its own.
    assert calls["connections"] == (REQUESTS if transport == "tcp" else 0)


@pytest.mark.parametrize("transport", ["tcp", "http"])
def test_jayson_gets_one_answer_for_each_request_of_its_batch(transport: str) -> None:
    calls = over(transport)
    assert calls["batch"] == [
        {"jsonrpc": "2.0", "id": "first", "result": calls["candidates"]},
        {"jsonrpc": "2.0", "id": 7, "error": NOT_FOUND},
    ]


def test_a_request_that_jayson_closes_is_cancelled(slow: SlowSessions) -> None:
    with running_server("--http", "127.0.0.1:0", home=slow.home) as addresses:
        settings = slow.settings(url=addresses["http"]["url"]) | {"task": "closes"}
        counters = run_node(SCRIPT, settings)["counters"]
    labels = 'method="sessionReferenceResolver/prepare",outcome="SESSION_REFERENCE_CANCELLED"'
    assert f"sessionref_requests_total{{{labels}}} 1" in counters.splitlines()
