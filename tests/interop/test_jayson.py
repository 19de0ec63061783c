"""jayson: TCP with a connection for each request, and HTTP with a bearer token; batches over both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interop.peers import NOT_FOUND, Calls, SlowSessions, assert_conversation, run_node, running_server

SCRIPT = "jayson.mjs"
REQUESTS = 7
"""Four of the conversation, a batch, a notification, and one for a method that does not exist."""


@pytest.fixture(scope="module", params=["tcp", "http"])
def calls(request: pytest.FixtureRequest, node: Path) -> Calls:
    """What the client saw over one transport."""
    transport: str = request.param
    with running_server(f"--{transport}", "127.0.0.1:0") as addresses:
        address = addresses[transport]
        reached: dict[str, Any] = {"url": address["url"]} if transport == "http" else {}
        if transport == "tcp":
            reached = {"tcp": {"host": address["host"], "port": address["port"]}}
        return run_node(SCRIPT, {"task": "calls", **reached}) | {"transport": transport}


def test_jayson_finds_and_prepares_and_sees_errors_with_their_data(calls: Calls) -> None:
    assert_conversation(calls)
    assert calls["noSuchMethod"] == {"code": -32601, "message": "no such method"}
    # Over TCP each request has a connection of its own.
    assert calls["connections"] == (REQUESTS if calls["transport"] == "tcp" else 0)


def test_jayson_gets_one_answer_for_each_request_of_its_batch(calls: Calls) -> None:
    assert calls["batch"] == [
        {"jsonrpc": "2.0", "id": "first", "result": calls["candidates"]},
        {"jsonrpc": "2.0", "id": 7, "error": NOT_FOUND},
    ]


@pytest.mark.usefixtures("node")
def test_a_request_that_jayson_closes_is_cancelled(slow: SlowSessions) -> None:
    with running_server("--http", "127.0.0.1:0", home=slow.home) as addresses:
        settings = slow.settings(url=addresses["http"]["url"]) | {"task": "closes"}
        counters = run_node(SCRIPT, settings)["counters"]
    labels = 'method="sessionReferenceResolver/prepare",outcome="SESSION_REFERENCE_CANCELLED"'
    assert f"sessionref_requests_total{{{labels}}} 1" in counters.splitlines()
