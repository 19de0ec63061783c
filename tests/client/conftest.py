"""Both ends of a connection in memory, and servers of one file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import anyio
import pytest
from anyio.abc import ObjectStream
from anyio.streams.stapled import StapledObjectStream

HELPERS = """
import json, os, signal, sys

def receive():
    return json.loads(sys.stdin.buffer.readline())

def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

def introduce():
    names = {"name": "fake", "version": "1"}
    send({"id": receive()["id"], "result": {
        "protocolVersion": "1", "serverInfo": names, "capabilities": {}, "limits": {}, "errorCodes": {}}})
"""


@pytest.fixture
def ends() -> Iterator[tuple[ObjectStream[bytes], ObjectStream[bytes]]]:
    """The client's end and the server's; messages wait for a reader, as in a pipe that is full."""
    to_server, from_client = anyio.create_memory_object_stream[bytes](0)
    to_client, from_server = anyio.create_memory_object_stream[bytes](0)
    with to_server, from_client, to_client, from_server:
        yield StapledObjectStream(to_server, from_server), StapledObjectStream(to_client, from_client)


@pytest.fixture
def server_command(tmp_path: Path) -> Callable[[str], list[str]]:
    """Write a server, whose first lines are HELPERS, and return the command that starts it."""

    def command(body: str) -> list[str]:
        script = tmp_path / "server.py"
        script.write_text(HELPERS + dedent(body), encoding="utf-8")
        return [sys.executable, str(script)]

    return command
