"""Every failure, from a real home through a real server to the client: its integer, its code and its data."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from dsh_fixtures import DshHome, event, user
from sessionref.client import Client, spawn
from sessionref.protocol.errors import CODE_NUMBERS, SERVER_CANCELLED, ErrorCode, SessionReferenceError
from sessionref.protocol.methods import PREPARE, Route

NESTED = '{"type":"tool/call","seq":1,"time":5,"data":' + "[" * 600 + "]" * 600 + "}\n"


@pytest.fixture
def home(tmp_path: Path) -> DshHome:
    home = DshHome(tmp_path / "home")
    for name in ("one", "two", "three", "four"):
        home.write(name, [user(f"text of {name}")])
    home.write("newer", [user("x")], version=5, file_name="session.v5.jsonl")
    for cwd in ("/a", "/b"):
        home.write("double", [user("x")], cwd=cwd)
    with home.write("deep", [user("x")]).open("a", encoding="utf-8") as file:
        file.write(NESTED)
    with home.write("broken", [user("x")]).open("a", encoding="utf-8") as file:
        file.write("junk\n" + event("turn/end", {"turn": 1}).line(1, 0).decode() + "\n")
    outside = home.write("linked", [user("x")])
    outside.rename(tmp_path / "elsewhere.jsonl")
    outside.symlink_to(tmp_path / "elsewhere.jsonl")
    return home


@asynccontextmanager
async def served(home: DshHome, *options: str) -> AsyncGenerator[Client]:
    command = [sys.executable, "-m", "sessionref.server", "serve", "--store", f"dsh:{home.path}", *options]
    caches = {"XDG_CACHE_HOME": str(home.path.parent / "cache")}
    with anyio.fail_after(30):
        async with spawn(command, env={**os.environ, **caches}) as client:
            yield client


async def failure(client: Client, references: Sequence[Any], **more: Any) -> SessionReferenceError:
    with pytest.raises(SessionReferenceError) as raised:
        await client.request(PREPARE, {"agentId": "me", "content": "x", "references": references, **more})
    return raised.value


def reference(name: str) -> dict[str, str]:
    return {"sessionId": name}


READ_FAILED = str(ErrorCode.READ_FAILED)


@pytest.mark.parametrize(
    ("references", "code", "data"),
    [
        ([{"sessionId": "one", "label": None}], ErrorCode.INVALID_REFERENCE, {"inputIndex": 0}),
        ([reference("one"), 5], ErrorCode.INVALID_REFERENCE, {"inputIndex": 1}),
        ([reference("me")], ErrorCode.SELF_REFERENCE, {"sessionId": "me", "inputIndex": 0}),
        ([reference(name) for name in ("one", "two", "three", "four")], ErrorCode.TOO_MANY, {"limit": 3, "actual": 4}),
        ([reference("none")], ErrorCode.READ_FAILED, {"reason": "not-found", "sessionId": "none", "inputIndex": 0}),
        ([reference("broken")], ErrorCode.READ_FAILED, {"reason": "corrupt", "sessionId": "broken", "inputIndex": 0}),
        (
            [reference("newer")],
            ErrorCode.READ_FAILED,
            {"reason": "newer-format", "sessionId": "newer", "inputIndex": 0},
        ),
        (
            [reference("double")],
            ErrorCode.READ_FAILED,
            {"reason": "duplicate-id", "sessionId": "double", "inputIndex": 0},
        ),
        (
            [reference("linked")],
            ErrorCode.READ_FAILED,
            {"reason": "outside-root", "sessionId": "linked", "inputIndex": 0},
        ),
    ],
)
async def test_a_failure_arrives_with_its_integer_and_its_facts(
    home: DshHome, references: list[Any], code: ErrorCode, data: dict[str, Any]
) -> None:
    async with served(home) as client:
        found = await failure(client, references)
        again = await client.prepare("me", "hello")
    assert (found.number, found.code, found.data) == (CODE_NUMBERS[code], code, {"code": str(code), **data})
    assert again.content == "hello"


async def test_a_log_that_crosses_a_limit_arrives_with_the_limit(home: DshHome) -> None:
    async with served(home) as client:
        found = await failure(client, [reference("deep")])
    assert (found.number, found.data["reason"], found.data["limit"]) == (-32015, "too-large", 512)


async def test_a_budget_that_is_too_small_arrives_with_both_sizes(home: DshHome) -> None:
    async with served(home, "--max-reference-bytes", "20") as client:
        found = await failure(client, [reference("one")])
    assert (found.number, found.code, found.data["limit"]) == (-32016, ErrorCode.BUDGET_EXCEEDED, 20)
    assert found.data["actual"] > 20


async def test_a_catalogue_of_models_that_is_missing_arrives_as_a_failed_lookup(home: DshHome, tmp_path: Path) -> None:
    async with served(home, "--model-catalogue", str(tmp_path / "none.toml")) as client:
        with pytest.raises(SessionReferenceError) as raised:
            await client.prepare("me", "x", references=[reference("one")], route=Route("p", "m"))
    assert (raised.value.number, raised.value.data) == (-32015, {"code": READ_FAILED, "reason": "model-lookup"})


async def test_a_time_out_arrives_as_cancelled_by_the_server(home: DshHome) -> None:
    async with served(home, "--request-timeout-seconds", "0.000001") as client:
        found = await failure(client, [reference("one")])
    assert (found.number, found.code, found.data["retryable"]) == (SERVER_CANCELLED, ErrorCode.CANCELLED, True)


async def test_a_setting_out_of_range_is_raised_where_the_server_is_spawned(home: DshHome) -> None:
    with pytest.raises(SessionReferenceError) as raised:
        async with served(home, "--max-references", "4"):
            pytest.fail("the server has begun")
    assert (raised.value.code, raised.value.number) == (ErrorCode.INVALID_CONFIG, -32011)
    assert "maxReferences" in raised.value.message
