"""Neovim's vim.lsp.rpc over standard streams: escaped slashes, several messages in one write, swallowed cancels."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from interop.peers import (
    PATIENCE_SECONDS,
    Calls,
    SlowSessions,
    assert_conversation,
    command_of_server,
    environment,
    missing,
)

SCRIPT = Path(__file__).parent / "neovim" / "conversation.lua"


@pytest.fixture(scope="session")
def neovim() -> str:
    """The program."""
    return shutil.which("nvim") or missing("nvim is not installed")


def run_neovim(neovim: str, folder: Path, settings: dict[str, Any]) -> Calls:
    report = folder / "report.json"
    own = {"INTEROP_SETTINGS": json.dumps(settings), "INTEROP_REPORT": os.fspath(report)}
    # It leaves logs and state in folders of its person.
    own |= {f"XDG_{kind}_HOME": os.fspath(folder) for kind in ("CACHE", "CONFIG", "DATA", "STATE")}
    done = subprocess.run(
        [neovim, "--headless", "-u", "NONE", "-i", "NONE", "-n", "-c", f"luafile {SCRIPT}"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        stdin=subprocess.DEVNULL,
        env=environment() | own,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: Calls = json.loads(report.read_text(encoding="utf-8"))
    assert "problem" not in seen, seen["problem"]
    assert seen["faults"] == {}
    return seen


def test_neovim_finds_and_prepares_and_ends_the_server_with_0(neovim: str, tmp_path: Path) -> None:
    calls = run_neovim(neovim, tmp_path, {"task": "calls", "command": command_of_server("--stdio")})
    assert_conversation(calls)
    assert len(set(calls["ids"])) == 4
    assert calls["exitCode"] == 0


def test_a_cancelled_request_of_neovim_ends_without_a_call_of_its_callback(
    neovim: str, tmp_path: Path, slow: SlowSessions
) -> None:
    command = command_of_server("--stdio", home=slow.home)
    calls = run_neovim(neovim, tmp_path, slow.settings(command=command))
    *earlier, last = calls["during"]
    assert last == "swallowed"
    assert all(outcome == "result" for outcome in earlier)
    assert calls["exitCode"] == 0
