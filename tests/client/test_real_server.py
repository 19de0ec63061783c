"""The client against the server of this project, and its independence of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from sessionref import client
from sessionref.client import spawn
from sessionref.protocol.errors import ErrorCode, ReadFailedReason, SessionReferenceError


async def test_the_real_server_answers_on_an_empty_home(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sessionref.server", "serve", "--stdio", "--store", f"dsh:{tmp_path}"]
    with anyio.fail_after(30):
        async with spawn(command) as client:
            information = await client.initialize()
            assert information.server_info.name == "sessionref"
            assert await client.candidates("agent") == []
            prepared = await client.prepare("agent", "no mention \ud83d")
            assert prepared.content == "no mention \ud83d"
            assert "openrpc" in await client.discover()


async def test_the_real_server_refuses_a_setting_out_of_range(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sessionref.server", "serve", "--store", f"dsh:{tmp_path}"]
    environment = dict(os.environ) | {"SESSIONREF_MAX_REFERENCES": "4"}
    with anyio.fail_after(30), pytest.raises(SessionReferenceError) as caught:
        async with spawn(command, env=environment):
            pass
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert "maxReferences" in str(caught.value)


async def test_a_failure_of_the_real_server_arrives_with_its_facts_and_calls_go_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sessionref.server", "serve", "--stdio", "--store", f"dsh:{tmp_path}"]
    with anyio.fail_after(30):
        async with spawn(command) as sessions:
            with pytest.raises(SessionReferenceError) as caught:
                await sessions.prepare("agent", "hi", references=[{"sessionId": "nobody"}])
            with anyio.move_on_after(0):
                await sessions.candidates("agent")
            assert await sessions.candidates("agent") == []
    assert caught.value.code is ErrorCode.READ_FAILED
    assert caught.value.reason is ReadFailedReason.NOT_FOUND
    assert caught.value.data["sessionId"] == "nobody"


def test_the_client_imports_nothing_of_the_server() -> None:
    program = "import sys, sessionref.client; print([name for name in sys.modules if 'sessionref.server' in name])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == "[]\n"


def test_no_module_of_the_client_imports_asyncio() -> None:
    for folder in client.__path__:
        for module in Path(folder).glob("*.py"):
            assert "import asyncio" not in module.read_text(encoding="utf-8")
